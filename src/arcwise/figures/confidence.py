"""The confidence surface over the plane: what each network says, also far from all data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from arcwise.figures.canvas import SMALL, Depiction, class_colour, class_legend, panels, reach, shown_heads
from arcwise.figures.plane import PlanePanel
from arcwise.metrics.planar import decision_grid

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from arcwise.study.subject import Subject

LEVELS = (0.5, 0.9, 0.99)  # whose contours are drawn


def draw_confidence(shown: list[PlanePanel]) -> Figure:
    """The winner's colour, paler where it is less sure; contours at 50, 90 and 99 %; every tenth sample in black."""
    from matplotlib.colors import to_rgb

    with panels(len(shown), high=1.25) as (figure, axes):
        for panel, place in zip(shown, axes, strict=True):
            assert panel.grid is not None
            axis, found = panel.grid.axis, panel.embeddings
            colour = np.array([to_rgb(class_colour(c)) for c in range(len(found.names))])[panel.grid.winner]
            chance = 1.0 / len(found.names)
            sure = ((panel.grid.confidence - chance) / max(1.0 - chance, 1e-9)).clip(0, 1)[..., None]
            e = panel.extent
            place.imshow(1 - (1 - colour) * sure * 0.8, origin="lower", extent=(-e, e, -e, e), interpolation="bilinear")
            for level, width in zip(reached(panel), (0.4, 0.6, 0.8), strict=False):
                place.contour(axis, axis, panel.grid.confidence, levels=[level], colors="0.15", linewidths=[width])
            x = found.x[::10]
            place.plot(x[:, 0], x[:, 1], ".", color="black", markersize=0.9, alpha=0.6, rasterized=True)
            place.set(xlim=(-e, e), ylim=(-e, e), aspect="equal", title=panel.title, xticks=[], yticks=[])
            place.grid(visible=False)
            place.set_xlabel(panel.note, fontsize=SMALL)
        class_legend(figure, shown[0].embeddings.names)
    return figure


def reached(panel: PlanePanel) -> list[float]:
    """Which levels a head comes to anywhere on the plane that is drawn."""
    assert panel.grid is not None
    return [level for level in LEVELS if panel.grid.confidence.min() < level <= panel.grid.confidence.max()]


def unreached_words(shown: list[PlanePanel]) -> str:
    """Which heads never come to which of the levels: there is no line of it in their panels."""
    words = []
    for level in LEVELS:
        below = [panel.title for panel in shown if panel.grid is not None and panel.grid.confidence.max() < level]
        below = [head for head in below if head not in "; ".join(words)]
        if below:
            words.append(f"{' and '.join(below)} never reach{'es' * (len(below) == 1)} {100 * level:.0f} %")
    return f" ({'; '.join(words)})" if words else ""


def confidence_surface(about: Subject) -> Iterator[Depiction]:
    """What the heads say over the whole plane."""
    if about.dim != 2:
        return
    shown = []
    for head in shown_heads(about):
        found, centres = about.embeddings(head), about.prototypes(head)
        extent = 2.0 * reach(found.x)
        grid = decision_grid(centres, extent=extent)
        sides = grid.confidence[[0, -1]], grid.confidence[:, [0, -1]]
        edge = float(np.mean([side.mean() for side in sides]))
        shown.append(PlanePanel(head, found, extent, centres.w, grid, f"mean at the edge {edge:.1%}"))
    yield (
        "What each head says over the plane, twice as far out as its data (black): a linear head grows surer with "
        "distance from the origin, a normalised one depends on the direction alone. Lines are 50, 90 and "
        f"99 %{unreached_words(shown)}; below each panel the mean confidence along its edge.",
        draw_confidence(shown),
    )
