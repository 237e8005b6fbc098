"""The comparison at a glance: every seed as a point, mean and standard deviation, one panel per number."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from arcwise.figures.canvas import COLOURS, Depiction, panels
from arcwise.metrics.summary import METRICS, headline_metrics, in_unit

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from arcwise.study.subject import Subject


class HeadPanel(NamedTuple):
    """One number: its words, and the values of each head over the seeds, in the unit that is shown."""

    title: str
    values: dict[str, list[float]]
    better: str = "higher"


def draw_glance(shown: list[HeadPanel]) -> Figure:
    """Heads side by side; an arrow at the title says which way is better."""
    with panels(len(shown), wide=3.9, high=3.5, most=5) as (figure, axes):
        few = len(shown[0].values) <= 4  # names that have room side by side
        for panel, place in zip(shown, axes, strict=True):
            for i, values in enumerate(panel.values.values()):
                found, colour = np.asarray(values), COLOURS[i % len(COLOURS)]
                offsets = np.linspace(-0.12, 0.12, len(found)) if len(found) > 1 else np.zeros(1)
                place.plot(i + offsets, found, "o", color=colour, alpha=0.55, markersize=6)
                deviation = found.std(ddof=1) if len(found) > 1 else 0.0
                place.errorbar(i + 0.27, found.mean(), deviation, fmt="_", color=colour, markersize=12, capsize=3)
            place.set(
                title=f"{panel.title} {'↑' if panel.better == 'higher' else '↓'}", xlim=(-0.5, len(panel.values) - 0.3)
            )
            place.title.set_fontsize(11)
            names = [name.replace(" ", "\n", 1 if few else 0) for name in panel.values]
            place.set_xticks(range(len(names)), names, fontsize=9 if few else 8)
            place.tick_params(axis="x", rotation=0 if few else 40)
            place.grid(axis="x", visible=False)
    return figure


def at_a_glance(about: Subject) -> Iterator[Depiction]:
    """The main numbers, every seed a point."""
    table = about.table
    shown = [
        HeadPanel(
            panel_title(name),
            {head: [in_unit(name, v) for v in table.values[name][head]] for head in table.heads},
            METRICS[name].better,
        )
        for name in headline_metrics()
        if name in table.values and all(math.isfinite(v) for many in table.values[name].values() for v in many)
    ]
    if shown:
        words = "Every seed is a point, bars are mean and standard deviation; arrows say which way is better."
        yield words, draw_glance(shown)


def panel_title(name: str) -> str:
    """A number's words and unit, short enough for a panel."""
    metric = METRICS[name]
    return (metric.short or metric.label) + (f", {metric.unit}" if metric.unit else "")
