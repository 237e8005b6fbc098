"""Returns rows as the metrics take them: checked, sorted by class, of unit length where directions count, in blocks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from arcwise.errors import ArcwiseError
from arcwise.records import Embeddings

BLOCK_BYTES = 48 * 2**20  # of one block of distances


class Rows(NamedTuple):
    """Rows sorted by class: class `labels[i]` is rows starts[i] to starts[i + 1]; `order` leads back."""

    x: Float[np.ndarray, "n d"]
    starts: Int[np.ndarray, " starts"]
    labels: Int[np.ndarray, " c"]
    order: Int[np.ndarray, " n"]

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


def admitted(embeddings: Embeddings, *, classes: int = 1) -> Embeddings:
    """The embeddings, once every number in them is finite and there are enough classes."""
    x, y = embeddings.x, embeddings.y
    if not len(x):
        raise ArcwiseError("there are no embeddings to measure: the file or the part is empty.")
    bad = ~np.isfinite(x).all(axis=1)
    if bad.any():
        raise ArcwiseError(
            f"{bad.sum()} of {len(x)} embeddings are not finite, the first in row {int(bad.argmax())}. "
            "Leave those rows out, or train again."
        )
    found = len(np.unique(y))
    if found < classes:
        raise ArcwiseError(f"this measure compares at least {classes} classes; the embeddings hold {found}.")
    return embeddings


def directions(x: Float[np.ndarray, "n d"], what: str = "row") -> Float[np.ndarray, "n d"]:
    """x/|x| row by row, in the precision of x.

    >>> directions(np.array([[3.0, 4.0]])).tolist()
    [[0.6, 0.8]]
    """
    scale = np.abs(x).max(axis=1, keepdims=True, initial=0.0)
    if not (scale > 0.0).all():
        where = int(np.flatnonzero(scale[:, 0] == 0.0)[0])
        raise ArcwiseError(f"{what} {where} has length 0 and so no direction: angles and cosines need one.")
    x = x / scale  # squares of very long or very short rows stay in range
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def by_class(x: Float[np.ndarray, "n d"], y: Int[np.ndarray, " n"]) -> Rows:
    """The rows sorted by class, those of one class in their old order."""
    order = np.argsort(y, kind="stable")
    labels, starts = np.unique(y[order], return_index=True)
    return Rows(np.ascontiguousarray(x[order]), np.append(starts, len(y)), labels, order)


def blocks(n: int, columns: int, itemsize: int = 8) -> Iterator[slice]:
    """Rows in slices whose product with `columns` columns stays within BLOCK_BYTES."""
    step = max(1, BLOCK_BYTES // max(1, columns * itemsize))
    for start in range(0, n, step):
        yield slice(start, min(start + step, n))


def class_means(rows: Rows) -> Float[np.ndarray, "c d"]:
    """The mean of each class."""
    return np.add.reduceat(rows.x, rows.starts[:-1], axis=0) / rows.sizes[:, None]


def squared_distances(a: Float[np.ndarray, "n d"], b: Float[np.ndarray, "k d"]) -> Float[np.ndarray, "n k"]:
    """|a_i - b_j|^2 by one matrix product; bring both near the origin first, where it loses the least."""
    out = a @ b.T
    out *= -2.0
    out += np.einsum("nd,nd->n", a, a)[:, None]
    out += np.einsum("nd,nd->n", b, b)[None, :]
    return np.maximum(out, 0.0, out=out)
