"""Which rates rest on too few false acceptances to mean much, told from labels alone."""

from __future__ import annotations

import numpy as np

from arcwise.metrics.calibration import LEAST_ACCEPTED
from arcwise.metrics.summary import FARS, FPRS
from arcwise.records import Embeddings


def weak_rates(test: Embeddings, unseen: Embeddings | None = None) -> dict[str, str]:
    """The numbers of `all_metrics` that rest on too little, by name, each with what it rests on.

    >>> few = Embeddings(np.eye(8), np.arange(8) // 2)
    >>> weak_rates(few)["pairs-tar-0.1"]
    'rests on 2.4 expected false acceptances, too few to mean much'
    """
    found = pair_rates("pairs", test)
    if unseen is not None:
        found |= pair_rates("unseen", unseen)
        found |= {f"open-dir-{fpr:g}": rests_on(fpr * len(unseen)) for fpr in FPRS}
    return {name: words for name, words in found.items() if words}


def pair_rates(prefix: str, some: Embeddings) -> dict[str, str]:
    """What TAR at each FAR over all pairs rests on, where that is too little."""
    if some.y is None:
        return {}
    sizes = np.bincount(some.labels)
    impostors = (int(sizes.sum()) ** 2 - int((sizes**2).sum())) // 2
    return {f"{prefix}-tar-{far:g}": rests_on(far * impostors, far, int((sizes > 0).sum())) for far in FARS}


def rests_on(expected: float, far: float = 1.0, identities: int = 0) -> str:
    """What a rate rests on, where it is too little: few expected false acceptances, or few identities.

    >>> rests_on(4.5), rests_on(10.0)
    ('rests on 4.5 expected false acceptances, too few to mean much', '')
    >>> rests_on(100.0, 0.01, 10)
    'rests on 10 classes: the rate is less than one of their 45 pairs, so one look-alike pair decides'
    """
    if expected < LEAST_ACCEPTED:
        return f"rests on {expected:.2g} expected false acceptances, too few to mean much"
    pairs = identities * (identities - 1) // 2
    if identities and far * pairs < 1.0:
        return (
            f"rests on {identities:,} classes: the rate is less than one of their {pairs:,} pairs, so one look-alike "
            "pair decides"
        )
    return ""
