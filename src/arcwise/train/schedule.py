"""The pace of training: the learning rate and the strength of the margin, pure functions of how far training is."""

from __future__ import annotations

import math

import torch

from arcwise.config import TrainConfig
from arcwise.heads import Head, LinearHead
from arcwise.optim import Inside


def rate(done: float, config: TrainConfig) -> float:
    """The share of `lr` when `done` epochs of training are over; every schedule begins with its warm-up.

    one-cycle rises to the peak in its warm-up (a quarter of training if none is given) and falls in a line;
    cosine falls as (1 + cos(pi t)) / 2, polynomial as (1 - t)^power, constant not at all.

    >>> config = TrainConfig(epochs=10, schedule="cosine", warmup=2.0)
    >>> [round(rate(done, config), 3) for done in (0.0, 1.0, 2.0, 6.0, 10.0)]
    [0.0, 0.5, 1.0, 0.5, 0.0]
    """
    warmup = config.warmup
    if config.schedule == "one-cycle" and warmup == 0.0:
        warmup = config.epochs / 4
    if done < warmup:
        return done / warmup
    t = min(1.0, (done - warmup) / max(config.epochs - warmup, 1e-9))
    if config.schedule == "constant":
        return 1.0
    if config.schedule == "cosine":
        left = 0.5 * (1.0 + math.cos(math.pi * t))
    else:
        left = (1.0 - t) ** (config.power if config.schedule == "polynomial" else 1.0)
    return config.final_lr + (1.0 - config.final_lr) * left


def margin_strength(done: float, config: TrainConfig) -> float:
    """How much of the margin holds after `done` epochs: from 0 to 1 over the margin's warm-up.

    >>> margin_strength(1.0, TrainConfig(margin_warmup=4.0))
    0.25
    """
    return 1.0 if config.margin_warmup == 0.0 else min(1.0, done / config.margin_warmup)


class Pace:
    """Sets, before every step, the learning rates of all parameters and how much of the margin holds.

    `heads` are the trained head and its average, where there is one: both are judged under the margin of the moment.
    """

    def __init__(
        self,
        config: TrainConfig,
        optimiser: torch.optim.Optimizer,
        inside: Inside | None,
        heads: list[Head | LinearHead],
        steps_per_epoch: int,
    ):
        self.config, self.optimiser, self.inside, self.heads = config, optimiser, inside, heads
        self.steps_per_epoch = steps_per_epoch
        self.lr, self.strength = 0.0, 1.0

    def lr_at(self, step: int) -> float:
        """The learning rate of a step, counted from 1."""
        return self.config.lr * rate(step / self.steps_per_epoch, self.config)

    def set(self, step: int) -> None:
        """Everything as it is to be in this step."""
        self.lr = self.lr_at(step)
        for group in self.optimiser.param_groups:
            group["lr"] = self.lr * group["share"]
        if self.inside is not None:
            self.inside.param_groups[0]["lr"] = self.lr * self.config.head_lr
            self.inside.refresh()  # a recorded step reads its learning rate on the device
        margins = [head for head in self.heads if isinstance(head, Head)]
        self.strength = margin_strength(step / self.steps_per_epoch, self.config) if margins else 1.0
        for head in margins:
            head.set_strength(self.strength)
