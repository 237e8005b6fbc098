"""The reports of docs/results.md, made again: trains their runs and writes pages, PDFs, figures and films.

    python benchmarks/results.py               all four, under runs/results (`make results`); meant for a GPU
    python benchmarks/results.py --only p1     one of p1, p2-mnist, p2-cifar10 and p3
    python benchmarks/results.py --small       the same with digits of 8 x 8, one epoch and one seed, on any CPU
    python benchmarks/results.py --workers 10  ten trainings at once: a large GPU has room for many of these small ones

A report lies in OUT/NAME/report, the runs it is about beside it. Finished runs are reused, and Ctrl-C saves.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import arcwise

# Of each report the recipe, the heads and how many seeds they have.
REPORTS = {
    "p1": ("mnist5-2d", "softmax,softmax-bias,normface,arcface", 5),
    "p2-mnist": ("mnist", "softmax,normface,arcface", 3),
    "p2-cifar10": ("cifar10", "softmax,normface,arcface", 3),
    "p3": ("mnist-3d", "softmax,arcface:m=1.1,s=128,arcface:m=0.5,s=15", 5),
}
SCALES = (1, 2, 4, 8, 16, 32)
SWEEP = [f"normface:s={s}" for s in SCALES] + [f"arcface:m={m},s={s}" for m in (0.1, 0.3, 0.5) for s in SCALES]


def likeness(config: arcwise.Config) -> arcwise.Config:
    """The same experiment made so small that it says nothing, but runs through at once and offline."""
    source = config.data.source.replace("mnist", "digits").replace("cifar10", "digits")
    short = ["train.epochs=1", "train.batch=64", "train.warmup=0", "train.margin_warmup=0"]
    return arcwise.override(config, [f"data.source={source}", *short])


def made(name: str, out: Path, small: bool, workers: int, progress: arcwise.Progress) -> Path:
    """The page of one report, with whatever it is about trained before."""
    recipe, heads, seeds = REPORTS[name]
    base = likeness(arcwise.recipe(recipe)) if small else arcwise.recipe(recipe)
    films = ["train.snapshots=true"] if base.model.dim <= 3 else []
    paths = [out / "heads"]
    shared = {"workers": workers, "listener": progress}
    arcwise.compare(base, heads, paths[0], seeds=1 if small else seeds, settings=films, **shared)
    if name == "p1":
        paths += [out / "sweep", out / "imbalanced"]
        arcwise.compare(base, SWEEP, paths[1], seeds=1 if small else 3, **shared)
        skewed = ["head.name=softmax-bias", "data.imbalance=20"]
        arcwise.train(base, paths[2], settings=skewed, resume=True, listener=progress)
    return arcwise.report(paths, out / "report", tell=progress)[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=REPORTS, help="make one report")
    parser.add_argument("--small", action="store_true", help="try the script: digits, one epoch, one seed")
    parser.add_argument("--workers", type=int, default=0, help="trainings at once; 0 lets the device decide")
    parser.add_argument("--out", type=Path, help="runs/results, or runs/results-small with --small")
    args = parser.parse_args()
    out = args.out or Path("runs/results-small" if args.small else "runs/results")
    pages = []
    for name in [args.only] if args.only else REPORTS:
        with arcwise.Progress() as progress:
            pages.append(made(name, out / name, args.small, args.workers, progress))
    print("\nMade, each with report.pdf, metrics.json and the figures beside it:")
    print("\n".join([*(f"  {page}" for page in pages), f"Next: open {pages[0]}"]))


if __name__ == "__main__":
    try:
        main()
    except arcwise.ArcwiseError as error:
        raise SystemExit(f"\narcwise: {error}") from None
