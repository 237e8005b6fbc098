"""`arcwise embed`: writes the embeddings of a source's images under a saved model."""

from __future__ import annotations

import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from arcwise.cli.progress import Counter, byte_text, image_text
from arcwise.config import DataConfig, from_values
from arcwise.errors import ArcwiseError, one_of
from arcwise.records import Embeddings, Run
from arcwise.records.folders import is_run

if TYPE_CHECKING:
    from arcwise.model import Embedder


def embed_command(
    model: Path,
    data: str,
    /,
    *,
    out: Path = Path("embeddings.safetensors"),
    part: str = "all",
    device: str = "auto",
    data_dir: Path | None = None,
) -> None:
    """Write the embeddings of images into one file.

    Parameters
    ----------
    model
        A run's folder, a model.safetensors, or insightface's .pth.
    data
        The images, as in mnist[5-9] or folder:PATH.
    out
        Where the embeddings go.
    part
        all of the source's images, or the part of them that the model was given as train, validation, test or unseen.
    device
        auto, cpu, cuda or cuda:1.
    data_dir
        Where data sets are cached, in place of $ARCWISE_DATA.
    """
    one_of("part", part, ("all", "train", "validation", "test", "unseen"))
    refuse_places(out)
    from arcwise.data.sources import load, load_whole
    from arcwise.embed import embed
    from arcwise.model import Embedder
    from arcwise.train.device import device_for

    embedder = Embedder.load(model, device=device_for(device))
    config = data_config(embedder, data, part)
    counter = Counter(image_text if data.startswith("folder") else byte_text)
    if part == "all":
        wanted, broken = load_whole(config, data_dir=data_dir, tell=counter)
    else:
        splits = load(config, data_dir=data_dir, tell=counter)
        wanted, broken = splits.part(part), splits.broken
    counter = Counter(image_text)
    told = {"source": data, "part": part}
    mirror = embedder.about.get("config", {}).get("train", {}).get("mirror", False)
    found = embed(
        embedder, wanted, mirror=mirror, about=told, tell=lambda done, total: counter("embedding", done, total)
    )
    found.save(out)
    for name, reason in broken.items():
        print(f"skipped {name}: {reason}", file=sys.stderr)
    print(f"{out}: {len(found.x):,} embeddings of {found.dim} dimensions, {len(found.names)} classes")
    centres = f" --prototypes {shlex.quote(str(model))}" if Run(model).exists() else ""
    print(f"Next: arcwise evaluate {shlex.quote(str(out))}{centres}")


def refuse_places(out: Path) -> None:
    """Raises where embeddings do not belong: over any file but embeddings, in a run but beside its own."""
    whole = out.resolve()
    if not whole.parent.is_dir():
        raise ArcwiseError(f"there is no folder {out.parent}: make it first, or choose another --out.")
    if whole.is_dir():
        raise ArcwiseError(f"{out} is a folder: name a file, such as {out / 'embeddings.safetensors'}.")
    if whole.exists() and not is_embeddings(whole):
        raise ArcwiseError(f"{out} is there and holds no embeddings: choose another --out.")
    for folder in whole.parents:
        if is_run(folder) and whole.parent != folder / "embeddings":
            raise ArcwiseError(f"{folder} is a run: embeddings in it go to {folder / 'embeddings' / whole.name}.")


def is_embeddings(path: Path) -> bool:
    """Whether a file holds embeddings, or once did."""
    try:
        Embeddings.load(path)
    except ArcwiseError:
        return path.parent.name == "embeddings" and is_run(path.parent.parent)
    return True


def data_config(embedder: Embedder, data: str, part: str) -> DataConfig:
    """The data as the model wants it; parts are cut as they were when it was trained."""
    look, trained = embedder.preprocessing, embedder.about.get("config", {}).get("data")
    framed = {"size": look.side, "channels": look.channels, "fit": look.fit, "resample": look.resample}
    if part == "all":
        return DataConfig(source=data, **framed)
    if not trained or trained["source"] != data:
        raise ArcwiseError(
            f"the model was not trained on {data}, so it has no {part} images there. Leave --part out for all images."
        )
    return replace(from_values(DataConfig, trained, where="data."), **framed)
