"""Some training images of each class."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from arcwise.figures.canvas import Depiction, pixels_of, tell_apart
from arcwise.figures.pictures import Picture, draw_pictures

if TYPE_CHECKING:
    from arcwise.study.subject import Subject

CLASSES, EACH = 10, 10


def samples(about: Subject) -> Iterator[Depiction]:
    """One row of images per class."""
    images = about.images("train")
    if images is None:
        return
    rows = []
    for c in range(min(images.classes, CLASSES)):
        here = np.flatnonzero(images.y == c)[:EACH]
        rows.append([Picture(pixels_of(images, int(i))) for i in here])
    shown = min(images.classes, CLASSES)
    which = "" if shown == images.classes else f" The first {shown} of {images.classes:,} classes."
    words = f"Training images, one row per class.{which}"
    yield words, draw_pictures(rows, titles=tell_apart(images.names[:CLASSES], 24), side=0.45)
