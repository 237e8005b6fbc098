"""Returns how well a query finds its like among all others: recall@k, R-precision, MAP@R."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from arcwise.errors import ArcwiseError, count_in
from arcwise.metrics.rows import admitted, blocks, by_class, directions
from arcwise.records import Embeddings


class Retrieval(NamedTuple):
    """Means over the queries that have at least one other sample of their class."""

    recall_at: dict[int, float]
    r_precision: float
    map_at_r: float
    queries: int


def retrieval(embeddings: Embeddings, *, k: tuple[int, ...] = (1, 5, 10)) -> Retrieval:
    """Every sample is a query, all others are ranked by cosine; R is the number of others of its class.

    recall@k = share of queries with one of their class among the first k;  R-precision = hits among the first R / R;
    MAP@R = 1/R sum_{i <= R} (hits among the first i / i) [the i-th is a hit]  (Musgrave et al. 2020).

    >>> x = np.array([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.1, 1.0]])
    >>> retrieval(Embeddings(x=x, y=np.array([0, 0, 1, 1]), names=("a", "b")), k=(1,)).map_at_r
    1.0
    """
    rows = by_class(directions(admitted(embeddings).x.astype(np.float64)), embeddings.y)
    n, wanted = len(rows.x), rows.sizes[rows.owner] - 1
    queries = np.flatnonzero(wanted > 0)
    if not len(queries):
        raise ArcwiseError("no class has two samples, so no query can find its like.")
    for depth in k:
        count_in("k", depth, 1, n - 1)
    owner, sums = rows.owner, np.zeros(2 + len(k))
    mirrored = -rows.x.T
    for part in blocks(len(queries), n):
        some = queries[part]
        far = rows.x[some] @ mirrored  # minus the cosine: the nearest come first
        far[np.arange(len(some)), some] = np.inf
        hits = ranked_hits(far, owner, owner[some], max((*k, int(wanted[some].max()))))
        sums += block_sums(hits, wanted[some], k)
    means = (sums / len(queries)).tolist()
    return Retrieval(dict(zip(k, means[2:], strict=True)), means[0], means[1], len(queries))


def ranked_hits(far: np.ndarray, owner: np.ndarray, query: np.ndarray, depth: int) -> np.ndarray:
    """Whether each of the `depth` nearest is of the query's class, nearest first."""
    if depth < far.shape[1]:
        nearest = np.argpartition(far, depth - 1, axis=1)[:, :depth]
        order = np.argsort(np.take_along_axis(far, nearest, axis=1), axis=1)
        nearest = np.take_along_axis(nearest, order, axis=1)
    else:
        nearest = np.argsort(far, axis=1)
    return owner[nearest] == query[:, None]


def block_sums(hits: np.ndarray, wanted: np.ndarray, k: tuple[int, ...]) -> Float[np.ndarray, " sums"]:
    """R-precision, MAP@R and recall@k of some queries, summed."""
    ranks = np.arange(1, hits.shape[1] + 1)
    counted = hits & (ranks[None, :] <= wanted[:, None])
    precision = np.cumsum(counted, axis=1) / ranks
    first = np.where(hits.any(axis=1), hits.argmax(axis=1), hits.shape[1])
    found = [float((first < depth).sum()) for depth in k]
    return np.array([(counted.sum(axis=1) / wanted).sum(), ((precision * counted).sum(axis=1) / wanted).sum(), *found])
