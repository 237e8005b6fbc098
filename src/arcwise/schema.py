"""What values in a file must be: checks of JSON that say where it is wrong, what was expected and what came."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

Check = Callable[[Any, str], None]
MOST = 2**53  # the largest whole number that every reader of JSON keeps exactly


class Unfit(ValueError):  # noqa: N818
    """A value that is not as a file must hold it; the message begins with its place."""


def parse_json(content: str | bytes) -> Any:
    """The value in a JSON text, or a ValueError: also for bytes that are no text, and for what is nested too deeply.

    >>> parse_json(b'{"a": [1]}')
    {'a': [1]}
    """
    try:
        return json.loads(content)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def expect(holds: bool, where: str, wanted: str, value: Any) -> None:
    """Raises where a value does not hold what is wanted."""
    if not holds:
        shown = repr(value)
        raise Unfit(f"{where or 'it'} must be {wanted}, got {shown if len(shown) <= 60 else shown[:57] + '...'}")


def anything(value: Any, where: str) -> None:
    """Whatever it is."""


def text(value: Any, where: str) -> None:
    """Text."""
    expect(isinstance(value, str), where, "text", value)


def truth(value: Any, where: str) -> None:
    """True or false."""
    expect(isinstance(value, bool), where, "true or false", value)


def whole(low: int = -MOST, high: int = MOST) -> Check:
    """A whole number from low to high."""

    def check(value: Any, where: str) -> None:
        fits = isinstance(value, int) and not isinstance(value, bool) and low <= value <= high
        expect(fits, where, f"a whole number from {low:,} to {high:,}", value)

    return check


def number(low: float = -math.inf, high: float = math.inf) -> Check:
    """A finite number from low to high."""
    span = f" from {low:g} to {high:g}" if math.isfinite(low) or math.isfinite(high) else ""

    def check(value: Any, where: str) -> None:
        real = isinstance(value, int | float) and not isinstance(value, bool)
        expect(real and is_finite(value) and low <= value <= high, where, f"a finite number{span}", value)

    return check


def is_finite(value: float) -> bool:
    """Whether a number is finite as a float; a whole number of a thousand digits is not."""
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def nothing_or(check: Check) -> Check:
    """Null, or what the check wants."""
    return lambda value, where: None if value is None else check(value, where)


def many(check: Check, *, least: int = 0) -> Check:
    """A list of at least so many values, each as the check wants it."""

    def every(value: Any, where: str) -> None:
        expect(isinstance(value, list) and len(value) >= least, where, f"a list of at least {least} values", value)
        for at, one in enumerate(value):
            check(one, f"{where}[{at}]")

    return every


def table(wanted: Mapping[str, Check] | None = None, may: Mapping[str, Check] | None = None, rest: Check = anything):
    """A table with the wanted keys, and others that may be there; `rest` checks the values of all other keys.

    >>> table({"seeds": many(whole(0))})({"seeds": [0, -1]}, "")
    Traceback (most recent call last):
    arcwise.schema.Unfit: seeds[1] must be a whole number from 0 to 9,007,199,254,740,992, got -1
    """
    must, known = wanted or {}, {**(may or {}), **(wanted or {})}

    def check(value: Any, where: str) -> None:
        expect(isinstance(value, dict), where, "a table of values", value)
        for key in must:
            if key not in value:
                raise Unfit(f"{where or 'it'} lacks {key}")
        for key, one in value.items():
            known.get(key, rest)(one, f"{where}.{key}" if where else key)

    return check
