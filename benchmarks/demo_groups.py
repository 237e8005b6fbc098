"""How often the demo shows what it is meant to show: its three heads on fresh groups of seeds.

    python benchmarks/demo_groups.py                          20 groups of seven seeds from 2000 on
    python benchmarks/demo_groups.py --groups 2 --workers 2   a first look on a laptop
    python benchmarks/demo_groups.py --first 100 --set train.margin_warmup=1    other settings, on seeds to choose by

A group is what one `make demo` is. It counts where all six 95 % intervals of ArcFace's paired differences leave 0 out
on the right side: mean angle to the own mean, Dunn (nearest, diameter, unit) and AUROC of unseen digits, against
softmax and against NormFace. Runs are kept in --out and reused.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import arcwise
from arcwise.measure import measure
from arcwise.metrics import METRICS
from arcwise.metrics.spread import difference

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
import demo  # pyright: ignore[reportMissingImports]

NUMBERS = ("angle-own", "dunn-nearest-diameter-unit-95", "open-auroc")
OTHERS = ("softmax", "normface")


def shown(found: dict[tuple[str, int], dict[str, float]], seeds: list[int]) -> dict[tuple[str, str], bool]:
    """For each number and rival, whether the interval of ArcFace's differences lies on the better side of 0."""
    told = {}
    for name in NUMBERS:
        for other in OTHERS:
            ours, theirs = ([found[head, seed][name] for seed in seeds] for head in ("arcface", other))
            apart = difference(ours, theirs)
            told[name, other] = apart.high < 0 if METRICS[name].better == "lower" else apart.low > 0
    return told


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("--groups", 20), ("--seeds", 7), ("--first", 2000), ("--workers", 0)):
        parser.add_argument(name, type=int, default=default)
    parser.add_argument("--set", action="append", default=[], help="a setting beside those of the demo")
    parser.add_argument("--out", type=Path, default=Path("runs/demo-groups"))
    args = parser.parse_args()
    seeds = list(range(args.first, args.first + args.groups * args.seeds))
    with arcwise.Progress() as progress:
        base = arcwise.override(demo.config("mnist[0-4]", 12_000, 5, progress), ["train.snapshots=false", *args.set])
        comparison, table = arcwise.compare(
            base, demo.HEADS, args.out, seeds=seeds, workers=args.workers, listener=progress
        )
    found = {
        (head, seed): measure(comparison.run(head, seed))["measured"] for head in comparison.heads for seed in seeds
    }
    groups = [seeds[at : at + args.seeds] for at in range(0, len(seeds), args.seeds)]
    every = [shown(found, group) for group in groups]
    print(f"\n{table}\n")
    for key in every[0]:
        print(f"{key[0]:32} against {key[1]:9} {sum(told[key] for told in every):3} of {len(groups)} groups")
    print(f"all six: {sum(all(told.values()) for told in every)} of {len(groups)} groups of {args.seeds} seeds")


if __name__ == "__main__":
    try:
        main()
    except arcwise.ArcwiseError as error:
        raise SystemExit(f"\narcwise: {error}") from None
