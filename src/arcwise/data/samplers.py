"""The order in which an epoch visits the images: whole batches, decided by the seed and the epoch alone."""

from __future__ import annotations

import hashlib

import numpy as np
from jaxtyping import Int

from arcwise.config import SAMPLINGS
from arcwise.errors import ArcwiseError, one_of


def stream(*path: object) -> int:
    """A seed for one purpose, such as ("order", seed, epoch): the same for ever, unlike any other.

    >>> stream("order", 0, 1) == stream("order", 0, 1) != stream("order", 0, 2)
    True
    """
    return int.from_bytes(hashlib.blake2b(repr(path).encode(), digest_size=8).digest(), "big") >> 1


def epoch_order(
    y: Int[np.ndarray, " n"], kind: str, *, batch: int, per_class: int = 4, seed: int
) -> Int[np.ndarray, "steps b"]:
    """The rows of each batch of one epoch: n // b batches, what is left over sits this epoch out.

    "shuffled" visits every image at most once; "balanced" visits all classes equally often; "m-per-class" fills
    a batch with classes of `per_class` images each.

    >>> epoch_order(np.zeros(10, int), "shuffled", batch=4, seed=0).shape
    (2, 4)
    """
    one_of("sampling", kind, SAMPLINGS)
    random = np.random.default_rng(seed)
    batch = min(batch, len(y))
    steps = len(y) // batch
    if kind == "shuffled":
        return random.permutation(len(y))[: steps * batch].reshape(steps, batch)
    present = np.unique(y)
    if kind == "balanced":
        sequence = rounds(present, steps * batch, len(present), random)
    else:
        groups = batch // per_class
        if batch % per_class or groups > len(present):
            raise ArcwiseError(
                f"a batch of {batch} cannot hold {per_class} images each of different classes out of {len(present)}: "
                f"choose train.batch as a multiple of train.per_class, at most {per_class * len(present)}."
            )
        sequence = np.repeat(rounds(present, steps * groups, groups, random), per_class)
    return class_members(y, sequence, random).reshape(steps, batch)


def left_over(n: int, batch: int, seed: int) -> Int[np.ndarray, " r"]:
    """The rows that sit an epoch out which is shuffled by this seed.

    >>> visited = epoch_order(np.zeros(10, int), "shuffled", batch=4, seed=0)
    >>> sorted([*visited.ravel().tolist(), *left_over(10, 4, 0).tolist()]) == list(range(10))
    True
    """
    return np.random.default_rng(seed).permutation(n)[n // batch * batch :]


def rounds(classes: np.ndarray, length: int, group: int, random: np.random.Generator) -> np.ndarray:
    """A sequence of classes made of shuffled rounds; each consecutive `group` of them holds no class twice."""
    whole = len(classes) // group * group
    count = -(-length // whole)
    return np.concatenate([random.permutation(classes)[:whole] for _ in range(count)])[:length]


def class_members(y: np.ndarray, sequence: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """One image for each class in the sequence; a class is exhausted before an image of it comes again."""
    shuffled = random.permutation(len(y))
    by_class = shuffled[np.argsort(y[shuffled], kind="stable")]
    counts = np.bincount(y)
    starts = np.cumsum(counts) - counts
    at = np.argsort(sequence, kind="stable")
    seen = np.bincount(sequence, minlength=len(counts))
    rank = np.empty(len(sequence), dtype=np.int64)  # the how-manieth time a class comes
    rank[at] = np.arange(len(sequence)) - np.repeat(np.cumsum(seen) - seen, seen)
    return by_class[starts[sequence] + rank % counts[sequence]]
