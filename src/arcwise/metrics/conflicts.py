"""The conflicts of a set: samples that lie nearer to one of another class than to one of their own."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int

from arcwise.errors import ArcwiseError, count_at_least
from arcwise.metrics.clusters import pair_distance, rows_for
from arcwise.metrics.rows import FEW, TILE_ROWS, ClassRows, row_blocks, squared_distances
from arcwise.records import Embeddings


@dataclass(frozen=True, slots=True, kw_only=True)
class ConflictTriple:
    """An anchor, a sample of its class (positive) and one of another (negative), by row, with both distances."""

    anchor: int
    positive: int
    negative: int
    to_positive: float
    to_negative: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflicts:
    """Shares of conflicts, and the worst triples: those with the largest d(a, p) - d(a, n), one per anchor.

    `triples` is the share of all (a, p, n) with d(a, n) < d(a, p), `anchors` the share of anchors in at least one,
    `nearest` the share of anchors whose nearest neighbour is of another class; of no anchors there is no share (NaN).
    """

    distance: str
    n_anchors: int
    triples: float
    anchors: float
    nearest: float
    worst: tuple[ConflictTriple, ...]


def conflicts(
    embeddings: Embeddings,
    *,
    distance: str = "euclidean",
    correct: Bool[np.ndarray, " n"] | None = None,
    worst: int = 6,
    limit: int = 10_000,
    seed: int = 0,
) -> Conflicts:
    """How many triples (a, p, n) have d(a, n) < d(a, p), p of a's class and n of another.

    `correct` says which rows may be anchors (those classified rightly); of more than `limit` anchors that many are
    drawn. A class of one member has no p and so no anchor.

    >>> x = np.array([[0.0], [2.0], [3.0], [9.0]])
    >>> found = conflicts(Embeddings(x=x, y=np.array([0, 0, 1, 1]), names=("a", "b")), worst=1)
    >>> f"{found.triples:.3f}", found.anchors, found.worst[0].anchor
    ('0.375', 0.5, 2)
    """
    rows, n = rows_for(embeddings, distance), len(embeddings.x)
    if correct is not None and len(correct) != n:
        raise ArcwiseError(f"correct must say of each of the {n} rows whether it may be an anchor, got {len(correct)}.")
    may, owner = np.ones(n, bool) if correct is None else np.asarray(correct, bool), rows.owner
    anchors = np.flatnonzero(may[rows.order] & (rows.sizes[owner] > 1))
    if len(anchors) > count_at_least("limit", limit, 1):
        anchors = np.sort(np.random.default_rng(seed).choice(anchors, limit, replace=False))
    if not len(anchors):
        return Conflicts(distance=distance, n_anchors=0, triples=math.nan, anchors=math.nan, nearest=math.nan, worst=())
    x = rows.part()
    middle = np.median(x[:: max(1, len(x) // TILE_ROWS)], axis=0)  # which one row far away does not move
    each = per_anchor(rows, x - middle, anchors)
    size = rows.sizes[owner[anchors]]
    total = (size - 1) * (n - size)
    farthest, nearest_other, nearest_own = (
        pair_distance(x[anchors], x[each[name]], distance) for name in ("farthest", "other", "own")
    )
    excess = farthest - nearest_other
    top = np.argsort(-excess, kind="stable")[:worst]
    return Conflicts(
        distance=distance, n_anchors=len(anchors), triples=float(each["count"].sum() / total.sum()),
        anchors=float((excess > 0).mean()), nearest=float((nearest_other < nearest_own).mean()),
        worst=tuple(
            ConflictTriple(
                anchor=int(rows.order[anchors[i]]), positive=int(rows.order[each["farthest"][i]]),
                negative=int(rows.order[each["other"][i]]), to_positive=float(farthest[i]),
                to_negative=float(nearest_other[i]),
            )
            for i in top
            if excess[i] > 0
        ),
    )  # fmt: skip


def per_anchor(rows: ClassRows, x: np.ndarray, anchors: Int[np.ndarray, " a"]) -> dict[str, Int[np.ndarray, " a"]]:
    """For each anchor: its conflicts, and the rows of its farthest own, nearest own and nearest other sample.

    Every distance rises with the squared Euclidean one, so that alone is compared. Two are equal where rounding, in
    few dimensions of their own, else of the two lengths that they are products of, could have turned them round.
    """
    size, owner, exact = np.einsum("nd,nd->n", x, x), rows.owner, x.shape[1] <= FEW
    eps = np.finfo(float).eps
    found = {name: np.zeros(len(anchors), np.int64) for name in ("count", "farthest", "own", "other")}
    for part in row_blocks(len(anchors), len(x)):
        squared = squared_distances(x[anchors[part]], x)
        for i, row in enumerate(squared, part.start):
            a = anchors[i]
            start, stop = rows.starts[owner[a]], rows.starts[owner[a] + 1]
            doubt = 8 * eps * row if exact else 32 * eps * (size[a] + size)
            own = row[start:stop].copy()
            own[a - start] = -1.0
            found["farthest"][i] = start + own.argmax()
            own[a - start] = np.inf
            found["own"][i] = start + own.argmin()
            others = np.concatenate((row[:start], row[stop:]))
            first = int(others.argmin())
            found["other"][i] = first if first < start else first + stop - start
            surely = np.sort(own - doubt[start:stop])[:-1]
            others += np.concatenate((doubt[:start], doubt[stop:]))
            close = others[others < surely[-1]]  # nearly always few, and often none
            found["count"][i] = (len(surely) - np.searchsorted(surely, close, "right")).sum()
    return found
