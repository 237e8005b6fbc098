"""Returns what a run leaves behind: its model, embeddings and final numbers, and snapshots on the way."""

from __future__ import annotations

import contextlib
import json
from typing import Any

from torch import nn

from arcwise.data import Splits
from arcwise.embed import embed
from arcwise.heads import Head, LinearHead
from arcwise.model import Embedder, packed, read_weights, some_rows
from arcwise.records import Embeddings, Run, write
from arcwise.train.evaluate import judged, with_prototypes

SNAPSHOT, OF_TRAINING = 5_000, 2_000  # points of a split that are kept of each epoch


def pair(both: nn.Module) -> tuple[Embedder, Head | LinearHead]:
    """The network and the head of a module that holds both."""
    return both["embedder"], both["head"]  # type: ignore[index, return-value]


def snapshot(
    run: Run, both: nn.Module, splits: Splits, epoch: int, origin: dict[str, Any], known: dict[str, Embeddings]
) -> None:
    """Embeddings of some images of every split after an epoch, for animations, in half precision.

    `known` holds those of whole splits that are there already.
    """
    model, head = pair(both)
    for part, images in splits.parts.items():
        if part != "unseen":
            rows = some_rows(len(images), OF_TRAINING if part == "train" else SNAPSHOT)
            whole = known.get(part)
            x = embed(model, images.take(rows)).x if whole is None else whole.x[rows]
            found = Embeddings(x=x, y=images.y[rows], names=images.names, index=rows)
            about = {"part": part, "epoch": epoch, **origin, **judged(head, found)}
            path = run.path / "embeddings" / f"{part}-epoch-{epoch:03d}.safetensors"
            with_prototypes(found, head, about).save(path, half=True)


def finish(
    run: Run, both: nn.Module, splits: Splits, facts: dict[str, Any], origin: dict[str, Any], *, mirror: bool
) -> dict[str, Any]:
    """The final numbers, once the model, the embeddings and last of all metrics.json are in the run's folder."""
    model, head = pair(both)
    model.save(run.model)
    metrics: dict[str, Any] = {}
    for part, images in splits.parts.items():
        if part == "train":
            continue
        found = embed(model, images, mirror=mirror)
        if part != "unseen":
            metrics[part] = judged(head, found)
        with_prototypes(found, head, {"part": part, **origin}).save(run.path / "embeddings" / f"{part}.safetensors")
    parameters = sum(p.numel() for p in model.parameters())
    metrics |= {**facts, "parameters": parameters, "broken_images": len(splits.broken)}
    (run.path / "figures").mkdir(exist_ok=True)
    write(run.path / "metrics.json", json.dumps(metrics, indent=1))
    return metrics


def keep_best(run: Run, both: nn.Module, epoch: int) -> None:
    """The weights with the best validation accuracy so far, beside the checkpoints; the ones before are let go."""
    path = write(run.path / "checkpoints" / f"best-{epoch:04d}.safetensors", packed(both.state_dict()))
    for old in path.parent.glob("best-*.safetensors"):
        if old.name < path.name:
            with contextlib.suppress(OSError):
                old.unlink()


def put_best(run: Run, both: nn.Module, epoch: int) -> None:
    """Gives the network and the head the weights of that epoch."""
    path = run.path / "checkpoints" / f"best-{epoch:04d}.safetensors"
    if path.is_file():
        both.load_state_dict(read_weights(path)[0])
