"""`arcwise advise`: prints advice on s and m."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Sequence
from typing import Annotated

from cyclopts import Parameter, Token

from arcwise.advise import advise


def whole_number(_: object, tokens: Sequence[Token]) -> int:
    """A whole number; 2.5 is none."""
    try:
        return int(tokens[0].value)
    except ValueError:
        raise ValueError(f"{tokens[0].value!r} is not a whole number") from None


def share(_: object, tokens: Sequence[Token]) -> float:
    """A share as a number, or in percent."""
    text = tokens[0].value.strip()
    try:
        return float(text.removesuffix("%")) / 100.0 if text.endswith("%") else float(text)
    except ValueError:
        raise ValueError(f"{text!r} is no share: write 0.001, or 0.1%") from None


Whole = Annotated[int, Parameter(converter=whole_number)]
Share = Annotated[float, Parameter(converter=share)]


def advise_command(*, classes: Whole, dim: Whole, per_class: list[Whole] | None = None, json_: bool = False) -> None:
    """Suggest a scale s and a margin m, with the reasons.

    Parameters
    ----------
    classes
        How many classes the head will have.
    dim
        The dimension of the embedding.
    per_class
        Samples per class: one number, or one for each class. Rare or uneven ones are told; s and m stay the same.
    json_
        Print the numbers for a machine.
    """
    counts = per_class[0] if per_class and len(per_class) == 1 else per_class
    advice = advise(classes, dim, per_class=counts)
    if json_:
        numbers = {k: None if v == math.inf else v for k, v in dataclasses.asdict(advice).items()}
        print(json.dumps(numbers, allow_nan=False))
        return
    print(advice)
    if advice.best_angle == 0.0:
        print(f"\nNext: arcwise advise --classes {classes} --dim 2")
        return
    print(f'\nNext: head = arcwise.Head({dim}, {classes}, margin="arcface:m={advice.m:.3g}", s={advice.s:.3g})')
