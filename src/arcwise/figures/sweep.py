"""An index over the scale s, one line per margin m, with the spread over seeds."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from arcwise.figures.canvas import COLOURS, Depiction, legend_below, panels, plain_logarithm
from arcwise.figures.glance import panel_title
from arcwise.metrics.summary import MAIN_DUNN, MEAN_DUNN, headline_metrics, in_unit
from arcwise.study.subject import scale_and_margin

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from arcwise.study.subject import Subject


LOGARITHMIC = (MAIN_DUNN, MEAN_DUNN, "angle-own")


class Line(NamedTuple):
    """One margin: scales, and one row of values per seed."""

    label: str
    s: np.ndarray
    values: np.ndarray


class SweepPanel(NamedTuple):
    """One index; `level` is a head without scale, as mean, smallest and largest."""

    title: str
    lines: list[Line]
    level: tuple[float, float, float] | None = None
    logarithmic: bool = False


def draw_sweep(shown: list[SweepPanel]) -> Figure:
    """Lines are means, bands reach from the smallest seed to the largest; grey is softmax, which has no s."""
    with panels(len(shown), high=1.0) as (figure, axes):
        for panel, place in zip(shown, axes, strict=True):
            if panel.level is not None:
                mean, low, high = panel.level
                place.axhline(mean, color="0.5", linewidth=1.0, label="softmax")
                place.axhspan(low, high, color="0.5", alpha=0.15, linewidth=0)
            for i, line in enumerate(panel.lines):
                place.plot(line.s, line.values.mean(axis=0), "o-", color=COLOURS[i], label=line.label, markersize=3)
                place.fill_between(
                    line.s, line.values.min(axis=0), line.values.max(axis=0), color=COLOURS[i], alpha=0.18, linewidth=0
                )
            place.set_xscale("log", base=2)
            if panel.logarithmic:
                place.set_yscale("log")
                plain_logarithm(place.yaxis)
            place.set(title=panel.title, xlabel="scale s", xticks=panel.lines[0].s)
            place.xaxis.set_major_formatter("{x:g}")
        marks, labels = axes[0].get_legend_handles_labels()
        legend_below(figure, marks, labels)
    return figure


def scale_sweep(about: Subject) -> Iterator[Depiction]:
    """Indices over s for each m, closed set and open set."""
    table = about.sweep_table
    if table is None:
        return
    shown = [
        SweepPanel(
            textwrap.fill(panel_title(name), 21),
            sweep_lines(about, name),
            softmax_level(about, name),
            name in LOGARITHMIC,
        )
        for name in headline_metrics()
        if name in table.values
    ]
    lines = {len(line.values) for panel in shown for line in panel.lines}
    grey = ""
    if any(panel.level for panel in shown):
        many = counted_seeds({len(about.table.seeds["softmax"])})
        grey = f"; grey is softmax, which has no s, from {many}"
    yield (
        f"Over the scale s, one line per margin m (m = 0 is NormFace): mean of {counted_seeds(lines)}, bands from the "
        f"smallest to the largest{grey}.",
        draw_sweep(shown),
    )


def counted_seeds(counts: set[int]) -> str:
    """How many seeds means are of.

    >>> counted_seeds({3}), counted_seeds({2, 3}), counted_seeds({1})
    ('3 seeds', '2 to 3 seeds', '1 seed')
    """
    few, many = min(counts), max(counts)
    return f"{few} seed{'s' * (few != 1)}" if few == many else f"{few} to {many} seeds"


def sweep_lines(about: Subject, name: str) -> list[Line]:
    """The values of the sweep by margin."""
    table = about.sweep_table
    assert table is not None
    found: dict[float, dict[float, dict[int, float]]] = {}
    for head in table.heads:
        pair = scale_and_margin(about.specs[head])
        if pair is not None:
            values = [in_unit(name, v) for v in table.values[name][head]]
            found.setdefault(pair[1], {})[pair[0]] = dict(zip(table.seeds[head], values, strict=True))
    lines = []
    for m, by_scale in sorted(found.items()):
        seeds = sorted(set.intersection(*map(set, by_scale.values())))  # all points of a line rest on the same
        s = sorted(by_scale)
        if seeds:
            lines.append(Line(f"m = {m:g}", np.array(s), np.array([[by_scale[v][i] for v in s] for i in seeds])))
    return lines


def softmax_level(about: Subject, name: str) -> tuple[float, float, float] | None:
    """Mean, smallest and largest of softmax, where it was trained too."""
    if "softmax" not in about.table.heads or name not in about.table.values:
        return None
    values = [in_unit(name, v) for v in about.table.values[name]["softmax"]]
    return float(np.mean(values)), min(values), max(values)
