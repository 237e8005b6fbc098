"""Returns an index over the scale s, one line per margin m, with the spread over seeds."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from arcwise.figures import COLOURS, panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Line(NamedTuple):
    """One margin: scales, and one row of values per seed."""

    label: str
    s: np.ndarray
    values: np.ndarray


class Panel(NamedTuple):
    """One index; `level` is a head without scale, as mean, smallest and largest."""

    title: str
    lines: list[Line]
    level: tuple[float, float, float] | None = None
    logarithmic: bool = False


def draw(shown: list[Panel]) -> Figure:
    """Lines are means, bands reach from the smallest seed to the largest; grey is softmax, which has no s."""
    with panels(len(shown), high=3.9) as (figure, axes):
        for panel, place in zip(shown, axes, strict=True):
            if panel.level is not None:
                mean, low, high = panel.level
                place.axhline(mean, color="0.5", linewidth=1.6, label="softmax")
                place.axhspan(low, high, color="0.5", alpha=0.15, linewidth=0)
            for i, line in enumerate(panel.lines):
                place.plot(line.s, line.values.mean(axis=0), "o-", color=COLOURS[i], label=line.label, markersize=5)
                place.fill_between(
                    line.s, line.values.min(axis=0), line.values.max(axis=0), color=COLOURS[i], alpha=0.18, linewidth=0
                )
            place.set_xscale("log", base=2)
            if panel.logarithmic:
                place.set_yscale("log")
            place.set(title=panel.title, xlabel="scale s", xticks=panel.lines[0].s)
            place.xaxis.set_major_formatter("{x:g}")
        marks, labels = axes[0].get_legend_handles_labels()
        figure.legend(marks, labels, loc="outside lower center", ncols=len(labels))
    return figure
