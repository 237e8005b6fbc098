"""How margins are built: by name, class or object from a catalogue, and with one m for all or one per class."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from arcwise.errors import ArcwiseError, number_in, one_of, unknown
from arcwise.headspec import LINEAR_HEADS, parse_named


def build_margin(
    margin: nn.Module | type[nn.Module] | str, catalogue: Mapping[str, Any], parameters: Mapping[str, object]
) -> nn.Module:
    """A margin module out of a catalogue, from its name, "arcface:m=0.3", a class, or a ready object."""
    if isinstance(margin, str):
        name, given = parse_named(margin)
        if name in LINEAR_HEADS:
            raise ArcwiseError(
                f"{name} is a head without margin: take LinearHead, or head_from({name!r}, dim, classes)."
            )
        margin, parameters = catalogue[one_of("margin", name, catalogue)], {**given, **parameters}
    if isinstance(margin, nn.Module):
        if parameters:
            raise ArcwiseError(f"{type(margin).__name__} is already built: give it {', '.join(parameters)} there.")
        return margin
    if not (isinstance(margin, type) and issubclass(margin, nn.Module)):
        raise ArcwiseError(f"margin must be a name or an nn.Module with forward(cos_y, *, norm, y), got {margin!r}.")
    choices = inspect.signature(margin).parameters
    for name, value in parameters.items():
        if name in ("s", "k"):
            raise ArcwiseError(f"{name} belongs to the head, not to the margin: pass Head(..., {name}={value}).")
        if name not in choices:
            raise unknown(f"parameter of {margin.__name__}", name, choices)
    try:
        return margin(**parameters)
    except TypeError as error:
        raise ArcwiseError(f"cannot build {margin.__name__}: {error}. Pass it as an object.") from error


def margins_from_counts(
    counts: Sequence[int] | Tensor, low: float = 0.2, high: float = 0.5, power: float = 0.25
) -> Float[Tensor, " c"]:
    """One margin per class: `high` for the rarest, `low` for the commonest, between them by n^-power.

    m_j = low + (high - low) (n_j^-p - max(n)^-p) / (min(n)^-p - max(n)^-p)  (Cao et al. 2019 have p = 1/4).
    Classes without samples count as rarest; equal counts all get `high`.

    >>> margins_from_counts([1, 16, 256])
    tensor([0.5000, 0.3000, 0.2000])
    """
    n = finite_numbers(counts)
    if n is None or bool((n < 0).any()) or not bool(n.any()):
        raise ArcwiseError("counts must be one number of samples (0 or more) per class, with at least one above 0.")
    low = number_in("low", low, 0.0, math.pi)
    high = number_in("high", high, low, math.pi, why="It must not lie below low.")
    power = number_in("power", power, 1e-6, 10.0)
    rarity = torch.where(n > 0, n, n[n > 0].min()) ** -power
    spread = rarity.max() - rarity.min()
    share = (rarity - rarity.min()) / spread if spread > 0 else torch.ones_like(rarity)
    return (low + (high - low) * share).to(torch.float32)


def one_or_per_class(m: float | Sequence[float] | Tensor, *, high: float) -> float | nn.Buffer:
    """m as a number, or as a buffer of one margin per class, which moves with its module."""
    margins = finite_numbers(m)
    if margins is None:
        return number_in("m", m, 0.0, high, why="Or give one per class, as margins_from_counts makes them.")
    if not bool(((margins >= 0) & (margins <= high * (1 + 1e-6))).all()):
        raise ArcwiseError(f"m must hold numbers from 0 to {high:g}, got {margins.min():g} to {margins.max():g}.")
    return nn.Buffer(margins.to(torch.float32))


def finite_numbers(values: object) -> Float[Tensor, " c"] | None:
    """A list of finite numbers in float64, a copy; None where the values are anything else."""
    try:
        given = torch.as_tensor(values, dtype=torch.float64).detach().clone()
    except (TypeError, ValueError, RuntimeError, OverflowError):
        return None
    return given if given.ndim == 1 and len(given) > 0 and bool(given.isfinite().all()) else None


def of_class(m: float | Tensor, y: Int[Tensor, " b"]) -> float | Float[Tensor, " b"]:
    """m itself, or the entry of each sample's class."""
    return m.index_select(0, y) if isinstance(m, Tensor) else m
