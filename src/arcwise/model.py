"""Returns the Embedder: backbone and neck in one module, saved in one file with its preprocessing and label names."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from arcwise.backbones import backbone
from arcwise.backbones.iresnet import DEPTHS
from arcwise.config import ModelConfig, from_values
from arcwise.errors import ArcwiseError
from arcwise.records import FORMAT, Run, tensors, write


@dataclass(frozen=True, slots=True, kw_only=True)
class Preprocessing:
    """What is done to an image before the network sees it: cut to a square, channels, (x / 255 - mean) / std."""

    side: int
    channels: int
    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __post_init__(self) -> None:
        if not len(self.mean) == len(self.std) == self.channels:
            raise ArcwiseError(f"mean and std need {self.channels} numbers each, got {self.mean} and {self.std}.")


class Neck(nn.Module):
    """The embedding: a linear layer, then batch norm if asked for. Named as insightface names its last two layers."""

    def __init__(self, features: int, dim: int, *, norm: bool):
        super().__init__()
        self.fc = nn.Linear(features, dim)
        self.features = nn.BatchNorm1d(dim, eps=1e-5) if norm else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return self.features(self.fc(x))


class Embedder(nn.Module):
    """Raw embeddings x (b, d) of normalised images; the length of x means quality to some margins.

    `names` are the classes it was trained on, `about` whatever else should travel with it.

    >>> grey = Preprocessing(side=28, channels=1, mean=(0.13,), std=(0.31,))
    >>> Embedder(ModelConfig(backbone="simple_cnn", dim=2), preprocessing=grey)(torch.zeros(3, 1, 28, 28)).shape
    torch.Size([3, 2])
    """

    def __init__(
        self,
        config: ModelConfig,
        *,
        preprocessing: Preprocessing,
        names: tuple[str, ...] = (),
        about: dict[str, Any] | None = None,
    ):
        super().__init__()
        self.config, self.preprocessing, self.names, self.about = config, preprocessing, names, about or {}
        self.backbone = backbone(
            config.backbone,
            channels=preprocessing.channels,
            side=preprocessing.side,
            dropout=config.dropout,
            pretrained=config.pretrained,
        )
        self.neck = Neck(self.backbone.features, config.dim, norm=config.norm)  # type: ignore[arg-type]

    @property
    def dim(self) -> int:
        """The dimension d of the embedding."""
        return self.config.dim

    def forward(self, x: Float[Tensor, "b channels h w"]) -> Float[Tensor, "b d"]:
        features = self.backbone(x)
        with torch.autocast(x.device.type, enabled=False):  # bf16 would round angles to a fifth of a degree
            return self.neck(features.float())

    def save(self, path: str | Path) -> Path:
        """The path of the one safetensors file that now holds weights, preprocessing, names and configuration."""
        meta = {
            "arcwise": str(FORMAT),
            "model": json.dumps(dataclasses.asdict(replace(self.config, pretrained=False))),
            "preprocessing": json.dumps(dataclasses.asdict(self.preprocessing)),
            "names": json.dumps(self.names),
            "about": json.dumps(self.about),
        }
        return write(Path(path), packed(self.state_dict(), meta))

    @classmethod
    def load(cls, path: str | Path, *, device: torch.device | str = "cpu") -> Embedder:
        """The model in a file that `save` wrote, in a Run's folder, or in insightface's checkpoint of a backbone.

        Nothing is unpickled but tensors, and no source file of the run is needed.
        """
        path = Path(path)
        if path.is_dir():
            path = finished_model(path)
        if path.suffix in (".pt", ".pth"):
            return from_insightface(path).to(device)
        weights, meta = read_weights(path)
        if "model" not in meta or "preprocessing" not in meta:
            raise ArcwiseError(
                f"{path} holds tensors but no arcwise model: it names neither network nor preprocessing."
            )
        if meta.get("arcwise") != str(FORMAT):
            raise ArcwiseError(f"{path} was written in format {meta.get('arcwise')}; this version reads {FORMAT}.")
        values = json.loads(meta["preprocessing"])
        preprocessing = Preprocessing(**{**values, "mean": tuple(values["mean"]), "std": tuple(values["std"])})
        config = from_values(ModelConfig, json.loads(meta["model"]), where="model.")
        names, about = tuple(json.loads(meta.get("names", "[]"))), json.loads(meta.get("about", "{}"))
        model = cls(config, preprocessing=preprocessing, names=names, about=about)
        return put(model, weights, path).to(device)


def packed(tensors: dict[str, Tensor], meta: dict[str, str] | None = None) -> bytes:
    """Tensors, wherever they are, as the content of a safetensors file."""
    from safetensors.torch import save

    return save({name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}, metadata=meta)


def some_rows(n: int, most: int) -> Int[np.ndarray, " m"]:
    """At most so many rows of n, spread evenly, always the same.

    >>> some_rows(10, 4)
    array([0, 3, 6, 9])
    """
    return np.unique(np.linspace(0, n - 1, min(n, most)).round().astype(np.int64))


def finished_model(folder: Path) -> Path:
    """The model of a Run, or the error that says how to finish it."""
    run = Run.open(folder)
    if not run.model.is_file():
        raise ArcwiseError(f"{folder} has no finished model yet. Go on with: {run.resume_command}")
    return run.model


def read_weights(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors and the metadata of a safetensors file."""
    missing = f"there is no model {path}. Train one with: arcwise train digits-2d"
    return tensors(path, framework="pt", what="a model", missing=missing)


def put(model: Embedder, weights: dict[str, Tensor], path: Path) -> Embedder:
    """The model with these weights, every one of them used."""
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        raise ArcwiseError(f"the weights in {path} do not fit {model.config.backbone}: {error}") from None
    return model.eval()


def from_insightface(path: Path) -> Embedder:
    """The Embedder of an insightface backbone checkpoint; which iresnet it is follows from its layers.

    Its layers bear the names they have here, below `backbone.` and, for the last two, `neck.`.
    """
    if not path.is_file():
        raise ArcwiseError(f"there is no checkpoint {path}.")
    try:
        weights = torch.load(path, map_location="cpu", weights_only=True)
        blocks = tuple(len({n.split(".")[1] for n in weights if n.startswith(f"layer{i}.")}) for i in range(1, 5))
        dim, features = weights["fc.weight"].shape
        channels = weights["conv1.weight"].shape[1]
    except Exception as error:  # pickle raises nearly anything
        raise ArcwiseError(f"{path} is no checkpoint of an insightface backbone ({error!r}).") from None
    name = next((name for name, depths in DEPTHS.items() if depths == blocks), None)
    if name is None:
        raise ArcwiseError(f"{path} has {blocks} blocks in its stages, which is none of {', '.join(DEPTHS)}.")
    side = round((features / 512) ** 0.5) * 16
    middle = (0.5,) * channels  # insightface feeds (x - 127.5) / 127.5
    model = Embedder(
        ModelConfig(backbone=name, dim=dim, norm=True),
        preprocessing=Preprocessing(side=side, channels=channels, mean=middle, std=middle),
        about={"from": path.name},
    )
    last = ("fc.", "features.")
    return put(model, {("neck." if n.startswith(last) else "backbone.") + n: v for n, v in weights.items()}, path)
