"""Rows as the metrics take them: checked, sorted by class, of unit length where directions count, in blocks."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from arcwise.errors import ArcwiseError
from arcwise.records import Embeddings

BLOCK_BYTES = 48 * 2**20  # of one block of distances
TILE_ROWS = 2048  # rows and columns of a tile of distances
FEW = 4  # dimensions in which differences are as quick as a product


class ClassRows(NamedTuple):
    """Rows sorted by class: class `labels[i]` is rows starts[i] to starts[i + 1]; `order` leads back.

    They are kept as they came; `part` gives some of them in float64, divided by their lengths where `unit` says so.
    """

    x: Float[np.ndarray, "n d"]
    starts: Int[np.ndarray, " starts"]
    labels: Int[np.ndarray, " c"]
    order: Int[np.ndarray, " n"]
    unit: bool

    def part(self, some: slice = slice(None)) -> Float[np.ndarray, "m d"]:
        """Some rows in float64, their directions where only those count."""
        x = self.x[some].astype(np.float64)
        return directions(x) if self.unit else x

    @property
    def sizes(self) -> Int[np.ndarray, " c"]:
        """Rows of each class."""
        return np.diff(self.starts)

    @property
    def owner(self) -> Int[np.ndarray, " n"]:
        """The place in `labels` of each row's class."""
        return np.repeat(np.arange(len(self.labels)), self.sizes)

    def classes(self) -> Iterator[tuple[int, slice]]:
        """Each class by its place in `labels`, with its rows."""
        for i, (a, b) in enumerate(zip(self.starts[:-1].tolist(), self.starts[1:].tolist(), strict=True)):
            yield i, slice(a, b)


class NoDirection(ArcwiseError):  # noqa: N818
    """The mean of a class has length 0: its members point everywhere."""


SQUARES = 1e-140, 1e150  # numbers between these have squares that float64 holds, their sums and small parts of them too


def admit_rows(embeddings: Embeddings, *, classes: int = 1) -> Embeddings:
    """The embeddings, once every number in them is finite and there are enough classes; 0 asks for no labels."""
    x = embeddings.x
    if not len(x):
        raise ArcwiseError("there are no embeddings to measure: the file or the part is empty.")
    bad = ~np.isfinite(x).all(axis=1)
    if bad.any():
        raise ArcwiseError(
            f"{bad.sum()} of {len(x)} embeddings are not finite, the first in row {int(bad.argmax())}. "
            "Leave those rows out, or train again."
        )
    longest = max(float(x.max()), -float(x.min()))
    if longest and not SQUARES[0] < longest < SQUARES[1]:
        raise ArcwiseError(
            f"the numbers of these embeddings are as large as {longest:.1e}, and the squares of distances cannot be "
            f"written in float64. Divide all of them by one number, such as {longest:.0e}."
        )
    found = len(np.unique(embeddings.labels)) if classes else 0
    if found < classes:
        raise ArcwiseError(f"this measure compares at least {classes} classes; the embeddings hold {found}.")
    return embeddings


def directions(
    x: Float[np.ndarray, "n d"], what: str = "row", names: Int[np.ndarray, " n"] | None = None
) -> Float[np.ndarray, "n d"]:
    """x/|x| row by row, in the precision of x, but at least float32.

    >>> directions(np.array([[3.0, 4.0]])).tolist()
    [[0.6, 0.8]]
    """
    refuse_without_direction(x, what, names)
    x = x.astype(np.promote_types(x.dtype, np.float32), copy=False)
    x = x / np.abs(x).max(axis=1, keepdims=True)  # squares of very long or very short rows stay in range
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def refuse_without_direction(
    x: Float[np.ndarray, "n d"], what: str = "row", names: Int[np.ndarray, " n"] | None = None
) -> None:
    """Raises where a row is 0 or not finite."""
    scale = np.maximum(x.max(axis=1, initial=0.0), -x.min(axis=1, initial=0.0))
    kind = NoDirection if what.startswith("the mean") else ArcwiseError
    for bad, why, error in (
        (~np.isfinite(scale), "is not finite. Leave it out, or train again.", ArcwiseError),
        (scale == 0.0, "has length 0 and so no direction: angles and cosines need one.", kind),
    ):
        if bad.any():
            where = int(bad.argmax())
            raise error(f"{what} {where if names is None else int(names[where])} {why}")


def by_class(x: Float[np.ndarray, "n d"], y: Int[np.ndarray, " n"], *, unit: bool = False) -> ClassRows:
    """The rows sorted by class, those of one class in their old order; `unit` takes their directions."""
    order = np.argsort(y, kind="stable")
    labels, starts = np.unique(y[order], return_index=True)
    if unit:
        refuse_without_direction(x)
    return ClassRows(x[order], np.append(starts, len(y)), labels, order, unit)


def has_twins(x: Float[np.ndarray, "n d"]) -> bool:
    """Whether two rows are equal. Three columns tell at once, nearly always, that none are."""
    a, b, c = (x[:, i].astype(np.float64) for i in (0, x.shape[1] // 2, -1))
    key = a + 1.6180339887 * b + 2.7182818284 * c  # the same for equal rows
    return len(np.unique(key)) < len(x) and len(np.unique(row_bytes(x))) < len(x)


def row_bytes(x: Float[np.ndarray, "n d"]) -> np.ndarray:
    """Each row as one value that is equal where the rows are; 0 and -0 are."""
    whole = np.ascontiguousarray(x + x.dtype.type(0))
    return whole.view(np.dtype((np.void, whole.itemsize * whole.shape[1]))).ravel()


class UnitRows(NamedTuple):
    """Directions in float64; with `low`, in two parts whose products float64 holds exactly (`split_rows`)."""

    high: Float[np.ndarray, "n d"]
    low: Float[np.ndarray, "n d"] | None = None

    def take(self, some: slice | Int[np.ndarray, " m"]) -> UnitRows:
        """Some of the rows."""
        return UnitRows(self.high[some], None if self.low is None else self.low[some])

    def cosines(self, other: UnitRows) -> Float[np.ndarray, "n k"]:
        """The cosine of each row with each of the other rows."""
        cos = self.high @ other.high.T
        if self.low is not None and other.low is not None:
            cos += np.hstack((self.high, self.low)) @ np.hstack((other.low, other.high)).T
        return cos

    def paired_cosines(self, other: UnitRows) -> Float[np.ndarray, " n"]:
        """The cosine of each row with the other row in its place."""
        cos = np.vecdot(self.high, other.high)
        if self.low is not None and other.low is not None:
            cos += np.vecdot(self.high, other.low) + np.vecdot(self.low, other.high)
        return cos


def unit_rows(x: Float[np.ndarray, "n d"]) -> UnitRows:
    """The directions of rows, so that the cosines of equal rows are equal to the last bit.

    Where no row is there twice there are none, and nothing is split.
    """
    unit = directions(x.astype(np.float64))
    return split_rows(unit) if has_twins(unit) else UnitRows(unit)


def split_rows(unit: Float[np.ndarray, "n d"]) -> UnitRows:
    """Directions as high + low: multiples of 2^-26, and the rest in multiples of 2^-48 (of fewer beyond d = 1024).

    Products of two highs, and their sums, are multiples of 2^-52 below 2; those of a high and a low are multiples of
    2^-74 below sqrt(d) 2^-26: float64 holds each of them exactly, in whatever order they are summed. So a cosine
    depends on its two rows alone, whatever block, order or thread it comes from.
    """
    fewer = max(0, math.ceil((math.log2(unit.shape[1]) - 10.0) / 2.0))
    coarse, fine = 2.0**26, 2.0 ** (48 - fewer)
    high = np.rint(unit * coarse) / coarse
    return UnitRows(high, np.rint((unit - high) * fine) / fine)


def row_blocks(n: int, columns: int, itemsize: int = 8) -> Iterator[slice]:
    """Rows in slices whose product with `columns` columns stays within BLOCK_BYTES."""
    step = max(1, BLOCK_BYTES // max(1, columns * itemsize))
    for start in range(0, n, step):
        yield slice(start, min(start + step, n))


def class_means(rows: ClassRows) -> Float[np.ndarray, "c d"]:
    """The mean of each class; that of equal rows is the row, to the last bit."""
    means = np.empty((len(rows.labels), rows.x.shape[1]))
    for i, members in rows.classes():
        here = rows.part(members)
        equal = (here[0] == here[-1]).all() and (here == here[0]).all()
        means[i] = here[0] if equal else here.mean(axis=0)
    return means


def squared_distances(a: Float[np.ndarray, "n d"], b: Float[np.ndarray, "k d"]) -> Float[np.ndarray, "n k"]:
    """|a_i - b_j|^2: from differences in few dimensions, else by one matrix product.

    The product loses digits of what is close together far from the origin: bring both near it first.
    """
    if a.shape[1] <= FEW:
        out = np.empty((len(a), len(b)))
        for part in row_blocks(len(a), 64 * len(b)):  # rows that stay in the cache from one dimension to the next
            np.square(np.subtract(a[part, :1], b[:, 0], out=out[part]), out=out[part])
            for u, v in zip(a[part, 1:].T, b[:, 1:].T, strict=True):
                difference = u[:, None] - v
                out[part] += np.square(difference, out=difference)
        return out
    long, short = np.einsum("nd,nd->n", a, a), np.einsum("kd,kd->k", b, b)
    one = np.ones_like
    out = np.column_stack((-2.0 * a, long, one(long))) @ np.column_stack((b, one(short), short)).T
    return np.maximum(out, 0.0, out=out)
