"""Five digits on a circle: what a margin does, in a few minutes on a laptop, with a report to keep.

    python examples/demo.py --out runs/demo

Trains softmax, softmax with bias, NormFace and ArcFace on the digits 0-4 of MNIST with an embedding of two numbers,
so that the picture is the embedding itself; 5-9 are the classes nobody has seen. Three seeds each, on a part of
the data. Leaves report.html, report.pdf, metrics.json, figures and animations, and reuses what is there already.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from dataclasses import replace
from pathlib import Path

from arcwise.cli.comparison_display import ComparisonDisplay, print_table
from arcwise.cli.progress import Counter, clock, size
from arcwise.cli.report import teller
from arcwise.compare import compare
from arcwise.compare.plan import Job
from arcwise.compare.workers import Stopped, trained
from arcwise.config import Config, overridden
from arcwise.data import load
from arcwise.errors import ArcwiseError, count_in
from arcwise.recipes import recipe
from arcwise.report.make import report
from arcwise.report.subject import subject

HEADS = ["softmax", "softmax-bias", "normface", "arcface"]
FULL = "arcwise compare mnist5-2d --heads softmax,softmax-bias,normface,arcface --seeds 5 --set train.snapshots=true"


def settings(source: str, limit: int, epochs: int) -> Config:
    """The published experiment on a part of MNIST, or the same on scikit-learn's digits where MNIST cannot be had."""
    base = overridden(recipe("mnist5-2d"), [f"data.limit={limit}", f"train.epochs={epochs}", "train.snapshots=true"])
    small = overridden(
        base, ["data.source=digits[0-4]", "data.limit=0", f"train.epochs={5 * epochs}", "train.batch=64"]
    )
    if source == "digits":
        return small
    try:
        load(base.data, tell=Counter(size))
        return base
    except ArcwiseError as error:
        note = "MNIST cannot be had, so this demo takes scikit-learn's digits (8 x 8 pixels) in its place."
        print(f"\n{error}\n\n{note}\n", file=sys.stderr)
        return small


def imbalanced(base: Config) -> Config:
    """Softmax with bias on classes of unequal size, to see what its biases learn."""
    skewed = overridden(base, ["head.name=softmax-bias", "data.imbalance=20", "train.snapshots=false"])
    return replace(skewed, seed=0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/demo"))
    parser.add_argument("--data", choices=("mnist", "digits"), default="mnist")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--limit", type=int, default=10_000, help="training images")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    began = time.monotonic()
    seeds, workers = count_in("--seeds", args.seeds, 1, 100), count_in("--workers", args.workers, 1, 64)
    base = settings(args.data, args.limit, args.epochs)
    skewed = Job(head="softmax-bias", seed=0, path=args.out / "imbalanced", config=imbalanced(base))
    runs = len(HEADS) * seeds + 1
    print(f"{runs} runs on {base.data.source}. Ctrl-C saves, and the same command goes on.", file=sys.stderr)
    with ComparisonDisplay(runs) as display:
        command = shlex.join(["python", *sys.argv])
        _, table = compare(
            base, HEADS, args.out, seeds=list(range(seeds)), workers=workers, listener=display, command=command
        )
        trained([skewed], workers=1, listener=display)
    written = report(subject([args.out, skewed.path]), args.out, tell=teller())
    print(file=sys.stderr)
    print_table(table)
    print(
        f"\nThis was a part of the data: {args.limit:,} images, {args.epochs} epochs. The whole experiment:\n  {FULL}\n"
    )
    for path in [*written[:3], args.out / "figures", args.out / "animations"]:
        print(f"  {path}")
    print(f"Done in {clock(time.monotonic() - began)}. Next: open {args.out / 'report.html'}")


if __name__ == "__main__":
    try:
        main()
    except (Stopped, KeyboardInterrupt):
        print("\nstopped; the runs are saved. The same command goes on.", file=sys.stderr)
        sys.exit(130)
    except ArcwiseError as error:
        print(f"\narcwise: {error}", file=sys.stderr)
        sys.exit(1)
