"""Readers of tensors, images and caches: functions from a folder with templates to what was read of them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from arcwise.records import Embeddings, Prototypes, Run
from hostile.limits import no_network
from hostile.read_runs import splits_of_templates


def model(folder: Path, kit: Any) -> object:
    """The Embedder, one embedding of it, and what `arcwise embed` asks it."""
    from arcwise.cli.embed import source_config
    from arcwise.errors import ArcwiseError
    from arcwise.model import Embedder

    found = Embedder.load(folder / "run" / "model.safetensors")
    look = found.preprocessing
    if look.side <= 64:
        pixels = np.zeros((1, look.side, look.side, look.channels), np.uint8)
        found.encode(pixels)
    for part in ("all", "test"):
        with contextlib.suppress(ArcwiseError):
            source_config(found, "folder:pictures", part)
    return found.fingerprint, found.names, found.about, found.config, look


def trainer(place: str) -> Callable[[Path], Any]:
    """What makes network, head and optimiser of an unfinished Run."""

    def prepare(folder: Path) -> Any:
        import torch

        from arcwise.train.loop import Trainer

        run = Run.open(folder / place)
        return Trainer(run, run.settings, splits_of_templates(folder), device=torch.device("cpu"))

    return prepare


def checkpoint(place: str) -> Callable[[Path, Any], object]:
    """A reader of the state of training that is put back."""

    def read(folder: Path, kit: Any) -> object:
        from arcwise.train.checkpoint import restore_checkpoint

        found = restore_checkpoint(Run(folder / place), kit.modules, kit.optimisers, kit.device, total=kit.total)
        return (
            found.progress,
            {name: module.state_dict() for name, module in kit.modules.items()},
            kit.optimiser.state_dict(),
        )

    return read


def summed_anew(folder: Path, kit: Any) -> object:
    """The same of a folder, after somebody has told state.json the checksum that the shard bears now."""
    import json

    from arcwise.train.spread import sum_of

    for path in (folder / "spread/checkpoints").glob("step-*/*.safetensors"):
        told = json.loads((path.parent / "state.json").read_text())
        with contextlib.suppress(ValueError):
            told["crc32"][path.name] = sum_of(path)
        (path.parent / "state.json").write_text(json.dumps(told))
    return checkpoint("spread")(folder, kit)


def best_weights(folder: Path, kit: Any) -> object:
    """The best weights that are put back."""
    from arcwise.train.results import put_best

    put_best(Run(folder / "unfinished"), kit.final, kit.progress.best_epoch)
    return kit.final.state_dict()


def embeddings(folder: Path, kit: Any) -> object:
    """The record."""
    return Embeddings.load(folder / "run" / "embeddings" / "test.safetensors")


def embeddings_measured(folder: Path, kit: Any) -> object:
    """The numbers that `arcwise evaluate` gives of two files and a Run's centres."""
    from arcwise.metrics.summary import all_metrics, finite_or_null

    run = Run(folder / "run")
    return finite_or_null(all_metrics(run.embeddings("test"), run.embeddings("unseen"), run.prototypes()))


def prototypes(folder: Path, kit: Any) -> object:
    """The record."""
    found = Prototypes.load(folder / "run" / "prototypes" / "final.safetensors")
    return found, found.scale, found.linear, found.head.label


def snapshots(folder: Path, kit: Any) -> object:
    """The snapshots as a film and the interactive view take them."""
    from arcwise.figures.canvas import CLASS_COLOURS
    from arcwise.report.make import animation_track, subject_of
    from arcwise.study.viewer import viewer_data

    about = subject_of(folder / "run")
    return len(viewer_data(about, CLASS_COLOURS)), animation_track(about, about.heads[0], "test") is None


# ---------------------------------------------------------------------------------------------- images and their caches


def fetched(folder: Path, kit: Any) -> object:
    """A public set from the cache; nothing else may give it."""
    from arcwise.data.fetch import fetch_arrays

    with no_network():
        return fetch_arrays("cifar100", data_dir=folder / "cache")


def decoded(folder: Path, kit: Any) -> object:
    """The pictures from the folder's cache."""
    from arcwise.data import load

    found = load("folder:pictures", size=8, data_dir=folder / "cache")
    every = [(name, np.asarray(part.pixels), part.y, part.names, part.files) for name, part in found.parts.items()]
    return every, found.fingerprint


def table(folder: Path, kit: Any) -> object:
    """The images that a CSV names."""
    from arcwise.data.folder import list_images

    found = list_images(folder / "table")
    return found, found.names


def table_loaded(folder: Path, kit: Any) -> object:
    """The same, decoded."""
    from arcwise.data import load

    found = load(f"folder:{folder / 'table'}", size=8, data_dir=folder / "cache", test=0.3)
    return [np.asarray(part.pixels).shape for part in found.parts.values()]


class Looker:
    """An Encoder that only looks: the mean of each channel."""

    dim, fingerprint = 3, "looker"

    def __init__(self) -> None:
        from arcwise.records import Preprocessing

        self.preprocessing = Preprocessing(side=8, channels=3, mean=(0.5,) * 3, std=(0.5,) * 3)

    def encode(self, pixels: np.ndarray) -> np.ndarray:
        return pixels.mean(axis=(1, 2), dtype=np.float32)


def image(name: str) -> Callable[[Path, Any], object]:
    """A reader of one image, as bytes and as a file."""

    def read(folder: Path, kit: Any) -> object:
        from arcwise.embed import embed

        path = folder / "images" / name
        return embed(Looker(), [path.read_bytes(), path]).x

    return read


def stopped(folder: Path, kit: Any) -> object:
    """Embedding into a file, gone on with; as the templates are made `kit` stops it."""
    from arcwise.embed import embed_into

    images, out = [f"pictures/{name}/{i}.png" for name in "abc" for i in range(4)], folder / "stopped/all.safetensors"
    embed_into(out, Looker(), images, batch=2, tell=kit)
    return Embeddings.load(out)


def insight(name: str) -> Callable[[Path, Any], object]:
    """A reader of one checkpoint of insightface."""

    def read(folder: Path, kit: Any) -> object:
        from arcwise.model import Embedder

        return Embedder.load(folder / "insight" / name).config

    return read
