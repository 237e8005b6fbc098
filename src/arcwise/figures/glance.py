"""The comparison at a glance: every seed as a point, mean and standard deviation, one panel per number."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from arcwise.figures.canvas import COLOURS, Depiction, legend_below, panels, shorten
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
    from matplotlib.lines import Line2D

    heads = list(shown[0].values)
    with panels(len(shown), high=(0.72 + 0.18 * len(heads)) / 1.65) as (figure, axes):
        for panel, place in zip(shown, axes, strict=True):
            for i, values in enumerate(panel.values.values()):
                found, colour = np.asarray(values), COLOURS[i % len(COLOURS)]
                place.plot(
                    found, np.full(len(found), i - 0.14), "o", color=colour, alpha=0.55, markersize=3, clip_on=False
                )
                if len(found) > 1:
                    place.errorbar(found.mean(), i + 0.2, xerr=arms(panel, found)[:, None], fmt="|", color=colour,
                                   markersize=6, capsize=2)  # fmt: skip
            arrow = "↑" if panel.better == "higher" else "↓"
            place.set(title=textwrap.fill(f"{panel.title}\N{NO-BREAK SPACE}{arrow}", 21))
            first = place.get_subplotspec().is_first_col()
            place.set_yticks(range(len(heads)), [shorten(head, 28) for head in heads] if first else [])
            place.set_ylim(len(heads) - 0.4, -0.6)
            place.margins(x=0.08)
            place.grid(axis="y", visible=False)
            low, high = place.get_xlim()
            if low < 0 <= min(min(values) for values in panel.values.values()):
                place.set_xlim(low := 0.0, high)
            if high > (end := largest(panel)):
                place.set_xlim(low, end + 0.01 * (end - low))
        if any(len(values) > 1 for panel in shown for values in panel.values.values()):
            point = Line2D([], [], marker="o", linestyle="", color="0.35", alpha=0.55, markersize=3)
            bar = Line2D([], [], marker="|", color="0.35", markersize=6)
            legend_below(figure, [point, bar], ["one seed", "mean and standard deviation"])
    return figure


def largest(panel: HeadPanel) -> float:
    """Above what a number cannot be: a share ends at 100 %."""
    return 100.0 if panel.title.endswith("%") else math.inf


def arms(panel: HeadPanel, found: np.ndarray) -> np.ndarray:
    """How far a bar reaches to both sides of the mean: one standard deviation, or to where the number ends."""
    mean, deviation = found.mean(), found.std(ddof=1) if len(found) > 1 else 0.0
    least = 0.0 if min(map(min, panel.values.values())) >= 0 else -math.inf
    return np.array([min(deviation, mean - least), min(deviation, largest(panel) - mean)]).clip(0.0)


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
        cut = any((np.ptp(arms(panel, np.array(values))) > 0) for panel in shown for values in panel.values.values())
        words += ", cut off where the number cannot go on" if cut else ""
        yield f"{words}; arrows say which way is better.", draw_glance(shown)


def panel_title(name: str) -> str:
    """A number's words and unit, short enough for a panel."""
    metric = METRICS[name]
    words = (metric.short or metric.label).replace(" %", "\N{NO-BREAK SPACE}%")  # lines end before neither
    return words + (f",\N{NO-BREAK SPACE}{metric.unit}" if metric.unit else "")
