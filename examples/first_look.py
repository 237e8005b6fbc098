"""Five digits on a circle: the same small network under four heads, what the margin does, in two minutes.

    python examples/first_look.py --out runs/demo

Trains on the digits 0-4 of scikit-learn's built-in set (8 x 8 pixels, no download) with an embedding of two
numbers, so that the picture is the embedding itself; 5-9 are the classes nobody has seen. Leaves
report.html, metrics.json and the figures, with the spread over seeds.
"""

from __future__ import annotations

import argparse
import base64
import html
import json
import math
import statistics
import sys
import time
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

import arcwise
from arcwise.figures import COLOURS, STYLE, image
from arcwise.records import write

Head = arcwise.Head | arcwise.LinearHead
SEEN, M, S = 5, 0.5, 16.0
HEADS = {
    "softmax": "softmax",
    "NormFace": f"normface:s={S:g}",
    "CosFace": f"cosface:m=0.35,s={S:g}",
    "ArcFace": f"arcface:m={M:g},s={S:g}",
}
METRICS = {
    "accuracy": ("test accuracy", "%", "higher"),
    "spread": ("mean angle to the own class mean", "°", "lower"),
    "gap": ("smallest angle between class means (best possible 72°)", "°", "higher"),
    "margin_met": (
        f"samples whose nearest other centre is at least {M:g} rad further than their own",
        "%",
        "higher",
    ),
    "unseen_auc": ("digits 5-9, never seen: same or different? area under the ROC curve", "%", "higher"),
}


def digits() -> dict[str, tuple[Tensor, Tensor]]:
    """Training and test images of the seen digits, and all images of the unseen ones."""
    images, labels = load_digits(return_X_y=True)
    x = torch.tensor(images, dtype=torch.float32).reshape(-1, 1, 8, 8) / 8.0 - 1.0
    y = torch.tensor(labels)
    test = torch.arange(len(y)) % 3 == 0
    seen = y < SEEN
    return {
        "train": (x[seen & ~test], y[seen & ~test]),
        "test": (x[seen & test], y[seen & test]),
        "unseen": (x[~seen], y[~seen]),
    }


def network() -> nn.Module:
    """Two convolutions and two linear layers, 8 x 8 pixels to two numbers."""
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(256, 64, bias=False), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 2),
    )  # fmt: skip


def train(spec: str, data: tuple[Tensor, Tensor], *, seed: int, epochs: int) -> tuple[nn.Module, Head]:
    """The network and the head after training; every head starts from the same network and sees the same order."""
    torch.manual_seed(seed)
    net = network()
    head = arcwise.head_from(spec, 2, SEEN)
    optimiser = torch.optim.AdamW([*net.parameters(), *head.parameters()], lr=3e-3, weight_decay=1e-4)
    steps = epochs * math.ceil(len(data[1]) / 64)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 1e-2, total_steps=steps)
    order = torch.Generator().manual_seed(seed)
    for _ in range(epochs):
        for batch in torch.randperm(len(data[1]), generator=order).split(64):
            loss = head(net(data[0][batch]), data[1][batch])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
    return net.eval(), head.eval()


@torch.no_grad()
def measure(net: nn.Module, head: Head, data: dict[str, tuple[Tensor, Tensor]]) -> dict[str, float]:
    """The numbers of METRICS, on images that took no part in training; the margin enters none of them."""
    x, y = net(data["test"][0]), data["test"][1]
    scores = head.score(x, y)
    unit = nn.functional.normalize(x)
    means = nn.functional.normalize(torch.stack([unit[y == c].mean(0) for c in range(SEEN)]))
    own = (unit * means[y]).sum(1).clamp(-1, 1).acos()
    between = (means @ means.T).fill_diagonal_(-1).max().clamp(-1, 1).acos()
    met = scores.cos_other.acos() - scores.cos_y.acos() >= M
    return {
        "accuracy": 100 * scores.correct.float().mean().item(),
        "spread": math.degrees(own.mean().item()),
        "gap": math.degrees(between.item()),
        "margin_met": 100 * met.float().mean().item(),
        "unseen_auc": 100 * pair_auc(nn.functional.normalize(net(data["unseen"][0])), data["unseen"][1]),
    }


def pair_auc(unit: Tensor, y: Tensor) -> float:
    """P(a pair of one class is closer than a pair of two), over all pairs, ties counting half."""
    i, j = torch.triu_indices(len(y), len(y), 1)
    cos = (unit[i] * unit[j]).sum(1).double().numpy()
    same = (y[i] == y[j]).numpy()
    _, rank_of, counts = np.unique(cos, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2.0)[rank_of]
    positives, negatives = same.sum(), (~same).sum()
    return float((ranks[same].sum() - positives * (positives + 1) / 2) / (positives * negatives))


@torch.no_grad()
def draw(models: dict[str, tuple[nn.Module, Head]], data: tuple[Tensor, Tensor]) -> bytes:
    """The test embeddings under each head, with the class centres as vectors; normalised heads on the circle too."""
    with plt.rc_context(STYLE):
        figure, places = plt.subplots(1, len(models), figsize=(3.1 * len(models), 3.5), layout="constrained")
        for axes, (name, (net, head)) in zip(places, models.items(), strict=True):
            x, y = net(data[0]), data[1]
            reach = float(x.norm(dim=1).quantile(0.99)) * 1.15
            for c in range(SEEN):
                rows, colour = x[y == c], COLOURS[c]
                axes.plot(*rows.T.numpy(), ".", color=colour, markersize=4, alpha=0.7)
                tip = nn.functional.normalize(head.weight[c].detach(), dim=0) * reach
                axes.annotate("", tip.tolist(), (0, 0), arrowprops={"color": colour, "arrowstyle": "-|>", "lw": 2})
                axes.text(*(tip * 1.1).tolist(), str(c), color=colour, ha="center", va="center", fontweight="bold")
                if name != "softmax":
                    axes.plot(*(nn.functional.normalize(rows) * reach * 0.9).T.numpy(), "o", color=colour, ms=2)
            axes.set(
                title=name,
                aspect="equal",
                xlim=(-reach * 1.25, reach * 1.25),
                ylim=(-reach * 1.25, reach * 1.25),
            )
            axes.set(xticks=[], yticks=[])
            axes.spines[:].set_visible(False)
            axes.grid(visible=False)
        figure.suptitle("Test digits 0-4 in two dimensions; arrows are the class centres", fontsize=14)
    return image(figure)


def table(results: dict[str, list[dict[str, float]]]) -> list[tuple[str, list[str], int]]:
    """For each metric: its name, mean ± standard deviation per head, and which head is best."""
    rows = []
    for key, (label, unit, better) in METRICS.items():
        values = {name: [run[key] for run in runs] for name, runs in results.items()}
        means = [statistics.mean(v) for v in values.values()]
        cells = [
            f"{statistics.mean(v):.1f} ± {statistics.stdev(v) if len(v) > 1 else 0:.1f}{unit}" for v in values.values()
        ]
        rows.append((label, cells, means.index(max(means) if better == "higher" else min(means))))
    return rows


def verdict(results: dict[str, list[dict[str, float]]]) -> list[str]:
    """Sentences computed from the results, seed by seed."""
    lines = []
    for key, (label, unit, better) in METRICS.items():
        sign = 1.0 if better == "higher" else -1.0
        gains = [sign * (a[key] - b[key]) for a, b in zip(results["ArcFace"], results["NormFace"], strict=True)]
        wins, mean = sum(g > 0 for g in gains), statistics.mean(gains)
        word, unit = "better" if mean > 0 else "worse", " points" if unit == "%" else unit
        lines.append(
            f"ArcFace against NormFace, {label}: {abs(mean):.1f}{unit} {word} on average, "
            f"better in {wins} of {len(gains)} seeds."
        )
    return lines


def report(results: dict[str, list[dict[str, float]]], picture: bytes, seeds: int, epochs: int) -> str:
    """One self-contained page."""
    head = "".join(f"<th>{html.escape(name)}</th>" for name in results)
    body = "".join(
        f"<tr><td>{html.escape(label)}</td>"
        + "".join(f"<td class='{'best' if i == best else ''}'>{cell}</td>" for i, cell in enumerate(cells))
        + "</tr>"
        for label, cells, best in table(results)
    )
    said = "".join(f"<li>{html.escape(line)}</li>" for line in verdict(results))
    specs = ", ".join(f"<code>{html.escape(spec)}</code>" for spec in HEADS.values())
    return f"""<!doctype html><html lang="en"><meta charset="utf-8"><title>arcwise: five digits on a circle</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>body{{font:17px/1.55 system-ui,sans-serif;max-width:1080px;margin:2.5em auto;padding:0 1.2em;color:#1a1a1a}}
table{{border-collapse:collapse;width:100%;margin:1em 0}}td,th{{padding:.45em .7em;border-bottom:1px solid #ddd;text-align:left}}
th{{border-bottom:2px solid #333}}td+td{{white-space:nowrap}}.best{{font-weight:700;color:#0072B2}}img{{width:100%}}code{{background:#f2f2f2;padding:.1em .3em}}</style>
<h1>Five digits on a circle</h1>
<p>The same small network, trained {seeds} times under each of four heads ({specs}) on the digits 0-4 of
scikit-learn's built-in set, {epochs} epochs, with an embedding of two numbers. Below are test images that took no
part in training; the margin is used in training only, never in a number on this page.</p>
<img alt="Embeddings of the test digits under each head" src="data:image/png;base64,{base64.b64encode(picture).decode()}">
<p>Dots are the raw embeddings x; for the normalised heads the ring shows x/|x|, which is all the head sees.</p>
<h2>What came out</h2>
<p>Mean ± standard deviation over {seeds} seeds; the best mean in bold.</p>
<table><tr><th></th>{head}</tr>{body}</table><ul>{said}</ul>
<p>Two dimensions are chosen for the picture. Digits that were never trained have little room there: read the last
row as a first look at open-set use, not as what an embedding of 128 numbers would give.</p>
<h2>Again, and further</h2><p><code>python examples/first_look.py --seeds {seeds} --epochs {epochs}</code> makes this page;
<code>arcwise advise --classes 5 --dim 2</code> says why s = 64 would be too much here.
arcwise {arcwise.__version__}, torch {torch.__version__}.</p></html>"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/demo"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=40)
    args = parser.parse_args()
    if args.seeds < 1 or args.epochs < 1:
        parser.error("--seeds and --epochs must be at least 1")
    data, results, first = digits(), {name: [] for name in HEADS}, {}
    start = time.perf_counter()
    for seed in range(args.seeds):
        for name, spec in HEADS.items():
            net, head = train(spec, data["train"], seed=seed, epochs=args.epochs)
            results[name].append(measure(net, head, data))
            first.setdefault(name, (net, head))
            run = results[name][-1]
            print(
                f"[{time.perf_counter() - start:5.1f} s] seed {seed} {name:9} "
                f"accuracy {run['accuracy']:.1f} %, spread {run['spread']:.1f}°, margin met {run['margin_met']:.0f} %",
                file=sys.stderr, flush=True,
            )  # fmt: skip
    picture = draw(first, data["test"])
    write(args.out / "figures" / "embeddings.png", picture)
    write(args.out / "metrics.json", json.dumps({"heads": HEADS, "runs": results}, indent=1))
    page = write(args.out / "report.html", report(results, picture, args.seeds, args.epochs))
    print(f"{'':70}" + "".join(f"{name:>15}" for name in results))
    for label, cells, _ in table(results):
        print(f"{label[:68]:70}" + "".join(f"{cell:>15}" for cell in cells))
    print("\n".join(["", *verdict(results), "", f"Report: {page}", "Next: arcwise margins"]))


if __name__ == "__main__":
    main()
