"""Returns portraits of margins: psi, its slope and the boundary between two classes, sampled for drawing."""

from __future__ import annotations

import inspect
import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from arcwise.errors import one_of
from arcwise.margins import MARGINS, parsed
from arcwise.ops.eager import reshaped
from arcwise.records import MarginCurve, MarginPortrait
from arcwise.sphere import EMPTY

SAMPLES = 361  # every half degree
AT_45_DEGREES = 90

# What each portrait compares: constructor parameters, values of running statistics, and the norm of the
# embedding. A star marks the one to look at first, the papers' own where there is one.
SETTINGS: dict[str, tuple[str, ...]] = {
    "sphereface": ("m=1.35", "m=2", "m=4 *"),
    "cosface": ("m=0.1", "m=0.35 *", "m=0.6"),
    "arcface": ("m=0.2", "m=0.5 *", "m=0.8", "m=0.5,continuation=paper"),
    "combined": ("m1=1,m2=0.3,m3=0.2 *", "m1=1.35,m2=0,m3=0.2", "m1=1.2,m2=0.3,m3=0.1"),
    "adaface": ("norm=5,mean=20,std=5", "norm=20,mean=20,std=5 *", "norm=35,mean=20,std=5"),
    "magface": ("norm=10 *", "norm=60", "norm=110"),
    "elastic-arcface": ("m=0.4", "m=0.5 *", "m=0.6"),
    "elastic-cosface": ("m=0.25", "m=0.35 *", "m=0.45"),
    "curricularface": ("t=0", "t=0.3 *", "t=0.7"),
    "mv-softmax": ("t=1", "t=1.2 *", "t=1.4"),
    "noise-filter": ("above=0.2", "above=0.4 *", "above=0.8"),
}


def portrait(name: str) -> MarginPortrait:
    """psi(theta), d psi/d theta and the boundary between two classes for a margin of MARGINS.

    >>> portrait("cosface").curves[1].label
    'm=0.35'
    """
    kind, settings = MARGINS[one_of("margin", name, MARGINS)], SETTINGS.get(name, ("",))
    return MarginPortrait(
        title=kind.__name__,
        formula=str(kind.formula),
        theta=angles().numpy(),
        curves=tuple(sampled(kind, setting.removesuffix(" *")) for setting in settings),
        main=next((i for i, setting in enumerate(settings) if setting.endswith(" *")), 0),
    )


def angles() -> Float[Tensor, " n"]:
    """Angles strictly inside (0, pi): at the poles the slope is a subgradient, not a derivative."""
    return torch.linspace(1e-3, math.pi - 1e-3, SAMPLES, dtype=torch.float64)


def sampled(kind: type[nn.Module], setting: str) -> MarginCurve:
    """One setting of a margin over all angles, in evaluation mode."""
    margin, norm = settled(kind, setting)
    theta = angles().requires_grad_()
    cos, y = theta.cos(), torch.zeros(SAMPLES, dtype=torch.long)
    norms = torch.full((SAMPLES,), norm, dtype=torch.float64)
    psi = margin(cos, norm=norms, y=y)
    (slope,) = torch.autograd.grad(psi.sum(), theta)
    with torch.no_grad():
        reshape = getattr(margin, "others", None)
        others = reshape(cos, norm=norms, y=y) if reshape else None
        counts = reshaped(cos.expand(SAMPLES, SAMPLES), others)
        counts = counts.masked_fill(counts == EMPTY, torch.nan)
    return MarginCurve(
        label=setting.replace(",", ", "),
        psi=psi.detach().numpy(),
        slope=slope.numpy(),
        lead=(psi.detach()[:, None] - counts).numpy(),
        other=None if others is None else counts[AT_45_DEGREES].numpy(),
    )


def settled(kind: type[nn.Module], setting: str) -> tuple[nn.Module, float]:
    """The margin with its parameters and running statistics as the setting says, and the norm."""
    _, values = parsed(f"_:{setting}")
    norm = float(values.pop("norm", 1.0))  # type: ignore[arg-type]
    names = inspect.signature(kind).parameters
    margin = kind(**{key: value for key, value in values.items() if key in names}).eval()
    for key in values.keys() - names.keys():
        getattr(margin, key).fill_(values[key])
    return margin, norm
