"""Five digits on a circle: what a margin does, in a few minutes on a laptop, with a report to keep (runs/demo).

Softmax, NormFace and ArcFace on the digits 0-4 of MNIST with embeddings of two numbers, so that the picture is the
embedding itself; 5-9 are the classes nobody has seen. What is there already is reused, and Ctrl-C saves.
"""

import argparse
from pathlib import Path

import arcwise

HEADS = "softmax,normface,arcface"
# What the demo changes in the recipe, so that it takes minutes; chosen on other seeds than it runs (docs/results.md).
SHORT = [
    "data.size=20", "head.s=6", "train.warmup=0.5", "train.margin_warmup=1", "train.snapshots=true",
    "train.amp_cpu=true",
]  # fmt: skip


def config(source: str, limit: int, epochs: int, progress: arcwise.Progress) -> arcwise.Config:
    """A part of the published experiment, or the same on digits of 8 x 8 where MNIST cannot be had."""
    base = arcwise.override(arcwise.recipe("mnist5-2d"), [f"train.epochs={epochs}", *SHORT])
    try:
        arcwise.load(source, unseen="5-9", tell=progress)
    except arcwise.ArcwiseError as error:
        print(f"{error}\n\nMNIST cannot be had, so this demo takes scikit-learn's digits in its place.\n")
        source = "digits[0-4]"
    small = ["data.limit=0", "data.size=0", f"train.epochs={5 * epochs}"] if "digits" in source else []
    return arcwise.override(base, [f"data.source={source}", f"data.limit={limit}", *small])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/demo"))
    parser.add_argument("--data", choices=("mnist[0-4]", "digits[0-4]"), default="mnist[0-4]")
    for name, default in (("--seeds", 7), ("--limit", 12_000), ("--epochs", 5), ("--workers", 2)):
        parser.add_argument(name, type=int, default=default)
    args, paths = parser.parse_args(), []
    with arcwise.Progress() as progress:
        base = config(args.data, args.limit, args.epochs, progress)
        _, table = arcwise.compare(base, HEADS, args.out, seeds=args.seeds, workers=args.workers, listener=progress)
        for name, changes in (("bias", []), ("imbalanced", ["data.imbalance=20", "train.snapshots=false"])):
            settings = ["head.name=softmax-bias", *changes]
            paths.append(arcwise.train(base, args.out / name, settings=settings, resume=True, listener=progress).path)
        written = arcwise.report([args.out, *paths], args.out, tell=progress)
    rest = f"A part of the experiment. The whole: arcwise compare mnist5-2d --heads {HEADS} --seeds 5\n"
    print(f"\n{table}\n\n{rest if 'mnist' in base.data.source else ''}")
    print("\n".join(f"  {path}" for path in written[:3]), f"\nNext: open {written[0]}")


if __name__ == "__main__":
    try:
        main()
    except arcwise.ArcwiseError as error:
        raise SystemExit(f"\narcwise: {error}") from None
