"""How far apart directions can be: bounds on the smallest angle, and what chance gives."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

# Tammes' problem: the largest smallest angle between n points on the sphere, in degrees. Proved by
# Schütte & van der Waerden 1951 (5, 7-9), Danzer 1986 (10, 11), Musin & Tarasov 2012/2015 (13, 14),
# Robinson 1961 (24); Fejes Tóth 1943 (3, 4, 6, 12).
TAMMES = {
    3: 120.0, 4: 109.4712206, 5: 90.0, 6: 90.0, 7: 77.8695421, 8: 74.8584922, 9: 70.5287794,
    10: 66.1468220, 11: 63.4349488, 12: 63.4349488, 13: 57.1367031, 14: 55.6705700, 24: 43.6907671,
}  # fmt: skip


def largest_smallest_angle(classes: int, dim: int) -> tuple[float, str]:
    """The largest possible smallest angle between `classes` directions in `dim` dimensions, and why.

    Exact on the circle, for the simplex (c <= d + 1) and the cross-polytope (c <= 2 d), and for the
    solved cases on the sphere; beyond these an upper bound. Radians.

    >>> angle, why = largest_smallest_angle(10, 3)
    >>> f"{math.degrees(angle):.2f}", why
    ('66.15', "the solved case of Tammes' problem on the sphere")
    """
    if classes == 1:
        return math.pi, "one class: there is nothing to keep apart"
    if dim == 1:
        return (math.pi, "two ends of a line") if classes == 2 else (0.0, "a line has only two directions")
    if classes <= dim + 1:
        return math.acos(-1.0 / (classes - 1)), "the simplex: c <= d + 1 directions, all equally far apart"
    if dim == 2:
        return 2.0 * math.pi / classes, "the circle, cut into equal parts"
    if classes <= 2 * dim:
        return math.pi / 2.0, "the cross-polytope: up to 2 d directions at right angles"
    if dim == 3 and classes in TAMMES:
        return math.radians(TAMMES[classes]), "the solved case of Tammes' problem on the sphere"
    return upper_bound(classes, dim)


def upper_bound(classes: int, dim: int) -> tuple[float, str]:
    """An angle that no arrangement of more than 2 d directions exceeds, and the bound that gave it.

    c disjoint caps of radius alpha/2 must fit on the sphere: c * cap_share(alpha/2) <= 1.
    """
    bounds = [
        (math.pi / 2.0, "at most: more than 2 d directions cannot all be a right angle apart"),
        (2.0 * cap_radius(-math.log(classes), dim), "at most: the caps of all classes must fit the sphere"),
    ]
    if dim == 3:
        # Fejes Tóth 1943, sharper than the caps' area; and a point more never makes more room.
        omega = classes / (classes - 2.0) * math.pi / 6.0
        fejes_toth = math.acos(min(1.0, (1.0 / math.tan(omega) ** 2 - 1.0) / 2.0))
        if fejes_toth > 1e-6:  # below it the difference is all rounding
            bounds.append((fejes_toth, "at most: Fejes Tóth's bound on the sphere"))
        solved = max(n for n in TAMMES if n <= classes)
        bounds.append((math.radians(TAMMES[solved]), f"at most: the solved case of {solved} points on the sphere"))
    return min(bounds)


def random_smallest_angle(classes: int, dim: int) -> float:
    """The median smallest angle between `classes` random directions, in radians.

    Half of all draws fall below it: (1 - cap_share(alpha))^(c (c - 1)/2) = 1/2, pairs taken as independent.

    >>> round(random_smallest_angle(93431, 512), 2)
    1.29
    """
    if classes < 2:
        return math.pi
    pairs = classes * (classes - 1) / 2.0
    log_share = math.log(-math.expm1(-math.log(2.0) / pairs))
    if dim == 1:  # two random signs agree with probability 1/2
        return 0.0 if log_share <= math.log(0.5) else math.pi
    return cap_radius(log_share, dim)


def cap_radius(log_share: float, dim: int) -> float:
    """The angular radius of the cap that covers exp(log_share) of the sphere in `dim` dimensions."""
    if log_share > math.log(0.5):  # more than half: what is left is a cap too
        share = -math.expm1(log_share)
        return math.pi if share <= 0.0 else math.pi - cap_radius(math.log(share), dim)
    return bisect(lambda radius: log_cap_share(radius, dim) - log_share, 0.0, math.pi / 2.0)


def log_cap_share(radius: float, dim: int) -> float:
    """log of the sphere's share inside a cap, radius <= pi/2: 1/2 I_{sin^2 r}((d - 1)/2, 1/2)  (Li 2011)."""
    sin = math.sin(radius)
    return -math.inf if sin <= 0.0 else log_incomplete_beta(2.0 * math.log(sin), (dim - 1) / 2.0) - math.log(2.0)


def log_incomplete_beta(log_x: float, a: float) -> float:
    """log I_x(a, 1/2), the regularised incomplete beta function, for x <= 1  (DLMF 8.17.22).

    I_x(a, b) = x^a (1 - x)^b / (a B(a, b)) * fraction(x, a, b), and 1 - I_{1-x}(b, a) right of the mean.
    """
    x, y, b = math.exp(log_x), -math.expm1(log_x), 0.5
    if y <= 0.0:
        return 0.0
    log_beta = math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)
    log_front = a * log_x + b * math.log(y) - log_beta
    if x * (a + b + 2.0) <= a + 1.0:
        return log_front - math.log(a) + math.log(beta_fraction(x, a, b))
    return math.log1p(-math.exp(log_front - math.log(b)) * beta_fraction(y, b, a))


def beta_fraction(x: float, a: float, b: float) -> float:
    """1/(1 + d1/(1 + d2/(1 + ...))) of DLMF 8.17.22, by Lentz's method."""
    value, c, d = 1.0, 1.0, 0.0
    for n in range(1, 100_000):
        m = n // 2
        if n % 2:
            step = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        else:
            step = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        d = 1.0 / (1.0 + step * d)
        c = 1.0 + step / c
        value *= c * d
        if abs(c * d - 1.0) < 1e-15:
            break
    return 1.0 / value


def sphere_mean(s: float, dim: int) -> float:
    """E[e^{s (cos theta - 1)}] for a direction drawn uniformly in `dim` >= 2 dimensions.

    >>> f"{sphere_mean(2.0, 3):.3f} {(1 - math.exp(-4.0)) / 4.0:.3f}"
    '0.245 0.245'
    """
    if dim > 64:  # the cosine is nearly Gaussian there, of variance 1/d
        return math.exp(min(0.0, s * s / (2.0 * dim) - s))
    return sum(w * math.exp(-s * fall) for fall, w in sphere_grid(dim))


@lru_cache(maxsize=8)
def sphere_grid(dim: int) -> list[tuple[float, float]]:
    """1 - cos(theta) and the sphere's share there: a rule in log theta, which resolves peaks near 0 of any width."""
    span, n = math.log(math.pi / 1e-9), 2000
    angles = [1e-9 * math.exp(span * (i + 0.5) / n) for i in range(n)]
    shares = [math.sin(theta) ** (dim - 2) * theta for theta in angles]
    total = sum(shares)
    return [(2.0 * math.sin(a / 2.0) ** 2, share / total) for a, share in zip(angles, shares, strict=True)]


def bisect(f: Callable[[float], float], low: float, high: float) -> float:
    """The root of an increasing f between low and high."""
    for _ in range(100):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if f(middle) < 0.0 else (low, middle)
    return 0.5 * (low + high)
