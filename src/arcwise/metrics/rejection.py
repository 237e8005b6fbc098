"""What is gained by not answering for the images with the shortest embeddings: errors against what is rejected."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from arcwise.errors import ArcwiseError
from arcwise.metrics.verification import equal_error_rate, score_pairs, tar_at_far

SHARES = (0.0, 0.05, 0.1, 0.2, 0.3, 0.5)


class Rejection(NamedTuple):
    """For each share of pairs that is rejected: equal error rate of the rest, and misses at a threshold of all.

    A pair is as good as the worse of its two images; `threshold` is that of FAR 1 % over all pairs.
    """

    shares: tuple[float, ...]
    error: tuple[float, ...]
    missed: tuple[float, ...]
    threshold: float


def rejection(
    score: Float[np.ndarray, " p"], same: Bool[np.ndarray, " p"], quality: Float[np.ndarray, " p"],
    *, threshold: float | None = None, shares: tuple[float, ...] = SHARES,
) -> Rejection:  # fmt: skip
    """Errors over the pairs that are left when the worst by quality are not answered  (Grother & Tabassi 2007).

    What is missed is missed at the `threshold`, or at that of FAR 1 % over these pairs.

    >>> score, same = np.array([0.9, 0.1, 0.8, 0.2]), np.array([True, True, True, False])
    >>> rejection(score, same, np.array([3.0, 1.0, 2.0, 4.0]), shares=(0.0, 0.25)).error
    (0.16666666666666669, 0.0)
    """
    if not len(score) == len(same) == len(quality):
        raise ArcwiseError("every pair needs a score, an answer and a quality.")
    t = tar_at_far(score_pairs(score, same), 0.01).threshold if threshold is None else threshold
    order = np.argsort(quality, kind="stable")
    found = []
    for share in shares:
        left = order[round(share * len(order)) :]
        if not same[left].any() or same[left].all():
            break
        pairs = score_pairs(score[left], same[left])
        missed = float((score[left][same[left]] < t).mean())
        found.append((share, equal_error_rate(pairs), missed))
    kept, error, missed = zip(*found, strict=True)
    return Rejection(kept, error, missed, t)
