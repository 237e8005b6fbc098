"""Exact against straight-through gradients of ArcFace, over the angle to the own centre: docs/straight_through.png.

    python benchmarks/straight_through.py

Straight-through gradients (insightface's) pass the margin as if it were not there; the exact ones carry
d psi / d cos = sin(theta + m) / sin(theta). The picture shows that factor, and by how much the whole gradient of the
loss with respect to x differs, |exact - straight| / |exact|, for samples at each angle and for random ones.
"""

from __future__ import annotations

import math
from pathlib import Path

import matplotlib as mpl
import numpy as np
import torch

import arcwise

MARGINS = (0.3, 0.5)
S, DIM, CLASSES, EACH = 64.0, 512, 1000, 400


def gradient(x: torch.Tensor, y: torch.Tensor, w: torch.Tensor, m: float, kind: str) -> torch.Tensor:
    """The gradient of the summed loss with respect to x."""
    head = arcwise.Head(DIM, len(w), margin=arcwise.margins.ArcFace(m=m), s=S, gradient=kind).double()
    with torch.no_grad():
        head.weight.copy_(w)
    x = x.clone().requires_grad_()
    head(x, y, reduction="sum").backward()
    assert x.grad is not None
    return x.grad


def relative(x: torch.Tensor, y: torch.Tensor, w: torch.Tensor, m: float) -> np.ndarray:
    """|exact - straight| / |exact| of each sample."""
    exact, straight = (gradient(x, y, w, m, kind) for kind in ("exact", "straight_through"))
    return ((exact - straight).norm(dim=1) / exact.norm(dim=1).clamp_min(1e-300)).numpy()


def at_angle(w: torch.Tensor, y: torch.Tensor, theta: float) -> torch.Tensor:
    """Samples at this angle from their own centre, in a random direction from it."""
    own = torch.nn.functional.normalize(w[y])
    aside = torch.randn(len(y), DIM, dtype=torch.float64)
    aside = torch.nn.functional.normalize(aside - (aside * own).sum(dim=1, keepdim=True) * own)
    return math.cos(theta) * own + math.sin(theta) * aside


def main() -> None:
    mpl.use("Agg")
    import matplotlib.pyplot as plt

    torch.manual_seed(0)
    w, y = torch.randn(CLASSES, DIM, dtype=torch.float64), torch.randint(CLASSES, (EACH,))
    degrees = np.arange(2.0, 179.0, 3.0)
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.2, 3.6), layout="constrained")
    for m, colour in zip(MARGINS, ("#56B4E9", "#0072B2"), strict=True):
        theta = np.radians(degrees[degrees < 180.0 - math.degrees(m)])
        left.plot(np.degrees(theta), np.sin(theta + m) / np.sin(theta), color=colour, label=f"m = {m:g}")
        found = np.array([np.median(relative(at_angle(w, y, t), y, w, m)) for t in np.radians(degrees)])
        right.plot(degrees, 100 * found, color=colour, label=f"m = {m:g}")
        middle = (degrees > 30) & (degrees < 100)
        random = relative(torch.randn(EACH, DIM, dtype=torch.float64), y, w, m)
        some = ", ".join(f"{np.interp(d, degrees, found):.1%} at {d} degrees" for d in (20, 45, 72.5, 90))
        print(f"m = {m:g}: {some}; {found[middle].min():.1%} to {found[middle].max():.1%} from 30 to 100 degrees; "
              f"random samples {np.median(random):.1%}")  # fmt: skip
    left.axhline(1.0, color="0.5", linewidth=1.0)
    left.annotate("straight-through", (178, 1.0), ha="right", va="bottom", color="0.35", fontsize=9)
    left.set(title="dψ/d cos θ of ArcFace", xlabel="angle θ to the own centre", ylim=(0, 5), xlim=(0, 180))
    right.set(title="difference of the gradient, % of the exact one", xlabel="angle θ to the own centre", xlim=(0, 180),
              ylim=(0, 100))  # fmt: skip
    for place in (left, right):
        place.grid(alpha=0.25)
        place.legend(frameon=False)
        place.xaxis.set_major_formatter("{x:.0f}°")
        place.spines[["top", "right"]].set_visible(False)
    figure.savefig(Path(__file__).parents[1] / "docs" / "straight_through.png", dpi=130)


if __name__ == "__main__":
    main()
