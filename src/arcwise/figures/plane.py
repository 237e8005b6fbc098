"""Returns the plane of a 2-D embedding: points, centres as vectors, decision boundaries; one panel per head."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from arcwise.figures import class_colour, class_legend, class_points, panels
from arcwise.metrics.planar import Grid
from arcwise.records import Embeddings

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class Panel(NamedTuple):
    """Embeddings of two dimensions (or projected to two), what the head says over the plane, and words."""

    title: str
    embeddings: Embeddings
    extent: float
    grid: Grid | None = None
    note: str = ""


def draw(shown: list[Panel], *, title: str = "") -> Figure:
    """One panel per head, classes in the same colours."""
    with panels(len(shown)) as (figure, axes):
        for panel, place in zip(shown, axes, strict=True):
            draw_panel(place, panel)
        class_legend(figure, shown[0].embeddings.names)
        if title:
            figure.suptitle(title)
    return figure


def draw_panel(axes: Axes, panel: Panel) -> None:
    """Centres first, so that tight classes are seen on them; then points and boundaries."""
    found, extent = panel.embeddings, panel.extent
    if panel.grid is not None:
        axis, winner = panel.grid.axis, panel.grid.winner
        for c in np.unique(winner):
            axes.contour(axis, axis, winner == c, levels=[0.5], colors="0.25", linewidths=0.9, linestyles="-")
    if found.prototypes is not None and found.prototypes.shape[-1] == 2:
        draw_centres(axes, found.prototypes, extent)
    class_points(axes, found.x, found.y)
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
