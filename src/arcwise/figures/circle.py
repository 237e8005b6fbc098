"""The unit circle of 2-D embeddings: where directions fall, the middle between centres, and the margin as wedges."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from arcwise.figures.canvas import (
    LISTED,
    SMALL,
    TOLD_APART,
    Depiction,
    class_colour,
    class_legend,
    name_at,
    panels,
    shown_heads,
)
from arcwise.metrics.identification import margin_kept
from arcwise.records import Embeddings

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from arcwise.study.subject import Subject

CIRCLE_BINS = 360
HIGHEST_BAR = 1.9  # radius of the highest bar


class CirclePanel(NamedTuple):
    """Embeddings of two dimensions, and the margin in radians whose wedges are drawn."""

    title: str
    embeddings: Embeddings
    centres: np.ndarray
    m: float
    note: str = ""


def draw_circles(shown: list[CirclePanel]) -> Figure:
    """One circle per head; the heights of the bars are those of a histogram of directions, as a square root."""
    with panels(len(shown), high=1.22) as (figure, axes):
        for panel, place in zip(shown, axes, strict=True):
            draw_circle(place, panel)
        class_legend(figure, shown[0].embeddings.names)
    return figure


def draw_circle(axes: Axes, panel: CirclePanel) -> None:
    """Wedges behind, bars of directions outwards from the circle, centres as vectors within it."""
    from matplotlib.patches import Circle, Wedge

    found, w = panel.embeddings, panel.centres
    centre = np.sort(np.arctan2(w[..., 1], w[..., 0]).ravel())
    gaps = np.diff(np.append(centre, centre[0] + 2 * np.pi))
    for start, gap in zip(centre, gaps, strict=True):
        middle, half = np.degrees(start + gap / 2), np.degrees(min(panel.m, gap) / 2)
        if half > 0:
            axes.add_patch(Wedge((0, 0), 1.0, middle - half, middle + half, color="0.86", linewidth=0))
        axes.plot(
            [0, HIGHEST_BAR * np.cos(np.radians(middle))],
            [0, HIGHEST_BAR * np.sin(np.radians(middle))],
            color="0.3",
            linewidth=0.6,
        )
    axes.add_patch(Circle((0, 0), 1.0, fill=False, color="0.45", linewidth=0.7))
    draw_bars(axes, found)
    for c, direction in enumerate(w.reshape(len(w), -1, 2)):
        for v in direction / np.linalg.norm(direction, axis=1, keepdims=True):
            arrow = {"arrowstyle": "-|>", "color": class_colour(c), "linewidth": 1.2, "mutation_scale": 7}
            axes.annotate("", v, (0, 0), arrowprops=arrow)
        if TOLD_APART < len(w) <= LISTED:
            name_at(axes, 0.72 * direction[0] / np.linalg.norm(direction[0]), found.names[c])
    axes.set(xlim=(-2, 2), ylim=(-2, 2), aspect="equal", title=panel.title, xticks=[], yticks=[])
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    axes.set_xlabel(panel.note, fontsize=SMALL)


def draw_bars(axes: Axes, found: Embeddings) -> None:
    """A histogram of each class's directions, standing on the circle."""
    from matplotlib.collections import PolyCollection

    edges = np.linspace(-np.pi, np.pi, CIRCLE_BINS + 1)
    theta = np.arctan2(found.x[:, 1], found.x[:, 0])
    counts = np.stack([np.histogram(theta[found.labels == c], edges)[0] for c in range(len(found.names))])
    height = np.sqrt(counts / max(counts.max(), 1)) * (HIGHEST_BAR - 1.0)
    ends = np.stack([np.cos(edges), np.sin(edges)], axis=1)
    for c in range(len(found.names)):
        full = np.flatnonzero(counts[c])
        bars = [[ends[i], ends[i + 1], ends[i + 1] * (1 + height[c, i]), ends[i] * (1 + height[c, i])] for i in full]
        axes.add_collection(
            PolyCollection(bars, facecolors=class_colour(c), edgecolors=class_colour(c), linewidths=0.2, alpha=0.85)
        )


def unit_circle(about: Subject) -> Iterator[Depiction]:
    """2-D directions on the circle."""
    if about.dim != 2:
        return
    largest = max([about.specs[head].m or 0.0 for head in about.heads]) or 0.5
    shown = []
    for head in shown_heads(about):
        found, centres = about.embeddings(head), about.prototypes(head)
        note = f"{margin_kept(found, centres, largest):.1%} outside the wedges"
        shown.append(CirclePanel(head, found, centres.w, largest, note))
    linear = any(about.specs[head].linear for head in shown_heads(about))
    edges = ", which are the boundaries of a normalised head alone" if linear else ", which are the boundaries"
    yield (
        "The same directions on the unit circle: bars are histograms (square root of the count), arrows the centres, "
        f"lines the middle between neighbouring centres{edges}, grey wedges the margin of {largest:g} rad around each "
        f"line, in which the nearest other centre is less than {largest:g} rad further than the own.",
        draw_circles(shown),
    )
