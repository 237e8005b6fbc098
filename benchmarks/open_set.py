"""What a margin is worth on classes nobody has seen: softmax, NormFace and ArcFace over s, on three sets of images.

    python benchmarks/open_set.py                  all three sets; the GPU takes some ten minutes
    python benchmarks/open_set.py --only glyphs    one of glyphs, mnist and cifar10
    python benchmarks/open_set.py --show           the table and docs/results/open_set.png from what was measured

Each set's classes fall into three: trained on, chosen by, reported. Every head has five seeds at every s; its best s is
the one with the smallest mean equal error rate on the classes chosen by, and the numbers are those of the classes
reported, which neither trained nor chose anything. A run that is finished is not repeated.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import arcwise
from arcwise.measure import measure
from arcwise.metrics import METRICS
from arcwise.metrics.spread import Spread, difference, spread
from arcwise.metrics.summary import Evidence

CHOSEN_BY = "unseen-eer"
REPORTED = ("accuracy", "unseen-eer", "unseen-tar-0.01", "unseen-recall-1", "open-dir-0.01")
SEEDS = 5


class Setting(NamedTuple):
    """A source, its classes by what they are for, the recipe whose network and pace are taken, and scales to try."""

    source: str
    trained: str
    chosen_by: str
    reported: str
    recipe: str
    settings: tuple[str, ...]
    m: float
    scales: tuple[int, ...]


SETS = {
    "glyphs": Setting(
        "glyphs", "0-199", "200-299", "300-399", "cifar10",
        ("train.epochs=20", "train.batch=128", "train.lr=0.1", "train.ema=0.99", "data.flip=false", "data.shift=2",
         "data.cutout=0", "model.dim=128"), 0.3, (8, 16, 32, 64),
    ),
    "mnist": Setting("mnist", "0-4", "5-6", "7-9", "mnist", ("train.epochs=10",), 0.5, (4, 8, 16, 32)),
    "cifar10": Setting(
        "cifar10", "0-5", "6-7", "8-9", "cifar10", ("train.epochs=12", "train.lr=0.1"), 0.3, (8, 16, 32),
    ),
}  # fmt: skip


def heads_of(one: Setting) -> list[str]:
    """The heads that are trained on a set."""
    with_scale = [
        f"{name}:{m}s={s}" for name, m in (("normface", ""), ("arcface", f"m={one.m:g},")) for s in one.scales
    ]
    return ["softmax", *with_scale]


def numbers_on(run: arcwise.Run, test: arcwise.Embeddings, unseen: arcwise.Embeddings) -> dict[str, float | None]:
    """The reported numbers with these classes as the unseen ones."""
    evidence = Evidence(test, unseen, run.prototypes())
    return {name: METRICS[name].compute(evidence) for name in REPORTED}


def measured(one: Setting, out: Path, workers: int, device: str, progress: arcwise.Progress) -> dict[str, Any]:
    """For every head and seed the numbers of the classes that choose and of those that are reported."""
    base = arcwise.override(
        arcwise.recipe(one.recipe),
        [f"data.source={one.source}[{one.trained}]", f"data.unseen={one.reported}", *one.settings],
    )
    comparison, _ = arcwise.compare(
        replace(base, recipe=""), heads_of(one), out, seeds=SEEDS, workers=workers, device=device, listener=progress
    )
    choosing = arcwise.load(one.source + f"[{one.chosen_by}]", size=base.data.size).test
    found: dict[str, Any] = {}
    for head in comparison.heads:
        for seed in range(SEEDS):
            run = comparison.run(head, seed)
            model = arcwise.Embedder.load(run.path, device=device if device != "auto" else "cpu")
            told = measure(run)["measured"]
            found.setdefault(head, []).append({
                "chosen_by": numbers_on(run, run.embeddings("test"), arcwise.embed(model, choosing)),
                "reported": {name: told.get(name) for name in REPORTED},
            })  # fmt: skip
    return {"setting": one._asdict(), "heads": found, "device": comparison.run("softmax", 0).result["device"]}


def best_scale(found: dict[str, Any], name: str) -> str:
    """The head of this name, softmax aside with its s, that the classes chosen by like best."""
    mine = [head for head in found["heads"] if head.partition(":")[0] == name]
    return min(mine, key=lambda head: spread(values(found, head, CHOSEN_BY, "chosen_by")).mean)


def values(found: dict[str, Any], head: str, number: str, part: str = "reported") -> list[float]:
    """One number of a head, seed by seed."""
    return [seed[part][number] for seed in found["heads"][head]]


def cell(one: Spread) -> str:
    """A share in percent with its spread."""
    return f"{100 * one.mean:.2f} ± {100 * one.deviation:.2f}"


def show(kept: Path) -> None:
    """Prints the tables, and draws the figure."""
    every = {
        name: json.loads((kept / f"{name}.json").read_text()) for name in SETS if (kept / f"{name}.json").is_file()
    }
    for name, found in every.items():
        one = Setting(**found["setting"])
        parts = f"trained on {one.trained}, chosen by {one.chosen_by}, reported {one.reported}"
        print(f"\n{name}, {found['device']}: {parts}\n")
        print("| head | " + " | ".join(METRICS[number].label for number in REPORTED) + " |")
        print("| --- |" + " ---: |" * len(REPORTED))
        best = {kind: best_scale(found, kind) for kind in ("softmax", "normface", "arcface")}
        for head in found["heads"]:
            mark = "**" if head in best.values() and ":" in head else ""
            row = [cell(spread(values(found, head, number))) for number in REPORTED]
            print(f"| {mark}{arcwise.head_from(head, 2, 2).spec.label}{mark} | " + " | ".join(row) + " |")
        for other in ("softmax", "normface"):
            told = []
            for number in REPORTED:
                apart = difference(values(found, best["arcface"], number), values(found, best[other], number))
                told.append(f"{100 * apart.mean:+.2f} ({100 * apart.low:+.2f} to {100 * apart.high:+.2f})")
            print(f"| ArcFace - {other}, each at its best s | " + " | ".join(told) + " |")
    draw(every, kept.parent / "open_set.png")


def draw(every: dict[str, Any], path: Path) -> None:
    """The equal error rate over s, one panel a set, mean and spread."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(every), figsize=(3.2 * len(every), 3.1), layout="constrained", squeeze=False)
    for place, (name, found) in zip(axes[0], every.items(), strict=True):
        one = Setting(**found["setting"])
        plain = spread(values(found, "softmax", CHOSEN_BY))
        place.axhline(100 * plain.mean, color="#999999", linewidth=1.5, label="softmax")
        place.axhspan(*(100 * (plain.mean + sign * plain.deviation) for sign in (-1, 1)), color="#999999", alpha=0.2)
        for kind, colour, title in (
            ("normface", "#E69F00", "NormFace"),
            ("arcface", "#0072B2", "ArcFace"),
        ):
            mine = [head for head in found["heads"] if head.partition(":")[0] == kind]
            told = [spread(values(found, head, CHOSEN_BY)) for head in mine]
            mean, off = ([100 * getattr(v, key) for v in told] for key in ("mean", "deviation"))
            place.errorbar(one.scales, mean, off, color=colour, marker="o", markersize=4, capsize=2, label=title)
        place.set(title=f"{name} {one.reported}, margin {one.m:g}", xlabel="scale s", xscale="log")
        place.set_xticks(one.scales, [str(s) for s in one.scales])
        place.minorticks_off()
        place.set_ylim(bottom=0)
        place.grid(alpha=0.25)
        place.spines[["top", "right"]].set_visible(False)
    axes[0][0].set_ylabel("equal error rate, unseen, %")
    axes[0][0].legend(frameon=False, fontsize=9)
    figure.savefig(path, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=SETS)
    parser.add_argument("--show", action="store_true")
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, default=Path("runs/open-set"))
    parser.add_argument("--kept", type=Path, default=Path("docs/results/open_set"))
    args = parser.parse_args()
    for name in [] if args.show else [args.only] if args.only else SETS:
        with arcwise.Progress() as progress:
            found = measured(SETS[name], args.out / name, args.workers, args.device, progress)
        args.kept.mkdir(parents=True, exist_ok=True)
        (args.kept / f"{name}.json").write_text(json.dumps(found, indent=1))
    show(args.kept)


if __name__ == "__main__":
    try:
        main()
    except arcwise.ArcwiseError as error:
        raise SystemExit(f"\narcwise: {error}") from None
