"""Returns curves over the epochs with their spread over seeds: loss, accuracy, angles, indices."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from arcwise.figures import COLOURS, panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Curve(NamedTuple):
    """One number over the epochs, one row per seed."""

    head: str
    epochs: np.ndarray
    values: np.ndarray


class Panel(NamedTuple):
    """All heads' curves of one number."""

    title: str
    curves: list[Curve]
    unit: str = ""
    logarithmic: bool = False
    lines: tuple[tuple[float, str], ...] = ()


def draw(shown: list[Panel], *, most: int = 4, high: float = 3.8) -> Figure:
    """Lines are means over the seeds, bands reach from the smallest to the largest."""
    with panels(len(shown), high=high, most=most) as (figure, axes):
        for panel, place in zip(shown, axes, strict=True):
            for i, curve in enumerate(panel.curves):
                colour = COLOURS[i % len(COLOURS)]
                place.plot(curve.epochs, curve.values.mean(axis=0), color=colour, label=curve.head)
                place.fill_between(
                    curve.epochs,
                    curve.values.min(axis=0),
                    curve.values.max(axis=0),
                    color=colour,
                    alpha=0.2,
                    linewidth=0,
                )
            for value, words in panel.lines:
                place.axhline(value, color="0.35", linewidth=1.0, linestyle="--")
                place.annotate(
                    words,
                    (1, value),
                    xycoords=("axes fraction", "data"),
                    ha="right",
                    va="bottom",
                    fontsize=8.5,
                    color="0.25",
                )
            if panel.logarithmic:
                place.set_yscale("log")
            place.set(title=panel.title, xlabel="epoch", ylabel=panel.unit)
            place.xaxis.get_major_locator().set_params(integer=True)
        marks, labels = axes[0].get_legend_handles_labels()
        figure.legend(marks, labels, loc="outside lower center", ncols=min(len(labels), 5))
    return figure
