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
        cos = x @ x[query]
        nearest = np.array([i for i in np.argsort(-cos, kind="stable")[: NEAREST + 1] if i != query][:NEAREST])
        row = [Picture(pixels_of(images, int(at[query])), "query", "black")]
        row += [
            Picture(
                pixels_of(images, int(at[i])),
                f"{math.degrees(math.acos(max(-1.0, min(1.0, cos[i])))):.2f}°",
                OWN_FRAME if y[i] == c else OTHER_FRAME,
            )
            for i in nearest
        ]
        rows.append(row)
        titles.append(found.names[c])
    where = "of classes nobody has seen" if part == "unseen" else "of the test set"
    yield (
        f"Nearest neighbours {where} under {head} (seed {about.run_of(head).settings.seed}), with their angles; blue "
        "frames are of the query's class, orange ones are not.",
        draw_pictures(rows, titles=titles, side=0.62),
    )
