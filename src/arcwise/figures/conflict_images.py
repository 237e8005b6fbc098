"""The worst conflicts of each head, with their images."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from arcwise.figures.canvas import OTHER_FRAME, OWN_FRAME, Depiction, pixels_of, shown_heads
from arcwise.figures.pictures import Picture, draw_pictures
from arcwise.metrics.conflicts import conflicts
from arcwise.metrics.identification import rightly_named

if TYPE_CHECKING:
    from arcwise.study.subject import Subject

ANCHORS = 4000  # at most


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
                (t.anchor, f"{t.anchor}", "black"),
                (t.positive, f"{t.positive}: {t.to_positive:.3f}", OWN_FRAME),
                (t.negative, f"{t.negative}: {t.to_negative:.3f}", OTHER_FRAME),
            )
            row += [Picture(pixels_of(images, int(at[i])), words, frame) for i, words, frame in three]
        rows.append(row)
        titles.append(head.replace(" ", "\n", 1))
    if rows:
        yield (
            f"The worst conflicts of each head, seed {about.first.settings.seed}: a rightly classified sample (black), "
            "one of its own class (blue) and one of another (orange) that is nearer. Numbers are rows of the test set "
            "and cosine distances." + (f" There are none under {' and '.join(none)}." if none else ""),
            draw_pictures(rows, titles=titles, side=0.62),
        )
