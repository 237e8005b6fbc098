"""Five digits on a circle: the same small network under four heads, and what the margin does, in about a minute.

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
from matplotlib.axes import Axes
from sklearn.datasets import load_digits
from torch import Tensor, nn

import arcwise
from arcwise.figures import COLOURS, STYLE, image
from arcwise.records import write

AnyHead = arcwise.Head | arcwise.LinearHead
SEEN, WIDE = 5, 32
M, S = 0.5, round(arcwise.advise(SEEN, 2).s, 2)
HEADS = {
    "softmax": "softmax",
    "NormFace": f"normface:s={S:g}",
    "CosFace": f"cosface:m=0.35,s={S:g}",
    "ArcFace": f"arcface:m={M:g},s={S:g}",
}
# name in the table, unit, whether higher is better
METRICS = {
    "accuracy": ("test accuracy", "%", True),
    "spread": ("mean angle to the own class mean", "°", False),
    "gap": ("smallest angle between class means (at best 72°)", "°", True),
    "margin_met": (f"nearest other centre at least {M:g} rad further than the own", "%", True),
    "unseen_auc": (f"digits 5-9, never seen, {WIDE} numbers: same or not? (AUC)", "%", True),
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


def network(dim: int) -> nn.Module:
    """Two convolutions and two linear layers, 8 x 8 pixels to `dim` numbers."""
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(256, 64, bias=False), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, dim),
    )  # fmt: skip


def train(spec: str, data: tuple[Tensor, Tensor], *, dim: int, seed: int, epochs: int) -> tuple[nn.Module, AnyHead]:
    """The network and the head after training; every head starts from the same network and sees the same order."""
    torch.manual_seed(seed)
    net = network(dim)
    head = arcwise.head_from(spec, dim, SEEN)
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
def measure(net: nn.Module, head: AnyHead, data: dict[str, tuple[Tensor, Tensor]]) -> dict[str, float]:
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
    }


@torch.no_grad()
def unseen_auc(net: nn.Module, data: tuple[Tensor, Tensor]) -> float:
    """How well the cosine alone tells pairs of classes that took no part in training."""
    return 100 * pair_auc(nn.functional.normalize(net(data[0])), data[1])


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
def draw(models: dict[str, tuple[nn.Module, AnyHead]], data: tuple[Tensor, Tensor]) -> bytes:
    """The test embeddings under each head; arrows are the centres, the ring shows the directions alone."""
    with plt.rc_context(STYLE):
        figure, places = plt.subplots(1, len(models), figsize=(3.3 * len(models), 3.6), layout="constrained")
        for axes, (name, (net, head)) in zip(places, models.items(), strict=True):
            draw_head(axes, net(data[0]), data[1], head.weight.detach())
            axes.set_title(name)
    return image(figure)


def draw_head(axes: Axes, x: Tensor, y: Tensor, w: Tensor) -> None:
    """One head: raw embeddings inside, their directions on a ring, the centres as arrows."""
    x = x / x.norm(dim=1).quantile(0.99) * 0.85
    for c in range(SEEN):
        rows, tip, colour = x[y == c], nn.functional.normalize(w[c], dim=0), COLOURS[c]
        axes.plot(*rows.T.numpy(), "o", color=colour, markersize=3, alpha=0.6, markeredgewidth=0)
        axes.plot(*nn.functional.normalize(rows).T.numpy(), "o", color=colour, markersize=4, markeredgewidth=0)
        to, beyond = tuple((tip * 0.97).tolist()), (tip * 1.14).tolist()
        axes.annotate("", to, (0, 0), arrowprops={"color": colour, "arrowstyle": "-|>", "lw": 2})
        axes.text(beyond[0], beyond[1], str(c), color=colour, ha="center", va="center", fontweight="bold")
    axes.set(aspect="equal", xlim=(-1.25, 1.25), ylim=(-1.25, 1.25), xticks=[], yticks=[])
    axes.spines[:].set_visible(False)
    axes.grid(visible=False)


def table(results: dict[str, list[dict[str, float]]]) -> list[tuple[str, list[str], int | None]]:
    """For each metric: its name, mean ± standard deviation per head, and the head that won in every seed, if any."""
    rows = []
    for key, (label, unit, higher) in METRICS.items():
        runs = [[run[key] for run in of_head] for of_head in results.values()]
        spread = [f" ± {statistics.stdev(v):.1f}" if len(v) > 1 else "" for v in runs]
        cells = [f"{statistics.mean(v):.1f}{s}{unit}" for v, s in zip(runs, spread, strict=True)]
        winners = {column.index(max(column) if higher else min(column)) for column in zip(*runs, strict=True)}
        clear = len(winners) == 1 and all(len(set(column)) > 1 for column in zip(*runs, strict=True))
        rows.append((label, cells, winners.pop() if clear else None))
    return rows


def verdict(results: dict[str, list[dict[str, float]]]) -> list[str]:
    """ArcFace against each baseline in sentences computed from the results, seed by seed."""
    lines = []
    for key, (label, unit, higher) in METRICS.items():
        for other in ("softmax", "NormFace"):
            sign, points = (1.0 if higher else -1.0), " points" if unit == "%" else unit
            gains = [sign * (a[key] - b[key]) for a, b in zip(results["ArcFace"], results[other], strict=True)]
            mean = statistics.mean(gains)
            each = ", ".join(f"{gain:+.1f}" for gain in gains)
            lines.append(
                f"ArcFace against {other}, {label}: {abs(mean):.1f}{points} {'better' if mean > 0 else 'worse'} "
                f"on average (by seed, better is +: {each})."
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
scikit-learn's built-in set, {epochs} epochs, with an embedding of two numbers. The scale is the one that
<code>arcwise advise --classes 5 --dim 2</code> suggests. Below are test images that took no part in training; the margin is
used in training only, never in a number on this page.</p>
<img alt="Embeddings of the test digits under each head" src="data:image/png;base64,{base64.b64encode(picture).decode()}">
<p>The run of seed 0. Inside, the raw embeddings x; on the ring their directions x/|x|, which is all that a normalised head
sees; arrows are the class centres w/|w|. An arrow beside its cluster is no mistake: with few classes in the plane a
centre may lean away from its neighbours and still be the nearest.</p>
<h2>What came out</h2>
<p>Mean ± standard deviation over {seeds} seeds; bold where one head was the best in every one of them.</p>
<table><tr><th></th>{head}</tr>{body}</table><ul>{said}</ul>
<p>The last row is what embeddings are for: classes that took no part in training. It is measured with {WIDE} numbers,
the same network otherwise, since two leave new classes no room. Eight-by-eight digits are a first look, not a benchmark.</p>
<h2>Again, and further</h2><p><code>.venv/bin/python examples/first_look.py --seeds {seeds} --epochs {epochs}</code> makes this page;
<code>.venv/bin/arcwise advise --classes 5 --dim 2</code> explains s and m.
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
            net, head = train(spec, data["train"], dim=2, seed=seed, epochs=args.epochs)
            wide, _ = train(spec, data["train"], dim=WIDE, seed=seed, epochs=args.epochs)
            run = {**measure(net, head, data), "unseen_auc": unseen_auc(wide, data["unseen"])}
            results[name].append(run)
            first.setdefault(name, (net, head))
            said = f"accuracy {run['accuracy']:.1f} %, spread {run['spread']:.1f}°, unseen {run['unseen_auc']:.1f} %"
            print(f"[{time.perf_counter() - start:5.1f} s] seed {seed} {name:9} {said}", file=sys.stderr, flush=True)
    picture = draw(first, data["test"])
    write(args.out / "figures" / "embeddings.png", picture)
    write(args.out / "metrics.json", json.dumps({"heads": HEADS, "runs": results}, indent=1))
    page = write(args.out / "report.html", report(results, picture, args.seeds, args.epochs))
    print(f"{'':62}" + "".join(f"{name:>15}" for name in results))
    for label, cells, _ in table(results):
        print(f"{label:62}" + "".join(f"{cell:>15}" for cell in cells))
    print("\n".join(["", *verdict(results), "", f"Report: {page}", "Next: .venv/bin/arcwise margins"]))


if __name__ == "__main__":
    main()
