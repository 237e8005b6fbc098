"""A schematic of eight classes in the plane: softmax beside ArcFace, with the geodesic along the circle."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from arcwise.figures.canvas import Depiction, class_colour, panels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from arcwise.study.subject import Subject

CLASSES = 8


def draw_story() -> Figure:
    """Two panels, drawn from random numbers, not measured: wide fans that touch, and narrow arcs with room between."""
    random = np.random.default_rng(4)
    centre = 2 * np.pi * np.arange(CLASSES) / CLASSES
    with panels(2, high=1.05) as (figure, axes):
        for place, spread, title in zip(axes, (0.17, 0.045), ("softmax", "ArcFace"), strict=True):
            for c, start in enumerate(centre):
                theta = start + spread * random.standard_normal(120).clip(-2.2, 2.2)
                radius = random.uniform(0.35, 1.25, 120) if title == "softmax" else np.ones(120)
                place.plot(
                    radius * np.cos(theta), radius * np.sin(theta), ".", color=class_colour(c), markersize=3, alpha=0.7
                )
                edge = start + np.pi / CLASSES
                place.plot([0, 1.35 * np.cos(edge)], [0, 1.35 * np.sin(edge)], color="0.6", linewidth=0.6)
            if title == "ArcFace":
                draw_geodesic(place, centre)
            place.set(xlim=(-1.45, 1.45), ylim=(-1.45, 1.45), aspect="equal", title=title, xticks=[], yticks=[])
            place.grid(visible=False)
            place.spines[:].set_visible(False)
    return figure


def draw_geodesic(axes: Axes, centre: np.ndarray) -> None:
    """The circle, the arc between two centres, and the margin on both sides of their boundary."""
    t = np.linspace(0, 2 * np.pi, 200)
    axes.plot(np.cos(t), np.sin(t), color="0.75", linewidth=0.8, zorder=0)
    arc = np.linspace(centre[0], centre[1], 50)
    axes.plot(1.13 * np.cos(arc), 1.13 * np.sin(arc), color="black", linewidth=1.0)
    middle = (centre[0] + centre[1]) / 2
    above = middle + 0.16  # clear of the boundary, which goes on outwards
    axes.text(1.19 * np.cos(above), 1.19 * np.sin(above), "geodesic\ndistance", fontsize=7.4, ha="left", va="bottom")
    wedge = np.linspace(middle - 0.2, middle + 0.2, 30)
    axes.fill(np.append(0, np.cos(wedge)), np.append(0, np.sin(wedge)), color="0.85", zorder=0)
    axes.text(
        0.62 * np.cos(middle),
        0.62 * np.sin(middle),
        "margin",
        rotation=np.degrees(middle),
        ha="center",
        va="center",
        fontsize=7.4,
    )


def eight_classes(about: Subject) -> Iterator[Depiction]:
    """The schematic of softmax and ArcFace."""
    yield (
        "Schematic, not measured: eight classes in the plane. Softmax needs only the right side of each boundary; "
        "ArcFace asks for room beside it, measured along the circle.",
        draw_story(),
    )
