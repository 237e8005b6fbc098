"""The losses as the papers print them: angles by arccos, loops over samples and classes, float64.

Nothing here is taken from arcwise; every formula is written out from its paper.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor

import arcwise
from arcwise import margins
from arcwise.ops import bytes_per_class


def arc(theta: Tensor, m: Tensor | float) -> Tensor:
    """cos(theta + m) up to theta + m = pi, then cos(theta) - (1 - cos m)."""
    m = torch.as_tensor(m, dtype=theta.dtype)
    return torch.cos(theta + m) if theta + m <= math.pi else torch.cos(theta) - (1 - torch.cos(m))


def steps(phi: Tensor) -> Tensor:
    """(-1)^k cos(phi) - 2k for phi in [k pi, (k + 1) pi]."""
    k = 0
    while phi > (k + 1) * math.pi:
        k += 1
    return (-1) ** k * torch.cos(phi) - 2 * k


def ada(theta: Tensor, norm: Tensor, i: int) -> Tensor:
    """AdaFace with mu = 20, sigma = 100, h = 0.333, m = 0.4; the quality is a constant."""
    norm = min(max(float(norm.detach()), 0.001), 100.0)
    q = min(max((norm - 20.0) / (100.0 + 0.001) * 0.333, -1.0), 1.0)
    shift, off = -0.4 * q, 0.4 * q + 0.4
    if theta + shift <= 0:
        return 1.0 - off + 0.0 * theta
    return arc(theta, shift) - off if shift >= 0 else torch.cos(theta + shift) - off


def mag_length(norm: Tensor) -> Tensor:
    return norm if 10.0 <= norm <= 110.0 else (0.0 * norm + (10.0 if norm < 10.0 else 110.0))


def mag(theta: Tensor, norm: Tensor, i: int) -> Tensor:
    return arc(theta, (0.8 - 0.45) / (110.0 - 10.0) * (mag_length(norm) - 10.0) + 0.45)


def mag_penalty(norm: Tensor) -> Tensor:
    a = mag_length(norm)
    return 20.0 * (1.0 / a + a / 110.0**2)


PER_CLASS = [0.0625 + (j % 40) / 128 for j in range(1009)]  # exact in float32, as the margin stores them


@dataclass(frozen=True)
class Case:
    """A margin of ours beside its formula from the paper."""

    build: Callable[[int], torch.nn.Module]
    psi: Callable[[Tensor, Tensor, int], Tensor]  # theta, norm, label -> psi
    other: Callable[[Tensor, Tensor], Tensor | None] = field(default=lambda cos, psi: cos)
    penalty: Callable[[Tensor], Tensor] = field(default=lambda norm: torch.zeros_like(norm))


def curricular(c: int) -> torch.nn.Module:
    margin = margins.CurricularFace(0.5)
    margin.t.fill_(0.25)
    return margin


CASES = {
    "normface": Case(lambda c: margins.NormFace(), lambda th, n, y: torch.cos(th)),
    "sphereface 4": Case(lambda c: margins.SphereFace(4), lambda th, n, y: steps(4 * th)),
    "sphereface 1.35": Case(lambda c: margins.SphereFace(1.35), lambda th, n, y: steps(1.35 * th)),
    "cosface": Case(lambda c: margins.CosFace(0.35), lambda th, n, y: torch.cos(th) - 0.35),
    "cosface per class": Case(
        lambda c: margins.CosFace(PER_CLASS[:c]), lambda th, n, y: torch.cos(th) - PER_CLASS[y]
    ),
    "arcface": Case(lambda c: margins.ArcFace(0.5), lambda th, n, y: arc(th, 0.5)),
    "arcface per class": Case(lambda c: margins.ArcFace(PER_CLASS[:c]), lambda th, n, y: arc(th, PER_CLASS[y])),
    "arcface paper": Case(
        lambda c: margins.ArcFace(0.5, continuation="paper"),
        lambda th, n, y: arc(th, 0.5) if th <= math.pi - 0.5 else torch.cos(th) - 0.5 * math.sin(0.5),
    ),
    "combined 1 .3 .2": Case(lambda c: margins.Combined(1.0, 0.3, 0.2), lambda th, n, y: arc(th, 0.3) - 0.2),
    "combined 1.2 .3 .2": Case(
        lambda c: margins.Combined(1.2, 0.3, 0.2), lambda th, n, y: steps(1.2 * th + 0.3) - 0.2
    ),
    "adaface": Case(lambda c: margins.AdaFace(), ada),
    "magface": Case(lambda c: margins.MagFace(), mag, penalty=mag_penalty),
    "elastic-arcface, evaluated": Case(lambda c: margins.ElasticArcFace(), lambda th, n, y: arc(th, 0.5)),
    "elastic-cosface, evaluated": Case(
        lambda c: margins.ElasticCosFace(), lambda th, n, y: torch.cos(th) - 0.35
    ),
    "curricularface": Case(
        curricular, lambda th, n, y: arc(th, 0.5), lambda cos, psi: cos * (0.25 + cos) if cos > psi else cos
    ),
    "mv-softmax": Case(
        lambda c: margins.MVSoftmax(), lambda th, n, y: torch.cos(th) - 0.35,
        lambda cos, psi: 1.2 * cos + 0.2 if cos > psi else cos,
    ),
    "mv-softmax arc fixed": Case(
        lambda c: margins.MVSoftmax(0.5, base="arcface", adaptive=False), lambda th, n, y: arc(th, 0.5),
        lambda cos, psi: cos + 0.2 if cos > psi else cos,
    ),
    "noise-filter": Case(
        lambda c: margins.NoiseFilter("arcface", above=0.2), lambda th, n, y: arc(th, 0.5),
        lambda cos, psi: None if cos > 0.2 else cos,
    ),
    "noise-filter of magface": Case(
        lambda c: margins.NoiseFilter("magface", above=0.2), mag,
        lambda cos, psi: None if cos > 0.2 else cos, mag_penalty,
    ),
}  # fmt: skip


def textbook_losses(case: Case, x: Tensor, w: Tensor, y: Tensor, s: float) -> Tensor:
    """-log( e^{s psi} / (e^{s psi} + sum_{j != y} e^{s f(cos_j)}) ) of each sample, summed term by term."""
    losses = []
    for i in range(len(x)):
        norm = x[i].norm()
        cosines = [max((x[i] / norm) @ (v / v.norm()) for v in w[j].reshape(-1, x.shape[1])) for j in range(len(w))]
        label = int(y[i])
        psi = case.psi(torch.acos(cosines[label]), norm, label)
        others = [case.other(cos, psi.detach()) for j, cos in enumerate(cosines) if j != label]
        terms = [s * psi] + [s * cos for cos in others if cos is not None]
        top = max(float(t.detach()) for t in terms)
        total = sum(torch.exp(t - top) for t in terms)
        losses.append(torch.log(total) + top - s * psi + case.penalty(norm))
    return torch.stack(losses)


def head_for(case: Case, c: int, x: Tensor, *, s: float, k: int, engine: str, classes_per_block: int) -> arcwise.Head:
    """Our head in float64 with the case's margin, statistics frozen, in blocks that do not divide c."""
    memory = bytes_per_class(x, k) * classes_per_block
    head = arcwise.Head(x.shape[1], c, margin=case.build(c), s=s, k=k, engine=engine, memory=memory).double()
    head.eval()
    return head


# ------------------------------------------------- the same in plain torch, as one writes it in a notebook


def plain_arc(theta: Tensor, m: Tensor | float) -> Tensor:
    m = torch.as_tensor(m, dtype=theta.dtype)
    return torch.where(theta + m <= math.pi, torch.cos(theta + m), torch.cos(theta) - (1 - torch.cos(m)))


def plain_steps(phi: Tensor) -> Tensor:
    k = torch.floor(phi / math.pi).detach()
    return (-1) ** k * torch.cos(phi) - 2 * k


def plain_ada(theta: Tensor, norm: Tensor, y: Tensor) -> Tensor:
    q = ((norm.detach().clamp(0.001, 100.0) - 20.0) / (100.0 + 0.001) * 0.333).clamp(-1, 1)
    return torch.cos((theta - 0.4 * q).clamp(min=0.0)) - (0.4 * q + 0.4)


def plain_mag(theta: Tensor, norm: Tensor, y: Tensor) -> Tensor:
    return plain_arc(theta, (0.8 - 0.45) / (110.0 - 10.0) * (norm.clamp(10.0, 110.0) - 10.0) + 0.45)


def plain_mag_penalty(norm: Tensor) -> Tensor:
    a = norm.clamp(10.0, 110.0)
    return 20.0 * (1.0 / a + a / 110.0**2)


def per_class(theta: Tensor, y: Tensor) -> Tensor:
    return torch.tensor(PER_CLASS, dtype=theta.dtype)[y]


KEEP = field(default=lambda cos, psi: cos)
FILTER = lambda cos, psi: torch.where(cos > 0.2, -torch.inf, cos)  # noqa: E731


@dataclass(frozen=True)
class Plain:
    """A margin over whole vectors: theta, norm, y -> psi; cos (b, c), psi (b, 1) -> what the others count."""

    psi: Callable[[Tensor, Tensor, Tensor], Tensor]
    others: Callable[[Tensor, Tensor], Tensor] = KEEP
    penalty: Callable[[Tensor], Tensor] = field(default=lambda norm: torch.zeros_like(norm))


PLAIN = {
    "normface": Plain(lambda th, n, y: torch.cos(th)),
    "sphereface 4": Plain(lambda th, n, y: plain_steps(4 * th)),
    "sphereface 1.35": Plain(lambda th, n, y: plain_steps(1.35 * th)),
    "cosface": Plain(lambda th, n, y: torch.cos(th) - 0.35),
    "cosface per class": Plain(lambda th, n, y: torch.cos(th) - per_class(th, y)),
    "arcface": Plain(lambda th, n, y: plain_arc(th, 0.5)),
    "arcface per class": Plain(lambda th, n, y: plain_arc(th, per_class(th, y))),
    "arcface paper": Plain(
        lambda th, n, y: torch.where(th <= math.pi - 0.5, torch.cos(th + 0.5), torch.cos(th) - 0.5 * math.sin(0.5))
    ),
    "combined 1 .3 .2": Plain(lambda th, n, y: plain_arc(th, 0.3) - 0.2),
    "combined 1.2 .3 .2": Plain(lambda th, n, y: plain_steps(1.2 * th + 0.3) - 0.2),
    "adaface": Plain(plain_ada),
    "magface": Plain(plain_mag, penalty=plain_mag_penalty),
    "elastic-arcface, evaluated": Plain(lambda th, n, y: plain_arc(th, 0.5)),
    "elastic-cosface, evaluated": Plain(lambda th, n, y: torch.cos(th) - 0.35),
    "curricularface": Plain(
        lambda th, n, y: plain_arc(th, 0.5), lambda cos, psi: torch.where(cos > psi, cos * (0.25 + cos), cos)
    ),
    "mv-softmax": Plain(
        lambda th, n, y: torch.cos(th) - 0.35, lambda cos, psi: torch.where(cos > psi, 1.2 * cos + 0.2, cos)
    ),
    "mv-softmax arc fixed": Plain(
        lambda th, n, y: plain_arc(th, 0.5), lambda cos, psi: torch.where(cos > psi, cos + 0.2, cos)
    ),
    "noise-filter": Plain(lambda th, n, y: plain_arc(th, 0.5), FILTER),
    "noise-filter of magface": Plain(plain_mag, FILTER, plain_mag_penalty),
}


def plain_losses(plain: Plain, x: Tensor, w: Tensor, y: Tensor, s: float) -> Tensor:
    """Normalise, multiply, arccos, cross-entropy, all in the precision of the inputs."""
    cos = (F.normalize(x) @ F.normalize(w.reshape(-1, x.shape[1])).T).reshape(len(x), len(w), -1).amax(2)
    norm, own = x.norm(dim=1), y[:, None]
    psi = plain.psi(torch.acos(cos.gather(1, own)[:, 0]), norm, y)[:, None]
    logits = s * plain.others(cos, psi.detach()).scatter(1, own, psi)
    return F.cross_entropy(logits, y, reduction="none") + plain.penalty(norm)
