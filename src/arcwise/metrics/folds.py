"""Accuracy on pairs in folds, each judged by the threshold that is best on the others."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from arcwise.errors import ArcwiseError, count_at_least


class FoldAccuracy(NamedTuple):
    """Accuracy on pairs, each fold judged by the threshold that is best on the others."""

    mean: float
    spread: float
    folds: tuple[float, ...]
    thresholds: tuple[float, ...]


def fold_accuracy(score: Float[np.ndarray, " p"], same: Bool[np.ndarray, " p"], *, folds: int = 10) -> FoldAccuracy:
    """Accuracy over pairs in folds, in the order they are given  (the protocol of LFW, Huang et al. 2007).

    Each fold is judged with the threshold of highest accuracy on all other folds.

    >>> score = np.tile([0.9, 0.1], 10)
    >>> fold_accuracy(score, score > 0.5).mean
    1.0
    """
    same = np.asarray(same, bool)
    if len(score) != len(same) or len(score) < count_at_least("folds", folds, 2):
        raise ArcwiseError(f"{folds} folds need at least as many pairs, each with its answer; got {len(score)}.")
    if not np.isfinite(score).all():
        raise ArcwiseError(f"score {int(np.flatnonzero(~np.isfinite(score))[0])} is not finite.")
    parts = np.array_split(np.arange(len(score)), folds)
    return accuracy_of_folds(score, same, np.repeat(np.arange(folds), [len(part) for part in parts]))


def accuracy_of_folds(
    score: Float[np.ndarray, " p"], same: Bool[np.ndarray, " p"], fold: Int[np.ndarray, " p"]
) -> FoldAccuracy:
    """The same for folds that are told pair by pair."""
    accuracy, thresholds = [], []
    for held in (fold == number for number in np.unique(fold)):
        t = best_threshold(score[~held], same[~held])
        thresholds.append(t)
        accuracy.append(float(((score[held] >= t) == same[held]).mean()))
    return FoldAccuracy(float(np.mean(accuracy)), float(np.std(accuracy)), tuple(accuracy), tuple(thresholds))


def best_threshold(score: Float[np.ndarray, " p"], same: Bool[np.ndarray, " p"]) -> float:
    """The threshold that answers most pairs rightly, midway between two scores."""
    order = np.argsort(score)
    score, same = score[order], same[order]
    right = np.concatenate(([same.sum()], same.sum() + np.cumsum(np.where(same, -1, 1))))
    right[1:-1][score[1:] == score[:-1]] = -1  # no threshold lies between equal scores
    best = int(right.argmax())
    if best == 0:
        return float(score[0])
    if best == len(score):
        return float(np.nextafter(score[-1], np.inf))
    middle = (score[best - 1] + score[best]) / 2.0
    return float(middle if middle > score[best - 1] else score[best])
