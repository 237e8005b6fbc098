"""Who of the enrolled is this, or nobody: ranks in a gallery of one image each, and detection with strangers about."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from arcwise.errors import ArcwiseError, count_at_least, number_in
from arcwise.metrics.rows import UnitRows, admit_rows, row_blocks, unit_rows
from arcwise.metrics.spread import Spread, spread
from arcwise.metrics.verification import SortedScores, threshold_beyond
from arcwise.records import Embeddings

DRAWS = 10


class Watchlist(NamedTuple):
    """Means over several draws of who is enrolled, with their spread.

    `cmc[k]` is the share of probes whose identity is among the k best; `detection` the share of probes that are found
    and named rightly at a rate `fpr` of strangers taken for somebody, `strangers` how many of those there were.
    """

    cmc: dict[int, Spread]
    fpr: float
    detection: Spread | None
    identities: int
    probes: int
    strangers: int


def watchlist(
    embeddings: Embeddings, *, ranks: tuple[int, ...] = (1, 5, 10), fpr: float = 0.01, draws: int = DRAWS, seed: int = 0
) -> Watchlist:
    """Of every identity one image is enrolled at random and the others ask; for detection, of half the identities.

    CMC(k) = share of probes with rank at most k; a stranger's score is its best, and of equals others come first.
    Detection and identification rate at FPR  (Phillips et al. 2011).

    >>> x = np.repeat(np.eye(4), 3, axis=0)
    >>> watchlist(Embeddings(x, np.repeat(np.arange(4), 3))).cmc[1].mean
    1.0
    """
    x, y = unit_rows(admit_rows(embeddings, classes=2).x), embeddings.labels
    fpr, draws = number_in("fpr", fpr, 0.0, 1.0), count_at_least("draws", draws, 1)
    sizes = np.bincount(y)
    asked = int((sizes - 1).clip(min=0).sum())
    if not asked:
        raise ArcwiseError("no identity has two images: one is enrolled and another asks.")
    there = np.flatnonzero(sizes)
    random = np.random.default_rng(seed)
    found: dict[int, list[float]] = {k: [] for k in ranks if k <= len(there)}
    detected, strangers = [], 0
    for _ in range(draws):
        order = random.permutation(len(y))
        first = order[np.unique(y[order], return_index=True)[1]]  # one image of each identity, by identity
        probes = np.setdiff1d(np.arange(len(y)), first)
        rank = ranks_of(x, y, first, probes)
        for k, shares in found.items():
            shares.append(float((rank <= k).mean()))
        if len(there) >= 4:
            enrolled = np.isin(there, random.choice(there, len(there) // 2, replace=False))
            share, strangers = detection(x, y, first[enrolled], probes, fpr)
            detected.append(share)
    cmc = {k: spread(shares) for k, shares in found.items()}
    return Watchlist(cmc, fpr, spread(detected) if detected else None, len(there), asked, strangers)


def ranks_of(
    x: UnitRows, y: Int[np.ndarray, " n"], enrolled: Int[np.ndarray, " c"], probes: Int[np.ndarray, " p"]
) -> Int[np.ndarray, " p"]:
    """The rank of each probe's own identity among the enrolled, from 1."""
    out = np.zeros(len(probes), np.int64)
    column = {int(label): at for at, label in enumerate(y[enrolled])}
    gallery = x.take(enrolled)
    for part in row_blocks(len(probes), len(enrolled)):
        cos = x.take(probes[part]).cosines(gallery)
        own = cos[np.arange(len(cos)), [column[int(label)] for label in y[probes[part]]]]
        out[part] = (cos >= own[:, None]).sum(axis=1)  # of equals, others come first
    return out


def detection(
    x: UnitRows, y: Int[np.ndarray, " n"], enrolled: Int[np.ndarray, " c"], probes: Int[np.ndarray, " p"], fpr: float
) -> tuple[float, int]:
    """The share of known probes found and named, and how many strangers set the threshold."""
    known = np.isin(y[probes], y[enrolled])
    best, right = best_of(x, y, enrolled, probes)
    outside = SortedScores(value=np.sort(best[~known]))
    t = threshold_beyond(outside, int(fpr * outside.total + 1e-9))
    return float((right[known] & (best[known] >= t)).mean()), outside.total


def best_of(
    x: UnitRows, y: Int[np.ndarray, " n"], enrolled: Int[np.ndarray, " c"], probes: Int[np.ndarray, " p"]
) -> tuple[Float[np.ndarray, " p"], np.ndarray]:
    """The best score of each probe, and whether it is of its own identity and no other's."""
    best, right = np.zeros(len(probes)), np.zeros(len(probes), bool)
    gallery, label = x.take(enrolled), y[enrolled]
    for part in row_blocks(len(probes), len(enrolled)):
        cos = x.take(probes[part]).cosines(gallery)
        best[part] = cos.max(axis=1)
        theirs = (cos == best[part, None]) & (label[None, :] != y[probes[part], None])
        right[part] = ~theirs.any(axis=1)
    return best, right
