"""How well known classes are named: by the nearest centre, by the nearest neighbour, class by class."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from arcwise.errors import ArcwiseError, name_list
from arcwise.metrics.rows import (
    UnitRows,
    admit_rows,
    by_class,
    class_means,
    directions,
    has_twins,
    row_blocks,
    row_bytes,
    split_rows,
)
from arcwise.records import Embeddings, Prototypes, refuse_other_models


class Named(NamedTuple):
    """For each sample: the class it is taken for, and cosines to its own centre and the nearest other."""

    predicted: Int[np.ndarray, " n"]
    cos_own: Float[np.ndarray, " n"]
    cos_other: Float[np.ndarray, " n"]

    @property
    def angle_own(self) -> Float[np.ndarray, " n"]:
        """The angle to the own centre."""
        return np.arccos(np.clip(self.cos_own, -1, 1))

    @property
    def angle_other(self) -> Float[np.ndarray, " n"]:
        """The angle to the nearest other centre."""
        return np.arccos(np.clip(self.cos_other, -1, 1))

    @property
    def lead(self) -> Float[np.ndarray, " n"]:
        """How much further away the nearest other centre is than the own."""
        return self.angle_other - self.angle_own


def labels_among(embeddings: Embeddings, names: tuple[str, ...], *, what: str = "centre") -> Int[np.ndarray, " n"]:
    """The labels as places among other names, or an error for classes that are not among them; no names: as they are.

    >>> e = Embeddings(np.eye(2), np.array([0, 1]), names=("cat", "ant"))
    >>> labels_among(e, ("ant", "bee", "cat")).tolist()
    [2, 0]
    """
    y = embeddings.labels
    if not names or embeddings.names == names:
        return y
    place = {name: at for at, name in enumerate(names)}
    there = np.unique(y)
    missing = tuple(embeddings.names[c] for c in there if embeddings.names[c] not in place)
    if missing:
        raise ArcwiseError(
            f"no {what} is called {name_list(missing)}: there are {name_list(names)}. Classes are matched by name: "
            "give the embeddings those names, or leave these classes out."
        )
    return np.array([place.get(name, -1) for name in embeddings.names], np.int64)[y]


class ClassRow(NamedTuple):
    """One class of the table: samples, share found (recall), share right among those named so (precision)."""

    name: str
    n: int
    recall: float
    precision: float
    f1: float
    mistaken_for: str


def centre_logits(x: Float[np.ndarray, "n d"], centres: Prototypes) -> Float[np.ndarray, "n c"]:
    """What decides without a margin: x . w + b for a linear head, else the cosine to each centre, the best of its k."""
    x = x.astype(np.float64)
    if not centres.linear:
        return centre_cosines(x, centres)
    bias = np.zeros(len(centres)) if centres.bias is None else centres.bias
    both = np.column_stack((centres.w.astype(np.float64), bias))
    return columns_once(both, lambda some: x @ some[:, :-1].T + some[:, -1])


def columns_once(
    centres: Float[np.ndarray, "c d"], score: Callable[[np.ndarray], Float[np.ndarray, "n u"]]
) -> Float[np.ndarray, "n c"]:
    """The scores of some rows for each centre; those of equal centres are computed once, so that they are equal too."""
    _, first, place = np.unique(row_bytes(centres), return_index=True, return_inverse=True)
    return score(centres) if len(first) == len(centres) else score(centres[first])[:, place]


def centre_cosines(
    x: Float[np.ndarray, "n d"], centres: Prototypes, *, exactly: bool = False
) -> Float[np.ndarray, "n c"]:
    """The cosine of each row to each centre, the largest of its sub-centres.

    `exactly` splits both (`split_rows`): a cosine then depends on its row and its centre alone.
    """
    w = centres.w
    c, k = w.shape[0], 1 if w.ndim == 2 else w.shape[1]
    if x.shape[1] != w.shape[-1]:
        raise ArcwiseError(
            f"embeddings of dimension {x.shape[1]} cannot be compared with centres of dimension {w.shape[-1]}."
        )
    flat = directions(w.astype(np.float64).reshape(c * k, -1), "centre")
    unit = directions(x.astype(np.float64))
    split = split_rows if exactly else UnitRows
    return columns_once(flat, lambda some: split(unit).cosines(split(some))).reshape(len(x), c, k).max(axis=2)


def nearest_prototype(embeddings: Embeddings, centres: Prototypes) -> Named:
    """The class each sample is taken for by the head without its margin, and its two cosines.

    Where the own class and another are equally near, it is taken for the other: a tie is not an answer.

    >>> e = Embeddings(np.array([[2.0, 1.0]]), np.array([0]), names=("a", "b"))
    >>> nearest_prototype(e, Prototypes(np.array([[1.0, 0.0], [0.0, 1.0]]))).predicted.tolist()
    [0]
    """
    refuse_other_models(admit_rows(embeddings), centres)
    n, c, y = len(embeddings.x), len(centres), labels_among(embeddings, centres.names)
    out = Named(np.zeros(n, np.int64), np.zeros(n), np.full(n, -1.0))
    if y.max() >= c:
        raise ArcwiseError(f"label {y.max()} has no centre: there are {c}.")
    for part in row_blocks(n, c * 2):
        cos = centre_cosines(embeddings.x[part], centres)
        here = (np.arange(len(cos)), y[part])
        decides = centre_logits(embeddings.x[part], centres) if centres.linear else cos
        out.predicted[part] = others_first(decides, here)
        out.cos_own[part] = cos[here]
        if c > 1:
            cos[here] = -np.inf
            out.cos_other[part] = cos.max(axis=1)
    return out


def others_first(score: Float[np.ndarray, "n c"], own: tuple[np.ndarray, np.ndarray]) -> Int[np.ndarray, " n"]:
    """The column of each row's largest score; of equals one that is not its own."""
    kept = score[own]
    best = score.argmax(axis=1)
    if score.shape[1] > 1:
        score = score.copy()
        score[own] = -np.inf
        other = score.argmax(axis=1)
        best = np.where(score[own[0], other] >= kept, other, best)
    return best


def accuracy(embeddings: Embeddings, centres: Prototypes) -> float:
    """The share of samples that the head, without margin, names rightly."""
    return float(rightly_named(embeddings, centres).mean())


def rightly_named(embeddings: Embeddings, centres: Prototypes) -> Bool[np.ndarray, " n"]:
    """Which samples the head names rightly."""
    return nearest_prototype(embeddings, centres).predicted == labels_among(embeddings, centres.names)


def margin_kept(embeddings: Embeddings, centres: Prototypes, m: float) -> float:
    """The share of samples whose nearest other centre is at least m further away in angle than their own.

    theta_other - theta_own >= m: the margin's promise, measured.
    """
    return float((nearest_prototype(embeddings, centres).lead >= m).mean())


def nearest_neighbour_accuracy(embeddings: Embeddings, reference: Embeddings | None = None) -> float:
    """The share of samples whose nearest neighbour by cosine is of their class, among `reference` or the other samples.

    A neighbour of another class that is just as near counts first. Samples whose class has nobody else there ask
    nothing; where all are such, there is no share (NaN).

    >>> x = np.array([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.1, 1.0]])
    >>> nearest_neighbour_accuracy(Embeddings(x=x, y=np.array([0, 0, 1, 1]), names=("a", "b")))
    1.0
    """
    admit_rows(embeddings)
    refuse_other_models(embeddings, reference)
    x = directions(embeddings.x.astype(np.float64))
    among = x if reference is None else directions(admit_rows(reference).x.astype(np.float64))
    if x.shape[1] != among.shape[1]:
        raise ArcwiseError(
            f"embeddings of dimension {x.shape[1]} cannot be compared with others of dimension {among.shape[1]}."
        )
    labels = embeddings.labels if reference is None else reference.labels
    mine = labels if reference is None else labels_among(embeddings, reference.names, what="class to compare")
    if len(among) < 2 and reference is None:
        raise ArcwiseError("one sample has no neighbour.")
    asks = np.bincount(labels, minlength=int(mine.max()) + 1)[mine] > (1 if reference is None else 0)
    if not asks.any():
        return math.nan
    right, twins = 0, has_twins(among)
    split = split_rows if twins else UnitRows
    queries, others = split(x), split(among)
    for part in row_blocks(len(x), len(among)):
        cos, y = queries.take(part).cosines(others), mine[part]
        if reference is None:
            cos[np.arange(part.stop - part.start), np.arange(part.start, part.stop)] = -np.inf
        first, row = cos.argmax(axis=1), np.arange(len(cos))
        best = cos[row, first]
        hit = labels[first] == y
        cos[row, first] = -np.inf
        for i in np.flatnonzero(hit & (cos.max(axis=1) == best)):  # another is as near: none of them may be a stranger
            hit[i] = (labels[cos[i] == best[i]] == y[i]).all()
        right += int(hit[asks[part]].sum())
    return right / int(asks.sum())


def confusion(y: Int[np.ndarray, " n"], predicted: Int[np.ndarray, " n"], classes: int) -> Int[np.ndarray, "c c"]:
    """How many samples of each class (row) were taken for each class (column).

    >>> confusion(np.array([0, 1, 1]), np.array([0, 1, 0]), 2).tolist()
    [[1, 0], [1, 1]]
    """
    return np.bincount(y.astype(np.int64) * classes + predicted, minlength=classes * classes).reshape(classes, classes)


def class_table(matrix: Int[np.ndarray, "c c"], names: tuple[str, ...]) -> list[ClassRow]:
    """Recall, precision and F1 of each class with samples, and what it is most often mistaken for."""
    rows = []
    for i, name in enumerate(names):
        n, named, hit = int(matrix[i].sum()), int(matrix[:, i].sum()), int(matrix[i, i])
        if not n:
            continue
        wrong = np.where(np.arange(len(names)) == i, 0, matrix[i])
        f1 = 2.0 * hit / (n + named)
        worst = names[int(wrong.argmax())] if wrong.any() else ""
        rows.append(ClassRow(name, n, hit / n, hit / named if named else 0.0, f1, worst))
    return rows


def mean_centres(embeddings: Embeddings) -> Float[np.ndarray, "c d"]:
    """The direction of each class's mean direction, in the order of the class numbers that occur."""
    rows = by_class(admit_rows(embeddings).x, embeddings.labels, unit=True)
    return directions(class_means(rows), "the mean of class", rows.labels)
