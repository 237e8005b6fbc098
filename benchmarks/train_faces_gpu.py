"""Images per second of the whole training step: iresnet50, 112 x 112, 93,431 classes, batch 512, on one GPU.

    python benchmarks/train_faces_gpu.py

The step is the trainer's own: forward in bf16, the exact ArcFace head, backward, the finite check, clipping, SGD.
Images are random and lie on the device, as a cache of decoded images would deliver them.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from arcwise.config import override
from arcwise.data import Images, Splits
from arcwise.recipes import recipe
from arcwise.records import Run
from arcwise.train.device import device_for, fast_products
from arcwise.train.loop import Trainer
from arcwise.train.setup import resolve

CLASSES = 93_431


def timed(trainer: Trainer, epoch: int) -> float:
    """Seconds per step over one epoch, from the pixels on the device to the moved weights."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    for batch in trainer.epoch_batches(epoch, 0):
        trainer.step(batch)
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / trainer.steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--set", action="append", default=[], help="a setting, as for arcwise train")
    args = parser.parse_args()
    config = override(recipe("faces-r50"), [f"train.batch={args.batch}", *args.set])
    random = np.random.default_rng(0)
    pixels = random.integers(0, 256, (8 * args.batch, 112, 112, 3), dtype=np.uint8)
    names = tuple(map(str, range(CLASSES)))
    images = Images(pixels=pixels, y=random.integers(0, CLASSES, len(pixels)), names=names)
    splits = Splits(train=images, test=images)
    device = device_for("cuda")
    config = resolve(replace(config, recipe="faces-r50"), splits)
    with tempfile.TemporaryDirectory() as folder, fast_products(device):
        trainer = Trainer(Run(Path(folder)), config, splits, device=device)
        trainer.enter_epoch(0)
        began = time.perf_counter()
        blocks = [timed(trainer, epoch) for epoch in range(args.steps // trainer.steps)]
        print(f"first {trainer.steps} steps {blocks[0] * trainer.steps:.1f} s, all {time.perf_counter() - began:.1f} s")
        print(f"first step out of bounds: {trainer.guard.failed_at()}")
    steady = statistics.median(blocks[len(blocks) // 3 :])
    gib = torch.cuda.max_memory_allocated() / 2**30
    print(
        f"{torch.cuda.get_device_name()}, torch {torch.__version__}: {args.batch / steady:,.0f} images/s "
        f"({1e3 * steady:.1f} ms a step, {gib:.1f} GiB) {' '.join(args.set)}"
    )


if __name__ == "__main__":
    main()
