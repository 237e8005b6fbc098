"""The comparison at a glance: every seed as a point, mean and standard deviation, one panel per number."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from arcwise.figures.canvas import COLOURS, Depiction, panels, shorten
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
    """Heads below each other; an arrow at the title says which way is better."""
    heads = list(shown[0].values)
    with panels(len(shown), most=3, high=(0.75 + 0.17 * len(heads)) / 2.2) as (figure, axes):
        for at, (panel, place) in enumerate(zip(shown, axes, strict=True)):
            for i, values in enumerate(panel.values.values()):
                found, colour = np.asarray(values), COLOURS[i % len(COLOURS)]
                place.plot(
                    found, np.full(len(found), i - 0.14), "o", color=colour, alpha=0.55, markersize=3, clip_on=False
                )
                deviation = found.std(ddof=1) if len(found) > 1 else 0.0
                place.errorbar(found.mean(), i + 0.2, xerr=deviation, fmt="|", color=colour, markersize=6, capsize=2)
            place.set(title=f"{textwrap.fill(panel.title, 25)} {'↑' if panel.better == 'higher' else '↓'}")
            place.set_yticks(range(len(heads)), [shorten(head, 28) for head in heads] if at % 3 == 0 else [])
            place.set_ylim(len(heads) - 0.4, -0.6)
            place.margins(x=0.08)
            place.grid(axis="y", visible=False)
            low, high = place.get_xlim()
            if low < 0 <= min(min(values) for values in panel.values.values()):
                place.set_xlim(low := 0.0, high)
            if panel.title.endswith("%") and high > 100:
                place.set_xlim(low, 100.0 + 0.01 * (100.0 - low))
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
        several = max(map(len, table.seeds.values())) > 1
        words = "Every seed is a point, bars are mean and standard deviation" if several else "The numbers of one seed"
        words += "; arrows say which way is better."
        yield words, draw_glance(shown)


def panel_title(name: str) -> str:
    """A number's words and unit, short enough for a panel."""
    metric = METRICS[name]
    return (metric.short or metric.label) + (f", {metric.unit}" if metric.unit else "")
