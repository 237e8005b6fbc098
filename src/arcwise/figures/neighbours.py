"""Queries with their nearest neighbours."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from arcwise.figures.canvas import OTHER_FRAME, OWN_FRAME, Depiction, pixels_of
from arcwise.figures.pictures import Picture, draw_pictures
from arcwise.metrics.rows import directions

if TYPE_CHECKING:
    from arcwise.study.subject import Subject

NEAREST, QUERIES = 8, 5


def angles_from(x: np.ndarray, direction: np.ndarray) -> np.ndarray:
    """The angle of each row to a direction, also where it is too small for a cosine in float32: 2 asin(|x - y| / 2)."""
    chord = np.linalg.norm(x.astype(np.float64) - direction.astype(np.float64), axis=1)
    return 2.0 * np.arcsin(np.minimum(chord / 2.0, 1.0))


def angle_words(degrees: float) -> str:
    """An angle in two digits at least, also a small one; below a ten thousandth there is nothing to tell apart.

    >>> angle_words(31.416), angle_words(0.12345), angle_words(0.0012345), angle_words(1e-7)
    ('31.4°', '0.12°', '0.0012°', '<0.0001°')
    """
    if degrees < 1e-4:
        return "<0.0001°" if degrees > 0 else "0°"
    decimals = 1 if degrees >= 10 else max(2, 1 - math.floor(math.log10(degrees)))
    return f"{degrees:.{decimals}f}°"


def neighbours(about: Subject) -> Iterator[Depiction]:
    """From classes nobody has seen where there are any, under the head that the conclusion speaks of."""
    part = "unseen" if about.config.data.unseen else "test"
    images = about.images(part)
    if images is None:
        return
    head = about.champion
    found = about.embeddings(head, part)
    at = images.positions(found.keys)
    if at is None:
        return
    x, y = directions(found.x), found.labels
    rows, titles = [], []
    for c in np.unique(y)[:QUERIES]:
        query = int(np.flatnonzero(y == c)[0])
        apart = angles_from(x, x[query])
        nearest = np.array([i for i in np.argsort(apart, kind="stable")[: NEAREST + 1] if i != query][:NEAREST])
        row = [Picture(pixels_of(images, int(at[query])), "query", "black")]
        row += [
            Picture(
                pixels_of(images, int(at[i])),
                angle_words(math.degrees(apart[i])),
                OWN_FRAME if y[i] == c else OTHER_FRAME,
            )
            for i in nearest
        ]
        rows.append(row)
        titles.append(found.names[c])
    where = "of classes nobody has seen" if part == "unseen" else "of the test set"
    classes = len(np.unique(y))
    which = "each class" if classes == len(rows) else f"the first {len(rows)} of {classes:,} classes"
    yield (
        f"Nearest neighbours {where} under {head} (seed {about.run_of(head).settings.seed}), with their angles. "
        f"Queries are the first image of {which}; blue frames are of the query's class, orange ones are not.",
        draw_pictures(rows, titles=titles, side=0.62),
    )
