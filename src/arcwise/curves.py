"""Portraits of margins: psi, its slope and the boundary between two classes, sampled for drawing."""

from __future__ import annotations

import inspect
import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from arcwise.errors import one_of
from arcwise.heads import margin_of
from arcwise.headspec import HeadSpec, parse_named
from arcwise.margins import MARGINS
from arcwise.ops.eager import reshape_others
from arcwise.records import MarginCurve, MarginPortrait
from arcwise.sphere import EMPTY

SAMPLES = 361  # every half degree
AT_45_DEGREES = 90


def portrait(name: str) -> MarginPortrait:
    """psi(theta), d psi/d theta and the boundary between two classes for a margin of MARGINS.

    >>> portrait("cosface").curves[1].label
    'm=0.35'
    """
    kind = MARGINS[one_of("margin", name, MARGINS)]
    settings = getattr(kind, "portrait", ("",))
    return MarginPortrait(
        title=kind.__name__,
        formula=str(kind.formula),
        theta=all_angles().numpy(),
        curves=tuple(sample_curve(kind, setting.removesuffix(" *")) for setting in settings),
        main=next((i for i, setting in enumerate(settings) if setting.endswith(" *")), 0),
    )


def all_angles() -> Float[Tensor, " n"]:
    """Angles strictly inside (0, pi): at the poles the slope is a subgradient, not a derivative."""
    return torch.linspace(1e-3, math.pi - 1e-3, SAMPLES, dtype=torch.float64)


def sample_curve(kind: type[nn.Module], setting: str) -> MarginCurve:
    """One setting of a margin over all angles, in evaluation mode."""
    margin, norm = margin_at(kind, setting)
    theta = all_angles().requires_grad_()
    cos, y = theta.cos(), torch.zeros(SAMPLES, dtype=torch.long)
    norms = torch.full((SAMPLES,), norm, dtype=torch.float64)
    psi = margin(cos, norm=norms, y=y)
    (slope,) = torch.autograd.grad(psi.sum(), theta)
    with torch.no_grad():
        reshape = getattr(margin, "others", None)
        others = reshape(cos, norm=norms, y=y) if reshape else None
        counts = reshape_others(cos.expand(SAMPLES, SAMPLES), others)
        counts = counts.masked_fill(counts == EMPTY, torch.nan)
    return MarginCurve(
        label=setting.replace(",", ", "),
        psi=psi.detach().numpy(),
        slope=slope.numpy(),
        lead=(psi.detach()[:, None] - counts).numpy(),
        other=None if others is None else counts[AT_45_DEGREES].numpy(),
    )


def margin_at(kind: type[nn.Module], setting: str) -> tuple[nn.Module, float]:
    """The margin with its parameters and running statistics as the setting says, and the norm."""
    _, values = parse_named(f"_:{setting}")
    norm = float(values.pop("norm", 1.0))  # type: ignore[arg-type]
    names = inspect.signature(kind).parameters
    margin = kind(**{key: value for key, value in values.items() if key in names}).eval()
    for key in values.keys() - names.keys():
        getattr(margin, key).fill_(values[key])
    return margin, norm


def psi_at(spec: HeadSpec, cos: float, norm: float) -> float:
    """psi for a sample of that own cosine and length, under a head of MARGINS.

    >>> round(psi_at(HeadSpec.parse("arcface:m=0.5"), 0.3, 1.0), 4)
    -0.1941
    """
    one = torch.tensor([cos, norm], dtype=torch.float64)
    with torch.no_grad():
        return float(margin_of(spec).eval()(one[:1], norm=one[1:], y=torch.zeros(1, dtype=torch.long)))
