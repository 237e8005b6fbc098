"""Exact search in memory: the best and the second-best identity by float64 dot products of the stored rows.

Float32 products, and from some size on products of whole numbers of eight bits, find which rows could be among the
best; how far either can be off is bounded, so that the few rows left open are looked at again in float64, and no other
row could have won.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float32, Int

SMALL_FROM = 200_000  # rows: from here on a scan of one byte a number is quicker, though it must be looked at again
WIDEST_IN_BYTES = 1040  # dimensions in which the sum of such products is still exact in float32: 127^2 d < 2^24
FIRST, MORE = 64, 1024  # rows that the scan is asked for, and when these do not decide
ODD = 0.001  # of the rows: those that bytes hold worst are kept aside and always looked at
ROWS_A_BLOCK = 65_536  # rows of a block


class Found(NamedTuple):
    """The row that stands for an identity, and its exact cosine."""

    row: int
    score: float


class SmallRows(NamedTuple):
    """The rows in bytes: x is near step * bytes, never further than `far`; rows that are, are listed as odd."""

    bytes: np.ndarray
    step: float
    far: float
    longest: float
    odd: Int[np.ndarray, " m"]


class Index:
    """Unit rows, the identity of each, and the search among them. `small_from` is None where bytes are never used.

    >>> index = Index(np.eye(3, dtype=np.float32), np.array([0, 1, 2]))
    >>> [found.row for found in index.best(np.float32([0.6, 0.8, 0.0]))]
    [1, 0]
    """

    def __init__(
        self, x: Float32[np.ndarray, "n d"], owner: Int[np.ndarray, " n"], *, small_from: int | None = SMALL_FROM
    ):
        self.x, self.owner = x, owner
        n, d = x.shape
        self.small: SmallRows | None = None
        self.searcher = searcher() if small_from is not None and small_from <= n and d <= WIDEST_IN_BYTES else None
        if self.searcher is not None:
            self.small = in_bytes(x)
        # Sums of d products of numbers that were rounded once each  (Higham 2002, section 3.1); |x|, |q| <= 1 + 1e-6.
        self.doubt = (d + 4) * 2.0**-24 / (1.0 - (d + 4) * 2.0**-24) * 1.00001

    def __len__(self) -> int:
        return len(self.x)

    @property
    def nbytes(self) -> int:
        """What it holds in memory."""
        return self.x.nbytes + self.owner.nbytes + (0 if self.small is None else self.small.bytes.nbytes)

    def best(
        self, q: Float32[np.ndarray, " d"], *, allowed: Bool[np.ndarray, " n"] | None = None, wanted: int = 2
    ) -> list[Found]:
        """The best row of each of the `wanted` best identities, best first; of equals the one enrolled first."""
        if not len(self.x) or (allowed is not None and not allowed.any()):
            return []
        if self.small is not None:
            found = self.by_bytes(q, allowed, wanted)
            if found is not None:
                return found
        return self.by_floats(self.x @ q, q, allowed, wanted)

    def best_of_many(
        self, queries: Float32[np.ndarray, "b d"], *, allowed: Bool[np.ndarray, " n"] | None = None, wanted: int = 2
    ) -> list[list[Found]]:
        """The same for many queries: one product, in blocks of rows, then each query by itself."""
        if len(queries) < 8 or not len(self.x):
            return [self.best(q, allowed=allowed, wanted=wanted) for q in queries]
        out: list[list[Found]] = []
        step = max(1, 2**28 // (4 * len(self.x)))
        for start in range(0, len(queries), step):
            some = queries[start : start + step]
            scores = some @ self.x.T
            out += [self.by_floats(mine, q, allowed, wanted) for mine, q in zip(scores, some, strict=True)]
        return out

    # -------------------------------------------------------------------------------- which rows could be the best

    def by_floats(
        self, scores: Float32[np.ndarray, " n"], q: Float32[np.ndarray, " d"], allowed: np.ndarray | None, wanted: int
    ) -> list[Found]:
        """From all rows' float32 products: those within twice their error of the last that is wanted."""
        if allowed is not None:
            scores[~allowed] = -np.inf
        floor, left = math.inf, scores
        for at in range(wanted):
            row = int(left.argmax())
            if left[row] == -np.inf:
                break
            floor = float(left[row])
            if at + 1 < wanted:
                left = np.where(self.owner == self.owner[row], np.float32(-np.inf), left)
        rows = np.flatnonzero(scores >= floor - 2.0 * self.doubt)
        return self.exactly(rows, q, wanted)

    def by_bytes(self, q: Float32[np.ndarray, " d"], allowed: np.ndarray | None, wanted: int) -> list[Found] | None:
        """From the scan of bytes, where it decides; None where too many rows are too close."""
        small, scan = self.small, self.searcher
        assert small is not None
        assert scan is not None
        shrunk = np.clip(np.rint(q / small.step), -127, 127).astype(np.int8)
        off = float(np.linalg.norm(q.astype(np.float64) - small.step * shrunk.astype(np.float64)))
        error = small.far * 1.00001 + small.longest * off
        for count in (FIRST, MORE):
            rows, products = scan(small.bytes, shrunk, min(count, len(self.x)))
            # No row that was not returned has a larger product than the last that was, and so no cosine above this.
            ceiling = small.step**2 * float(products[-1]) + error if len(rows) < len(self.x) else -math.inf
            rows = np.union1d(rows, small.odd)
            found = self.exactly(rows if allowed is None else rows[allowed[rows]], q, wanted)
            if len(found) == wanted and found[-1].score > ceiling:
                return found
        return None

    def exactly(self, rows: Int[np.ndarray, " m"], q: Float32[np.ndarray, " d"], wanted: int) -> list[Found]:
        """The best row of each of the best identities among these rows, which rise, by float64 dot products."""
        score, exact = np.empty(len(rows)), q.astype(np.float64)
        for start in range(0, len(rows), ROWS_A_BLOCK):
            some = slice(start, start + ROWS_A_BLOCK)
            score[some] = np.vecdot(self.x[rows[some]].astype(np.float64), exact)
        out: list[Found] = []
        for _ in range(wanted):
            if not len(rows):
                break
            best = int(score.argmax())  # the first of equals
            out.append(Found(int(rows[best]), float(score[best])))
            others = self.owner[rows] != self.owner[rows[best]]
            rows, score = rows[others], score[others]
        return out


def in_bytes(x: Float32[np.ndarray, "n d"]) -> SmallRows:
    """The rows as whole numbers of eight bits, with what they are off by."""
    n, d = x.shape
    tops = [np.abs(x[at : at + ROWS_A_BLOCK]).max(axis=1) for at in range(0, n, ROWS_A_BLOCK)]
    step = float(np.quantile(np.concatenate(tops).astype(np.float64), 1.0 - ODD)) / 127.0 or 1.0
    small, off, longest = np.empty((n, d), np.int8), np.empty(n), 0.0
    for at in range(0, n, ROWS_A_BLOCK):
        some = slice(at, at + ROWS_A_BLOCK)
        small[some] = np.clip(np.rint(x[some] / np.float32(step)), -127, 127)
        near = small[some].astype(np.float64) * step
        off[some] = np.linalg.norm(x[some] - near, axis=1)
        longest = max(longest, float(np.linalg.norm(near, axis=1).max()))
    far = float(np.quantile(off, 1.0 - ODD))
    return SmallRows(small, step, far, longest, np.flatnonzero(off > far))


def searcher() -> Any:
    """A function from bytes, a query and a count to the rows with the largest products and these; None without it."""
    try:
        from usearch.compiled import MetricKind
        from usearch.index import search
    except ImportError:
        return None

    def largest(rows: np.ndarray, q: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
        found = search(rows, q, count, MetricKind.IP, exact=True)
        return found.keys.astype(np.int64), 1.0 - found.distances.astype(np.float64)

    return largest
