"""The catalogue of margins: psi, the cosine of a sample's own class after the margin, one small class each.

A margin sees b numbers and no classes. Its `forward(cos_y, *, norm, y)` maps the own cosine to psi;
for fixed norm, statistics and drawn margin psi is continuous on [0, pi], never rises with the angle
and never exceeds the cosine. Two methods are optional:

- `penalty(norm)`: what is added to the loss of each sample (MagFace),
- `others(cos_y, *, norm, y)`: how the other classes count (CurricularFace, MV-Softmax, the filter). It is
  asked before the pass over the classes, without gradient, and may call `forward` for psi.

A margin that draws at random has a `draw_seed`, None at first: where the head sets it, what is drawn follows from it.

`neutral` names the parameters at which a margin is NormFace. `title` is what a person calls it where that is not the
class's name, `portrait` the settings that its picture compares: parameters, running statistics and the norm of x, with
a star at the one to look at first.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from arcwise.building import build_margin, of_class, one_or_per_class
from arcwise.errors import ArcwiseError, flag, number_in, one_of
from arcwise.sphere import Others, angle, clip, sine

PerSample = Float[Tensor, " b"]
Labels = Int[Tensor, " b"]
Continuation = Literal["smooth", "paper"]


# ---------------------------------------------------------------- the moves all margins are made of


def cos_and_sin(m: float | PerSample) -> tuple[float, float] | tuple[PerSample, PerSample]:
    """cos(m) and sin(m), of a number without touching the device."""
    return (m.cos(), m.sin()) if isinstance(m, Tensor) else (math.cos(m), math.sin(m))


def rotate(cos: PerSample, m: float | PerSample) -> PerSample:
    """cos(theta + m) = cos(theta) cos(m) - sin(theta) sin(m), without arccos.

    >>> rotate(torch.tensor([0.6]), 0.5)
    tensor([0.1430])
    """
    cos_m, sin_m = cos_and_sin(m)
    return cos * cos_m - sine(cos) * sin_m


def add_angle(cos: PerSample, m: float | PerSample, continuation: Continuation = "smooth") -> PerSample:
    """cos(theta + m) for m >= 0, going on falling past theta = pi - m.

    There cos(theta + m) would rise again; psi = cos(theta) - (1 - cos m) is continuous and falls on,
    while the papers' code takes cos(theta) - m sin(m), which jumps.

    >>> add_angle(torch.tensor([0.87758, -1.0]), 0.5)
    tensor([ 0.5403, -1.1224])
    """
    cos_m, sin_m = cos_and_sin(m)
    drop = m * sin_m if continuation == "paper" else 1.0 - cos_m
    return torch.where(cos > -cos_m, rotate(cos, m), cos - drop)


def ladder(phi: PerSample) -> PerSample:
    """(-1)^k cos(phi) - 2 k with k = floor(phi / pi): cos on [0, pi], then falling on for ever.

    >>> ladder(torch.tensor([0.0, torch.pi, 2 * torch.pi]))
    tensor([ 1., -1., -3.])
    """
    k = torch.floor(phi.detach() / math.pi)
    return (1.0 - 2.0 * torch.remainder(k, 2.0)) * phi.cos() - 2.0 * k


def parameter_text(self: nn.Module) -> str:
    """A margin's parameters as text, for its repr.

    >>> ArcFace(0.3)
    ArcFace(m=0.3, continuation='smooth')
    """
    values = ((name, getattr(self, name)) for name in inspect.signature(type(self)).parameters)
    return ", ".join(
        f"{name}={f'<{len(value)} per class>' if isinstance(value, Tensor) else repr(value)}"
        for name, value in values
        if not isinstance(value, nn.Module)
    )


# ------------------------------------------------------------------------------- fixed margins


class NormFace(nn.Module):
    """psi = cos(theta): both sides normalised, no margin  (Wang et al. 2017).

    >>> NormFace()(torch.tensor([0.5]), norm=torch.tensor([1.0]), y=torch.tensor([0]))
    tensor([0.5000])
    """

    formula: ClassVar = "cos θ"
    paper: ClassVar = "Wang et al. 2017, NormFace"
    neutral: ClassVar[dict] = {}

    def forward(self, cos_y: PerSample, *, norm: PerSample, y: Labels) -> PerSample:
        return cos_y


class SphereFace(nn.Module):
    """psi = (-1)^k cos(m theta) - 2 k,  k = floor(m theta / pi), for any real m >= 1  (Liu et al. 2017).

    x is normalised and scaled by s as for all margins here, and nothing is annealed; the paper keeps |x|
    and mixes psi with the cosine in the early steps.

    >>> SphereFace(2)(torch.tensor([0.0]), norm=torch.tensor([1.0]), y=torch.tensor([0]))
    tensor([-1.])
    """

    formula: ClassVar = "(−1)ᵏ cos(mθ) − 2k,  k = ⌊mθ/π⌋"
    paper: ClassVar = "Liu et al. 2017, SphereFace"
    neutral: ClassVar[dict] = {"m": 1.0}
    portrait: ClassVar = ("m=1.35", "m=2", "m=4 *")
    extra_repr = parameter_text

    def __init__(self, m: float = 4.0):
        super().__init__()
        self.m = number_in("m", m, 1.0, 100.0, why="SphereFace multiplies the angle; m = 1 is NormFace.")

    def forward(self, cos_y: PerSample, *, norm: PerSample, y: Labels) -> PerSample:
        return cos_y if self.m == 1.0 else ladder(self.m * angle(cos_y))


class CosFace(nn.Module):
    """psi = cos(theta) - m; m one number, or one per class  (Wang et al. 2018).

    >>> CosFace(0.25)(torch.tensor([0.5]), norm=torch.tensor([1.0]), y=torch.tensor([0]))
    tensor([0.2500])
    """

    formula: ClassVar = "cos θ − m"
    paper: ClassVar = "Wang et al. 2018, CosFace"
    neutral: ClassVar[dict] = {"m": 0.0}
    portrait: ClassVar = ("m=0.1", "m=0.35 *", "m=0.6")
    m: float | Tensor
    extra_repr = parameter_text

    def __init__(self, m: float | Sequence[float] | Tensor = 0.35):
        super().__init__()
        self.m = one_or_per_class(m, high=2.0)

    def forward(self, cos_y: PerSample, *, norm: PerSample, y: Labels) -> PerSample:
        return cos_y - of_class(self.m, y)


class ArcFace(nn.Module):
    """psi = cos(theta + m), then cos(theta) - (1 - cos m) past pi - m  (Deng et al. 2019).

    m is one number, or one per class. `continuation="paper"` goes on as the paper's code does, with
    cos(theta) - m sin(m): a jump of 0.117 at m = 0.5.

    >>> ArcFace(0.5)(torch.tensor([0.3]), norm=torch.tensor([1.0]), y=torch.tensor([0]))
    tensor([-0.1941])
    """

    formula: ClassVar = "cos(θ + m);  past π − m: cos θ − (1 − cos m)"
    paper: ClassVar = "Deng et al. 2019, ArcFace"
    neutral: ClassVar[dict] = {"m": 0.0}
    portrait: ClassVar = ("m=0.2", "m=0.5 *", "m=0.8", "m=0.5,continuation=paper")
    m: float | Tensor
    extra_repr = parameter_text

    def __init__(self, m: float | Sequence[float] | Tensor = 0.5, *, continuation: Continuation = "smooth"):
        super().__init__()
        # Beyond 2.33 the paper's continuation jumps up: m sin m falls below 1 - cos m.
        self.m = one_or_per_class(m, high=2.33 if continuation == "paper" else math.pi)
        self.continuation: Continuation = one_of("continuation", continuation, ("smooth", "paper"))

    def forward(self, cos_y: PerSample, *, norm: PerSample, y: Labels) -> PerSample:
        return add_angle(cos_y, of_class(self.m, y), self.continuation)


class Combined(nn.Module):
    """psi = cos(m1 theta + m2) - m3, all three honoured  (Deng et al. 2019, eq. 4).

    ArcFace's continuation when m1 = 1, SphereFace's ladder in m1 theta + m2 otherwise.

    >>> Combined(1.0, 0.0, 0.25)(torch.tensor([0.5]), norm=torch.tensor([1.0]), y=torch.tensor([0]))
    tensor([0.2500])
    """

    formula: ClassVar = "cos(m₁θ + m₂) − m₃"
    paper: ClassVar = "Deng et al. 2019, ArcFace, eq. 4"
    neutral: ClassVar[dict] = {"m1": 1.0, "m2": 0.0, "m3": 0.0}
    title: ClassVar = "combined margin"
    portrait: ClassVar = ("m1=1,m2=0.3,m3=0.2 *", "m1=1.35,m2=0,m3=0.2", "m1=1.2,m2=0.3,m3=0.1")
    extra_repr = parameter_text

    def __init__(self, m1: float = 1.0, m2: float = 0.3, m3: float = 0.2):
        super().__init__()
        self.m1 = number_in("m1", m1, 1.0, 100.0, why="It multiplies the angle; 1 leaves it alone.")
        self.m2 = number_in("m2", m2, 0.0, math.pi, why="It is added to the angle, in radians.")
        self.m3 = number_in("m3", m3, 0.0, 2.0, why="It is taken off the cosine.")

    def forward(self, cos_y: PerSample, *, norm: PerSample, y: Labels) -> PerSample:
        if self.m1 == 1.0:
            return add_angle(cos_y, self.m2) - self.m3
        return ladder(self.m1 * angle(cos_y) + self.m2) - self.m3


# -------------------------------------------------------- margins that read the embedding's norm


def follow(mean: Tensor, new: Tensor, share: float) -> None:
    """Moves a running mean towards a new value, in place; a value that is not finite is passed over."""
    mean.lerp_(torch.where(new.isfinite(), new.to(mean.dtype), mean), share)


class AdaFace(nn.Module):
    """psi = cos(theta - m q) - m q - m,  q = clip(h (|x| - mu)/sigma, -1, 1)  (Kim et al. 2022).

    mu and sigma are running means over batches (weight t_alpha for the new one) of the norm and of its
    standard deviation, |x| being held inside [0.001, 100]; q carries no gradient. The shifted angle stops
    at 0; past pi it goes on as ArcFace does, where the paper's code has a zero gradient.

    >>> AdaFace().eval()(torch.tensor([0.5]), norm=torch.tensor([20.0]), y=torch.tensor([0]))
    tensor([0.1000])
    """

    formula: ClassVar = "cos(θ − m q) − m q − m,  q = clip(h (|x| − μ)/σ, −1, 1)"
    paper: ClassVar = "Kim et al. 2022, AdaFace"
    neutral: ClassVar[dict] = {"m": 0.0}
    portrait: ClassVar = ("norm=5,mean=20,std=5", "norm=20,mean=20,std=5 *", "norm=35,mean=20,std=5")
    mean: Tensor
    std: Tensor
    extra_repr = parameter_text

    def __init__(self, m: float = 0.4, *, h: float = 0.333, t_alpha: float = 0.01):
        super().__init__()
        self.m = number_in("m", m, 0.0, math.pi)
        self.h = number_in("h", h, 0.0, 100.0)
        self.t_alpha = number_in("t_alpha", t_alpha, 0.0, 1.0, why="It is the weight of the new batch.")
        self.register_buffer("mean", torch.empty((), dtype=torch.float32))
        self.register_buffer("std", torch.empty((), dtype=torch.float32))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """The running statistics at the starting values of the authors' code."""
        self.mean.fill_(20.0)
        self.std.fill_(100.0)

    def forward(self, cos_y: PerSample, *, norm: PerSample, y: Labels) -> PerSample:
        norm = norm.detach()
        norm = clip(norm, 0.001, 100.0) + (norm - norm)  # infinity becomes NaN instead of 100
        if self.training:
            self.observe(norm)
        q = clip(self.h * (norm - self.mean) / (self.std + 0.001), -1.0, 1.0).to(cos_y.dtype)
        back = rotate(cos_y, -self.m * q).masked_fill(cos_y > (self.m * q).cos(), 1.0)  # the angle stops at 0
        return torch.where(q > 0.0, back, add_angle(cos_y, -self.m * q)) - self.m * q - self.m

    def observe(self, norm: PerSample) -> None:
        """Moves mu and sigma towards this batch; one sample has no spread, so it moves mu alone."""
        if len(norm) > 0:
            follow(self.mean, norm.mean(), self.t_alpha)
        if len(norm) > 1:
            follow(self.std, norm.std(), self.t_alpha)


class MagFace(nn.Module):
    """psi = cos(theta + m(a)),  m(a) = l_m + (u_m - l_m)(a - l_a)/(u_a - l_a),  a = |x|  (Meng et al. 2021).

    The loss gains lambda_g (1/a + a/u_a^2), which rewards long vectors. a is held inside [l_a, u_a],
    and both terms send their gradient through it.

    >>> MagFace()(torch.tensor([0.3]), norm=torch.tensor([10.0]), y=torch.tensor([0]))
    tensor([-0.1448])
    """

    formula: ClassVar = "cos(θ + m(|x|)),  m from l_m to u_m as |x| goes from l_a to u_a"
    paper: ClassVar = "Meng et al. 2021, MagFace"
    neutral: ClassVar[dict] = {"l_m": 0.0, "u_m": 0.0}
    portrait: ClassVar = ("norm=10 *", "norm=60", "norm=110")
    extra_repr = parameter_text

    def __init__(
        self, l_a: float = 10.0, u_a: float = 110.0, l_m: float = 0.45, u_m: float = 0.8,
        *, lambda_g: float = 20.0,
    ):  # fmt: skip
        super().__init__()
        self.u_a = number_in("u_a", u_a, 1e-6, 1e9)
        self.l_a = number_in("l_a", l_a, 1e-9, self.u_a * (1.0 - 1e-9), why="It must lie below u_a.")
        self.u_m = number_in("u_m", u_m, 0.0, math.pi)
        self.l_m = number_in("l_m", l_m, 0.0, self.u_m, why="It must not exceed u_m.")
        self.lambda_g = number_in("lambda_g", lambda_g, 0.0, 1e9)

    def forward(self, cos_y: PerSample, *, norm: PerSample, y: Labels) -> PerSample:
        a = clip(norm, self.l_a, self.u_a)
        return add_angle(cos_y, self.l_m + (self.u_m - self.l_m) * (a - self.l_a) / (self.u_a - self.l_a))

    def penalty(self, norm: PerSample) -> PerSample:
        """lambda_g (1/a + a/u_a^2), smallest at a = u_a."""
        a = clip(norm, self.l_a, self.u_a)
        return self.lambda_g * (a.reciprocal() + a / self.u_a**2)


# -------------------------------------------------------------------------- margins drawn at random


class ElasticArcFace(nn.Module):
    """psi = cos(theta + m_i),  m_i drawn from N(m, std), clipped at 0  (Boutros et al. 2022).

    `plus=True` is ElasticFace+: the sample farthest from its centre gets the largest of the drawn
    margins. In evaluation mode m_i = m.

    >>> ElasticArcFace(std=0.0)(torch.tensor([0.3]), norm=torch.tensor([1.0]), y=torch.tensor([0]))
    tensor([-0.1941])
    """

    formula: ClassVar = "cos(θ + mᵢ),  mᵢ ~ N(m, std)"
    paper: ClassVar = "Boutros et al. 2022, ElasticFace-Arc"
    neutral: ClassVar[dict] = {"m": 0.0, "std": 0.0}
    title: ClassVar = "ElasticFace-Arc"
    portrait: ClassVar = ("m=0.4", "m=0.5 *", "m=0.6")
    extra_repr = parameter_text

    def __init__(self, m: float = 0.5, *, std: float = 0.05, plus: bool = False):
        super().__init__()
        self.m = number_in("m", m, 0.0, math.pi)
        self.std = number_in("std", std, 0.0, math.pi)
        self.plus = flag("plus", plus)
        self.draw_seed: int | None = None

    def forward(self, cos_y: PerSample, *, norm: PerSample, y: Labels) -> PerSample:
        return add_angle(cos_y, draw_margins(self, cos_y, high=math.pi) if self.training else self.m)


class ElasticCosFace(nn.Module):
    """psi = cos(theta) - m_i,  m_i drawn from N(m, std), clipped at 0  (Boutros et al. 2022).

    >>> ElasticCosFace(std=0.0)(torch.tensor([0.5]), norm=torch.tensor([1.0]), y=torch.tensor([0]))
    tensor([0.1500])
    """

    formula: ClassVar = "cos θ − mᵢ,  mᵢ ~ N(m, std)"
    paper: ClassVar = "Boutros et al. 2022, ElasticFace-Cos"
    neutral: ClassVar[dict] = {"m": 0.0, "std": 0.0}
    title: ClassVar = "ElasticFace-Cos"
    portrait: ClassVar = ("m=0.25", "m=0.35 *", "m=0.45")
    extra_repr = parameter_text

    def __init__(self, m: float = 0.35, *, std: float = 0.05, plus: bool = False):
        super().__init__()
        self.m = number_in("m", m, 0.0, 2.0)
        self.std = number_in("std", std, 0.0, 2.0)
        self.plus = flag("plus", plus)
        self.draw_seed: int | None = None

    def forward(self, cos_y: PerSample, *, norm: PerSample, y: Labels) -> PerSample:
        return cos_y - (draw_margins(self, cos_y, high=2.0) if self.training else self.m)


def draw_margins(margin: ElasticArcFace | ElasticCosFace, cos_y: PerSample, *, high: float) -> PerSample:
    """One margin per sample from N(m, std), inside [0, high]; sorted by hardness when `plus`.

    From torch's own numbers, or where the head has set a `draw_seed` from that, the same at every process.
    """
    like = cos_y.detach()
    if margin.draw_seed is None:
        noise = torch.randn_like(like)
    else:
        draw = torch.Generator(device=like.device).manual_seed(margin.draw_seed)
        noise = torch.randn(like.shape, generator=draw, device=like.device, dtype=like.dtype)
    draws = clip(margin.m + margin.std * noise, 0.0, high)
    if not margin.plus:
        return draws
    easiest_first = cos_y.detach().argsort(descending=True)
    return torch.empty_like(draws).scatter_(0, easiest_first, draws.sort().values)


# ------------------------------------------------------------ margins that reshape the other classes


class CurricularFace(nn.Module):
    """psi = ArcFace's; another class with cos_j > psi counts as cos_j (t + cos_j)  (Huang et al. 2020).

    t is a running mean of cos_y (weight 0.01 for the new batch): hard classes count little at first
    and more as training goes on. `curriculum=False` leaves them alone, which is ArcFace.

    >>> CurricularFace().others(torch.tensor([0.5]), norm=torch.tensor([1.0]), y=torch.tensor([0])).mode
    'curricular'
    """

    formula: ClassVar = "cos(θ + m);  others above ψ: cos θⱼ (t + cos θⱼ)"
    paper: ClassVar = "Huang et al. 2020, CurricularFace"
    neutral: ClassVar[dict] = {"m": 0.0, "curriculum": False}
    portrait: ClassVar = ("t=0", "t=0.3 *", "t=0.7")
    t: Tensor
    extra_repr = parameter_text

    def __init__(self, m: float = 0.5, *, t_alpha: float = 0.01, curriculum: bool = True):
        super().__init__()
        self.m = number_in("m", m, 0.0, math.pi)
        self.t_alpha = number_in("t_alpha", t_alpha, 0.0, 1.0, why="It is the weight of the new batch.")
        self.curriculum = flag("curriculum", curriculum)
        self.register_buffer("t", torch.empty((), dtype=torch.float32))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """The curriculum at its beginning."""
        self.t.fill_(0.0)

    def forward(self, cos_y: PerSample, *, norm: PerSample, y: Labels) -> PerSample:
        return add_angle(cos_y, self.m)

    def others(self, cos_y: PerSample, *, norm: PerSample, y: Labels) -> Others | None:
        """The curriculum's mode with psi as its threshold; moves t in training mode."""
        if not self.curriculum:
            return None
        if self.training and len(cos_y) > 0:
            follow(self.t, cos_y.mean(), self.t_alpha)
        return Others("curricular", self(cos_y, norm=norm, y=y), self.t.to(cos_y.dtype, copy=True))


class MVSoftmax(nn.Module):
    """psi = CosFace's or ArcFace's; another class with cos_j > psi counts as t cos_j + t - 1  (Wang et al. 2020).

    `base` is "cosface" (MV-AM) or "arcface" (MV-Arc); `adaptive=False` is the fixed form cos_j + t - 1.

    >>> MVSoftmax()(torch.tensor([0.5]), norm=torch.tensor([1.0]), y=torch.tensor([0]))
    tensor([0.1500])
    """

    formula: ClassVar = "cos θ − m;  others above ψ: t cos θⱼ + t − 1"
    paper: ClassVar = "Wang et al. 2020, MV-Softmax"
    neutral: ClassVar[dict] = {"m": 0.0, "t": 1.0}
    title: ClassVar = "MV-Softmax"
    portrait: ClassVar = ("t=1", "t=1.2 *", "t=1.4")
    extra_repr = parameter_text

    def __init__(
        self, m: float = 0.35, *, t: float = 1.2, base: Literal["cosface", "arcface"] = "cosface",
        adaptive: bool = True,
    ):  # fmt: skip
        super().__init__()
        self.m = number_in("m", m, 0.0, 2.0)
        self.t = number_in("t", t, 1.0, 10.0, why="Above 1 it makes hard classes count more.")
        self.base = one_of("base", base, ("cosface", "arcface"))
        self.adaptive = flag("adaptive", adaptive)

    def forward(self, cos_y: PerSample, *, norm: PerSample, y: Labels) -> PerSample:
        return cos_y - self.m if self.base == "cosface" else add_angle(cos_y, self.m)

    def others(self, cos_y: PerSample, *, norm: PerSample, y: Labels) -> Others | None:
        """The mode of the adaptive or the fixed form, with psi as its threshold."""
        if self.t == 1.0:
            return None
        return Others("mv" if self.adaptive else "mv-fixed", self(cos_y, norm=norm, y=y), self.t)


class NoiseFilter(nn.Module):
    """psi of another margin; other classes with cos_j > above do not count at all  (An et al. 2022).

    A class so close to a sample of another class is likely the same person under a second label.
    (insightface sets such a logit to 0, which still counts; here it is left out.)

    >>> NoiseFilter(CosFace(0.25))(torch.tensor([0.5]), norm=torch.tensor([1.0]), y=torch.tensor([0]))
    tensor([0.2500])
    """

    formula: ClassVar = "ψ of the inner margin;  others with cos θⱼ > above: left out"
    paper: ClassVar = "An et al. 2022, Partial FC"
    neutral: ClassVar[dict] = {"margin": NormFace, "above": 1.0}
    title: ClassVar = "noise filter"
    portrait: ClassVar = ("above=0.2", "above=0.4 *", "above=0.8")
    extra_repr = parameter_text

    def __init__(self, margin: nn.Module | type[nn.Module] | str = "arcface", *, above: float = 0.4):
        super().__init__()
        self.margin = build_margin(margin, MARGINS, {})
        self.above = number_in("above", above, -1.0, 1.0, why="It is a cosine; 1 switches the filter off.")
        if hasattr(self.margin, "others"):
            raise ArcwiseError(
                f"NoiseFilter cannot wrap {type(self.margin).__name__}, which reshapes the other classes itself."
            )

    def forward(self, cos_y: PerSample, *, norm: PerSample, y: Labels) -> PerSample:
        return self.margin(cos_y, norm=norm, y=y)

    def penalty(self, norm: PerSample) -> PerSample:
        """The inner margin's, 0 where it has none."""
        inner = getattr(self.margin, "penalty", None)
        return inner(norm) if inner else torch.zeros_like(norm)

    def others(self, cos_y: PerSample, *, norm: PerSample, y: Labels) -> Others | None:
        """The filter's mode, with the same threshold for every sample."""
        return None if self.above >= 1.0 else Others("filter", torch.full_like(cos_y, self.above))


# Classes of nn.Module, each with its `formula`, `paper` and `neutral` parameters.
MARGINS: dict[str, Any] = {
    "normface": NormFace,
    "sphereface": SphereFace,
    "cosface": CosFace,
    "arcface": ArcFace,
    "combined": Combined,
    "adaface": AdaFace,
    "magface": MagFace,
    "elastic-arcface": ElasticArcFace,
    "elastic-cosface": ElasticCosFace,
    "curricularface": CurricularFace,
    "mv-softmax": MVSoftmax,
    "noise-filter": NoiseFilter,
}


def margin_from(margin: nn.Module | type[nn.Module] | str, /, **parameters: object) -> nn.Module:
    """A margin module, from "arcface", "arcface:m=0.3", a class, or a ready object.

    >>> margin_from("arcface", m=0.3), margin_from("cosface:m=0.2")
    (ArcFace(m=0.3, continuation='smooth'), CosFace(m=0.2))
    """
    return build_margin(margin, MARGINS, parameters)
