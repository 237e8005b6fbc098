"""The plane of a 2-D embedding: points, centres as vectors, decision boundaries; one panel per head."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from arcwise.figures.canvas import (
    LISTED,
    PAGE,
    SMALL,
    TOLD_APART,
    Depiction,
    class_colour,
    class_legend,
    class_points,
    name_at,
    panels,
    reach,
    room_for_names,
    shown_heads,
    tell_apart,
)
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
    with panels(len(shown), high=1.3) as (figure, axes):
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
            axes.contour(axis, axis, winner == c, levels=[0.5], colors="0.25", linewidths=0.6, linestyles="-")
    if panel.centres is not None:
        draw_centres(axes, panel.centres, extent)
    if len(found.names) > LISTED:
        draw_density(axes, found, extent)
    else:
        class_points(axes, found.x, found.labels)
        if len(found.names) > TOLD_APART:
            name_classes(axes, found, np.unique(found.labels), extent)
    axes.set(xlim=(-extent, extent), ylim=(-extent, extent), aspect="equal", title=panel.title,
             xticks=[], yticks=[])  # fmt: skip
    axes.plot(0, 0, "+", color="0.2", markersize=5, markeredgewidth=0.8)
    if panel.note:
        axes.set_xlabel(textwrap.fill(panel.note, 32), fontsize=SMALL)


def draw_density(axes: Axes, found: Embeddings, extent: float) -> None:
    """All samples as grey cells, darker where there are more; a few classes far from each other in colours, named."""
    from matplotlib.colors import LogNorm

    inside = np.abs(found.x).max(axis=1) < extent
    frame = (-extent, extent, -extent, extent)
    axes.hexbin(*found.x[inside].T, gridsize=40, extent=frame, cmap="Greys", norm=LogNorm(0.15, None), mincnt=1,
                linewidths=0, alpha=0.7, rasterized=True)  # fmt: skip
    some = far_apart(found)
    few = np.isin(found.labels, some)
    class_points(axes, found.x[few], np.searchsorted(np.sort(some), found.labels[few]))
    name_classes(axes, found, some, extent)


def far_apart(found: Embeddings) -> np.ndarray:
    """As many classes as have a colour, each as far as can be from those before it."""
    middles = np.array([np.median(found.x[found.labels == c], axis=0) for c in np.unique(found.labels)])
    picked = [int(np.linalg.norm(middles, axis=1).argmax())]
    for _ in range(min(TOLD_APART, len(middles)) - 1):
        gaps = np.linalg.norm(middles[:, None] - middles[picked], axis=2).min(axis=1)
        picked.append(int(gaps.argmax()))
    return np.unique(found.labels)[picked]


def name_classes(axes: Axes, found: Embeddings, some: np.ndarray, extent: float) -> None:
    """The names of some classes beside the middle of their samples, of those that have room."""
    middles = [np.median(found.x[found.labels == c], axis=0) for c in some]
    spots = [middle + np.array([0.0, 0.07 * extent]) for middle in middles]  # above the points, not on them
    names = tell_apart([found.names[c] for c in some])
    wide = PAGE / max(1, len(axes.figure.axes)) if len(axes.figure.axes) <= 4 else PAGE / 4
    places = room_for_names(spots, names, extent=extent, inches=0.9 * min(2.4, wide))
    for name, place, middle in zip(names, places, middles, strict=True):
        if place is not None:
            if np.linalg.norm(place - middle) > 0.1 * extent:  # moved aside: a line says which points are meant
                axes.plot(*np.transpose([middle, place]), color="0.2", linewidth=0.5, zorder=5)
            name_at(axes, place, name)


def draw_centres(axes: Axes, w: np.ndarray, extent: float) -> None:
    """Each centre as a vector from the origin, all scaled so that the longest spans most of the panel."""
    w = w.reshape(len(w), -1, 2)
    scale = 0.8 * extent / max(float(np.linalg.norm(w, axis=-1).max()), 1e-12)
    for c, centres in enumerate(w):
        for centre in centres * scale:
            arrow = {"arrowstyle": "-|>", "color": "white", "linewidth": 2.6, "mutation_scale": 8}
            axes.annotate("", centre, (0, 0), arrowprops=arrow, zorder=1)
            arrow |= {"color": class_colour(c), "linewidth": 1.3}
            axes.annotate("", centre, (0, 0), arrowprops=arrow, zorder=1)


def embedding_plane(about: Subject) -> Iterator[Depiction]:
    """2-D embeddings as they are, or the first two principal components; three dimensions have the sphere."""
    if about.dim == 3:
        return
    shown = [
        plane_panel(about, head) if about.dim == 2 else projected_panel(about, head) for head in shown_heads(about)
    ]
    words = (
        "Test embeddings as the networks give them, centres as vectors (their lengths in proportion to each other, "
        "drawn to fill the panel), decision boundaries as lines."
        if about.dim == 2
        else "Test embeddings in the two directions of largest variance: a projection, in which distances are "
        "shortened."
    )
    if len(shown[0].embeddings.names) > LISTED:
        words += (
            f" Grey is the density of all {len(shown[0].embeddings.names)} classes; ten far from each other are in "
            "colour, and named where there is room."
        )
    elif len(shown[0].embeddings.names) > TOLD_APART:
        words += " Classes are named where there is room."
    scale = ", each panel at its own scale" if len(shown) > 1 else ""
    yield f"{words} {about.drawn}{scale}.", draw_planes(shown)


def biased_plane(about: Subject) -> Iterator[Depiction]:
    """A softmax without and with bias side by side, where they are not among the heads that are drawn anyway."""
    plain = about.heads_named("softmax")[:1]
    biased = [head for head in about.aside if about.specs[head].name == "softmax-bias"][:1]
    biased = biased or about.heads_named("softmax-bias")[:1] * (about.imbalanced is not None)
    if about.dim == 2 and plain and biased and not {*plain, *biased} <= set(shown_heads(about)):
        yield (
            f"One run of {plain[0]} and one of {biased[0]} on classes of equal size: without a bias all boundaries "
            "meet at the origin (cross), with one they need not. Seed "
            f"{about.run_of(biased[0]).settings.seed}.",
            draw_planes([plane_panel(about, head) for head in (*plain, *biased)]),
        )


def plane_panel(about: Subject, head: str) -> PlanePanel:
    """Embeddings of two dimensions with the centres and boundaries of their head."""
    found, centres = about.embeddings(head), about.prototypes(head)
    extent = reach(found.x)
    note = f"this seed: {accuracy(found, centres):.2%} right"
    return PlanePanel(head, found, extent, centres.w, decision_grid(centres, extent=extent), note)


def projected_panel(about: Subject, head: str) -> PlanePanel:
    """A panel of the first two principal components; directions for a normalised head."""
    found = about.embeddings(head)
    flat = project(found.x if about.specs[head].linear else directions(found.x), dim=2)
    return PlanePanel(head, replace(found, x=flat.x.astype(np.float32)), reach(flat.x), note=flat.method)
