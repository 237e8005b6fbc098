"""The worst conflicts of each head, with their images."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from arcwise.figures.canvas import OTHER_FRAME, OWN_FRAME, Depiction, pixels_of, shown_heads, tell_apart
from arcwise.figures.pictures import Picture, draw_pictures
from arcwise.metrics.conflicts import conflicts
from arcwise.metrics.identification import rightly_named

if TYPE_CHECKING:
    from arcwise.records import Embeddings
    from arcwise.study.subject import Subject

ANCHORS = 4000  # at most
SIDE = 0.62  # inches of an image


def class_of(found: Embeddings, row: int) -> str:
    """The name of a row's class, short enough to stand below its image of SIDE inches."""
    return tell_apart(found.names, 10)[int(found.labels[row])]


def degrees_apart(distance: float) -> float:
    """The angle of a cosine distance.

    >>> round(degrees_apart(1.0), 6)
    90.0
    """
    return math.degrees(math.acos(max(-1.0, min(1.0, 1.0 - distance))))


def conflict_triples(about: Subject) -> Iterator[Depiction]:
    """Three triples in a row for each head."""
    images = about.images("test")
    if images is None:
        return
    rows, titles, none = [], [], []
    for head in shown_heads(about):
        found = about.embeddings(head)
        right = rightly_named(found, about.prototypes(head))
        worst = conflicts(found, distance="cosine", correct=right, worst=3, limit=ANCHORS).worst
        at = images.positions(found.keys)
        if not worst or at is None:
            none.append(head)
            continue
        row = []
        for t in worst:
            three = (
                (t.anchor, class_of(found, t.anchor), "black"),
                (t.positive, f"{degrees_apart(t.to_positive):.1f}°", OWN_FRAME),
                (t.negative, f"{class_of(found, t.negative)}\n{degrees_apart(t.to_negative):.1f}°", OTHER_FRAME),
            )
            row += [Picture(pixels_of(images, int(at[i])), words, frame) for i, words, frame in three]
        rows.append(row)
        titles.append(head.replace(" ", "\n", 1))
    if rows:
        yield (
            f"The worst conflicts. {about.drawn}: a rightly classified sample (black), "
            "one of its own class (blue) and one of another (orange) that is nearer. Names are classes, "
            "numbers angles to the first image." + (f" There are none under {' and '.join(none)}." if none else ""),
            draw_pictures(rows, titles=titles, side=SIDE),
        )
