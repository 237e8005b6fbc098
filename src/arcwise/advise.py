"""Advice: a scale s and a margin m from the number of classes and the dimension, with reasons."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from arcwise.errors import ArcwiseError, count_in
from arcwise.packing import bisect, largest_smallest_angle, random_smallest_angle, sphere_mean

USUAL_S, USUAL_M = 64.0, 0.5
P = 0.9  # the wanted posterior of CosFace's bound


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """What `advise` returns; angles in radians. `print(advice)` is the page for a person.

    `s` and `m` are the suggestions; `s_reaches` is about the scale at which a sample at its own
    centre has posterior 0.9 among centres as well placed as can be, and `posterior` what it has at `s`; below
    `s_parts` classes that begin at one place part slowly.
    """

    classes: int
    dim: int
    s: float
    m: float
    s_adacos: float
    s_cosface: float
    s_reaches: float
    s_parts: float
    posterior: float
    best_angle: float
    best_angle_why: str
    random_angle: float
    room_arcface: float
    room_cosface: float
    reasons: tuple[str, ...]
    warnings: tuple[str, ...]

    def __str__(self) -> str:
        return page(self)


def advise(classes: int, dim: int, per_class: int | Sequence[int] | None = None) -> Advice:
    """A suggested s and ArcFace m for `classes` prototypes in `dim` dimensions, with the reasons.

    s = max( 1, sqrt(2) ln(c - 1)  (Zhang et al. 2019, AdaCos),
             (c - 1)/c ln((c - 1) P/(1 - P)) at P = 0.9  (Wang et al. 2018, CosFace) ),
    m = half the largest possible smallest angle between c directions in d dimensions, at most 0.5.
    `per_class` is the number of samples of each class, one number or a list.

    >>> advice = advise(classes=10, dim=2)
    >>> round(advice.s, 2), round(advice.m, 2)
    (3.96, 0.31)
    """
    classes, dim = count_in("classes", classes, 1, 10**12), count_in("dim", dim, 1, 10**7)
    samples = None if per_class is None else fewest_and_most(per_class, classes)
    best, why = largest_smallest_angle(classes, dim)
    chance = random_smallest_angle(classes, dim)
    s_adacos, s_cosface = adacos_scale(classes), cosface_scale(classes)
    s, m = max(s_adacos, s_cosface, 1.0), min(USUAL_M, best / 2.0)
    posterior, s_reaches = centre_posterior(s, classes, dim, best), reaching_scale(classes, dim, best)
    s_parts = parting_scale(classes, dim, m)
    return Advice(
        classes=classes, dim=dim, s=s, m=m, s_adacos=s_adacos, s_cosface=s_cosface,
        s_reaches=s_reaches, s_parts=s_parts, posterior=posterior,
        best_angle=best, best_angle_why=why, random_angle=chance,
        room_arcface=best, room_cosface=1.0 - math.cos(best),
        reasons=(
            scale_reason(s_adacos, s_cosface), *low_end_reason(classes, s_parts), margin_reason(best, m),
            *sample_reasons(samples),
        ),
        warnings=tuple(filter(None, (
            room_warning(classes, dim, best), crowded_warning(dim, s, posterior, s_reaches),
            scale_warning(classes, best, max(s, s_reaches)), start_warning(best, chance),
        ))),
    )  # fmt: skip


def adacos_scale(classes: int) -> float:
    """sqrt(2) ln(c - 1): where the softmax is steepest for a sample 45 degrees off  (Zhang et al. 2019)."""
    return math.sqrt(2.0) * math.log(classes - 1) if classes > 2 else 0.0


def cosface_scale(classes: int) -> float:
    """(c - 1)/c ln((c - 1) P/(1 - P)): below it not all classes can reach posterior P  (Wang et al. 2018)."""
    return (classes - 1) / classes * math.log((classes - 1) * P / (1.0 - P)) if classes > 1 else 0.0


def centre_posterior(s: float, classes: int, dim: int, best: float) -> float:
    """About the softmax posterior of a sample at its own centre, the others as well placed as can be.

    Exact on the circle and for the simplex. Elsewhere the largest of three: well-placed centres sum up smooth
    functions as the sphere does, sum_j e^{s (cos_j - 1)} = c E[e^{s (cos - 1)}], the own one being 1; at a
    large s some 2 (d - 1) nearest ones count alone; and no arrangement of the others falls below
    (c - 1) e^{-s c/(c - 1)}, their cosines averaging to -1/(c - 1).
    """
    if classes == 1:
        return 1.0
    if dim == 1:  # half of the classes share each end of the line
        return 1.0 / (math.ceil(classes / 2) + classes // 2 * math.exp(-2.0 * s))
    if dim == 2 and classes <= 10_000:
        return 1.0 / sum(math.exp(s * (math.cos(2.0 * math.pi * j / classes) - 1.0)) for j in range(classes))
    others = max(
        classes * sphere_mean(s, dim) - 1.0,
        min(2 * (dim - 1), classes - 1) * math.exp(-s * 2.0 * math.sin(best / 2.0) ** 2),
        (classes - 1) * math.exp(-s * classes / (classes - 1)),
    )
    return 1.0 / (1.0 + others)


def reaching_scale(classes: int, dim: int, best: float) -> float:
    """The scale at which `centre_posterior` is P; infinite where directions must be shared."""
    if classes == 1 or best == 0.0:
        return 0.0 if classes == 1 else math.inf
    high = 1.0
    while centre_posterior(high, classes, dim, best) < P:
        high *= 2.0
    return bisect(lambda s: centre_posterior(s, classes, dim, best) - P, 0.0, high)


def parting_rate(s: float, *, classes: int, dim: int, m: float) -> float:
    """s p: how fast two classes that begin at one place part, per unit of learning rate and step.

    p = 1 / (1 + e^{-s (1 - cos m)} + sum_others e^{s (cos - 1)}) is what the softmax gives the twin of a sample at its
    centre, the c - 2 others as well placed as c - 1 classes can be: the twin pushes with s p, which is s/c where s is
    small.

    >>> [round(parting_rate(s, classes=5, dim=2, m=0.5), 2) for s in (1.0, 2.0, 4.0)]
    [0.36, 0.97, 2.42]
    """
    places = max(1, classes - 1)
    best, _ = largest_smallest_angle(places, dim)
    others = 1.0 / centre_posterior(s, places, dim, best) - 1.0
    return s / (1.0 + math.exp(-s * (1.0 - math.cos(m))) + others)


def parting_scale(classes: int, dim: int, m: float) -> float:
    """The scale at which `parting_rate` is 1; 0 for one class.

    >>> round(parting_scale(5, 2, 0.5), 1)
    2.1
    """
    if classes == 1:
        return 0.0
    high = 1.0
    while parting_rate(high, classes=classes, dim=dim, m=m) < 1.0 and high < 1e6:
        high *= 2.0
    return bisect(lambda s: parting_rate(s, classes=classes, dim=dim, m=m) - 1.0, 0.0, high)


def low_end_reason(classes: int, s_parts: float) -> list[str]:
    """From where on a small scale is a risk, and why."""
    if classes < 3:
        return []
    return [
        f"s, the low end: below about {s_parts:.2g} two classes that begin at one place push each other apart with "
        "s p < 1 times the learning rate (p: the softmax's share for the twin), and a short run may end before they "
        "have parted. A small learning rate is the same risk: of 40 runs with AdamW on five digits two classes stayed "
        "together in 15 or 16 where min(1, s p) times the steps times the learning rate, which fell from there, was 1, "
        "and in 21 to 31 where that was 0.4 or less. There take more steps or a larger learning rate, and look at the "
        "smallest angle between means."
    ]


def scale_reason(s_adacos: float, s_cosface: float) -> str:
    """Which of the two scales ruled."""
    if max(s_adacos, s_cosface) <= 1.0:
        return "s = 1: with one class there is nothing to scale."
    ruled = "AdaCos" if s_adacos > s_cosface else "CosFace"
    return (
        f"s: {ruled} ruled. It is the larger of {s_adacos:.2f} (AdaCos: sqrt(2) ln(c - 1)) and {s_cosface:.2f} "
        f"(CosFace: (c - 1)/c ln((c - 1) P/(1 - P)) at P = {P:g}). Neither knows of a margin or of noise; read it as "
        "the low end. Papers on faces take 30 to 64."
    )


def margin_reason(best: float, m: float) -> str:
    """How much room the margin leaves the classes."""
    radius = both_units((best - m) / 2)
    if m == USUAL_M:
        return f"m: the papers' {USUAL_M:g} leaves a class a radius of at most {radius} round its centre."
    return (
        f"m: half of the {both_units(best)} between centres placed as well as can be, which leaves a class "
        f"a radius of at most {radius} round its own."
    )


def fewest_and_most(per_class: int | Sequence[int], classes: int) -> tuple[int, int]:
    """The smallest count above 0 and the largest, from one number for all classes or a list."""
    listed = isinstance(per_class, Iterable)
    counts = [count_in("per_class", n, 0, 10**15) for n in (per_class if listed else [per_class])]
    if (listed and len(counts) != classes) or not any(counts):
        raise ArcwiseError(f"per_class must be one number, or {classes} of them, not all 0; got {len(counts)}.")
    return min(n for n in counts if n > 0), max(counts)


def sample_reasons(samples: tuple[int, int] | None) -> list[str]:
    """What the numbers of samples say: too few to trust a prototype, or too uneven for one margin."""
    if samples is None:
        return []
    fewest, most = samples
    reasons = []
    if fewest < 5:
        reasons.append(
            f"samples: a class has only {fewest}: its prototype sees them rarely; sample classes evenly "
            "and judge on classes held out, not on these."
        )
    elif fewest == most:
        reasons.append(
            f"samples: {fewest:,} of each class, neither rare nor uneven: s and m ask for classes and dimension alone."
        )
    if most >= 10 * fewest:
        reasons.append(
            f"samples: the largest class has {most / fewest:.0f} times the smallest: give rare classes a larger "
            "margin, ArcFace(m=margins_from_counts(counts, low, high))."
        )
    return reasons


def room_warning(classes: int, dim: int, best: float) -> str:
    """Whether the papers' margin fits between neighbours."""
    usual = f"the usual s = {USUAL_S:g}, m = {USUAL_M:g}"
    if best == 0.0:
        return f"{classes} classes on a line of one dimension must share directions: take dim >= 2."
    if best <= USUAL_M:
        return (
            f"{usual} cannot work: even the best arrangement of {classes} centres in {dim} dimensions leaves "
            f"{both_units(best)} between neighbours, less than the margin's {both_units(USUAL_M)}. Not all classes "
            "can satisfy it; lower m or raise dim."
        )
    if best / 2.0 < USUAL_M:
        return (
            f"{usual} is tight: a class may spread only {both_units((best - USUAL_M) / 2)} round its centre "
            f"({both_units(best)} between centres, {both_units(USUAL_M)} of them margin)."
        )
    return ""


def crowded_warning(dim: int, s: float, posterior: float, s_reaches: float) -> str:
    """Whether neighbours are so close that the suggested scale cannot tell them apart with confidence."""
    if posterior > 0.8 or s_reaches == math.inf:
        return ""
    return (
        f"{dim} dimensions are crowded: at s = {s:.3g} a sample right at its centre has a posterior of about "
        f"{posterior:.2g}, and {P:g} only near s = {s_reaches:.2g}. A small s never stops pulling, which tightens "
        "classes; a larger one is surer at the borders. Try both."
    )


def scale_warning(classes: int, best: float, enough: float) -> str:
    """Whether the papers' scale is far beyond what the classes ask for."""
    if classes == 1 or best == 0.0 or enough >= USUAL_S / 4.0:
        return ""
    return (
        f"should you take it, the papers' s = {USUAL_S:g} is {USUAL_S / enough:.0f} times what gives posterior {P:g} "
        "at a well-placed centre: the loss of a sample vanishes as soon as its margin is met, so classes "
        "stop tightening early."
    )


def start_warning(best: float, chance: float) -> str:
    """Whether random prototypes begin closer than the papers' margin."""
    if not chance < USUAL_M < best:
        return ""
    return (
        f"random prototypes start with a pair about {both_units(chance)} apart, closer than the usual margin: "
        "expect some classes to begin as neighbours and to need a warm-up of m."
    )


def both_units(radians: float) -> str:
    """Radians and degrees side by side, for a person."""
    return f"{radians:.3g} rad = {math.degrees(radians):.1f}°"


def page(advice: Advice) -> str:
    """The advice as text for a terminal."""
    a = advice
    rows = [
        ("suggested", f"s = {a.s:.3g}, m = {a.m:.3g} (ArcFace)"),
        ("room", f"largest possible smallest angle {both_units(a.best_angle)} ({a.best_angle_why})"),
        ("chance", f"random directions: smallest angle about {both_units(a.random_angle)}"),
        (
            "margins",
            f"ArcFace m < {a.room_arcface:.3g}, CosFace m < {a.room_cosface:.3g}; at these a class has no width left",
        ),
        ("scales", f"AdaCos {a.s_adacos:.2f}, CosFace {a.s_cosface:.2f}"),
        *(("because", reason) for reason in a.reasons),
        *(("warning", warning) for warning in a.warnings),
    ]
    title = f"{a.classes:,} class{'es' * (a.classes > 1)} in {a.dim} dimension{'s' * (a.dim > 1)}"
    wrap = textwrap.TextWrapper(width=100, subsequent_indent=" " * 13)
    return "\n".join([title, *(wrap.fill(f"  {label:11}{text}") for label, text in rows)])
