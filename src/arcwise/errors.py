"""Returns nothing: the one exception of the package, and the sentences that several doors share."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class ArcwiseError(ValueError):
    """A message for the person at the keyboard: what was wrong, what was expected, what to type next."""


def unknown(what: str, got: object, choices: Iterable[str]) -> ArcwiseError:
    """The error for a name that is not in a dict, with the choices and the nearest match.

    >>> print(unknown("margin", "arcfase", ["arcface", "cosface"]))
    unknown margin 'arcfase': did you mean 'arcface'? Choose from arcface, cosface.
    """
    names = sorted(choices)
    near = difflib.get_close_matches(str(got).lower(), names, n=1)
    hint = f" did you mean '{near[0]}'?" if near else ""
    return ArcwiseError(f"unknown {what} {got!r}:{hint} Choose from {', '.join(names)}.")


def number_in(name: str, value: object, low: float, high: float, *, why: str = "") -> float:
    """`value` as a float inside [low, high], or an error that names the argument.

    >>> number_in("m", 0.5, 0.0, 1.0)
    0.5
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
        reason = f" {why}" if why else ""
        raise ArcwiseError(f"{name} must be a number from {low:g} to {high:g}, got {value!r}.{reason}")
    return float(value)


def count_at_least(name: str, value: object, low: int) -> int:
    """`value` as a whole number of at least `low`, or an error that names the argument.

    >>> count_at_least("classes", 10, 1)
    10
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < low:
        raise ArcwiseError(f"{name} must be a whole number of at least {low}, got {value!r}.")
    return value
