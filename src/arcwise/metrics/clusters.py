"""How tight classes are and how far apart: Dunn indices, silhouette, Davies-Bouldin, angles and packing."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float

from arcwise.errors import number_in, one_of
from arcwise.metrics.rows import (
    BLOCK_BYTES,
    FEW,
    TILE_ROWS,
    ClassRows,
    admit_rows,
    by_class,
    class_means,
    directions,
    row_blocks,
    squared_distances,
)
from arcwise.packing import largest_smallest_angle
from arcwise.records import Embeddings

Distance = Literal["euclidean", "unit", "cosine", "angle"]
Between = Literal["nearest", "centroid"]
Extent = Literal["diameter", "radius", "mean"]
DISTANCES = ("euclidean", "unit", "cosine", "angle")
BETWEEN = ("nearest", "centroid")
INSIDE = ("diameter", "radius", "mean")


@dataclass(frozen=True, slots=True, kw_only=True)
class Spreads:
    """What every Dunn index is made of: distances inside classes and between them, after trimming.

    `nearest` is the smallest distance between members of different classes, `centroid` the smallest between
    centroids, each with the two classes it was found between; `diameter`, `radius` and `mean` are per class.
    """

    distance: str
    trim: float
    kept: int
    nearest: float
    nearest_pair: tuple[int, int]
    centroid: float
    centroid_pair: tuple[int, int]
    diameter: Float[np.ndarray, " c"]
    radius: Float[np.ndarray, " c"]
    mean: Float[np.ndarray, " c"]

    def dunn(self, between: str, inside: str) -> float:
        """One index: the smallest distance between classes over the largest extent of a class."""
        return quotient(getattr(self, between), float(getattr(self, inside).max()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Angles:
    """Angles in radians: members to their class mean, and between class means.

    `packing` is `closest` as a share of the largest smallest angle that this many directions can have.
    """

    own: float
    own_per_class: Float[np.ndarray, " c"]
    closest: float
    closest_pair: tuple[int, int]
    mean_between: float
    best_possible: float
    packing: float


def dunn_index(
    embeddings: Embeddings,
    *,
    between: Between = "nearest",
    inside: Extent = "diameter",
    distance: Distance = "euclidean",
    trim: float = 100.0,
) -> float:
    """min_{i != j} between(i, j) / max_k inside(k)  (Dunn 1974), in the variant that is named.

    between: "nearest" members or "centroid"s. inside: "diameter" (farthest two members), "radius" or "mean" distance to
    the centroid. distance: "euclidean" on x as it is, "unit" Euclidean on x/|x|, "cosine" 1 - cos, "angle"; the last
    two with centroids of unit length. `trim` keeps of each class the members within that percentile of distance to
    its centroid, which is then taken again. Infinite where classes are apart and without extent; 0 where they touch.

    >>> x = np.array([[0.0, 0.0], [0.0, 1.0], [3.0, 0.0], [3.0, 1.0]])
    >>> dunn_index(Embeddings(x=x, y=np.array([0, 0, 1, 1]), names=("a", "b")))
    3.0
    """
    one_of("between", between, BETWEEN)
    one_of("inside", inside, INSIDE)
    return spreads(embeddings, distance=distance, trim=trim).dunn(between, inside)


def spreads(embeddings: Embeddings, *, distance: str = "euclidean", trim: float = 100.0) -> Spreads:
    """All parts of the Dunn indices under one distance, from one pass over the pairs."""
    return all_spreads(embeddings, trim=trim, distances=(one_of("distance", distance, DISTANCES),))[distance]


def all_spreads(
    embeddings: Embeddings, *, trim: float = 100.0, distances: tuple[str, ...] = DISTANCES
) -> dict[str, Spreads]:
    """The same under several distances; those on the unit sphere rise together, so they share pass and trimming."""
    trim = number_in("trim", trim, 1.0, 100.0, why="It is the percentile of members that are kept.")
    admit_rows(embeddings, classes=2)
    found = {}
    for raw in (True, False):
        wanted = [name for name in distances if (name == "euclidean") == raw]
        if wanted:
            rows = trim_rows(by_class(embeddings.x, embeddings.labels, unit=not raw), trim)
            nearest, diameter = nearest_members(rows), diameters(rows)
            found |= {name: spreads_of(rows, nearest, diameter, distance=name, trim=trim) for name in wanted}
    return found


def spreads_of(rows: ClassRows, nearest: Nearest, diameter: np.ndarray, *, distance: str, trim: float) -> Spreads:
    """The parts under one distance, from the rows that are kept and their extreme pairs."""
    centres = centroids(rows, distance)
    to_centre = [pair_distance(rows.part(members), centres[i], distance) for i, members in rows.classes()]
    near = centres - centres.mean(axis=0)
    apart = squared_distances(near, near)
    np.fill_diagonal(apart, np.inf)
    i, j = np.unravel_index(int(apart.argmin()), apart.shape)
    return Spreads(
        distance=distance, trim=trim, kept=len(rows.x), nearest=float(from_squared(nearest.squared, distance)),
        nearest_pair=nearest.classes, centroid=float(pair_distance(centres[i], centres[j], distance)),
        centroid_pair=(int(rows.labels[i]), int(rows.labels[j])), diameter=from_squared(diameter, distance),
        radius=np.array([far.max() for far in to_centre]), mean=np.array([far.mean() for far in to_centre]),
    )  # fmt: skip


def trim_rows(rows: ClassRows, percent: float) -> ClassRows:
    """The rows within the given percentile of distance to their class's mean.

    On the unit sphere |x - mean| rises as the cosine to the mean falls, so every distance there keeps the same rows.
    """
    if percent == 100.0:
        return rows
    means, keep = class_means(rows), []
    for i, members in rows.classes():
        far = pair_distance(rows.part(members), means[i], "euclidean")
        keep.append(far <= np.percentile(far, percent) * (1.0 + 1e-9))  # equal distances stay together
    kept = np.concatenate(keep)
    return by_class(rows.x[kept], rows.labels[rows.owner[kept]], unit=rows.unit)


def centroids(rows: ClassRows, distance: str) -> Float[np.ndarray, "c d"]:
    """The mean of each class, of unit length where only directions count."""
    means = class_means(rows)
    if distance not in ("cosine", "angle"):
        return means
    one = np.isclose(np.linalg.norm(means, axis=1), 1.0, rtol=0.0, atol=1e-15)  # of equal rows: is a direction already
    return np.where(one[:, None], means, directions(means, "the mean of class", rows.labels))


def from_squared(squared: np.ndarray | float, distance: str) -> np.ndarray:
    """A distance from the squared Euclidean one: on the unit sphere 1 - cos = d^2/2, angle = 2 arcsin(d/2)."""
    if distance == "cosine":
        return np.asarray(squared / 2.0)
    root = np.asarray(np.sqrt(squared))
    return np.asarray(2.0 * np.arcsin(np.minimum(root / 2.0, 1.0)) if distance == "angle" else root)


def pair_distance(a: np.ndarray, b: np.ndarray, distance: str) -> np.ndarray:
    """The distance of each row of a to the same row of b, from their difference: exact for close ones too."""
    difference = a - b
    return from_squared((difference * difference).sum(axis=-1), distance)


class Nearest(NamedTuple):
    """The closest two members of different classes: their squared distance and their classes."""

    squared: float
    classes: tuple[int, int]


def nearest_members(rows: ClassRows) -> Nearest:
    """One pass over all pairs in tiles, each pair seen once: found by products, then measured from the difference."""
    middle, owner, n = rough_mean(rows), rows.owner, len(rows.x)
    found = Nearest(math.inf, (0, 0))
    for a in range(0, n, TILE_ROWS):
        left = rows.part(slice(a, a + TILE_ROWS)) - middle
        for b in range(a, n, 2 * TILE_ROWS):
            right = rows.part(slice(b, b + 2 * TILE_ROWS)) - middle
            squared = squared_distances(left, right)
            if owner[b] <= owner[min(a + TILE_ROWS, n) - 1]:  # the tile meets the diagonal's classes
                squared[owner[a : a + TILE_ROWS, None] == owner[b : b + 2 * TILE_ROWS]] = np.inf
            i, j = np.unravel_index(int(squared.argmin()), squared.shape)
            if squared[i, j] < np.inf and (here := square(left[i] - right[j])) < found.squared:
                found = Nearest(here, (int(rows.labels[owner[a + i]]), int(rows.labels[owner[b + j]])))
    return found


def rough_mean(rows: ClassRows) -> Float[np.ndarray, " d"]:
    """The mean of at most some thousand rows: near enough to the middle to keep digits."""
    return rows.part(slice(0, None, max(1, len(rows.x) // TILE_ROWS))).mean(axis=0)


def diameters(rows: ClassRows) -> Float[np.ndarray, " c"]:
    """The largest squared distance within each class, around the class's own mean."""
    found = np.zeros(len(rows.labels))
    for i, members in rows.classes():
        x = rows.part(members)
        x = x - x.mean(axis=0)
        for part in row_blocks(len(x), len(x)):
            squared = squared_distances(x[part], x[part.start :])
            a, b = np.unravel_index(int(squared.argmax()), squared.shape)
            found[i] = max(found[i], square(x[part.start + a] - x[part.start + b]))
    return found


def square(v: Float[np.ndarray, " d"]) -> float:
    """|v|^2."""
    return float(v @ v)


def quotient(top: float, bottom: float) -> float:
    """top/bottom; 0 where the top is 0, infinite where only the bottom is."""
    return 0.0 if top == 0.0 else math.inf if bottom == 0.0 else top / bottom


def rows_for(embeddings: Embeddings, distance: str) -> ClassRows:
    """The rows of two classes or more as a distance takes them."""
    one_of("distance", distance, DISTANCES)
    admit_rows(embeddings, classes=2)
    return by_class(embeddings.x, embeddings.labels, unit=distance != "euclidean")


def silhouette(embeddings: Embeddings, *, distance: Distance = "euclidean") -> float:
    """mean_i (b_i - a_i) / max(a_i, b_i)  (Rousseeuw 1987).

    a_i is the mean distance to the own class, b_i the smallest mean distance to another. A class of one member
    counts 0, as does a sample with a_i = b_i = 0.

    >>> x = np.array([[0.0, 0.0], [0.0, 1.0], [3.0, 0.0], [3.0, 1.0]])
    >>> round(silhouette(Embeddings(x=x, y=np.array([0, 0, 1, 1]), names=("a", "b"))), 4)
    0.6754
    """
    rows = rows_for(embeddings, distance)
    means = mean_distances(rows, distance)
    size, owner, here = rows.sizes, rows.owner, np.arange(len(rows.x))
    alone = size[owner] == 1
    own = means[here, owner] * size[owner] / np.maximum(size[owner] - 1, 1)
    means[here, owner] = np.inf
    other = means.min(axis=1)
    larger = np.maximum(own, other)
    each = np.where(alone | (larger == 0.0), 0.0, (other - own) / np.where(larger == 0.0, 1.0, larger))
    return float(each.mean())


def mean_distances(rows: ClassRows, distance: str) -> Float[np.ndarray, "n c"]:
    """The mean distance of each row to the members of each class, itself included.

    Cosine needs no pairs: the mean of 1 - cos is 1 - cos to the mean.
    """
    x = rows.part()
    if distance == "cosine":
        mean = 1.0 - x @ class_means(rows).T
        return np.where(mean < 64 * np.finfo(float).eps, 0.0, mean)
    x -= x.mean(axis=0)
    sums, owner, n = np.zeros((len(x), len(rows.labels))), rows.owner, len(x)
    for a in range(0, n, TILE_ROWS):
        for b in range(a, n, TILE_ROWS):
            far = from_squared(close_distances(x[a : a + TILE_ROWS], x[b : b + TILE_ROWS]), distance)
            if a == b:
                np.fill_diagonal(far, 0.0)
            add_by_class(sums[a : a + TILE_ROWS], far, owner[b : b + TILE_ROWS])
            if a < b:
                add_by_class(sums[b : b + TILE_ROWS], far.T, owner[a : a + TILE_ROWS])
    return sums / rows.sizes


def add_by_class(sums: np.ndarray, far: np.ndarray, owner: np.ndarray) -> None:
    """Adds the columns of each class to the class's sum; the columns are sorted by class."""
    starts = np.flatnonzero(np.diff(owner, prepend=-1))
    sums[:, owner[starts]] += np.add.reduceat(far, starts, axis=1)


def close_distances(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Squared distances; those of pairs that are close for their distance from the origin from their differences."""
    squared = squared_distances(a, b)
    if a.shape[1] > FEW:
        far = max(np.einsum("nd,nd->n", side, side).max() for side in (a, b))
        i, j = np.nonzero(squared < 2e-10 * far)
        step = max(1, BLOCK_BYTES // (8 * a.shape[1]))
        for k in range(0, len(i), step):
            some = slice(k, k + step)
            squared[i[some], j[some]] = np.square(a[i[some]] - b[j[some]]).sum(axis=1)
    return squared


def davies_bouldin(embeddings: Embeddings, *, distance: Distance = "euclidean") -> float:
    """mean_i max_{j != i} (S_i + S_j) / M_ij  (Davies & Bouldin 1979); smaller is better.

    S is the mean distance to the centroid, M the distance between centroids; infinite where two classes share one.

    >>> x = np.array([[0.0, 0.0], [0.0, 1.0], [3.0, 0.0], [3.0, 1.0]])
    >>> round(davies_bouldin(Embeddings(x=x, y=np.array([0, 0, 1, 1]), names=("a", "b"))), 4)
    0.3333
    """
    rows = rows_for(embeddings, distance)
    centres = centroids(rows, distance)
    inside = np.array([pair_distance(rows.part(some), centres[i], distance).mean() for i, some in rows.classes()])
    worst = np.zeros(len(centres))
    for i, centre in enumerate(centres):
        apart, both = pair_distance(centre, centres, distance), inside + inside[i]
        ratio = np.where(apart == 0.0, np.inf, both / np.where(apart == 0.0, 1.0, apart))
        worst[i] = np.delete(ratio, i).max()
    return float(worst.mean())


def class_angles(embeddings: Embeddings, *, aside_below: int = 0) -> Angles:
    """Mean angle to the own class mean, and the smallest between class means beside the best possible packing.

    In classes below so many members the own mean is that of the others: with four members a sample pulls the mean it
    is compared with by a quarter of the way. One that has no others has no such angle.

    >>> x = np.array([[2.0, 0.0], [0.0, 1.0]])
    >>> found = class_angles(Embeddings(x=x, y=np.array([0, 1]), names=("a", "b")))
    >>> f"{math.degrees(found.closest):.0f} of {math.degrees(found.best_possible):.0f} degrees"
    '90 of 180 degrees'
    """
    admit_rows(embeddings, classes=2)
    rows = by_class(embeddings.x, embeddings.labels, unit=True)
    centres = centroids(rows, "angle")
    own = [
        pair_distance(rows.part(some), centres[i], "angle") if some.stop - some.start >= aside_below
        else angles_to_others(rows.part(some))
        for i, some in rows.classes()
    ]  # fmt: skip
    every = np.concatenate(own)
    closest, pair, mean = between_angles(centres)
    best = best_angle(len(centres), embeddings.dim)
    return Angles(
        own=float(every.mean()) if len(every) else math.nan,
        own_per_class=np.array([far.mean() if len(far) else math.nan for far in own]), closest=closest,
        closest_pair=(int(rows.labels[pair[0]]), int(rows.labels[pair[1]])), mean_between=mean,
        best_possible=best, packing=quotient(closest, best),
    )  # fmt: skip


def angles_to_others(x: Float[np.ndarray, "m d"]) -> Float[np.ndarray, " k"]:
    """The angle of each direction to the mean direction of the others, where these have one."""
    if len(x) < 2:
        return np.zeros(0)
    kept = np.arange(len(x) * (len(x) - 1)) // (len(x) - 1), [j for i in range(len(x)) for j in range(len(x)) if j != i]
    means = class_means(by_class(x[kept[1]], kept[0]))
    some = np.linalg.norm(means, axis=1) > 0.0
    equal = (means == x).all(axis=1, keepdims=True)  # of equal rows: is a direction already
    return pair_distance(x[some], np.where(equal[some], means[some], directions(means[some])), "angle")


def between_angles(centres: Float[np.ndarray, "c d"]) -> tuple[float, tuple[int, int], float]:
    """The smallest angle between unit vectors, the two, and the mean over all pairs."""
    closest, pair, total, c = np.inf, (0, 0), 0.0, len(centres)
    for part in row_blocks(c, c):
        angle = from_squared(squared_distances(centres[part], centres), "angle")
        here = np.arange(part.start, part.stop)
        angle[here - part.start, here] = 0.0
        total += angle.sum()
        angle[here - part.start, here] = np.inf
        i, j = np.unravel_index(int(angle.argmin()), angle.shape)
        if angle[i, j] < closest:
            closest, pair = float(angle[i, j]), (int(i) + part.start, int(j))
    return float(pair_distance(centres[pair[0]], centres[pair[1]], "angle")), pair, total / (c * (c - 1))


@lru_cache(maxsize=64)
def best_angle(classes: int, dim: int) -> float:
    """The largest smallest angle of that many directions, or the least bound on it."""
    return largest_smallest_angle(classes, dim)[0]
