"""The exceptions of the package, all of them messages for a person, and the checks of single arguments."""

from __future__ import annotations

import difflib
import math
import numbers
import operator
import signal
import warnings
from collections.abc import Iterable
from typing import TypeVar

Choice = TypeVar("Choice", bound=str)


class ArcwiseError(ValueError):
    """A message for the person at the keyboard: what was wrong, what was expected, what to type next."""


class Busy(ArcwiseError):  # noqa: N818
    """A folder that another process is writing into; waiting may help."""


class NotFinite(ArcwiseError):  # noqa: N818
    """Numbers that are not finite where a computation needs them to be."""


class Interrupted(ArcwiseError):  # noqa: N818
    """Somebody asked for an end, by the signal `signum` where that is known; what was under way is saved."""

    def __init__(self, message: str, signum: int = signal.SIGINT):
        super().__init__(message)
        self.signum = int(signum)


class AlreadyTold(ArcwiseError):  # noqa: N818
    """What another process of the same training has said: this one ends with it, and need not repeat it."""


class Note(UserWarning):
    """Something a person should know, though nothing is wrong; the command line prints it as a note."""


def note(message: str) -> None:
    """Tells the person, once."""
    warnings.warn(message, Note, stacklevel=3)


def unknown(what: str, got: object, choices: Iterable[str]) -> ArcwiseError:
    """The error for a name that is not in a dict, with the choices and the nearest match.

    >>> print(unknown("margin", "arcfase", ["arcface", "cosface"]))
    unknown margin 'arcfase': did you mean 'arcface'? Choose from arcface, cosface.
    """
    names = sorted(choices)
    near = difflib.get_close_matches(str(got).lower(), names, n=1)
    hint = f" did you mean '{near[0]}'?" if near else ""
    return ArcwiseError(f"unknown {what} {got!r}:{hint} Choose from {', '.join(names)}.")


def name_list(names: tuple[str, ...], most: int = 12) -> str:
    """The names as text, not too many of them."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def one_of(name: str, value: Choice, choices: Iterable[Choice]) -> Choice:
    """`value` when it is among the choices, or the error that lists them.

    >>> one_of("reduction", "sum", ("mean", "sum", "none"))
    'sum'
    """
    if not isinstance(value, str) or value not in choices:
        raise unknown(name, value, choices)
    return value


def unwrapped(value: object) -> object:
    """The Python number inside a scalar of numpy or torch; anything else as it is."""
    item = getattr(value, "item", None)
    return item() if callable(item) and getattr(value, "ndim", None) == 0 else value


def number_in(name: str, value: object, low: float, high: float, *, why: str = "") -> float:
    """`value` as a float inside [low, high], or an error that names the argument.

    >>> number_in("m", 0.5, 0.0, 1.0)
    0.5
    """
    value = unwrapped(value)
    try:
        number = float(value) if isinstance(value, numbers.Real) and not isinstance(value, bool) else math.nan
    except OverflowError:
        number = math.inf
    if not low <= number <= high:
        reason = f" {why}" if why else ""
        raise ArcwiseError(f"{name} must be a number from {low:g} to {high:g}, got {value!r}.{reason}")
    return number


def count_at_least(name: str, value: object, low: int) -> int:
    """`value` as a whole number of at least `low`, or an error that names the argument.

    >>> count_at_least("classes", 10, 1)
    10
    """
    value = unwrapped(value)
    try:
        count = low - 1 if isinstance(value, bool) else operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        count = low - 1
    if count < low:
        raise ArcwiseError(f"{name} must be a whole number of at least {low}, got {value!r}.")
    return count


def count_in(name: str, value: object, low: int, high: int) -> int:
    """`value` as a whole number inside [low, high], or an error that names the argument.

    >>> count_in("dim", 512, 1, 10_000)
    512
    """
    count = count_at_least(name, value, low)
    if count > high:
        raise ArcwiseError(f"{name} must be at most {high:,}, got {value!r}.")
    return count


def flag(name: str, value: object) -> bool:
    """`value` when it is True or False, or an error that names the argument.

    >>> flag("plus", True)
    True
    """
    if not isinstance(value, bool):
        raise ArcwiseError(f"{name} must be true or false, got {value!r}.")
    return value
