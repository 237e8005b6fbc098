"""Histograms of the angles to the own and the nearest other centre, before training and after."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from arcwise.figures.canvas import COLOURS, Depiction, inward_ends, legend_below, panels, shown_heads
from arcwise.metrics.identification import nearest_prototype
from arcwise.records import Embeddings, Prototypes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from arcwise.study.subject import Subject


class AnglePanel(NamedTuple):
    """Angles in radians after training and, where there is a snapshot of it, before."""

    title: str
    own: np.ndarray
    other: np.ndarray
    own_before: np.ndarray | None = None
    other_before: np.ndarray | None = None


def draw_angles(shown: list[AnglePanel]) -> Figure:
    """Filled: after training; outlines: before."""
    bins = np.linspace(0, 180, 91)
    with panels(len(shown), high=0.85) as (figure, axes):
        for panel, place in zip(shown, axes, strict=True):
            for values, colour, label in (
                (panel.own, COLOURS[0], "own centre"),
                (panel.other, COLOURS[4], "nearest other"),
            ):
                place.hist(np.degrees(values), bins, color=colour, alpha=0.65, label=label, density=True)
            for values, colour, label in (
                (panel.own_before, COLOURS[0], "own, before training"),
                (panel.other_before, COLOURS[4], "nearest other, before training"),
            ):
                if values is not None:
                    place.hist(np.degrees(values), bins, color=colour, histtype="step", linewidth=0.8, density=True,
                               label=label)  # fmt: skip
            place.set(title=panel.title, xlabel="angle", xlim=(0, 180), xticks=(0, 90, 180), yticks=[])
            place.margins(y=0.08)
            place.set_ylim(bottom=0)
            place.xaxis.set_major_formatter("{x:.0f}°")
            inward_ends(place)
        axes[0].set_ylabel("share of samples")
        marks, labels = axes[0].get_legend_handles_labels()
        legend_below(figure, marks, labels)
    return figure


def angle_histograms(about: Subject) -> Iterator[Depiction]:
    """Own and nearest other angles, after training and before."""
    shown = []
    for head in shown_heads(about):
        first = next(iter(about.snapshots(head, "test")), None)
        start = None if first is None else about.centres_at(head, first)
        before = (None, None) if first is None or start is None else both_angles(first, start)
        shown.append(AnglePanel(head, *both_angles(about.embeddings(head), about.prototypes(head)), *before))
    before = " Outlines show them before training." if any(panel.own_before is not None for panel in shown) else ""
    height = " Each panel has its own height." if len(shown) > 1 else ""
    yield (
        f"Angles of the test samples to their own and to the nearest other centre. {about.drawn}.{before}{height}",
        draw_angles(shown),
    )


def both_angles(found: Embeddings, centres: Prototypes) -> tuple[np.ndarray, np.ndarray]:
    """Angles to the own and the nearest other centre."""
    named = nearest_prototype(found, centres)
    return named.angle_own, named.angle_other
