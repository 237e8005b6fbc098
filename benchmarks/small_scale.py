"""How often two classes stay together when s is small: ArcFace on five digits in the plane, short runs.

    python benchmarks/small_scale.py              a few minutes on two cores
    python benchmarks/small_scale.py --seeds 3    a first look

A run is a few hundred steps of AdamW on 721 digits of 8 x 8, the learning rate falling; classes are "together" when
their means end less than 30 degrees apart (at best 72). Beside each s is the rate at which two classes that begin at
one place part, s p, as `arcwise advise` has it.
"""

from __future__ import annotations

import argparse
import math

import torch
from torch import nn

import arcwise
from arcwise.advise import parting_rate

SCALES = (0.5, 1.0, 2.0, 4.0, 8.0)
RATES = (5e-4, 2e-3, 8e-3)
EPOCHS, BATCH, TOGETHER = 12, 64, math.radians(30.0)


def closest_means(images: torch.Tensor, y: torch.Tensor, *, s: float, lr: float, seed: int, m: float) -> float:
    """The smallest angle between class means after a short run."""
    torch.manual_seed(seed)
    net = nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(512, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 2),
    )  # fmt: skip
    head = arcwise.Head(2, 5, margin=arcwise.margins.ArcFace(m=m), s=s)
    optimiser = torch.optim.AdamW([*net.parameters(), *head.parameters()], lr=lr)
    total = EPOCHS * (len(y) // BATCH)
    falling = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: 1.0 - step / total)
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(y))[: len(y) // BATCH * BATCH].split(BATCH):
            optimiser.zero_grad()
            head(net(images[rows]), y[rows]).backward()
            optimiser.step()
            falling.step()
    with torch.no_grad():
        x = nn.functional.normalize(net.eval()(images))
        means = nn.functional.normalize(torch.stack([x[y == c].mean(dim=0) for c in range(5)]))
        cos = (means @ means.T).fill_diagonal_(-1.0)
    return math.acos(min(1.0, float(cos.max())))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=40)
    parser.add_argument("--m", type=float, default=0.5)
    args = parser.parse_args()
    train = arcwise.load("digits[0-4]").train
    images = torch.as_tensor(train.pixels).permute(0, 3, 1, 2) / 255.0
    y = torch.as_tensor(train.y)
    print(f"m = {args.m:g}, {args.seeds} seeds: runs in which two classes of five stayed together\n")
    print("|   s | s p  | " + " | ".join(f"lr {lr:g}" for lr in RATES) + " |\n| --: | ---: | " + "---: | " * len(RATES))
    for s in SCALES:
        found = [
            [closest_means(images, y, s=s, lr=lr, seed=seed, m=args.m) < TOGETHER for seed in range(args.seeds)]
            for lr in RATES
        ]
        rate = parting_rate(s, classes=5, dim=2, m=args.m)
        print(
            f"| {s:3g} | {rate:.2f} | " + " | ".join(f"{sum(many)} of {len(many)}" for many in found) + " |", flush=True
        )


if __name__ == "__main__":
    main()
