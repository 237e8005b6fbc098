"""What processes train together in test_together.py; apart, so that a process that is spawned imports nothing else."""

from __future__ import annotations

import os

import numpy as np
import torch
from torch import nn

import arcwise
from arcwise.errors import Interrupted
from arcwise.train import loop
from arcwise.train.pieces import full
from arcwise.weights import load_tensors

SETTINGS = (
    "train.epochs=4", "train.batch=32", "train.lr=0.05", "train.checkpoint_every=0", "train.ema=0.9", "data.shift=1",
    "data.rotate=0", "data.flip=true", "data.cutout=2", "train.clip=1", "train.accumulate=2",
)  # fmt: skip


class Wide(nn.Module):
    """A network in float64, without batch norm and dropout: nothing in it depends on who shares the batch."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.layers = nn.Sequential(nn.Linear(64, 24), nn.Tanh(), nn.Linear(24, 5)).double()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x.double().flatten(1))


def digits():
    """Some digits, two parts of them."""
    found = arcwise.load("digits").train
    rows = np.arange(0, 410)
    return {
        "train": (found.pixels[rows[:330]], found.y[rows[:330]]),
        "test": (found.pixels[rows[330:]], found.y[rows[330:]]),
    }


def head_of(margin, classes=10):
    """A head in float64, its classes spread over the processes where there are several."""
    import torch.distributed as dist

    several = int(os.environ.get("WORLD_SIZE", "1")) > 1
    if several and not dist.is_initialized():
        dist.init_process_group("gloo")
    head = arcwise.Head(5, classes, margin=margin, s=8.0, shard=several).double()
    head.put_whole_weight(torch.randn(classes, 5, generator=torch.Generator().manual_seed(9), dtype=torch.float64))
    head.draw_by(5)
    return head


def train_wide(out, margin="arcface", stop=None, settings=()):
    """Trains, to the end or to a step, and says what the weights are."""
    network, head = Wide(), head_of(margin)
    found = train_until(out, [*SETTINGS, *settings], stop, model=network, head=head, data=digits())
    if found == "interrupted":
        return found
    weights = {name: full(value).numpy() for name, value in network.state_dict().items()}
    return weights | {"w": head.whole_weight().numpy()}


def train_until(out, settings, stop, **given):
    """Trains, to the end or to a step, and says how it ended."""
    kept = loop.Trainer.save_if_due
    if stop is not None:

        def saving(self, signals):
            if self.progress.step >= stop:
                signals.asked = 15
            kept(self, signals)

        loop.Trainer.save_if_due = saving
    try:
        return arcwise.train("digits-2d", out, settings=list(settings), resume=True, device="cpu", **given).result
    except Interrupted:
        return "interrupted"
    finally:
        loop.Trainer.save_if_due = kept


def train_plain(out, settings, recipe="digits-2d"):
    """A recipe, as the command line trains it; the words of what it refuses."""
    try:
        return arcwise.train(recipe, out, settings=list(settings), resume=True, device="cpu").result
    except arcwise.errors.ArcwiseError as error:
        return type(error).__name__, str(error)


def tensors_of(path):
    return {name: value.numpy() for name, value in load_tensors(path)[0].items()}
