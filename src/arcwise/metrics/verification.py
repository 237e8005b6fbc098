"""How well "the same or not?" is answered by a score: ROC, AUC, EER, TAR at a FAR, accuracy over folds.

A pair is genuine when both samples are of one class, and accepted when its score is at least the threshold:

    FAR(t) = share of impostor pairs with score >= t        TAR(t) = share of genuine pairs with score >= t
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from arcwise.errors import ArcwiseError, count_at_least, number_in
from arcwise.metrics.rows import (
    ClassRows,
    UnitRows,
    admit_rows,
    by_class,
    directions,
    has_twins,
    row_blocks,
    row_bytes,
    split_rows,
    unit_rows,
)
from arcwise.records import Embeddings

EXACT_PAIRS = 2**26  # up to this many pairs every score is kept: 11,585 samples, 256 MiB
SCORE_BINS = 2**16  # beyond that, scores are counted in bins of this width
WIDTH = 2.0 / SCORE_BINS
CROWDED = 1e-3  # of one kind in one bin, beside scores of the other kind: such a bin is cut
FINE_BINS = 2**9  # into so many, each as wide as a step of float32 below 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SortedScores:
    """Scores in rising order; `count` says how often each came, where they were counted in bins.

    A bin stands by its lower edge, so a score is never taken for a higher one.
    """

    value: Float[np.ndarray, " k"]
    count: Int[np.ndarray, " k"] | None = None

    @property
    def total(self) -> int:
        """How many scores there are."""
        return len(self.value) if self.count is None else int(self.count.sum())

    def above(self, t: np.ndarray | float) -> np.ndarray:
        """The share of scores >= t, for one threshold or many."""
        return np.asarray(self.at_least(t) / self.total)

    def at_least(self, t: np.ndarray | float) -> np.ndarray:
        """How many scores are >= t."""
        first = np.searchsorted(self.value, np.asarray(t, self.value.dtype), "left")
        if self.count is None:
            return np.asarray(len(self.value) - first)
        return np.asarray(np.append(np.cumsum(self.count[::-1])[::-1], 0)[first])

    def ranked(self, k: int) -> float:
        """The k-th largest score, from 0; below all of them for k = total."""
        if k >= self.total:
            return float(np.nextafter(self.value[0], self.value.dtype.type(-np.inf)))
        if self.count is None:
            return float(self.value[len(self.value) - 1 - k])
        return float(self.value[np.flatnonzero(np.cumsum(self.count[::-1])[::-1] > k)[-1]])


@dataclass(frozen=True, slots=True, kw_only=True)
class PairScores:
    """The scores of genuine and of impostor pairs; `width` is that of the widest bins, 0 where every score is kept."""

    genuine: SortedScores
    impostor: SortedScores
    width: float = 0.0


class Roc(NamedTuple):
    """Points of the curve from the strictest threshold to the mildest."""

    far: Float[np.ndarray, " p"]
    tar: Float[np.ndarray, " p"]
    threshold: Float[np.ndarray, " p"]


class Operating(NamedTuple):
    """One threshold and what it does."""

    threshold: float
    far: float
    tar: float


def all_pairs(embeddings: Embeddings, *, exact: int = EXACT_PAIRS) -> PairScores:
    """The cosines (float32) of all n (n - 1)/2 pairs of samples, genuine and impostor.

    Up to `exact` pairs every score is kept; beyond, they are counted in bins of width 2/65536, finer where many come
    close together, so that a set of any size needs a few hundred MB. No n x n matrix is ever there. Equal rows have
    equal scores, to the last bit.

    >>> x = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]], dtype=np.float32)
    >>> found = all_pairs(Embeddings(x=x, y=np.array([0, 0, 1]), names=("a", "b")))
    >>> found.genuine.value.tolist(), found.impostor.value.tolist()
    ([1.0], [0.0, 0.0])
    """
    admit_rows(embeddings, classes=2)
    rows = by_class(directions(embeddings.x).astype(np.float32), embeddings.labels)
    n, sizes = len(rows.x), rows.sizes
    genuine = int((sizes * (sizes - 1) // 2).sum())
    if not genuine:
        raise ArcwiseError("no class has two samples, so there is no pair of the same class to verify.")
    groups = merge_twins(rows) if has_twins(rows.x) else TwinRows(rows)
    if n * (n - 1) // 2 <= exact:
        return keep_scores(groups, genuine, n * (n - 1) // 2 - genuine)
    return count_scores(groups)


class TwinRows(NamedTuple):
    """Rows sorted by class, those of a class that are equal as one, and how many each stands for, where any are."""

    rows: ClassRows
    copies: Int[np.ndarray, " n"] | None = None
    split: UnitRows | None = None


def merge_twins(rows: ClassRows) -> TwinRows:
    """Equal rows of a class as one, split so that equal rows of different classes have equal cosines too."""
    parts, counts = [], []
    for _, members in rows.classes():
        _, first, count = np.unique(row_bytes(rows.x[members]), return_index=True, return_counts=True)
        parts.append(members.start + first)
        counts.append(count)
    starts = np.cumsum([0, *map(len, parts)])
    x = rows.x[np.concatenate(parts)]
    return TwinRows(
        rows._replace(x=x, starts=starts), np.concatenate(counts), split_rows(directions(x.astype(np.float64)))
    )


class PairBlock(NamedTuple):
    """Cosines of some pairs, and how often each of them is there; None where each is there once."""

    own: Float[np.ndarray, " p"]
    rest: Float[np.ndarray, " q"]
    own_times: Int[np.ndarray, " p"] | None = None
    rest_times: Int[np.ndarray, " q"] | None = None


def class_blocks(groups: TwinRows) -> Iterator[PairBlock]:
    """For each block of rows of one class: cosines to the later rows of the class, and to those of later classes."""
    rows, copies, split = groups
    n = len(rows.x)
    for _, members in rows.classes():
        for part in row_blocks(members.stop - members.start, n - members.start, 4 if split is None else 8):
            a, b, stop = members.start + part.start, members.start + part.stop, members.stop
            cos = (
                rows.x[a:b] @ rows.x[a:].T
                if split is None
                else split.take(slice(a, b)).cosines(split.take(slice(a, n)))
            )
            cos = np.clip(cos, -1.0, 1.0).astype(np.float32, copy=False)
            own = cos[:, : stop - a]
            later = np.triu(np.ones(own.shape, bool), 1)
            if copies is None:
                yield PairBlock(own[later], cos[:, stop - a :].ravel())
                continue
            here = copies[a:b]
            twins = np.diagonal(own), here * (here - 1) // 2
            yield PairBlock(
                np.concatenate((own[later], twins[0])), cos[:, stop - a :].ravel(),
                np.concatenate((np.multiply.outer(here, copies[a:stop])[later], twins[1])),
                np.multiply.outer(here, copies[stop:]).ravel(),
            )  # fmt: skip


def keep_scores(groups: TwinRows, genuine: int, impostor: int) -> PairScores:
    """Every score, sorted."""
    same, other = np.empty(genuine, np.float32), np.empty(impostor, np.float32)
    i = j = 0
    for block in class_blocks(groups):
        own, rest = block.own, block.rest
        if block.own_times is not None and block.rest_times is not None:
            own, rest = np.repeat(own, block.own_times), np.repeat(rest, block.rest_times)
        same[i : i + own.size], other[j : j + rest.size] = own, rest
        i, j = i + own.size, j + rest.size
    same.sort()
    other.sort()
    return PairScores(genuine=SortedScores(value=same), impostor=SortedScores(value=other))


def count_scores(groups: TwinRows) -> PairScores:
    """Scores counted in bins; where cosines lie so close that many share one, counted again in finer ones."""
    cuts = np.ones(SCORE_BINS, np.int64)
    same, other = count_cut(groups, cuts)
    crowded = (same > 0) & (other > 0) & ((same > CROWDED * same.sum()) | (other > CROWDED * other.sum()))
    if crowded.any():
        cuts[crowded] = FINE_BINS
        same, other = count_cut(groups, cuts)
    first = np.repeat(np.arange(SCORE_BINS) * WIDTH - 1.0, cuts)
    within = np.arange(len(first)) - np.repeat(np.cumsum(cuts) - cuts, cuts)
    edges = (first + within * WIDTH / np.repeat(cuts, cuts)).astype(np.float32)
    return PairScores(
        genuine=SortedScores(value=edges, count=same), impostor=SortedScores(value=edges, count=other), width=WIDTH
    )


def count_cut(groups: TwinRows, cuts: Int[np.ndarray, " bins"]) -> tuple[Int[np.ndarray, " k"], Int[np.ndarray, " k"]]:
    """How many genuine and how many impostor scores fall into each bin, the i-th cut into `cuts[i]` equal ones."""
    n, starts = int(cuts.sum()), np.cumsum(cuts) - cuts
    same, other = np.zeros(n, np.int64), np.zeros(n, np.int64)
    for block in class_blocks(groups):
        for counts, scores, times in ((same, block.own, block.own_times), (other, block.rest, block.rest_times)):
            place = scores * np.float32(SCORE_BINS / 2)  # exact, as a power of two
            whole = np.floor(place)
            bins = np.minimum(whole.astype(np.int32) + SCORE_BINS // 2, SCORE_BINS - 1)
            if n > SCORE_BINS:
                part = ((place - whole) * cuts[bins]).astype(np.int64)
                part[scores >= 1.0] = cuts[-1] - 1
                bins = starts[bins] + part
            counts += np.bincount(bins, times, minlength=n).astype(np.int64)
    return same, other


def score_pairs(score: Float[np.ndarray, " p"], same: Bool[np.ndarray, " p"]) -> PairScores:
    """The scores of pairs that are given, with whether each is genuine.

    >>> score_pairs(np.array([0.9, 0.2]), np.array([True, False])).genuine.total
    1
    """
    same = np.asarray(same, bool)
    if len(score) != len(same) or same.all() or not same.any():
        raise ArcwiseError(
            "pairs need one score and one answer each, some of the same class and some of different ones."
        )
    if not np.isfinite(score).all():
        raise ArcwiseError(f"score {int(np.flatnonzero(~np.isfinite(score))[0])} is not finite.")
    return PairScores(
        genuine=SortedScores(value=np.sort(score[same])), impostor=SortedScores(value=np.sort(score[~same]))
    )


def given_pairs(embeddings: Embeddings, pairs: Int[np.ndarray, "p 2"]) -> tuple[np.ndarray, np.ndarray]:
    """The cosine of each pair of rows, and whether both are of one class."""
    pairs = np.asarray(pairs)
    n = len(embeddings.x)
    if pairs.ndim != 2 or pairs.shape[1] != 2 or (len(pairs) and not 0 <= pairs.min() <= pairs.max() < n):
        raise ArcwiseError(f"pairs must be two row numbers each, from 0 to {n - 1}.")
    x = unit_rows(admit_rows(embeddings).x)
    a, b = pairs.T
    return x.take(a).paired_cosines(x.take(b)), embeddings.labels[a] == embeddings.labels[b]


def roc(pairs: PairScores, *, points: int = 400) -> Roc:
    """The curve at rates of false acceptance spread evenly on a logarithmic scale, from one impostor to all."""
    n = pairs.impostor.total
    ranks = np.unique(np.round(np.geomspace(1, n + 1, count_at_least("points", points, 2))).astype(np.int64)) - 1
    t = np.array([threshold_beyond(pairs.impostor, int(k)) for k in ranks])
    return Roc(pairs.impostor.above(t), pairs.genuine.above(t), t)


def threshold_beyond(scores: SortedScores, k: int) -> float:
    """The lowest threshold that at most k of the scores reach."""
    if k >= scores.total:
        return -np.inf
    top = scores.ranked(k)
    if scores.count is None:
        return float(np.nextafter(scores.value.dtype.type(top), scores.value.dtype.type(np.inf)))
    after = int(np.searchsorted(scores.value, scores.value.dtype.type(top), "right"))
    return float(scores.value[after]) if after < len(scores.value) else 1.0


def auc(pairs: PairScores) -> float:
    """The chance that a genuine pair scores higher than an impostor pair, ties counted half.

    >>> auc(score_pairs(np.array([0.9, 0.4, 0.6, 0.1]), np.array([True, True, False, False])))
    0.75
    """
    other, same = pairs.impostor, pairs.genuine
    if other.count is None or same.count is None:
        below = np.searchsorted(other.value, same.value, "left") + np.searchsorted(other.value, same.value, "right")
        return float(below.sum(dtype=np.float64) / 2.0 / other.total / same.total)
    before = np.cumsum(other.count) - other.count
    return float((same.count * (before + other.count / 2.0)).sum() / other.total / same.total)


def eer(pairs: PairScores) -> Operating:
    """Where FAR and 1 - TAR are equal, or as near as the scores allow; its rate is the mean of both.

    >>> found = eer(score_pairs(np.array([0.9, 0.4, 0.6, 0.1]), np.array([True, True, False, False])))
    >>> (found.far + 1 - found.tar) / 2
    0.5
    """
    low, high = -2, pairs.impostor.total  # FAR at rank k is about k/n: rises with k, while 1 - TAR falls
    while high - low > 1:
        middle = (low + high) // 2
        t = threshold_beyond(pairs.impostor, max(middle, 0))
        if pairs.impostor.above(t) + pairs.genuine.above(t) < 1.0:
            low = middle
        else:
            high = middle
    candidates = [threshold_beyond(pairs.impostor, k) for k in (max(low, 0), max(high, 0))]
    # Between two ranks of impostors the genuine scores still move: look at them too.
    inner = pairs.genuine.value
    inner = inner[(inner >= min(candidates)) & (inner <= max(candidates))]
    candidates = np.concatenate((candidates, inner, np.nextafter(inner, inner.dtype.type(np.inf))))
    far, tar = pairs.impostor.above(candidates), pairs.genuine.above(candidates)
    best = int(np.abs(far - (1.0 - tar)).argmin())
    return Operating(float(candidates[best]), float(far[best]), float(tar[best]))


def equal_error_rate(pairs: PairScores) -> float:
    """The rate at which both errors are equal."""
    found = eer(pairs)
    return (found.far + 1.0 - found.tar) / 2.0


def tar_at_far(pairs: PairScores, far: float) -> Operating:
    """The largest TAR whose FAR is at most `far`, with its threshold.

    >>> tar_at_far(score_pairs(np.array([0.9, 0.4, 0.6, 0.1]), np.array([True, True, False, False])), 0.5).tar
    1.0
    """
    far = number_in("far", far, 0.0, 1.0)
    t = threshold_beyond(pairs.impostor, int(far * pairs.impostor.total + 1e-9))
    return Operating(t, float(pairs.impostor.above(t)), float(pairs.genuine.above(t)))
