"""How well known classes are told from classes nobody has seen, and named at the same time."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from arcwise.errors import ArcwiseError, number_in
from arcwise.metrics.identification import centre_cosines, labels_among, others_first
from arcwise.metrics.rows import admit_rows, row_blocks
from arcwise.metrics.verification import PairScores, SortedScores, auc, threshold_beyond
from arcwise.records import Embeddings, Prototypes, refuse_other_models


class Probes(NamedTuple):
    """The best match of each sample: its cosine, and the class it points to."""

    score: Float[np.ndarray, " n"]
    match: Int[np.ndarray, " n"]


class Detection(NamedTuple):
    """At one rate of false alarms: the threshold, and the share of known samples found and named rightly."""

    fpr: float
    threshold: float
    rate: float


def best_match(embeddings: Embeddings, centres: Prototypes, *, known: bool = False) -> Probes:
    """The nearest centre of each sample, by cosine; equal samples have equal scores, in whatever set they are.

    Where the classes are `known`, a centre of another class that is just as near as the own is the match.
    """
    refuse_other_models(admit_rows(embeddings, classes=0), centres)
    y = labels_among(embeddings, centres.names) if known else None
    if y is not None and y.max() >= len(centres):
        raise ArcwiseError(f"label {y.max()} has no centre: there are {len(centres)}.")
    score, match = np.zeros(len(embeddings.x)), np.zeros(len(embeddings.x), np.int64)
    for part in row_blocks(len(score), len(centres) * 2):
        cos = centre_cosines(embeddings.x[part], centres, exactly=True)
        own = (np.arange(len(cos)), y[part]) if y is not None else None
        score[part], match[part] = cos.max(axis=1), cos.argmax(axis=1) if own is None else others_first(cos, own)
    return Probes(score, match)


def auroc(known: Embeddings, unseen: Embeddings, centres: Prototypes) -> float:
    """The chance that a sample of a known class lies nearer to its best centre than one of an unseen class does."""
    return auc(told_apart(known, unseen, centres))


def told_apart(known: Embeddings, unseen: Embeddings, centres: Prototypes) -> PairScores:
    """The best cosine of known samples (as genuine) and of unseen ones (as impostors)."""
    inside, outside = (np.sort(best_match(e, centres).score) for e in (known, unseen))
    return PairScores(genuine=SortedScores(value=inside), impostor=SortedScores(value=outside))


def detection_rate(known: Embeddings, unseen: Embeddings, centres: Prototypes, fpr: float) -> Detection:
    """DIR at FPR: known samples whose best match is right and above the threshold  (Phillips et al. 2011).

    The threshold is the lowest at which at most `fpr` of the unseen samples are taken for somebody known.
    """
    fpr = number_in("fpr", fpr, 0.0, 1.0)
    outside = SortedScores(value=np.sort(best_match(unseen, centres).score))
    t = threshold_beyond(outside, int(fpr * outside.total + 1e-9))
    inside = best_match(known, centres, known=True)
    right = inside.match == labels_among(known, centres.names)
    return Detection(fpr, t, float((right & (inside.score >= t)).mean()))
