"""Rows of images with words: samples of each class, conflict triples, nearest neighbours."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from arcwise.figures.canvas import PAGE, SMALL, STYLE, shorten

if TYPE_CHECKING:
    from matplotlib.figure import Figure

GAP = 0.07  # of an image's side, between it and its frame


class Picture(NamedTuple):
    """An image (side, side, channels) in uint8, words below it, and the colour of its frame ("" for none)."""

    pixels: np.ndarray
    words: str = ""
    frame: str = ""


def draw_pictures(
    rows: list[list[Picture]], *, titles: list[str] | None = None, side: float = 1.25, title: str = ""
) -> Figure:
    """One row of images per list, with the row's title at its left."""
    import matplotlib.pyplot as plt

    columns = max(map(len, rows))
    lines = max(len(picture.words.splitlines()) for row in rows for picture in row)
    with plt.rc_context(STYLE):
        left = 1.0 if titles else 0.1
        side = min(side, (PAGE - left) / columns)
        size = (side * columns + left, (side + bool(lines) * (0.1 + 0.12 * lines)) * len(rows))
        figure, axes = plt.subplots(len(rows), columns, figsize=size, layout="constrained", squeeze=False)
        for i, row in enumerate(rows):
            for j, place in enumerate(axes[i]):
                place.set(xticks=[], yticks=[])
                place.grid(visible=False)
                place.spines[:].set_visible(False)
                if j < len(row):
                    show_picture(place, row[j])
            if titles:
                axes[i, 0].set_ylabel(shorten(titles[i], 24), rotation=0, ha="right", va="center")
    return figure


def show_picture(place, picture: Picture) -> None:
    """One image, framed where a frame is asked for."""
    pixels = picture.pixels.squeeze()
    place.imshow(pixels, cmap="gray" if pixels.ndim == 2 else None, vmin=0, vmax=255)
    if picture.words:
        place.set_xlabel(picture.words, fontsize=SMALL, labelpad=2)
    if picture.frame:  # with paper between it and the image, so that a black frame is seen around black as well
        high, wide = pixels.shape[:2]
        gap = GAP * max(high, wide)
        place.set(xlim=(-0.5 - gap, wide - 0.5 + gap), ylim=(high - 0.5 + gap, -0.5 - gap))
        place.spines[:].set(visible=True, color=picture.frame, linewidth=1.4)
