"""Words that every part of a report uses: lists and ranges."""

from __future__ import annotations

import numpy as np


def listed(names: list[str], sign: str = ", ") -> str:
    """Names in a row, parted by a sign.

    >>> listed(["a", "b", "c"])
    'a, b and c'
    """
    return names[0] if len(names) == 1 else f"{sign.join(names[:-1])} and {names[-1]}"


def range_words(counts: np.ndarray) -> str:
    """How large some counts are.

    >>> range_words(np.array([5, 7, 9, 9])), range_words(np.array([5, 5]))
    ('5 to 9, median 8', '5 each')
    """
    if counts.min() == counts.max():
        return f"{counts.min():,}" + (" each" if len(counts) > 1 else "")
    return f"{counts.min():,} to {counts.max():,}, median {int(np.median(counts)):,}"
