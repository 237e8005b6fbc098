"""Labelled sets to measure: from a seed, and as hypothesis draws them."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import strategies as st

from arcwise.records import Embeddings, Prototypes


def embeddings(x, y, *, classes=0) -> Embeddings:
    """Embeddings of plain lists, with as many names as there are labels, or as asked for."""
    y = np.asarray(y, np.int64)
    classes = max(int(y.max(initial=-1)) + 1, classes)
    return Embeddings(np.asarray(x, np.float64), y, names=tuple(f"class {i}" for i in range(classes)))


def blobs(sizes, dim, *, seed=0, apart=1.0) -> Embeddings:
    """Normal classes of the given sizes around normal centres, rows shuffled."""
    return blobs_and_centres(sizes, dim, seed=seed, apart=apart)[0]


def blobs_and_centres(sizes, dim, *, seed=0, apart=1.0) -> tuple[Embeddings, Prototypes]:
    """The same, and prototypes near the centres."""
    rng = np.random.default_rng(seed)
    centres = apart * rng.standard_normal((len(sizes), dim))
    y = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    x = centres[y] + rng.standard_normal((len(y), dim))
    return embeddings(x, y), Prototypes(centres + 0.1 * rng.standard_normal(centres.shape))


UNEVEN = st.integers(1, 6)


@st.composite
def labelled(draw, *, sizes=UNEVEN, dims=(1, 5), classes=(2, 4), pair=False, whole=False):
    """x and y of several classes of uneven sizes, numbers left out; `pair` forces a class of two or more.

    `whole` puts the samples on a grid of whole numbers, where many distances are equal. The test makes Embeddings of
    them itself: the type checker draws random numbers, which a strategy may not.
    """
    counts = draw(st.lists(sizes, min_size=classes[0], max_size=classes[1]))
    if pair and max(counts) < 2:
        counts[0] = 2
    numbers = draw(st.permutations(range(len(counts) + 1)))[: len(counts)]
    rng, dim = np.random.default_rng(draw(st.integers(0, 2**32 - 1))), draw(st.integers(*dims))
    y = rng.permutation(np.repeat(numbers, counts))
    centres = rng.standard_normal((len(counts) + 1, dim)) * draw(st.sampled_from([0.0, 1.0, 5.0]))
    x = centres[y] + rng.standard_normal((len(y), dim))
    return (rng.integers(-2, 3, x.shape).astype(np.float64) if whole else x), y


def apart(values, gap) -> bool:
    """Whether no two of the values are nearer than the gap."""
    ordered = sorted(values)
    return all(b - a > gap for a, b in itertools.pairwise(ordered))
