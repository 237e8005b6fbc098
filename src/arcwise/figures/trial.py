"""Pictures of a trial: the curve of verification, errors against what is rejected, and the hardest pairs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from arcwise.figures.canvas import (
    COLOURS,
    OTHER_FRAME,
    OWN_FRAME,
    figure_bytes,
    offscreen,
    panels,
    plain_logarithm,
)
from arcwise.figures.pictures import Picture, draw_pictures
from arcwise.figures.roc import histogram
from arcwise.metrics.verification import roc

if TYPE_CHECKING:
    from arcwise.trial import Trial


def trial_pictures(found: Trial) -> Iterator[tuple[str, bytes]]:
    """Each picture by its name, as the bytes of a PNG."""
    offscreen()
    yield "verification", figure_bytes(draw_verification(found))
    if found.rejection is not None and len(found.rejection.shares) > 1:
        yield "rejection", figure_bytes(draw_rejection(found))
    if found.watch is not None and len(found.watch.cmc) > 1:
        yield "ranks", figure_bytes(draw_ranks(found))
    if found.shown:
        yield "hardest", figure_bytes(draw_hardest(found))


def draw_verification(found: Trial):
    """The curve, and the scores of both kinds of pairs with the threshold of equal error."""
    with panels(2, widest=3.3, high=0.8) as (figure, (left, right)):
        curve = roc(found.scores)
        smallest = max(float(curve.far[curve.far > 0].min(initial=1.0)), 1e-6)
        left.plot(curve.far, curve.tar, color=COLOURS[0])
        words, few = "false accept rate", min(10.0 / found.scores.impostor.total, 1.0)
        if few > smallest:
            left.axvspan(smallest, few, color="0.9", zorder=0)
            words += "\ngrey: fewer than 10 false acceptances"
        left.set(xscale="log", xlim=(smallest, 1), ylim=(0, 1.02), title="ROC")
        left.set(xlabel=words, ylabel="true accept rate")
        plain_logarithm(left.xaxis)
        edges = np.linspace(-1, 1, 81)
        for scores, colour, label in (
            (found.scores.impostor, COLOURS[4], "different"), (found.scores.genuine, COLOURS[0], "same"),
        ):  # fmt: skip
            counts = histogram(scores, edges)
            right.stairs(counts / max(counts.sum(), 1), edges, fill=True, color=colour, alpha=0.55, label=label)
        right.axvline(found.threshold, color="black", linewidth=0.9, linestyle="--")
        right.set(xlabel=f"cosine of a pair; equal error at {found.threshold:.3f}", yticks=[], xlim=(-1, 1),
                  title="scores")  # fmt: skip
        right.legend(loc="upper left")
    return figure


def draw_rejection(found: Trial):
    """Errors against the share of pairs that is not answered."""
    assert found.rejection is not None
    with panels(1, widest=3.6, high=0.75) as (figure, (place,)):
        shares = [100 * share for share in found.rejection.shares]
        for values, colour, label in (
            (found.rejection.error, COLOURS[0], "equal error rate of those that are left"),
            (found.rejection.missed, COLOURS[4], "same, but below the threshold of FAR 1 %"),
        ):
            place.plot(shares, [100 * value for value in values], color=colour, marker="o", markersize=3, label=label)
        place.set(
            xlabel="pairs turned away, shortest embeddings first, %", ylabel="%", title="errors against rejection"
        )
        place.set_ylim(bottom=0)
        place.legend()
    return figure


def draw_ranks(found: Trial):
    """The share of probes whose identity is among the k best."""
    assert found.watch is not None
    with panels(1, widest=3.6, high=0.75) as (figure, (place,)):
        ranks = list(found.watch.cmc)
        told = [found.watch.cmc[k] for k in ranks]
        spread = [[100 * min(one.deviation, one.mean) for one in told],
                  [100 * min(one.deviation, 1.0 - one.mean) for one in told]]  # fmt: skip
        place.errorbar(ranks, [100 * one.mean for one in told], spread, color=COLOURS[0],
                       marker="o", markersize=3, capsize=2)  # fmt: skip
        place.set(xlabel="rank", ylabel="probes, %", title=f"among the best of {found.watch.identities:,} identities")
        place.set_xticks(ranks)
        place.set_ylim(top=100.5)
    return figure


def draw_hardest(found: Trial):
    """Pairs of two identities that look most alike (above), and of one that look least alike (below)."""
    rows: list[list[Picture]] = [[], []]
    for pair, (a, b) in found.shown:
        frame = OWN_FRAME if pair.same else OTHER_FRAME
        words = f"{math.degrees(math.acos(max(-1.0, min(1.0, pair.cosine)))):.1f}°"
        rows[pair.same].append(Picture(side_by_side(a, b), words, frame))
    titles = ["different,\nmost alike", "the same,\nleast alike"]
    kept = [(row, title) for row, title in zip(rows, titles, strict=True) if row]
    return draw_pictures([row for row, _ in kept], titles=[title for _, title in kept], side=1.05)


def side_by_side(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Two images as one, with a white line between them."""
    gap = np.full((len(a), max(1, len(a) // 16), a.shape[2]), 255, np.uint8)
    return np.concatenate([a, gap, b], axis=1)
