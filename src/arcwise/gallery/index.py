"""Exact search in memory: the best and the second-best identity by float64 dot products of the stored rows.

Float32 products, and from some size on products of whole numbers of eight bits, bound the cosines of every group of
rows from above. The rows of the groups that could hold one of the best are looked at again in float64; no other row
could have won.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float32, Int, Int8

SMALL_FROM = 50_000  # rows: from here on a look at one byte a number is much quicker, for a quarter more memory
ODD = 0.001  # of the rows: those that bytes hold worst are kept aside and always looked at
GROUP, ROWS_A_BLOCK = 32, 8192  # rows of a group, whose best product alone is kept, and of a block
FIRST, MORE = 4, 8  # groups that are looked at first, and how many times as many while an identity is lacking
TOO_MANY = 16  # where a sixteenth of all groups stays open after bytes, floats tell more
TOPS_AT_ONCE = 2**25  # numbers: products of so many groups and queries are held
Products = Callable[[Int8[np.ndarray, "m d"], Int8[np.ndarray, "b d"]], np.ndarray]


class Found(NamedTuple):
    """The row that stands for an identity, and its exact cosine."""

    row: int
    score: float


class SmallRows(NamedTuple):
    """The rows in bytes: x is near step * bytes, never further than `far`; rows that are, are listed as odd."""

    bytes: Int8[np.ndarray, "n d"]
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
        self.byte_products = byte_products() if small_from is not None and small_from <= n else None
        # Sums of d products of numbers that were rounded once each  (Higham 2002, section 3.1); |x|, |q| <= 1 + 1e-6.
        self.doubt = (d + 4) * 2.0**-24 / (1.0 - (d + 4) * 2.0**-24) * 1.00001

    def __len__(self) -> int:
        return len(self.x)

    @cached_property
    def small(self) -> SmallRows | None:
        """The rows in bytes, once somebody asks: whoever only adds needs none."""
        return None if self.byte_products is None else in_bytes(self.x)

    @property
    def nbytes(self) -> int:
        """What it holds in memory."""
        return self.x.nbytes + self.owner.nbytes + (0 if self.small is None else self.small.bytes.nbytes)

    def best(
        self, q: Float32[np.ndarray, " d"], *, allowed: Bool[np.ndarray, " n"] | None = None, wanted: int = 2
    ) -> list[Found]:
        """The best row of each of the `wanted` best identities, best first; of equals the one enrolled first."""
        return self.best_of_many(q[None], allowed=allowed, wanted=wanted)[0]

    def best_of_many(
        self, queries: Float32[np.ndarray, "b d"], *, allowed: Bool[np.ndarray, " n"] | None = None, wanted: int = 2
    ) -> list[list[Found]]:
        """The same for many queries, at little more than the cost of one."""
        if not len(self.x) or (allowed is not None and not allowed.any()):
            return [[] for _ in queries]
        out: list[list[Found]] = []
        step = max(1, TOPS_AT_ONCE * GROUP // len(self.x))
        for start in range(0, len(queries), step):
            some = queries[start : start + step]
            found = self.by_bytes(some, allowed, wanted) if self.small is not None else [None] * len(some)
            left = [at for at, mine in enumerate(found) if mine is None]
            told = dict(zip(left, self.by_floats(some[left], allowed, wanted), strict=True)) if left else {}
            out += [told[at] if mine is None else mine for at, mine in enumerate(found)]
        return out

    # -------------------------------------------------------------------------------- which rows could be the best

    def by_floats(
        self, queries: Float32[np.ndarray, "b d"], allowed: np.ndarray | None, wanted: int
    ) -> list[list[Found]]:
        """From float32 products: a cosine is never more than `doubt` above its own."""
        across = np.ascontiguousarray(queries.T)
        tops = self.tops(lambda rows: self.x[rows] @ across, allowed, threads=1)
        ceilings = tops.T.astype(np.float64) + self.doubt
        found = [self.among(mine, q, allowed, wanted) for mine, q in zip(ceilings, queries, strict=True)]
        return [mine for mine in found if mine is not None]

    def by_bytes(
        self, queries: Float32[np.ndarray, "b d"], allowed: np.ndarray | None, wanted: int
    ) -> list[list[Found] | None]:
        """From products of bytes, which are exact; None where too many rows stay open."""
        small, products = self.small, self.byte_products
        assert small is not None
        assert products is not None
        shrunk = np.clip(np.rint(queries / np.float32(small.step)), -127, 127).astype(np.int8)
        off = np.linalg.norm(queries.astype(np.float64) - small.step * shrunk.astype(np.float64), axis=1)
        tops = self.tops(lambda rows: products(small.bytes[rows], shrunk), allowed, threads=cores())
        # |<x, q> - step^2 <bytes, shrunk>|  <=  |x - step bytes| |q| + |step bytes| |q - step shrunk|
        error = small.far * 1.00001 + small.longest * off + 1e-9  # of which the last is what float64 rounds
        ceilings = small.step**2 * tops.T.astype(np.float64) + error[:, None]
        most = len(tops) // TOO_MANY + FIRST
        return [
            self.among(mine, q, allowed, wanted, always=small.odd, most=most)
            for mine, q in zip(ceilings, queries, strict=True)
        ]

    def tops(self, products: Callable[[slice], np.ndarray], allowed: np.ndarray | None, *, threads: int) -> np.ndarray:
        """The largest product in each group of rows, a column for each query."""

        def of_block(start: int) -> np.ndarray:
            rows = slice(start, min(start + ROWS_A_BLOCK, len(self.x)))
            found = products(rows)
            lowest = -np.inf if found.dtype.kind == "f" else np.iinfo(found.dtype).min
            if allowed is not None:
                found[~allowed[rows]] = lowest
            short = -len(found) % GROUP
            if short:
                found = np.concatenate([found, np.full((short, found.shape[1]), lowest, found.dtype)])
            return found.reshape(GROUP, -1, found.shape[1]).max(axis=0)

        starts = range(0, len(self.x), ROWS_A_BLOCK)
        if min(threads, len(starts)) == 1:
            return np.concatenate([of_block(start) for start in starts])
        with ThreadPoolExecutor(min(threads, len(starts))) as pool:
            return np.concatenate(list(pool.map(of_block, starts)))

    def rows_of(self, groups: Int[np.ndarray, " g"], allowed: np.ndarray | None) -> Int[np.ndarray, " m"]:
        """The rows of some groups, those that are allowed: a block's groups take its rows in turn."""
        block, place = np.divmod(groups, ROWS_A_BLOCK // GROUP)
        here = np.minimum(len(self.x) - block * ROWS_A_BLOCK, ROWS_A_BLOCK)  # rows of the block
        among = -(-here // GROUP)  # its groups
        within = place + among * np.arange(GROUP)[:, None]
        rows = (block * ROWS_A_BLOCK + within)[within < here]
        return rows if allowed is None else rows[allowed[rows]]

    def among(
        self, ceilings: np.ndarray, q: np.ndarray, allowed: np.ndarray | None, wanted: int, *,
        always: np.ndarray | None = None, most: int | None = None,
    ) -> list[Found] | None:  # fmt: skip
        """The best of a query out of the groups that their ceilings leave open; None where these are more than `most`.

        What is found among a few groups is a floor: a group whose ceiling is below it holds none of the best. The
        groups with the highest ceilings often hold one identity alone, and beside it a poor second: more of them raise
        the floor, until what it leaves open is hardly more than the next look would take.
        """
        count, found, near = FIRST, list[Found](), np.zeros(0, np.int64)
        kept = np.zeros(0, np.int64) if always is None else always if allowed is None else always[allowed[always]]
        while len(near) < len(ceilings):
            floor = found[-1].score if len(found) == wanted else -np.inf
            left = np.flatnonzero(ceilings >= floor)
            if np.count_nonzero(ceilings[near] >= floor) == len(left):  # all of them have been looked at
                return found
            near = left if len(left) <= 2 * count else np.argpartition(ceilings, -count)[-count:]
            if most is not None and len(near) > most:
                return None
            found = self.exactly(np.union1d(self.rows_of(near, allowed), kept), q, wanted)
            count *= MORE
        return found

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


@lru_cache(maxsize=1)
def byte_products() -> Products | None:
    """Products of rows and queries in bytes, as exact whole numbers; None where nothing here makes them."""
    try:
        import numkong
    except ImportError:
        return None

    def products(rows: np.ndarray, queries: np.ndarray) -> np.ndarray:
        if len(queries) < 3:
            return np.asarray(numkong.cdist(rows, queries, "dot"))
        return np.asarray(numkong.dots_packed(rows, numkong.dots_pack(queries)))

    return products if are_exact(products) else None


def are_exact(products: Products) -> bool:
    """Whether products of bytes come out as they are, in any size, the largest too: another version's may not."""
    random = np.random.default_rng(0)
    for d, largest in ((1, False), (77, False), (512, False), (1024, True)):
        rows = random.integers(-127, 128, (19, d)).astype(np.int8)
        if largest:
            rows[:9], rows[9:] = 127, -127
        wanted = rows.astype(np.int64) @ rows.T.astype(np.int64)
        try:
            if not all(np.array_equal(products(rows, rows[:b]), wanted[:, :b]) for b in (1, 2, 3, 7)):
                return False
        except Exception:  # a compiled package that is built or called otherwise: the floats do without
            return False
    return True


def cores() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
