"""The Embedder: backbone and neck in one module, saved in one file with its preprocessing and label names."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn

from arcwise.backbones import build_backbone
from arcwise.backbones.iresnet import read_insightface
from arcwise.config import ModelConfig, from_values
from arcwise.data.loader import as_tensor
from arcwise.data.transforms import normalise_pixels
from arcwise.errors import ArcwiseError
from arcwise.networks import OWN, own_config, refuse_own
from arcwise.records import FORMAT, Preprocessing, Run, errors_name, meta_json, rows_of
from arcwise.schema import many, table, text, truth
from arcwise.views import in_evaluation
from arcwise.weights import TORCH_DTYPES, load_tensors, put_state, refuse_not_finite, save_tensors, tensor_entry

IMAGES_AT_ONCE = 512
# What else a model's file tells: the configuration it was trained with.
ABOUT_MODEL = table(may={
    "config": table(may={"data": table({"source": text}), "train": table(may={"mirror": truth})}), "images": text,
})  # fmt: skip


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

    `names` are the classes it was trained on, `about` whatever else should travel with it. A `network` of your own,
    (b, channels, side, side) -> (b, d), is taken as it is, without a neck. An Embedder is an `Encoder`.

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
        network: nn.Module | None = None,
    ):
        super().__init__()
        self.config, self.preprocessing, self.names, self.about = config, preprocessing, names, about or {}
        self.neck: nn.Module
        if network is not None:
            self.backbone, self.neck = network, nn.Identity()
            self.config = own_config(network, preprocessing)
        else:
            refuse_own(config.backbone)
            look = {"channels": preprocessing.channels, "side": preprocessing.side}
            self.backbone = build_backbone(
                config.backbone, **look, dropout=config.dropout, pretrained=config.pretrained
            )
            self.neck = Neck(self.backbone.features, config.dim, norm=config.norm)  # type: ignore[arg-type]

    @property
    def dim(self) -> int:
        """The dimension d of the embedding."""
        return self.config.dim

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(iter(self.parameters()), torch.zeros(0)).device

    def forward(self, x: Float[Tensor, "b channels h w"]) -> Float[Tensor, "b d"]:
        features = self.backbone(x)
        with torch.autocast(x.device.type, enabled=False):  # bf16 would round angles to a fifth of a degree
            return self.neck(single(features))

    @torch.inference_mode()
    def encode_batch(
        self, x: Float[Tensor, "b channels h w"], *, mirror: bool = False, amp: bool = False
    ) -> Float[Tensor, "b d"]:
        """The float32 embeddings of one normalised batch, in evaluation mode; `mirror` adds those of the mirror images.

        `amp` computes in bf16 where a GPU has it: faster, and angles move by a tenth of a degree or so.
        """
        view = in_evaluation(self)
        with torch.autocast(x.device.type, dtype=torch.bfloat16, enabled=amp and has_bf16(x.device)):
            out = view(x).float()
            return out + view(x.flip(3)).float() if mirror else out

    def encode(self, pixels: UInt8[np.ndarray, "n h w channels"]) -> Float[np.ndarray, "n d"]:
        """The raw float32 embeddings of images of the model's own side and channels, whatever mode the model is in.

        >>> grey = Preprocessing(side=8, channels=1, mean=(0.3,), std=(0.4,))
        >>> Embedder(ModelConfig(dim=2), preprocessing=grey).encode(np.zeros((3, 8, 8, 1), np.uint8)).shape
        (3, 2)
        """
        self.preprocessing.admit_pixels(pixels)
        out = np.empty((len(pixels), self.dim), np.float32)
        for start in range(0, len(pixels), IMAGES_AT_ONCE):
            some = slice(start, start + IMAGES_AT_ONCE)
            batch = as_tensor(pixels[some]).to(self.device)
            x = normalise_pixels(batch, self.preprocessing.mean, self.preprocessing.std)
            try:
                out[some] = self.encode_batch(x).cpu().numpy()
            except RuntimeError:
                refuse_other_precision(self)
                raise
        return out

    def embed(self, images: Any) -> Float[np.ndarray, "n d"]:
        """The raw float32 embeddings of images as they come: paths, bytes, Pillow's, bytes in arrays or tensors.

        One image or many; each is framed as the preprocessing says. `arcwise.embed` also takes whole data sets.

        >>> grey = Preprocessing(side=8, channels=1, mean=(0.3,), std=(0.4,))
        >>> Embedder(ModelConfig(dim=2), preprocessing=grey).embed(np.zeros((20, 30, 3), np.uint8)).shape
        (1, 2)
        """
        return rows_of(self, images)

    @property
    def fingerprint(self) -> str:
        """The SHA-256 of weights, network and preprocessing; names, dates and what else is in the file do not enter.

        Of a network of your own the classes of its layers enter, not the text of their `forward` nor plain attributes.
        """
        sha = hashlib.sha256()
        network = {"backbone": self.config.backbone, "dim": self.config.dim, "norm": self.config.norm}
        if self.config.backbone.startswith(OWN):  # other layers between equal weights are another function
            network["layers"] = [f"{name} {type(layer).__name__}" for name, layer in self.backbone.named_modules()]
        sha.update(json.dumps([network, dataclasses.asdict(self.preprocessing)], sort_keys=True).encode())
        for name, value in sorted(self.state_dict().items()):
            if not name.endswith("num_batches_tracked"):  # counts steps, and changes no embedding
                sha.update(f"{name} {TORCH_DTYPES[value.dtype]} {list(value.shape)}".encode())
                for piece in tensor_entry(value).pieces():
                    sha.update(piece)
        return sha.hexdigest()

    def save(self, path: str | Path) -> Path:
        """The path of the one safetensors file that now holds weights, preprocessing, names and configuration."""
        meta = {
            "arcwise": str(FORMAT),
            "model": json.dumps(dataclasses.asdict(replace(self.config, pretrained=False))),
            "preprocessing": json.dumps(dataclasses.asdict(self.preprocessing)),
            "names": json.dumps(self.names),
            "about": json.dumps(self.about),
        }
        return save_tensors(path, self.state_dict(), meta)

    @classmethod
    def load(
        cls, path: str | Path, *, device: torch.device | str = "cpu", network: nn.Module | None = None
    ) -> Embedder:
        """The model in a file that `save` wrote, in a Run's folder, or in insightface's checkpoint of a backbone.

        Nothing is unpickled but tensors, and no source file of the run is needed, unless the `network` was your own.
        """
        path = Path(path)
        if path.is_dir():
            path = finished_model(path)
        if path.suffix in (".pt", ".pth"):
            return from_checkpoint(path).to(device)
        if path.suffix == ".onnx":
            raise ArcwiseError(f"{path} is an exported model: open it with arcwise.load_encoder({str(path)!r}).")
        weights, meta = load_tensors(path)
        if "model" not in meta or "preprocessing" not in meta:
            raise ArcwiseError(
                f"{path} holds tensors but no arcwise model: it names neither network nor preprocessing."
            )
        if meta.get("arcwise") != str(FORMAT):
            raise ArcwiseError(f"{path} was written in format {meta.get('arcwise')}; this version reads {FORMAT}.")
        with errors_name(path):
            refuse_not_finite(weights)
            about = meta_json(meta, "about", ABOUT_MODEL, without="{}")
            names = tuple(meta_json(meta, "names", many(text), without="[]"))
            look = Preprocessing.from_values(
                earlier_framing(about) | meta_json(meta, "preprocessing", table(), without="{}")
            )
            config = from_values(ModelConfig, meta_json(meta, "model", table(), without="{}"), where="model.")
            config = replace(config, pretrained=False)  # its weights are here: nothing is fetched for it
            model = cls(config, preprocessing=look, names=names, about=about, network=network)
            put_state(model, weights, model.config.backbone)
            return model.eval().to(device)


def single(x: Tensor) -> Tensor:
    """In float32, or as it is where that is more.

    >>> single(torch.zeros(1, dtype=torch.float64)).dtype
    torch.float64
    """
    return x if x.dtype == torch.float64 else x.float()


def has_bf16(device: torch.device) -> bool:
    """Whether the device computes bf16 in hardware at full speed."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    found = (getattr(torch.cpu, f"_is_{unit}_supported", None) for unit in ("avx512_bf16", "amx_tile"))
    return device.type == "cpu" and any(ask() for ask in found if ask is not None)


# ------------------------------------------------------------------------------------ files


def finished_model(folder: Path) -> Path:
    """The model of a Run, or the error that says how to finish it."""
    run = Run.open(folder)
    if not run.model.is_file():
        raise ArcwiseError(f"{folder} has no finished model yet. Go on with: {run.resume_command}")
    return run.model


def refuse_other_precision(model: nn.Module) -> None:
    """Raises where weights are not float32, which images are handed over in."""
    for name, weight in model.named_parameters():
        if weight.dtype != torch.float32:
            raise ArcwiseError(
                f"the weights are {str(weight.dtype).removeprefix('torch.')} ({name}), and images come in float32: "
                "call model.float() first."
            )


def earlier_framing(about: Mapping[str, Any]) -> dict[str, str]:
    """How images were framed for a model whose file does not tell it: folders cropped, arrays stretched."""
    with contextlib.suppress(AttributeError, KeyError, TypeError):
        if not str(about["config"]["data"]["source"]).startswith("folder"):
            return {"fit": "stretch", "resample": "bilinear"}
    return {"fit": "crop", "resample": "bicubic"}


def from_checkpoint(path: Path) -> Embedder:
    """The Embedder of an insightface backbone checkpoint."""
    found = read_insightface(path)
    middle = (0.5,) * found.channels  # insightface feeds (x - 127.5) / 127.5
    model = Embedder(
        ModelConfig(backbone=found.name, dim=found.dim, norm=True),
        preprocessing=Preprocessing(side=found.side, channels=found.channels, mean=middle, std=middle),
        about={"from": path.name},
    )
    with errors_name(path):
        refuse_not_finite(found.weights)
        put_state(model, found.weights, model.config.backbone)
    return model.eval()
