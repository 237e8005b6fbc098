"""The measures as their papers define them: loops over samples, pairs and triples, in float64.

Nothing here is taken from arcwise; rates are exact fractions where a comparison depends on them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

Vector = list[float]
EQUAL = 1e-9  # two distances that differ by less, relative to the larger, are the same distance rounded twice


# ------------------------------------------------------------------------------------------ distances


def dot(a: Sequence[float], b: Sequence[float]) -> float:
    return math.fsum(p * q for p, q in zip(a, b, strict=True))


def length(a: Sequence[float]) -> float:
    return math.sqrt(dot(a, a))


def direction(a: Sequence[float]) -> Vector:
    return [p / length(a) for p in a]


def straight(a: Sequence[float], b: Sequence[float]) -> float:
    """Euclid's distance."""
    return math.sqrt(math.fsum((p - q) ** 2 for p, q in zip(a, b, strict=True)))


def cosine(a: Sequence[float], b: Sequence[float]) -> float:
    return dot(direction(a), direction(b))


def angle(a: Sequence[float], b: Sequence[float]) -> float:
    """The angle at the origin, as Kahan computes it: 2 atan2(|a/|a| - b/|b||, |a/|a| + b/|b||)."""
    a, b = direction(a), direction(b)
    return 2.0 * math.atan2(straight(a, b), straight(a, [-q for q in b]))


def between_points(a: Sequence[float], b: Sequence[float], distance: str) -> float:
    """euclidean and unit: |a - b| of what `prepared` made; cosine: 1 - cos; angle."""
    if distance == "cosine":
        return max(0.0, 1.0 - cosine(a, b))
    return angle(a, b) if distance == "angle" else straight(a, b)


def prepared(x: np.ndarray, distance: str) -> list[Vector]:
    """x as it is for the Euclidean distance, x/|x| for all others."""
    rows = [[float(p) for p in row] for row in x]
    return rows if distance == "euclidean" else [direction(row) for row in rows]


def centroid(members: list[Vector], distance: str) -> Vector:
    """The mean; of unit length for cosine and angle."""
    mean = [math.fsum(column) / len(members) for column in zip(*members, strict=True)]
    return direction(mean) if distance in ("cosine", "angle") else mean


def groups(x: np.ndarray, y: np.ndarray, distance: str) -> dict[int, list[Vector]]:
    """The prepared members of every class that occurs."""
    found: dict[int, list[Vector]] = {}
    for row, label in zip(prepared(x, distance), y.tolist(), strict=True):
        found.setdefault(label, []).append(row)
    return found


# ------------------------------------------------------------------------------------------ clusters


def percentile(values: list[float], percent: float) -> float:
    """Between the two order statistics next to rank percent/100 (n - 1), by straight line."""
    ordered, rank = sorted(values), Fraction(str(percent)) / 100 * (len(values) - 1)
    low = math.floor(rank)
    high = min(low + 1, len(values) - 1)
    return ordered[low] + float(rank - low) * (ordered[high] - ordered[low])


def trimmed(members: list[Vector], distance: str, percent: float) -> list[Vector]:
    """The members within that percentile of distance to the centroid; equal distances go together."""
    centre = centroid(members, distance)
    far = [between_points(row, centre, distance) for row in members]
    limit = percentile(far, percent)
    return [row for row, d in zip(members, far, strict=True) if d <= limit + EQUAL * max(far)]


def dunn(x: np.ndarray, y: np.ndarray, *, between: str, inside: str, distance: str, trim: float) -> float:
    """min over pairs of classes of `between`, over max over classes of `inside`  (Dunn 1974)."""
    classes = [trimmed(members, distance, trim) for members in groups(x, y, distance).values()]
    top = min(separation(a, b, between, distance) for a, b in itertools.combinations(classes, 2))
    bottom = max(extent(members, inside, distance) for members in classes)
    if top == 0.0:
        return 0.0
    return top / bottom if bottom > 0.0 else math.inf


def separation(a: list[Vector], b: list[Vector], between: str, distance: str) -> float:
    if between == "centroid":
        return between_points(centroid(a, distance), centroid(b, distance), distance)
    return min(between_points(p, q, distance) for p in a for q in b)


def extent(members: list[Vector], inside: str, distance: str) -> float:
    if len(members) == 1:
        return 0.0
    if inside == "diameter":
        return max(between_points(p, q, distance) for p, q in itertools.combinations(members, 2))
    far = [between_points(p, centroid(members, distance), distance) for p in members]
    return max(far) if inside == "radius" else math.fsum(far) / len(far)


def silhouette(x: np.ndarray, y: np.ndarray, distance: str) -> float:
    """mean of (b - a)/max(a, b), and 0 for a class of one  (Rousseeuw 1987)."""
    rows, labels = prepared(x, distance), y.tolist()
    values = []
    for i, own in enumerate(labels):
        means = {}
        for label in set(labels):
            others = [j for j in range(len(rows)) if labels[j] == label and j != i]
            if others:
                means[label] = math.fsum(between_points(rows[i], rows[j], distance) for j in others) / len(others)
        if own not in means:
            values.append(0.0)
            continue
        a, b = means[own], min(value for label, value in means.items() if label != own)
        values.append((b - a) / max(a, b) if max(a, b) > 0.0 else 0.0)
    return math.fsum(values) / len(values)


def davies_bouldin(x: np.ndarray, y: np.ndarray, distance: str) -> float:
    """mean over classes of the largest (S_i + S_j)/M_ij  (Davies & Bouldin 1979).

    Of classes in one place the quotient is infinite.
    """
    classes = list(groups(x, y, distance).values())
    centres = [centroid(members, distance) for members in classes]
    S = [extent(members, "mean", distance) for members in classes]
    worst = []
    for i in range(len(classes)):
        others = [j for j in range(len(classes)) if j != i]
        apart = {j: between_points(centres[i], centres[j], distance) for j in others}
        worst.append(max((S[i] + S[j]) / apart[j] if apart[j] else math.inf for j in others))
    return math.fsum(worst) / len(worst)


# ------------------------------------------------------------------------------------------ conflicts


def conflicts(
    x: np.ndarray, y: np.ndarray, distance: str, allowed: Sequence[bool] | None = None
) -> tuple[float, float, float, list[float]]:
    """Shares of triples, anchors and nearest neighbours in conflict; and the excesses, the largest of each anchor."""
    rows, labels = prepared(x, distance), y.tolist()
    triples = in_conflict = anchors = hit = wrong = 0
    excess = []
    for a in range(len(rows)):
        same = [j for j in range(len(rows)) if labels[j] == labels[a] and j != a]
        if not same or (allowed is not None and not allowed[a]):
            continue
        other = [j for j in range(len(rows)) if labels[j] != labels[a]]
        to = {j: between_points(rows[a], rows[j], distance) for j in same + other}
        here = sum(to[n] < to[p] for p in same for n in other)
        triples += len(same) * len(other)
        in_conflict, anchors, hit = in_conflict + here, anchors + 1, hit + (here > 0)
        wrong += min(to[n] for n in other) < min(to[p] for p in same)
        excess += [max(to[p] - to[n] for p in same for n in other)] if here else []
    if not anchors:
        return math.nan, math.nan, math.nan, []
    return in_conflict / triples, hit / anchors, wrong / anchors, sorted(excess, reverse=True)


# ------------------------------------------------------------------------------------------ verification


def accepted(scores: Sequence[float], t: float) -> Fraction:
    """The share of scores >= t."""
    return Fraction(sum(bool(s >= t) for s in scores), len(scores))


def cuts(*scores: Sequence[float]) -> list[float]:
    """A threshold for every way of cutting the scores in two."""
    return [*sorted({float(s) for some in scores for s in some}), math.inf]


def auc(genuine: Sequence[float], impostor: Sequence[float]) -> float:
    """The share of (genuine, impostor) with the genuine higher, ties counted half."""
    wins = sum(Fraction(g > i) + Fraction(g == i, 2) for g in genuine for i in impostor)
    return float(wins / (len(genuine) * len(impostor)))


def equal_error_rates(genuine: Sequence[float], impostor: Sequence[float]) -> set[float]:
    """(FAR + FRR)/2 at every threshold where |FAR - FRR| is least: more than one where two are equally near."""
    errors = [(accepted(impostor, t), 1 - accepted(genuine, t)) for t in cuts(genuine, impostor)]
    least = min(abs(far - frr) for far, frr in errors)
    return {float((far + frr) / 2) for far, frr in errors if abs(far - frr) == least}


def tar_at_far(genuine: Sequence[float], impostor: Sequence[float], far: float) -> float:
    """The largest TAR of all thresholds with FAR <= far."""
    most = Fraction(str(far))
    return float(max(accepted(genuine, t) for t in cuts(genuine, impostor) if accepted(impostor, t) <= most))


def all_scores(x: np.ndarray, y: np.ndarray) -> tuple[list[float], list[float]]:
    """The cosines of all pairs of one class, and of all pairs of two."""
    genuine, impostor = [], []
    for i, j in itertools.combinations(range(len(x)), 2):
        (genuine if y[i] == y[j] else impostor).append(cosine(x[i], x[j]))
    return genuine, impostor


def rightly_answered(score: Sequence[float], same: Sequence[bool], t: float) -> Fraction:
    return Fraction(sum(bool(s >= t) == bool(g) for s, g in zip(score, same, strict=True)), len(score))


def fold_rows(n: int, folds: int) -> list[list[int]]:
    """Consecutive rows in folds, the first ones longer by one where they do not divide."""
    out, start = [], 0
    for i in range(folds):
        size = n // folds + (i < n % folds)
        out.append(list(range(start, start + size)))
        start += size
    return out


def best_share(score: Sequence[float], same: Sequence[bool]) -> Fraction:
    """The highest share of right answers that any threshold has."""
    return max(rightly_answered(score, same, t) for t in cuts(score))


# ------------------------------------------------------------------------------------------ retrieval


def retrieval(x: np.ndarray, y: np.ndarray, k: Sequence[int]) -> tuple[dict[int, float], float, float]:
    """recall@k, R-precision and MAP@R over the queries that have others of their class  (Musgrave et al. 2020).

    Among equally near ones, those of other classes come first.
    """
    recall, r_precision, map_at_r, queries = dict.fromkeys(k, 0), Fraction(0), Fraction(0), 0
    for q in range(len(x)):
        others = sorted((j for j in range(len(x)) if j != q), key=lambda j: (-cosine(x[q], x[j]), y[j] == y[q]))
        hits = [bool(y[j] == y[q]) for j in others]
        R = sum(hits)
        if not R:
            continue
        queries += 1
        for depth in k:
            recall[depth] += any(hits[:depth])
        r_precision += Fraction(sum(hits[:R]), R)
        map_at_r += sum((Fraction(sum(hits[: i + 1]), i + 1) for i in range(R) if hits[i]), Fraction(0)) / R
    return {depth: n / queries for depth, n in recall.items()}, float(r_precision / queries), float(map_at_r / queries)


def nearest_neighbour_accuracy(x: np.ndarray, y: np.ndarray) -> float:
    """The share of samples, of classes of two or more, that are nearer to one of their class than to any other."""
    right = asked = 0
    for q in range(len(x)):
        scores = [(cosine(x[q], x[j]), bool(y[j] == y[q])) for j in range(len(x)) if j != q]
        if any(own for _, own in scores):
            best = max(score for score, _ in scores)
            asked, right = asked + 1, right + all(own for score, own in scores if score == best)
    return right / asked if asked else math.nan


# ------------------------------------------------------------------------------------------ known and unseen classes


def best_centre(row: Sequence[float], centres: np.ndarray) -> tuple[float, int]:
    """The largest cosine to any (sub-)centre, and whose it is."""
    found = []
    for label, centre in enumerate(centres):
        found += [(cosine(row, sub), label) for sub in np.atleast_2d(centre)]
    return max(found, key=lambda pair: pair[0])


def centre_angles(row: Sequence[float], centres: np.ndarray) -> list[float]:
    """The angle to each class: to the nearest of its sub-centres."""
    return [min(angle(row, sub) for sub in np.atleast_2d(centre)) for centre in centres]


def lead(row: Sequence[float], centres: np.ndarray, own: int) -> float:
    """How much farther the nearest centre of another class is than the own one, in angle; infinite without others."""
    angles = centre_angles(row, centres)
    return min((far for label, far in enumerate(angles) if label != own), default=math.inf) - angles[own]


def named(row: Sequence[float], centres: np.ndarray, own: int) -> bool:
    """Whether the own centre is nearer than that of any other class."""
    scores = [max(cosine(row, sub) for sub in np.atleast_2d(centre)) for centre in centres]
    return all(scores[own] > score for label, score in enumerate(scores) if label != own)


def open_auroc(known: np.ndarray, unseen: np.ndarray, centres: np.ndarray) -> float:
    return auc([best_centre(row, centres)[0] for row in known], [best_centre(row, centres)[0] for row in unseen])


def detection_rate(known: np.ndarray, y: np.ndarray, unseen: np.ndarray, centres: np.ndarray, fpr: float) -> float:
    """The most known samples named rightly by any threshold that at most `fpr` of the unseen reach  (Phillips 2011)."""
    scores, outside = ([best_centre(row, centres)[0] for row in rows] for rows in (known, unseen))
    right = [named(row, centres, own) for row, own in zip(known, y, strict=True)]
    rates = [
        Fraction(sum(bool(s >= t and ok) for s, ok in zip(scores, right, strict=True)), len(scores))
        for t in cuts(scores, outside)
        if accepted(outside, t) <= Fraction(str(fpr))
    ]
    return float(max(rates))
