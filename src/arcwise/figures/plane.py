"""The plane of a 2-D embedding: points, centres as vectors, decision boundaries; one panel per head."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from arcwise.figures.canvas import Depiction, class_colour, class_legend, class_points, panels, reach, shown_heads
from arcwise.metrics.identification import accuracy
from arcwise.metrics.planar import Grid, decision_grid
from arcwise.metrics.projection import project
from arcwise.metrics.rows import directions
from arcwise.records import Embeddings

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from arcwise.study.subject import Subject


class PlanePanel(NamedTuple):
    """Embeddings of two dimensions (or projected to two), what the head says over the plane, and words."""

    title: str
    embeddings: Embeddings
    extent: float
    centres: np.ndarray | None = None
    grid: Grid | None = None
    note: str = ""


def draw_planes(shown: list[PlanePanel]) -> Figure:
    """One panel per head, classes in the same colours."""
    with panels(len(shown)) as (figure, axes):
        for panel, place in zip(shown, axes, strict=True):
            draw_panel(place, panel)
        class_legend(figure, shown[0].embeddings.names)
    return figure


def draw_panel(axes: Axes, panel: PlanePanel) -> None:
    """Centres first, so that tight classes are seen on them; then points and boundaries."""
    found, extent = panel.embeddings, panel.extent
    if panel.grid is not None:
        axis, winner = panel.grid.axis, panel.grid.winner
        for c in np.unique(winner):
            axes.contour(axis, axis, winner == c, levels=[0.5], colors="0.25", linewidths=0.9, linestyles="-")
    if panel.centres is not None:
        draw_centres(axes, panel.centres, extent)
    class_points(axes, found.x, found.labels)
    axes.set(xlim=(-extent, extent), ylim=(-extent, extent), aspect="equal", title=panel.title)
    axes.plot(0, 0, "+", color="0.2", markersize=8, markeredgewidth=1.2)
    if panel.note:
        axes.set_xlabel(panel.note, fontsize=10.5)


def draw_centres(axes: Axes, w: np.ndarray, extent: float) -> None:
    """Each centre as a vector from the origin, all scaled so that the longest spans most of the panel."""
    w = w.reshape(len(w), -1, 2)
    scale = 0.8 * extent / max(float(np.linalg.norm(w, axis=-1).max()), 1e-12)
    for c, centres in enumerate(w):
        for centre in centres * scale:
            arrow = {"arrowstyle": "-|>", "color": "white", "linewidth": 4.5, "mutation_scale": 16}
            axes.annotate("", centre, (0, 0), arrowprops=arrow, zorder=1)
            arrow |= {"color": class_colour(c), "linewidth": 2.4}
            axes.annotate("", centre, (0, 0), arrowprops=arrow, zorder=1)


def embedding_plane(about: Subject) -> Iterator[Depiction]:
    """2-D embeddings as they are, or the first two principal components."""
    shown = [
        plane_panel(about, head) if about.dim == 2 else projected_panel(about, head) for head in shown_heads(about)
    ]
    words = (
        "Test embeddings as the networks give them, centres as vectors (lengths in proportion), decision boundaries "
        "as lines."
        if about.dim == 2
        else "Test embeddings in the two directions of largest variance: a projection, in which distances are "
        "shortened."
    )
    yield words, draw_planes(shown)


def plane_panel(about: Subject, head: str) -> PlanePanel:
    """Embeddings of two dimensions with the centres and boundaries of their head."""
    found, centres = about.embeddings(head), about.prototypes(head)
    extent = reach(found.x)
    note = f"test accuracy {accuracy(found, centres):.2%}"
    return PlanePanel(head, found, extent, centres.w, decision_grid(centres, extent=extent), note)


def projected_panel(about: Subject, head: str) -> PlanePanel:
    """A panel of the first two principal components; directions for a normalised head."""
    found = about.embeddings(head)
    flat = project(found.x if about.specs[head].linear else directions(found.x), dim=2)
    return PlanePanel(head, replace(found, x=flat.x.astype(np.float32)), reach(flat.x), note=flat.method)
