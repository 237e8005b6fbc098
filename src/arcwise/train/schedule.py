"""Returns the learning rate and the strength of the margin at a step: pure functions of how far training is."""

from __future__ import annotations

import math

from arcwise.config import TrainConfig


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
