"""Every Dunn index over the epochs, with the published pair where it belongs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from arcwise.figures.canvas import Depiction, shown_heads
from arcwise.figures.training import Curve, CurvePanel, draw_curves, worth_drawing
from arcwise.metrics.clusters import DISTANCES
from arcwise.metrics.summary import BETWEEN_INSIDE, dunn_name

if TYPE_CHECKING:
    from arcwise.study.subject import Subject

PUBLISHED = ((5.31, "5.31"), (29.11, "29.11"))  # softmax, NormFace
LOWEST = 1e-2  # on the logarithmic axis


def dunn_over_epochs(about: Subject) -> Iterator[Depiction]:
    """One picture per distance, one panel per variant."""
    series = {head: about.dunn_series(head) for head in shown_heads(about)}
    if not all(len(found) and found[0] for found in series.values()):
        return
    lines = PUBLISHED if is_published(about) else ()
    for distance in DISTANCES:
        shown = []
        for between, inside in BETWEEN_INSIDE:
            name = dunn_name(between, inside, distance)
            curves = [
                Curve(head, np.arange(len(found[0])), np.maximum([[e[name] for e in run] for run in found], LOWEST))
                for head, found in series.items()
            ]
            shown.append(CurvePanel(f"{between} / {inside}", curves, logarithmic=True, lines=lines))
        if not any(worth_drawing(curve.values).any() for panel in shown for curve in panel.curves):
            continue  # all of them infinite: one image a class, or classes without extent
        lowest = min(float(curve.values.min()) for panel in shown for curve in panel.curves)
        low = f" What is below {LOWEST:g} is drawn there." if lowest <= LOWEST else ""
        yield (
            f"Dunn indices over the epochs, distance: {distance}; 95 % of each class kept, snapshots of the test "
            f"images.{low}{' Dashed: the published 5.31 (softmax) and 29.11 (NormFace).' if lines else ''}",
            draw_curves(shown, most=3, high=0.62),
        )


def is_published(about: Subject) -> bool:
    """Whether this is the experiment whose two Dunn indices were published."""
    return about.config.recipe == "mnist5-2d" and about.config.data.source.startswith("mnist")
