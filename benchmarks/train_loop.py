"""How fast the training loop is, from the pixels to the moved weights, beside a plain torch DataLoader loop.

    python benchmarks/train_loop.py

Both sides train the network of mnist5-2d with the ArcFace head at the same batch size on the same images, with AdamW.
The plain side is what tutorials show: a Dataset that turns one sample at a time into a tensor, normalises it and shifts
it by up to two pixels, and a DataLoader, with no workers or with one per core, whichever is faster. Ours does the same
to whole batches. Rounds alternate; the ratio is that of the medians. The last lines give both memory formats.
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
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from arcwise.config import Config, override
from arcwise.data import Images, Splits, load
from arcwise.recipes import recipe
from arcwise.records import Run
from arcwise.train.loop import Trainer


class Samples(Dataset):
    """One image at a time: to a tensor, normalised, shifted at random."""

    def __init__(self, images: Images, config: Config, mean: float, std: float):
        self.images, self.shift, self.mean, self.std = images, config.data.shift, mean, std

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, row: int) -> tuple[Tensor, int]:
        x = torch.from_numpy(self.images.pixels[row]).permute(2, 0, 1).float().div(255)
        x = (x - self.mean) / self.std
        if self.shift:
            side = x.shape[1]
            x = torch.nn.functional.pad(x.unsqueeze(0), [self.shift] * 4, mode="reflect").squeeze(0)
            top, left = torch.randint(0, 2 * self.shift + 1, (2,)).tolist()
            x = x[:, top : top + side, left : left + side]
        return x, int(self.images.y[row])


def plain_epoch(trainer: Trainer, samples: Samples, *, workers: int, channels_last: bool) -> float:
    """Images per second of one epoch of the plain loop, with the same network, head and optimiser."""
    loader = DataLoader(samples, batch_size=trainer.batch, shuffle=True, drop_last=True, num_workers=workers)
    trainer.both.train()
    start, seen = time.perf_counter(), 0
    for x, y in loader:
        if channels_last:
            x = x.to(memory_format=torch.channels_last)
        trainer.optimiser.zero_grad()
        trainer.head(trainer.model(x), y).backward()
        trainer.optimiser.step()
        seen += len(y)
    return seen / (time.perf_counter() - start)


def our_epoch(trainer: Trainer, epoch: int) -> float:
    """Images per second of one epoch of our loop."""
    trainer.enter_epoch(epoch)
    start = time.perf_counter()
    for batch in trainer.epoch_batches(epoch, 0):
        trainer.step(batch)
    return trainer.steps * trainer.batch / (time.perf_counter() - start)


def made(config: Config, splits: Splits, folder: Path, *, channels_last: bool) -> Trainer:
    """A trainer with this memory format."""
    config = replace(config, train=replace(config.train, channels_last=channels_last))
    return Trainer(Run(folder / str(channels_last)), config, splits, device=torch.device("cpu"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="mnist[0-4]", help="digits works without a network")
    parser.add_argument("--images", type=int, default=6400)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--set", action="append", default=[], help="a setting, as for arcwise train")
    args = parser.parse_args()
    settings = [f"data.source={args.data}", "data.unseen=", f"data.limit={args.images}", "data.shift=2", *args.set]
    config = override(recipe("mnist5-2d"), settings)
    splits = load(config.data)
    speeds: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        sides = {last: made(config, splits, Path(folder), channels_last=last) for last in (True, False)}
        look = sides[True].model.preprocessing
        samples = Samples(splits.train, config, look.mean[0], look.std[0])
        for turn in range(args.rounds + 1):  # the first round warms up
            for last, trainer in sides.items():
                form = "channels last" if last else "contiguous"
                rows = {f"ours, {form}": our_epoch(trainer, turn)}
                for workers in (0, torch.get_num_threads()):
                    name = f"plain, {form}, {workers} workers"
                    rows[name] = plain_epoch(trainer, samples, workers=workers, channels_last=last)
                for name, speed in rows.items() if turn else ():
                    speeds.setdefault(name, []).append(speed)
    threads, batch = torch.get_num_threads(), config.train.batch
    print(f"torch {torch.__version__}, {threads} threads, batch {batch}, {config.data.source}")
    middle = {name: statistics.median(values) for name, values in speeds.items()}
    for name, speed in middle.items():
        print(f"{name:34} {speed:8,.0f} images/s  ({min(speeds[name]):,.0f} to {max(speeds[name]):,.0f})")
    best = {form: max(v for k, v in middle.items() if k.startswith("plain") and form in k) for form in FORMS}
    print(f"ours as it is / plain as it is (contiguous): {middle['ours, channels last'] / best['contiguous']:.2f}")
    for form in FORMS:
        print(f"both sides {form}: {middle[f'ours, {form}'] / best[form]:.2f}")
    assert np.isfinite(list(middle.values())).all()


FORMS = ("channels last", "contiguous")

if __name__ == "__main__":
    main()
