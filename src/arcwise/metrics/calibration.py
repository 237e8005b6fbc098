"""A threshold for a wanted rate of false acceptance, with its interval, or says why the pairs are too few."""

from __future__ import annotations

import math
from typing import NamedTuple

from arcwise.errors import ArcwiseError, number_in
from arcwise.metrics.verification import PairScores, threshold_beyond

NEEDED = 10  # false acceptances that a threshold must rest on
Z95 = 1.959964


class Threshold(NamedTuple):
    """A threshold, the FAR and TAR it has on the pairs at hand, and 95 % intervals.

    `low` and `high` bound the threshold, `far_low` and `far_high` the rate it will have on other pairs of the same
    kind; both take impostor pairs as independent, which pairs that share a sample are not quite.
    """

    value: float
    low: float
    high: float
    far: float
    far_low: float
    far_high: float
    tar: float
    impostors: int


def threshold_for(pairs: PairScores, far: float) -> Threshold:
    """The lowest threshold whose FAR is at most `far`.

    The interval of the threshold is that of a quantile, by order statistics: with k = far n impostors above it, those
    of rank k -+ 1.96 sqrt(k (1 - far)). The interval of the rate is Wilson's (1927).

    >>> import numpy as np
    >>> from arcwise.metrics.verification import score_pairs
    >>> score = np.linspace(0.0, 1.0, 2000)
    >>> round(threshold_for(score_pairs(score, score > 0.95), 0.1).value, 3)
    0.855
    """
    far, n = number_in("far", far, 1e-12, 0.5), pairs.impostor.total
    if far * n < NEEDED - 1e-9:
        power = 10.0 ** math.floor(math.log10(NEEDED / n) - 1) if n else 1.0
        least = math.ceil(NEEDED / n / power - 1e-9) * power
        other = f", or ask for FAR {least:.2g}" if least <= 0.5 else ""
        raise ArcwiseError(
            f"{n:,} impostor pairs are too few for FAR {far:g}: a threshold would rest on {far * n:.1f} of them, and "
            f"it takes {NEEDED}. Bring {math.ceil(NEEDED / far - 1e-9):,} impostor pairs{other}."
        )
    k = int(far * n + 1e-9)
    value, wide = threshold_beyond(pairs.impostor, k), Z95 * math.sqrt(k * (1.0 - far))
    found = float(pairs.impostor.above(value))
    low, high = (threshold_beyond(pairs.impostor, rank) for rank in (math.ceil(k + wide), max(0, math.floor(k - wide))))
    return Threshold(value, low, high, found, *wilson(found, n), float(pairs.genuine.above(value)), n)


def wilson(share: float, n: int, z: float = Z95) -> tuple[float, float]:
    """Wilson's interval of a share seen in n draws.

    >>> [round(v, 3) for v in wilson(0.5, 100)]
    [0.404, 0.596]
    """
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    return max(0.0, middle - half), min(1.0, middle + half)
