"""Curves over the epochs with their spread over seeds: loss, accuracy, angles, indices."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from arcwise.figures.canvas import COLOURS, SMALL, Depiction, legend_below, panels, plain_logarithm, shown_heads
from arcwise.records import Run
from arcwise.schema import is_finite

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from arcwise.study.subject import Subject


class Curve(NamedTuple):
    """One number over the epochs, one row per seed."""

    head: str
    epochs: np.ndarray
    values: np.ndarray


class CurvePanel(NamedTuple):
    """All heads' curves of one number."""

    title: str
    curves: list[Curve]
    unit: str = ""
    logarithmic: bool = False
    lines: tuple[tuple[float, str], ...] = ()


def draw_curves(shown: list[CurvePanel], *, most: int = 4, high: float = 0.85) -> Figure:
    """Lines are means over the seeds, bands reach from the smallest to the largest."""
    with panels(len(shown), high=high, most=most) as (figure, axes):
        for panel, place in zip(shown, axes, strict=True):
            for i, curve in enumerate(panel.curves):
                colour = COLOURS[i % len(COLOURS)]
                values = np.where(np.isfinite(curve.values), curve.values, np.nan)  # what is infinite is not drawn
                place.plot(curve.epochs, values.mean(axis=0), color=colour, label=curve.head)
                low, high = values.min(axis=0), values.max(axis=0)
                place.fill_between(curve.epochs, low, high, color=colour, alpha=0.2, linewidth=0)
            for i, (value, words) in enumerate(panel.lines):
                place.axhline(value, color="0.35", linewidth=0.7, linestyle="--")
                place.annotate(
                    words,
                    (1.02, value),  # beside the panel, where no curve is
                    xycoords=("axes fraction", "data"),
                    ha="left",
                    va="center" if len(panel.lines) == 1 else "bottom" if i else "top",  # two may be close
                    fontsize=SMALL,
                    color="0.25",
                )
            if panel.logarithmic and any(worth_drawing(curve.values).any() for curve in panel.curves):
                place.set_yscale("log")
                if panel.lines:  # all of them are seen
                    place.set_ylim(top=max(place.get_ylim()[1], 1.5 * max(value for value, _ in panel.lines)))
                plain_logarithm(place.yaxis)
            place.set(title=panel.title, xlabel="epoch", ylabel=panel.unit)
            place.xaxis.get_major_locator().set_params(integer=True)
        marks, labels = axes[0].get_legend_handles_labels()
        legend_below(figure, marks, labels)
    return figure


def worth_drawing(values: Float[np.ndarray, ...]) -> Bool[np.ndarray, ...]:
    """Which values have a place on a logarithmic axis."""
    return np.isfinite(values) & (values > 0)


def training_curves(about: Subject) -> Iterator[Depiction]:
    """Loss, accuracy and angles over the epochs."""
    degree = math.degrees(1.0)
    wanted = (
        ("loss", "loss", 1.0, True),
        ("accuracy", "accuracy, %", 100.0, False),
        ("angle_own", "to own centre, °", degree, False),
        ("angle_other", "to nearest other, °", degree, False),
    )
    heads = about.heads if len(about.heads) <= len(COLOURS) else shown_heads(about)  # colours would repeat
    shown = []
    for key, title, factor, logarithmic in wanted:
        every = [curve_of(head, about.runs[head], key, factor) for head in heads]
        curves = [curve for curve in every if curve is not None]
        if curves:
            shown.append(CurvePanel(title, curves, logarithmic=logarithmic))
    apart = ""
    if len(heads) > 1 and shown and shown[0].title == "loss":
        apart = " Each head's loss is another function, so that only its course can be compared, not its height."
    if shown:
        yield (
            f"Loss, accuracy and angles to the centres on the {about.watched} images over the epochs: lines are means "
            f"over the seeds, bands reach from the smallest to the largest.{apart}"
            + (f" Shown are {len(heads)} of {len(about.heads)} heads." if len(heads) < len(about.heads) else ""),
            draw_curves(shown),
        )


def curve_of(head: str, runs: list[Run], key: str, factor: float) -> Curve | None:
    """One number over the epochs, of the runs that were judged at the same epochs as the first of them."""
    series = [
        {e["epoch"]: factor * e[key] for e in run.journal("evaluation") if is_number(e.get(key), e.get("epoch"))}
        for run in runs
    ]
    series = [values for values in series if len(values) > 1]
    alike = [values for values in series if values.keys() == series[0].keys()]
    if not alike:
        return None
    return Curve(head, np.array(list(alike[0])), np.array([list(values.values()) for values in alike]))


def is_number(*values: object) -> bool:
    """Whether all of them are numbers, which a journal edited by hand may not hold."""
    return all(isinstance(value, int | float) and is_finite(value) for value in values)
