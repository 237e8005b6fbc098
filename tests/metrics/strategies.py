"""One strategy for everything that is measured: rows with ties, repeated rows, tiny sets, huge and subnormal lengths.

What is compared is well defined: two scores are exactly equal because both are of the same pair of rows (or are sums
of few binary fractions, which no order of summation rounds), or they differ by more than 1e-4.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np
from hypothesis import strategies as st

APART = 2e-4
ROWS, CENTRES = 9, 4  # directions that rows have, and that only centres have
LENGTHS = (0, 0, 0, 1, -3, 60, 100, -140)  # powers of two: 2**100 is 1.3e30, and float32 has no normal 2**-140


class Drawn(NamedTuple):
    """Rows x as they are measured, the points that they are multiples of, and labels; an order to put them in.

    `points` are small whole numbers: of all that a common length does not change, they give the same.
    """

    x: np.ndarray
    points: np.ndarray
    y: np.ndarray
    order: np.ndarray

    def shuffled(self) -> Drawn:
        """The same in another order."""
        return Drawn(self.x[self.order], self.points[self.order], self.y[self.order], self.order)


@cache
def spread_points(dim: int) -> np.ndarray:
    """Whole-number points of which all cosines of two differ by more than APART, and all distances, by their size."""
    random, found = np.random.default_rng(dim), []
    while len(found) < ROWS + CENTRES:
        new = random.integers(-40, 41, dim).astype(np.float64)
        if new.any() and well_apart(np.array([*found, new])):
            found.append(new)
    return np.array(found)


def well_apart(points: np.ndarray) -> bool:
    """Whether no two pairs of points have nearly the same cosine, or the same distance."""
    i, j = np.triu_indices(len(points), 1)
    unit = points / np.linalg.norm(points, axis=1, keepdims=True)
    cos = np.sort(np.append(np.einsum("nd,nd->n", unit[i], unit[j]), [-1.0, 1.0]))
    far = np.sort(np.append(np.linalg.norm(points[i] - points[j], axis=1), 0.0))
    return bool((np.diff(cos) > APART).all() and (np.diff(far) > APART * far.max()).all())


def binary_points(random: np.random.Generator, n: int, dim: int) -> np.ndarray:
    """Corners of a cube of 4 or 16 dimensions and ends of axes: their cosines are few, and exact in binary."""
    corners = random.choice([-1.0, 1.0], (n, dim))
    axes = np.eye(dim)[random.integers(dim, size=n)] * random.choice([-1.0, 1.0], (n, 1))
    return np.where(random.random((n, 1)) < 0.7, corners, axes)


@st.composite
def labelled_rows(draw, *, classes=(1, 4), most=14, one_repeated=False, common=False, dims=(2, 3, 5, 6)):
    """Rows of several classes, often the same row in two of them; `common` gives all of them one length.

    `one_repeated` lets one direction alone occur more than once: the cosine of a row and itself is 1 of every row, but
    not to the last bit.
    """
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n, binary = draw(st.integers(1, most)), draw(st.booleans())
    count = draw(st.integers(*classes))
    if binary:
        points = binary_points(random, n, draw(st.sampled_from((4, 16))))
    else:
        every = spread_points(draw(st.sampled_from(dims)))[:ROWS]
        points = every[some_rows(random, n, one_repeated=one_repeated)]
    powers = np.array([draw(st.sampled_from(LENGTHS))] * len(points) if common else random.choice(LENGTHS, len(points)))
    x = np.ldexp(points, powers[:, None]).astype(draw(st.sampled_from((np.float32, np.float64))))
    y = random.permutation(count + 1)[random.integers(count, size=len(points))]
    return Drawn(x, points, y, random.permutation(len(points)))


def some_rows(random: np.random.Generator, n: int, *, one_repeated: bool) -> np.ndarray:
    """Which of the directions n rows have."""
    if not one_repeated:
        return random.integers(random.integers(1, ROWS + 1), size=n)
    once = random.permutation(np.arange(1, ROWS))[: min(n, int(random.integers(ROWS)))]
    return random.permutation(np.append(once, np.zeros(max(0, n - len(once)), np.int64)))


@st.composite
def rows_and_centres(draw, **options):
    """Rows, and a centre for every class there may be; of two classes it may be the same."""
    rows = draw(labelled_rows(**options))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    count, dim = int(rows.y.max()) + 1 + draw(st.integers(0, 1)), rows.points.shape[1]
    if set(np.unique(np.abs(rows.points))) <= {0.0, 1.0}:
        return rows, binary_points(random, count, dim)
    return rows, spread_points(dim)[ROWS:][random.integers(CENTRES, size=count)]
