"""Returns advice: a scale s and a margin m from the number of classes and the dimension, with reasons."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from arcwise.errors import ArcwiseError, count_at_least
from arcwise.packing import largest_smallest_angle, random_smallest_angle

USUAL_S, USUAL_M = 64.0, 0.5
P = 0.9  # the wanted posterior of CosFace's bound


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """What `advise` returns; angles in radians. `print(advice)` is the page for a person."""

    classes: int
    dim: int
    s: float
    m: float
    s_adacos: float
    s_cosface: float
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

    s = max( sqrt(2) ln(c - 1)  (Zhang et al. 2019, AdaCos),
             (c - 1)/c ln((c - 1) P/(1 - P)) at P = 0.9  (Wang et al. 2018, CosFace) ),
    m = half the largest possible smallest angle between c directions in d dimensions, at most 0.5.
    `per_class` is the number of samples of each class, one number or a list.

    >>> advice = advise(classes=10, dim=2)
    >>> round(advice.s, 2), round(advice.m, 2)
    (3.96, 0.31)
    """
    classes, dim = count_at_least("classes", classes, 1), count_at_least("dim", dim, 1)
    best, why = largest_smallest_angle(classes, dim)
    chance = random_smallest_angle(classes, dim)
    s_adacos, s_cosface = adacos_scale(classes), cosface_scale(classes)
    s, m = max(s_adacos, s_cosface, 1.0), min(USUAL_M, best / 2.0)
    return Advice(
        classes=classes, dim=dim, s=s, m=m, s_adacos=s_adacos, s_cosface=s_cosface,
        best_angle=best, best_angle_why=why, random_angle=chance,
        room_arcface=best, room_cosface=1.0 - math.cos(best),
        reasons=(scale_reason(s_adacos, s_cosface), margin_reason(best, m), *sample_reasons(classes, per_class)),
        warnings=tuple(usual_warnings(classes, dim, best, chance, s)),
    )  # fmt: skip


def adacos_scale(classes: int) -> float:
    """sqrt(2) ln(c - 1): where the softmax is steepest for a sample 45 degrees off  (Zhang et al. 2019)."""
    return math.sqrt(2.0) * math.log(classes - 1) if classes > 2 else 0.0


def cosface_scale(classes: int) -> float:
    """(c - 1)/c ln((c - 1) P/(1 - P)): below it no embedding reaches posterior P  (Wang et al. 2018)."""
    return (classes - 1) / classes * math.log((classes - 1) * P / (1.0 - P)) if classes > 1 else 0.0


def scale_reason(s_adacos: float, s_cosface: float) -> str:
    """Which of the two scales ruled."""
    if max(s_adacos, s_cosface) <= 1.0:
        return "s = 1: with one class there is nothing to scale."
    ruled = "AdaCos'" if s_adacos > s_cosface else "CosFace's"
    return (
        f"s: {ruled} ruled, the larger of AdaCos' sqrt(2) ln(c - 1) = {s_adacos:.2f} and "
        f"CosFace's (c - 1)/c ln((c - 1) P/(1 - P)) = {s_cosface:.2f} at P = {P:g}."
    )


def margin_reason(best: float, m: float) -> str:
    """How much room the margin leaves the classes."""
    if m == USUAL_M:
        return (
            f"m: the papers' {USUAL_M:g} leaves a class a radius of up to {degrees((best - m) / 2)} round its centre."
        )
    return (
        f"m: half of the {degrees(best)} between the best-placed centres, so that a class keeps "
        f"a radius of {degrees((best - m) / 2)} round its own."
    )


def sample_reasons(classes: int, per_class: int | Sequence[int] | None) -> list[str]:
    """What the numbers of samples say: too few to trust a prototype, or too uneven for one margin."""
    if per_class is None:
        return []
    counts = [per_class] * classes if isinstance(per_class, int) else list(per_class)
    if len(counts) != classes or any(n < 0 for n in counts) or not any(counts):
        raise ArcwiseError(
            f"per_class must be one number or {classes} of them, none negative, not all 0; got {len(counts)} numbers."
        )
    fewest, most = min(n for n in counts if n > 0), max(counts)
    reasons = []
    if fewest < 5:
        reasons.append(
            f"samples: a class has only {fewest}: its prototype sees them rarely; sample classes evenly "
            "and judge on classes held out, not on these."
        )
    if most >= 10 * fewest:
        reasons.append(
            f"samples: the largest class has {most / fewest:.0f} times the smallest: give rare classes a larger "
            "margin, ArcFace(m=margins_from_counts(counts, low, high))."
        )
    return reasons


def usual_warnings(classes: int, dim: int, best: float, chance: float, s: float) -> list[str]:
    """Where s = 64, m = 0.5 cannot work, and why."""
    warnings = []
    usual = f"the usual s = {USUAL_S:g}, m = {USUAL_M:g}"
    if best == 0.0:
        warnings.append(f"{classes} classes on a line of one dimension must share directions: take dim >= 2.")
    elif best <= USUAL_M:
        warnings.append(
            f"{usual} cannot work: even the best arrangement of {classes} centres in {dim} dimensions leaves "
            f"{degrees(best)} between neighbours, less than the margin's {degrees(USUAL_M)}. No sample can ever "
            "satisfy it; lower m or raise dim."
        )
    elif best / 2.0 < USUAL_M:
        warnings.append(
            f"{usual} is tight: a class may spread only {degrees((best - USUAL_M) / 2)} round its centre "
            f"({degrees(best)} between centres, {degrees(USUAL_M)} of them margin)."
        )
    if classes > 1 and best > 0.0 and s < USUAL_S / 8.0:
        warnings.append(
            f"s = {USUAL_S:g} is {USUAL_S / s:.0f} times what {classes} classes need: the loss of a sample vanishes "
            "as soon as its margin is met, so classes stop tightening early, and near a boundary it is all but "
            "a step. Try the suggested s, and a few up to four times it."
        )
    if chance < USUAL_M < best:
        warnings.append(
            f"random prototypes start with a pair {degrees(chance)} apart, closer than the margin: "
            "expect some classes to begin as neighbours and to need a warm-up of m."
        )
    return warnings


def degrees(radians: float) -> str:
    """Radians and degrees side by side, for a person."""
    return f"{radians:.3g} rad = {math.degrees(radians):.1f}°"


def page(advice: Advice) -> str:
    """The advice as text for a terminal."""
    a = advice
    rows = [
        ("suggested", f"s = {a.s:.3g}, m = {a.m:.3g} (ArcFace)"),
        ("room", f"largest possible smallest angle {degrees(a.best_angle)}: {a.best_angle_why}"),
        ("chance", f"random directions: smallest angle {degrees(a.random_angle)}, in the median"),
        (
            "margins",
            f"ArcFace m < {a.room_arcface:.3g}, CosFace m < {a.room_cosface:.3g}; there a class has no width left",
        ),
        ("scales", f"AdaCos {a.s_adacos:.2f}, CosFace {a.s_cosface:.2f}"),
        *(("because", reason) for reason in a.reasons),
        *(("warning", warning) for warning in a.warnings),
    ]
    title = f"{a.classes:,} class{'es' * (a.classes > 1)} in {a.dim} dimension{'s' * (a.dim > 1)}"
    wrap = textwrap.TextWrapper(width=100, subsequent_indent=" " * 13)
    return "\n".join([title, *(wrap.fill(f"  {label:11}{text}") for label, text in rows)])
