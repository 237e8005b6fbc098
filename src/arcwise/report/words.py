"""Words that every part of a report uses: counts and lists."""

from __future__ import annotations

import numpy as np


def listed(names: list[str]) -> str:
    """Names in a row.

    >>> listed(["a", "b", "c"])
    'a, b and c'
    """
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def count_of(n: int, word: str, many: str = "") -> str:
    """A number of things.

    >>> count_of(1, "head"), count_of(3, "head"), count_of(2, "class", "classes")
    ('1 head', '3 heads', '2 classes')
    """
    return f"{n:,} " + (word if n == 1 else many or f"{word}s")


def range_words(counts: np.ndarray) -> str:
    """How large some counts are.

    >>> range_words(np.array([5, 7, 9, 9])), range_words(np.array([5, 5]))
    ('5 to 9, median 8', '5 each')
    """
    if counts.min() == counts.max():
        return f"{counts.min():,}" + (" each" if len(counts) > 1 else "")
    return f"{counts.min():,} to {counts.max():,}, median {int(np.median(counts)):,}"
