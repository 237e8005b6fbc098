"""The picture of one margin: psi(theta), its slope, and the boundary between two classes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from arcwise.figures.canvas import COLOURS, SCREEN_STYLE
from arcwise.records import MarginCurve, MarginPortrait

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TICKS = (0, 45, 90, 135, 180)
OWN, OTHER = COLOURS[0], COLOURS[4]


def draw_portrait(portrait: MarginPortrait) -> Figure:
    """Three panels side by side, one line per setting; a fourth where other classes are reshaped."""
    import matplotlib.pyplot as plt

    with plt.rc_context(SCREEN_STYLE):
        panels = [draw_psi, draw_slope, draw_boundary]
        if any(curve.other is not None for curve in portrait.curves):
            panels.insert(2, draw_other)
        figure, axes = plt.subplots(1, len(panels), figsize=(4.4 * len(panels), 4.5), layout="constrained")
        for panel, place in zip(panels, axes, strict=True):
            panel(place, portrait)
        figure.suptitle(f"{portrait.title}:  ψ = {portrait.formula}", fontsize=14)
    return figure


def lines(portrait: MarginPortrait) -> Iterator[tuple[MarginCurve, str, str]]:
    """Each curve with the colour and the line that it keeps in all panels: the main one blue and solid."""
    rest = iter(COLOURS[1:4])
    for i, curve in enumerate(portrait.curves):
        yield (curve, COLOURS[0], "-") if i == portrait.main else (curve, next(rest), "--")


def draw_lines(axes: Axes, portrait: MarginPortrait, values: Callable[[MarginCurve], np.ndarray], grey: np.ndarray):
    """One line per setting over a grey reference; a single one where all settings agree. Jumps stay open."""
    degrees = np.degrees(portrait.theta)
    axes.plot(degrees, grey, color="0.65", linewidth=1.5, label="cos θ")
    first = values(portrait.curves[0])
    agree = all(np.array_equal(first, values(curve), equal_nan=True) for curve in portrait.curves)
    for curve, colour, line in lines(portrait):
        label = curve.label or "ψ"
        if agree and len(portrait.curves) > 1:
            colour, line, label = COLOURS[0], "-", "all settings"
        axes.plot(degrees, opened(values(curve)), line, color=colour, label=label)
        if agree:
            break
    axes.set(xticks=TICKS, xlim=(0, 180))
    axes.xaxis.set_major_formatter("{x:.0f}°")


def opened(values: np.ndarray) -> np.ndarray:
    """The values with a gap at each jump, a step far beyond both its neighbours: no vertical line is drawn there."""
    steps = np.abs(np.diff(values))
    beside = np.maximum(np.roll(steps, 1), np.roll(steps, -1))
    jumps = np.flatnonzero((steps > 0.1) & (steps > 3.0 * beside))
    return np.where(np.isin(np.arange(len(values)), jumps), np.nan, values)


def draw_psi(axes: Axes, portrait: MarginPortrait) -> None:
    """psi against theta, with cos(theta) behind it."""
    draw_lines(axes, portrait, lambda curve: curve.psi, np.cos(portrait.theta))
    axes.set(title="ψ(θ), the own logit / s", xlabel="angle θ to the own centre")
    axes.legend(loc="lower left")


def draw_slope(axes: Axes, portrait: MarginPortrait) -> None:
    """d psi/d theta: how hard a sample is pulled towards its centre."""
    draw_lines(axes, portrait, lambda curve: curve.slope, -np.sin(portrait.theta))
    axes.axhline(0.0, color="0.3", linewidth=0.8)
    axes.set(title="its slope  dψ/dθ", xlabel="angle θ to the own centre")


def draw_other(axes: Axes, portrait: MarginPortrait) -> None:
    """How another class counts, for a sample 45 degrees from its own centre."""
    cos = np.cos(portrait.theta)
    draw_lines(axes, portrait, lambda curve: cos if curve.other is None else curve.other, cos)
    axes.set(title="how another class counts", xlabel="angle to the other centre (own at 45°)")
    axes.legend(loc="lower left")


def draw_boundary(axes: Axes, portrait: MarginPortrait) -> None:
    """Where a sample of class 1, or of class 2, has met its margin; between the two is the margin."""
    degrees = np.degrees(portrait.theta)
    main = portrait.curves[portrait.main].lead
    ignored = np.isnan(main.T) & ~(main > 0) | np.isnan(main) & ~(main.T > 0)
    if ignored.any():
        axes.contourf(degrees, degrees, ignored.astype(float), levels=[0.5, 1.5], colors=["0.88"])
        axes.text(30, 25, "other class\nignored", color="0.35", ha="center", va="center")
    for lead, colour in ((main.T, OWN), (main, OTHER)):
        axes.contourf(degrees, degrees, lead, levels=[0.0, np.inf], colors=[colour], alpha=0.18)
    for curve, colour, line in lines(portrait):
        for lead in (curve.lead.T, curve.lead):
            axes.contour(degrees, degrees, lead, levels=[0.0], colors=[colour], linestyles=[line], linewidths=1.8)
    axes.plot([0, 180], [0, 180], color="0.35", linewidth=1.0, linestyle=":")
    axes.text(24, 167, "class 1", color=OWN, ha="center", va="center", fontsize=13, fontweight="bold")
    axes.text(153, 12, "class 2", color=OTHER, ha="center", va="center", fontsize=13, fontweight="bold")
    axes.set(title="where the margin is met", xlabel="angle to centre 1", ylabel="angle to centre 2")
    axes.set(xticks=TICKS, yticks=TICKS, xlim=(0, 180), ylim=(0, 180), aspect="equal")
    axes.xaxis.set_major_formatter("{x:.0f}°")
    axes.yaxis.set_major_formatter("{x:.0f}°")
