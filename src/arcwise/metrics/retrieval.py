"""How well a query finds its like among all others: recall@k, R-precision, MAP@R.

Only the ranks of the query's own class count, and the rank of the i-th of them is i plus the number of samples of other
classes ahead of it. So cosines within the class are taken in float64, those to other classes in float32, and of these
again in float64 the few that come nearer to one of the class than float32 can tell: the ranks are those of float64.
Among equals those of other classes come first; where rows are equal, their cosines are, to the last bit (`split_rows`).
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Float32, Int

from arcwise.errors import ArcwiseError, count_in
from arcwise.metrics.rows import ClassRows, UnitRows, admit_rows, by_class, row_blocks, unit_rows
from arcwise.records import Embeddings

NOWHERE = 2.0  # farther than any sample: distances here are minus the cosine
GROUPS = 4  # groups of samples for each neighbour sought; their nearest members bound the neighbourhood
CANDIDATES = 1 / 8  # of all pairs: with more than these, sorting is quicker than picking
DOUBTFUL = 1 / 64  # of all pairs: with more than these, one product in float64 is quicker than pair by pair


class Retrieval(NamedTuple):
    """Means over the queries that have at least one other sample of their class."""

    recall_at: dict[int, float]
    r_precision: float
    map_at_r: float
    queries: int


class Unit(NamedTuple):
    """Directions sorted by class, in float64 and rounded to float32; class i is rows starts[i] to starts[i + 1]."""

    exact: UnitRows
    quick: Float32[np.ndarray, "n d"]
    starts: Int[np.ndarray, " starts"]

    @property
    def doubt(self) -> float:
        """A bound on the error of a float32 cosine: k u / (1 - k u) after k roundings  (Higham 2002, section 3.1).

        k = d for the sum in whatever order + 2 for its factors + 2 for what is rounded besides; sum |a_i b_i| <= 1.
        """
        rounded = (self.quick.shape[1] + 4) * 2.0**-24
        return rounded / (1.0 - rounded)


def retrieval(embeddings: Embeddings, *, k: tuple[int, ...] = (1, 5, 10)) -> Retrieval:
    """Every sample is a query, all others are ranked by cosine; R is the number of others of its class.

    recall@k = share of queries with one of their class among the first k;  R-precision = hits among the first R / R;
    MAP@R = 1/R sum_{i <= R} (hits among the first i / i) [the i-th is a hit]  (Musgrave et al. 2020).

    >>> x = np.array([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.1, 1.0]])
    >>> retrieval(Embeddings(x=x, y=np.array([0, 0, 1, 1]), names=("a", "b")), k=(1,)).map_at_r
    1.0
    """
    x, y = admit_rows(embeddings).x, embeddings.labels
    lone = np.bincount(y)[y] == 1
    if lone.all():
        raise ArcwiseError("no class has two samples, so no query can find its like.")
    for depth in k:
        count_in("k", depth, 1, len(x) - 1)
    rows = by_class(x, np.where(lone, len(embeddings.names), y), unit=True)  # those that ask nothing come last
    queries, unit, wanted = int((~lone).sum()), both_precisions(rows), rows.sizes[rows.owner] - 1
    sums = np.zeros(2 + len(k))
    for part in row_blocks(queries, len(x) + 8 * int(wanted[:queries].max()), itemsize=4):
        sums += block_sums(own_ranks(unit, part, max((*k, int(wanted[part].max())))), wanted[part], k)
    means = (sums / queries).tolist()
    return Retrieval(dict(zip(k, means[2:], strict=True)), means[0], means[1], queries)


def both_precisions(rows: ClassRows) -> Unit:
    """The directions of the rows, in float64 and in float32."""
    exact = unit_rows(rows.x)
    whole = exact.high if exact.low is None else exact.high + exact.low
    return Unit(exact, whole.astype(np.float32), rows.starts)


def block_sums(ranks: np.ndarray, wanted: np.ndarray, k: tuple[int, ...]) -> Float[np.ndarray, " sums"]:
    """R-precision, MAP@R and recall@k of some queries, summed."""
    counted = ranks <= wanted[:, None]
    precision = np.where(counted, np.arange(1, ranks.shape[1] + 1) / ranks, 0.0)
    found = [float((ranks[:, 0] <= depth).sum()) for depth in k]
    return np.array([(counted.sum(axis=1) / wanted).sum(), (precision.sum(axis=1) / wanted).sum(), *found])


def own_ranks(unit: Unit, part: slice, depth: int) -> Int[np.ndarray, "m own"]:
    """The ranks of the others of each query's class, nearest first; of those beyond `depth`, only that they are."""
    own = own_distances(unit, part)
    ahead = ahead_by_picking(unit, part, own, depth) if GROUPS * depth <= len(unit.quick) else None
    if ahead is None:
        ahead = ahead_by_sorting(unit, part, own, depth)
    return ahead + np.arange(1, own.shape[1] + 1)


def classes_of(unit: Unit, part: slice) -> list[tuple[slice, slice]]:
    """Each class with queries in the part: these, counted from the start of the part, and all rows of the class."""
    first, last = np.searchsorted(unit.starts, (part.start, part.stop - 1), "right")
    bounds = unit.starts[first - 1 : last + 1].tolist()
    return [
        (slice(max(start, part.start) - part.start, min(stop, part.stop) - part.start), slice(start, stop))
        for start, stop in pairwise(bounds)
    ]


def own_distances(unit: Unit, part: slice) -> Float[np.ndarray, "m own"]:
    """The distances of each query to the others of its class, rising, then NOWHERE at least once."""
    x, classes = unit.exact.take(part), classes_of(unit, part)
    own = np.full((len(x.high), max(rows.stop - rows.start for _, rows in classes)), NOWHERE)
    for some, rows in classes:
        own[some, : rows.stop - rows.start] = -x.take(some).cosines(unit.exact.take(rows))
        itself = np.arange(some.start, some.stop)
        own[itself, itself + part.start - rows.start] = NOWHERE
    own.sort(axis=1)
    return own


def other_distances(unit: Unit, part: slice, *, exactly: bool) -> Float[np.ndarray, "m n"]:
    """The distances of each query to every sample, in float64 or in float32; NOWHERE to those of its class."""
    far = -unit.exact.take(part).cosines(unit.exact) if exactly else -unit.quick[part] @ unit.quick.T
    for some, rows in classes_of(unit, part):
        far[some, rows] = NOWHERE
    return far


def ahead_by_sorting(unit: Unit, part: slice, own: np.ndarray, depth: int) -> Int[np.ndarray, "m own"]:
    """How many of the `depth` nearest of other classes come before each of the query's own; of equals, they do."""
    far = other_distances(unit, part, exactly=True)
    far.partition(depth - 1, axis=1)
    nearest = far[:, :depth]
    nearest.sort(axis=1)
    return np.stack([np.searchsorted(others, mine, "right") for others, mine in zip(nearest, own, strict=True)])


def ahead_by_picking(unit: Unit, part: slice, own: np.ndarray, depth: int) -> Int[np.ndarray, "m own"] | None:
    """The same from those within reach alone, in float32 where that decides; None where too many are too close."""
    far = other_distances(unit, part, exactly=False)
    picked = np.flatnonzero(far <= reach_of(far, own, depth, unit.doubt)[:, None])
    if len(picked) > CANDIDATES * far.size:
        return None
    query, column = np.divmod(picked, far.shape[1])
    nearer, close = own_nearer(own, query, far.ravel()[picked], unit.doubt)
    if close.sum() > DOUBTFUL * far.size:
        return None
    nearer[close] = own_nearer_exactly(own, unit.exact.take(part), unit.exact, query[close], column[close])
    return np.bincount(query * own.shape[1] + nearer, minlength=own.size).reshape(own.shape).cumsum(axis=1)


def reach_of(far: np.ndarray, own: np.ndarray, depth: int, doubt: float) -> Float32[np.ndarray, " m"]:
    """A distance within which the `depth` nearest of each query surely are: of some samples, `depth` are.

    These are its own class and the nearest of each group of columns, among which most of the nearest are.
    """
    folds = far.shape[1] // (GROUPS * depth)
    groups = far.shape[1] // folds
    nearest = far[:, : folds * groups].reshape(len(far), folds, groups).min(axis=1)
    some = np.concatenate((own.astype(np.float32), nearest), axis=1)
    some.partition(depth - 1, axis=1)
    return np.minimum(some[:, depth - 1] + np.float32(2.0 * doubt), np.float32(NOWHERE - 0.5))


def own_nearer(own: np.ndarray, query: np.ndarray, far: np.ndarray, doubt: float) -> tuple[np.ndarray, np.ndarray]:
    """How many of the query's class are nearer than each candidate, and whether any is too close to it to tell."""
    apart = 2.0 * NOWHERE  # all queries in a row on one line, so that one search serves them all
    line, point = (own + apart * np.arange(len(own))[:, None]).ravel(), far + apart * query
    place = np.searchsorted(line, point)
    close = (np.abs(line[place] - point) <= doubt) | (np.abs(line[place - 1] - point) <= doubt)
    return place - own.shape[1] * query, close


def own_nearer_exactly(
    own: np.ndarray, asking: UnitRows, x: UnitRows, query: np.ndarray, column: np.ndarray
) -> Int[np.ndarray, " pairs"]:
    """How many of the query's class are nearer than each candidate, by the float64 cosine of the two."""
    nearer = np.empty(len(query), np.int64)
    for piece in row_blocks(len(query), 16 * (2 * x.high.shape[1] + own.shape[1])):  # small enough for the cache
        far = -asking.take(query[piece]).paired_cosines(x.take(column[piece]))
        nearer[piece] = (own[query[piece]] < far[:, None]).sum(axis=1)
    return nearer
