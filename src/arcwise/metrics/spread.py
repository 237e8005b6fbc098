"""Means over seeds with their spread, and paired differences with their intervals."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

# Student's t, two-sided 95 %, by degrees of freedom (Student 1908; any table).
T95 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
    2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip


def student(freedom: float) -> float:
    """Student's t, two-sided 95 %, for any degrees of freedom from 1 on: between whole ones a line in 1/freedom.

    >>> student(4), round(student(4.5), 2), round(student(1000), 2)
    (2.776, 2.66, 1.96)
    """
    if freedom > len(T95):
        return 1.959964 + 2.372271 / freedom + 2.822 / freedom**2  # Cornish and Fisher's, to 1e-4
    below = int(freedom)
    if below == freedom or below == len(T95):
        return T95[below - 1]
    share = (1.0 / freedom - 1.0 / (below + 1)) / (1.0 / below - 1.0 / (below + 1))
    return T95[below] + share * (T95[below - 1] - T95[below])


class Spread(NamedTuple):
    """Mean, standard deviation (n - 1), smallest, largest, and how many."""

    mean: float
    deviation: float
    low: float
    high: float
    n: int


class Difference(NamedTuple):
    """The mean of paired differences a_i - b_i with its 95 % interval; no interval from fewer than two pairs."""

    mean: float
    low: float
    high: float
    n: int

    @property
    def clear(self) -> bool:
        """Whether the interval leaves 0 out; gaps that are all equal say nothing of their spread, and have none."""
        return self.n > 1 and not self.equal and (self.low > 0.0 or self.high < 0.0)

    @property
    def equal(self) -> bool:
        """Whether all gaps are the same, but for rounding."""
        return self.n > 1 and self.high - self.low <= 1e-9 * abs(self.mean)


def spread(values: list[float]) -> Spread:
    """Mean and spread of one number over the seeds.

    >>> spread([1.0, 2.0, 3.0])
    Spread(mean=2.0, deviation=1.0, low=1.0, high=3.0, n=3)
    """
    found = np.asarray(values, np.float64)
    if not len(found) or not np.isfinite(found).all():
        mean = float(found.mean()) if len(found) else math.nan
        return Spread(
            mean, math.nan, float(found.min(initial=math.inf)), float(found.max(initial=-math.inf)), len(found)
        )
    deviation = float(found.std(ddof=1)) if len(found) > 1 else 0.0
    return Spread(float(found.mean()), deviation, float(found.min()), float(found.max()), len(found))


def difference(a: list[float], b: list[float]) -> Difference:
    """Mean of a_i - b_i over the same seeds, -+ t_{n-1} sd / sqrt(n).

    >>> found = difference([2.0, 3.0, 4.0], [1.0, 1.0, 1.0])
    >>> found.mean, round(found.low, 2), found.clear
    (2.0, -0.48, False)
    """
    n = len(a)
    if not n or not (np.isfinite(a).all() and np.isfinite(b).all()):
        return Difference(math.nan, math.nan, math.nan, n)
    gaps = np.asarray(a, np.float64) - np.asarray(b, np.float64)
    if n == 1:
        return Difference(float(gaps[0]), math.nan, math.nan, n)
    half = T95[min(n - 1, len(T95)) - 1] * float(gaps.std(ddof=1)) / math.sqrt(n)
    return Difference(float(gaps.mean()), float(gaps.mean()) - half, float(gaps.mean()) + half, n)
