"""The sphere of 3-D embeddings: directions of the samples, centres, and caps that touch in the best packing."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from arcwise.figures.canvas import (
    PAGE,
    SMALL,
    Depiction,
    class_colour,
    class_legend,
    name_at,
    paler,
    panels,
    point_look,
    room_for_names,
    shown_heads,
    tell_apart,
)
from arcwise.metrics.clusters import class_angles
from arcwise.metrics.identification import mean_centres
from arcwise.records import Embeddings

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from arcwise.study.subject import Subject


class SpherePanel(NamedTuple):
    """Embeddings of three dimensions, the centres to mark (unit vectors), and the radius of their caps in radians.

    `radius` is what the samples are divided by: their own length for a normalised head (0), else a fixed number.
    """

    title: str
    embeddings: Embeddings
    centres: np.ndarray
    cap: float
    note: str = ""
    radius: float = 0.0


class View(NamedTuple):
    """Where the sphere is seen from, in degrees."""

    elevation: float = 20.0
    azimuth: float = -60.0

    def turned(self, x: np.ndarray) -> np.ndarray:
        """Right, up and toward the eye, for each row."""
        e, a = np.radians(self.elevation), np.radians(self.azimuth)
        toward = np.array([np.cos(e) * np.cos(a), np.cos(e) * np.sin(a), np.sin(e)])
        right = np.array([-np.sin(a), np.cos(a), 0.0])
        return x @ np.stack([right, np.cross(toward, right), toward], axis=1)


WIDEST = 2.4  # inches of a panel
EXTENT = 1.3  # of a panel, in radii to each side


def draw_spheres(shown: list[SpherePanel], *, view: View | None = None) -> Figure:
    """One sphere per panel, seen from far away; what lies behind is paler."""
    wide = min(WIDEST, PAGE / min(4, len(shown)))
    with panels(len(shown), high=1.0 + 0.7 / wide, widest=WIDEST) as (figure, axes):
        for panel, place in zip(shown, axes, strict=True):
            draw_sphere(place, panel, view or View())
        class_legend(figure, shown[0].embeddings.names)
    return figure


def on_sphere(panel: SpherePanel) -> np.ndarray:
    """The samples on the unit sphere, or inside it where their lengths count."""
    x = panel.embeddings.x
    return x / panel.radius if panel.radius else x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12)


def draw_sphere(axes: Axes, panel: SpherePanel, view: View) -> None:
    """The globe, then what is behind the middle, then what is in front of it."""
    found, seen = panel.embeddings, view.turned(on_sphere(panel))
    draw_globe(axes, view)
    size = point_look(len(seen))["markersize"]
    for c in range(len(found.names)):
        far = seen[:, 2] <= 0  # pale however many lie on each other, and below all that is near
        for side, look in ((far, {"color": paler(class_colour(c), 0.3), "zorder": 1.0}),
                           (~far, {"color": class_colour(c), "alpha": 0.6, "zorder": 2.0})):  # fmt: skip
            here = seen[(found.labels == c) & side]
            axes.plot(here[:, 0], here[:, 1], ".", markersize=size, rasterized=True, markeredgewidth=0, **look)
    for c, centre in enumerate(panel.centres):
        draw_cap(axes, view.turned(cap_rim(centre, panel.cap)), class_colour(c))
        tip = view.turned(centre[None])[0]
        near = tip[2] > 0
        axes.plot([0, 1.06 * tip[0]], [0, 1.06 * tip[1]], color=class_colour(c), linewidth=1.2 if near else 0.5,
                  alpha=1.0 if near else 0.3, zorder=3 if near else 1)  # fmt: skip
    name_sides(axes, view.turned(panel.centres), found.names)
    frame(axes, panel.title, panel.note)


def name_sides(axes: Axes, tips: np.ndarray, names: tuple[str, ...]) -> None:
    """The names of the classes at their centres, those on the far side pale; near ones choose their places first."""
    order = np.argsort(-tips[:, 2], kind="stable")
    every = tell_apart(names)
    short = [every[c] for c in order]
    wide = min(WIDEST, PAGE / max(1, len(axes.figure.axes)))
    places = room_for_names(1.15 * tips[order, :2], short, extent=EXTENT, inches=0.95 * wide)
    for c, place in zip(order, places, strict=True):
        if place is not None:
            name_at(axes, place, names[c], color="0.1" if tips[c, 2] > 0 else "0.6", zorder=6 if tips[c, 2] > 0 else 5)


def frame(axes: Axes, title: str, note: str = "") -> None:
    """A bare square around the sphere."""
    axes.set(xlim=(-EXTENT, EXTENT), ylim=(-EXTENT, EXTENT), aspect="equal", title=title, xticks=[], yticks=[])
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    axes.set_xlabel(note, fontsize=SMALL)


def draw_globe(axes: Axes, view: View) -> None:
    """The outline, and thin circles of latitude and longitude on the near side."""
    t = np.linspace(0, 2 * np.pi, 181)
    axes.plot(np.cos(t), np.sin(t), color="0.6", linewidth=0.6)
    for a in np.radians(np.arange(0, 180, 30)):
        draw_cap(axes, view.turned(np.stack([np.cos(t) * np.cos(a), np.cos(t) * np.sin(a), np.sin(t)], axis=1)))
    for a in np.radians(np.arange(-60, 90, 30)):
        ring = np.stack([np.cos(t) * np.cos(a), np.sin(t) * np.cos(a), np.full_like(t, np.sin(a))], axis=1)
        draw_cap(axes, view.turned(ring))


def draw_cap(axes: Axes, rim: np.ndarray, colour: str = "0.85") -> None:
    """A circle on the sphere: its near part drawn, its far part hinted at where it has a colour of its own."""
    near = np.where(rim[:, 2:] > 0, rim, np.nan)
    axes.plot(near[:, 0], near[:, 1], color=colour, linewidth=0.8 if colour != "0.85" else 0.4, zorder=2)
    if colour != "0.85":
        far = np.where(rim[:, 2:] > 0, np.nan, rim)
        axes.plot(far[:, 0], far[:, 1], color=colour, linewidth=0.4, alpha=0.3, zorder=1)


def cap_rim(centre: np.ndarray, radius: float) -> np.ndarray:
    """The circle of all directions at that angle from a unit vector."""
    helper = np.eye(3)[np.abs(centre).argmin()]
    u = np.cross(centre, helper)
    u /= np.linalg.norm(u)
    v, t = np.cross(centre, u), np.linspace(0, 2 * np.pi, 90)
    return np.cos(radius) * centre + np.sin(radius) * (np.cos(t)[:, None] * u + np.sin(t)[:, None] * v)


def unit_sphere(about: Subject) -> Iterator[Depiction]:
    """3-D directions on the sphere."""
    if about.dim != 3:
        return
    shown = []
    for head in shown_heads(about):
        found = about.embeddings(head)
        facts = class_angles(found)
        closest, best, own = (math.degrees(angle) for angle in (facts.closest, facts.best_possible, facts.own))
        note = f"closest means {closest:.1f}° of {best:.1f}°,\nto own mean {own:.2f}°"
        shown.append(SpherePanel(head, found, mean_centres(found), facts.best_possible / 2, note))
    yield (
        "Directions of the test embeddings on the sphere, with the class means. The caps have half the angle of the "
        "best possible packing: in it they just touch, so where they overlap two classes are too close, and gaps are "
        f"room left. What lies behind is pale. {about.drawn}.",
        draw_spheres(shown),
    )
