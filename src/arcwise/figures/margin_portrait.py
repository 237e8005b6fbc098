"""Returns the picture of one margin: psi(theta), its slope, and the boundary between two classes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from arcwise.figures import COLOURS, STYLE
from arcwise.records import MarginPortrait

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TICKS = (0, 45, 90, 135, 180)


def draw(portrait: MarginPortrait) -> Figure:
    """Three panels side by side, one line per setting; a fourth where other classes are reshaped."""
    import matplotlib.pyplot as plt

    with plt.rc_context(STYLE):
        panels = [draw_psi, draw_slope, draw_boundary]
        if any(curve.other is not None for curve in portrait.curves):
            panels.insert(2, draw_other)
        figure, axes = plt.subplots(1, len(panels), figsize=(4.4 * len(panels), 4.5), layout="constrained")
        for panel, place in zip(panels, axes, strict=True):
            panel(place, portrait)
        figure.suptitle(f"{portrait.title}:  ψ = {portrait.formula}", fontsize=14)
    return figure


def lines(portrait: MarginPortrait):
    """Each curve with the colour and the line that it keeps in all panels."""
    for i, curve in enumerate(portrait.curves):
        yield curve, COLOURS[i], "-" if i == portrait.main or len(portrait.curves) == 1 else "--"


def draw_psi(axes: Axes, portrait: MarginPortrait) -> None:
    """psi against theta, with cos(theta) behind it."""
    degrees = np.degrees(portrait.theta)
    axes.plot(degrees, np.cos(portrait.theta), color="0.65", linewidth=1.5, label="cos θ")
    for curve, colour, line in lines(portrait):
        axes.plot(degrees, curve.psi, line, color=colour, label=curve.label or "ψ")
    axes.set(title="own logit  ψ(θ)", xlabel="angle θ to the own centre", xticks=TICKS)
    label_degrees(axes)
    axes.legend(loc="lower left")


def draw_slope(axes: Axes, portrait: MarginPortrait) -> None:
    """d psi/d theta: how hard a sample is pulled towards its centre."""
    degrees = np.degrees(portrait.theta)
    axes.plot(degrees, -np.sin(portrait.theta), color="0.65", linewidth=1.5)
    for curve, colour, line in lines(portrait):
        axes.plot(degrees, curve.slope, line, color=colour)
    axes.axhline(0.0, color="0.3", linewidth=0.8)
    axes.set(title="its slope  dψ/dθ", xlabel="angle θ to the own centre", xticks=TICKS)
    label_degrees(axes)


def draw_boundary(axes: Axes, portrait: MarginPortrait) -> None:
    """Where a sample of class 1, or of class 2, has met its margin; between the two is the margin."""
    degrees = np.degrees(portrait.theta)
    main = portrait.curves[portrait.main]
    for lead, colour in ((main.lead.T, COLOURS[0]), (main.lead, COLOURS[4])):
        axes.contourf(degrees, degrees, lead, levels=[0.0, np.inf], colors=[colour], alpha=0.18)
    for curve, colour, line in lines(portrait):
        for lead in (curve.lead.T, curve.lead):
            axes.contour(degrees, degrees, lead, levels=[0.0], colors=[colour], linestyles=[line], linewidths=1.8)
    axes.plot([0, 180], [0, 180], color="0.35", linewidth=1.0, linestyle=":")
    axes.text(24, 167, "class 1", color=COLOURS[0], ha="center", va="center", fontsize=13, fontweight="bold")
    axes.text(153, 12, "class 2", color=COLOURS[4], ha="center", va="center", fontsize=13, fontweight="bold")
    axes.set(
        title="where the margin is met", xlabel="angle to centre 1", ylabel="angle to centre 2",
        xticks=TICKS, yticks=TICKS, aspect="equal",
    )  # fmt: skip
    label_degrees(axes)
    axes.yaxis.set_major_formatter("{x:.0f}°")


def draw_other(axes: Axes, portrait: MarginPortrait) -> None:
    """What another class counts, for a sample 45 degrees from its own centre."""
    degrees = np.degrees(portrait.theta)
    axes.plot(degrees, np.cos(portrait.theta), color="0.65", linewidth=1.5)
    for curve, colour, line in lines(portrait):
        values = np.cos(portrait.theta) if curve.other is None else curve.other
        axes.plot(degrees, values, line, color=colour)
    axes.set(title="what another class counts", xlabel="angle to the other centre (own at 45°)", xticks=TICKS)
    label_degrees(axes)


def label_degrees(axes: Axes) -> None:
    """Degrees along the horizontal axis."""
    axes.set_xlim(0, 180)
    axes.xaxis.set_major_formatter("{x:.0f}°")
