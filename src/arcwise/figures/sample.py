"""One sample among the centres: its picture, where it lies, and the logits it gets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from arcwise.figures.canvas import (
    PAGE,
    SMALL,
    STYLE,
    Depiction,
    class_colour,
    name_at,
    pixels_of,
    room_for_names,
    shown_heads,
    tell_apart,
    true_minus,
)
from arcwise.metrics.identification import centre_cosines, centre_logits, rightly_named

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from arcwise.study.subject import Subject


NAMED_BARS = 12  # classes at most whose logits can be told apart as bars


class SamplePanel(NamedTuple):
    """A sample of two dimensions, the centres, and its logits without margin and with it (own class only)."""

    title: str
    x: np.ndarray
    y: int
    centres: np.ndarray
    names: tuple[str, ...]
    logits: np.ndarray
    with_margin: float | None = None


def draw_sample(shown: list[SamplePanel], picture: np.ndarray | None = None) -> Figure:
    """Two rows: the vectors above, the logits below; the sample's image at their left."""
    import matplotlib.pyplot as plt

    wide = min(2.2, (PAGE - 0.7) / len(shown))
    with plt.rc_context(STYLE):
        size = (0.7 + wide * len(shown), wide + 1.25)
        figure, axes = plt.subplots(2, 1 + len(shown), figsize=size, layout="constrained", squeeze=False,
                                    height_ratios=(wide, 1.0), width_ratios=(0.6, *[wide] * len(shown)))  # fmt: skip
        for i, panel in enumerate(shown, 1):
            draw_vectors(axes[0, i], panel)
            draw_logits(axes[1, i], panel)
        axes[1, 1].set_ylabel("logit")
        axes[1, 0].remove()
        axes[0, 0].set_axis_off()
        if picture is not None:
            axes[0, 0].imshow(picture.squeeze(), cmap="gray" if picture.squeeze().ndim == 2 else None, vmin=0, vmax=255)
    return figure


def draw_vectors(axes: Axes, panel: SamplePanel) -> None:
    """The centres as vectors, scaled to the length of the sample; the sample black."""
    reach = float(np.linalg.norm(panel.x))
    w = panel.centres * reach / np.linalg.norm(panel.centres, axis=1).max()
    for c, v in enumerate(w):
        arrow = {"arrowstyle": "-|>", "color": class_colour(c), "linewidth": 1.3, "mutation_scale": 8}
        axes.annotate("", v, (0, 0), arrowprops=arrow)
    outside = 1.27 * np.maximum(1.0, reach / np.linalg.norm(w, axis=1))  # on a circle beyond the sample's dot
    spots, names = w * outside[:, None], tell_apart(panel.names)
    for name, spot in zip(names, room_for_names(spots, names, extent=1.45 * reach, inches=1.3), strict=True):
        if spot is not None:
            name_at(axes, spot, name)
    arrow = {"arrowstyle": "-|>", "color": "black", "linewidth": 0.9, "mutation_scale": 7, "linestyle": "--"}
    axes.annotate("", tuple(panel.x), (0, 0), arrowprops=arrow)
    axes.plot(*panel.x, "o", color=class_colour(panel.y), markeredgecolor="black", markersize=5)
    limits = (-1.45 * reach, 1.45 * reach)
    axes.set(xlim=limits, ylim=limits, aspect="equal", title=panel.title)
    axes.set(xticks=[], yticks=[])


def draw_logits(axes: Axes, panel: SamplePanel) -> None:
    """One bar per class; where there is a margin, what the loss is told instead is hatched."""
    places = np.arange(len(panel.logits))
    bars = axes.bar(places, panel.logits, color=[class_colour(c) for c in range(len(places))])
    if len(places) <= 6:
        words = [true_minus(f"{v:.0f}" if abs(v) >= 10 else f"{v:.1f}") for v in panel.logits]
        axes.bar_label(bars, words, fontsize=SMALL, padding=2)
    if panel.with_margin is not None:
        axes.bar(panel.y, panel.with_margin, fill=False, hatch="///", edgecolor="black", linewidth=0.8)
        axes.set_xlabel(f"hatched: what the\nloss is told, {true_minus(f'{panel.with_margin:.1f}')}", fontsize=SMALL)
    axes.axhline(0, color="0.3", linewidth=0.8)
    axes.set(xticks=places, xticklabels=panel.names)
    axes.margins(y=0.35)


def one_sample(about: Subject) -> Iterator[Depiction]:
    """One digit among the centres, with its logits."""
    first = about.embeddings(about.heads[0])
    if about.dim != 2 or len(first.names) > NAMED_BARS:
        return
    row = int(np.flatnonzero(rightly_named(first, about.prototypes(about.heads[0])))[0])
    shown = [sample_panel(about, head, row) for head in shown_heads(about) if about.prototypes(head).w.ndim == 2]
    images = about.images("test")
    at = None if images is None else images.positions(first.keys)
    picture = None if images is None or at is None else pixels_of(images, int(at[row]))
    if shown:
        words = "One test image among the centres of each head, and the logits it gets there."
        yield words, draw_sample(shown, picture)


def sample_panel(about: Subject, head: str, row: int) -> SamplePanel:
    """One sample under one head; what the margin makes of its own logit where that can be told."""
    found, centres = about.embeddings(head), about.prototypes(head)
    x, y = found.x[row], int(found.labels[row])
    cos = float(centre_cosines(x[None], centres)[0, y])
    psi = None if centres.linear else about.psi(centres.head, cos, float(np.linalg.norm(x)))
    logits = centre_logits(x[None], centres)[0] * centres.scale
    margin = None if psi is None or psi == cos else centres.scale * psi
    return SamplePanel(head, x, y, centres.w, found.names, logits, margin)
