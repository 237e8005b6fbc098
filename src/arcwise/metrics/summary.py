"""Returns all numbers of one set of embeddings under their full names, and what each name means."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

import numpy as np

from arcwise.errors import ArcwiseError
from arcwise.metrics import clusters, identification, openset, verification
from arcwise.metrics.conflicts import conflicts
from arcwise.metrics.retrieval import retrieval
from arcwise.records import Embeddings

MARGINS_KEPT = (0.3, 0.5)  # radians
FARS = (1e-1, 1e-2, 1e-3)
FPRS = (1e-1, 1e-2)
TRIM = 95.0
BETWEEN_INSIDE = tuple((a, b) for a in clusters.BETWEEN for b in clusters.INSIDE)
DUNN = tuple((a, b, c) for a, b in BETWEEN_INSIDE for c in clusters.DISTANCES)


class Metric(NamedTuple):
    """What a number says, its unit ("%" and "°" are of shares and radians), and which way is better."""

    label: str
    unit: Literal["%", "°", ""] = ""
    better: Literal["higher", "lower"] = "higher"


def dunn_name(between: str, inside: str, distance: str, trim: float = TRIM) -> str:
    """The full name of a Dunn index.

    >>> dunn_name("nearest", "diameter", "cosine")
    'dunn-nearest-diameter-cosine-95'
    """
    return f"dunn-{between}-{inside}-{distance}-{trim:g}"


def named() -> Iterator[tuple[str, Metric]]:
    """Every name with its meaning."""
    yield "accuracy", Metric("accuracy, by the head without margin", "%")
    yield "neighbour-accuracy", Metric("accuracy, by the nearest neighbour", "%")
    for m in MARGINS_KEPT:
        yield f"margin-kept-{m:g}", Metric(f"nearest other centre at least {m:g} rad further than the own", "%")
    yield "angle-own", Metric("mean angle to the own class mean", "°", "lower")
    yield "angle-closest", Metric("smallest angle between class means", "°")
    yield "packing", Metric("the same as a share of the best possible packing", "%")
    for distance in ("euclidean", "unit", "cosine"):
        yield f"silhouette-{distance}", Metric(f"silhouette, {distance}")
        yield f"davies-bouldin-{distance}", Metric(f"Davies-Bouldin, {distance}", "", "lower")
    for distance in ("euclidean", "cosine"):
        yield f"conflict-triples-{distance}", Metric(f"triples in conflict, {distance}", "%", "lower")
        yield f"conflict-anchors-{distance}", Metric(f"samples in a conflict, {distance}", "%", "lower")
        yield f"conflict-nearest-{distance}", Metric(f"nearest neighbour of another class, {distance}", "%", "lower")
    for between, inside, distance in DUNN:
        yield dunn_name(between, inside, distance), Metric(f"Dunn: {between}, {inside}, {distance}, {TRIM:g} % kept")
    for prefix, where in (("pairs", "all test pairs"), ("unseen", "pairs of unseen classes")):
        yield f"{prefix}-auc", Metric(f"{where}: AUC", "%")
        yield f"{prefix}-eer", Metric(f"{where}: equal error rate", "%", "lower")
        for far in FARS:
            yield f"{prefix}-tar-{far:g}", Metric(f"{where}: TAR at FAR {far:g}", "%")
    yield "unseen-recall-1", Metric("unseen classes: nearest neighbour is of the class", "%")
    yield "unseen-map-r", Metric("unseen classes: MAP@R", "%")
    yield "unseen-r-precision", Metric("unseen classes: R-precision", "%")
    yield "open-auroc", Metric("known against unseen samples: AUROC", "%")
    for fpr in FPRS:
        yield f"open-dir-{fpr:g}", Metric(f"known samples found and named at FPR {fpr:g}", "%")
    for between, inside, distance in DUNN:
        yield (
            f"unseen-{dunn_name(between, inside, distance)}",
            Metric(f"unseen classes, Dunn: {between}, {inside}, {distance}, {TRIM:g} % kept"),
        )


METRICS: dict[str, Metric] = dict(named())


def measured(test: Embeddings, unseen: Embeddings | None = None) -> dict[str, float]:
    """Every number of METRICS that these embeddings allow, under its name.

    >>> x = np.array([[2.0, 0.1], [2.0, -0.1], [0.1, 2.0], [-0.1, 2.0]])
    >>> found = measured(Embeddings(x=x, y=np.array([0, 0, 1, 1]), names=("a", "b")))
    >>> found["neighbour-accuracy"], "accuracy" in found
    (1.0, False)
    """
    out = {"neighbour-accuracy": identification.nearest_neighbour_accuracy(test)}
    right = None
    if test.prototypes is not None:
        found = identification.nearest_prototype(test)
        right = found.predicted == test.y
        ahead = found.angle_other - found.angle_own
        out["accuracy"] = float(right.mean())
        out |= {f"margin-kept-{m:g}": float((ahead >= m).mean()) for m in MARGINS_KEPT}
    angles = clusters.class_angles(test)
    out |= {"angle-own": angles.own, "angle-closest": angles.closest, "packing": angles.packing}
    for distance in ("euclidean", "unit", "cosine"):
        out[f"silhouette-{distance}"] = clusters.silhouette(test, distance=distance)
        out[f"davies-bouldin-{distance}"] = clusters.davies_bouldin(test, distance=distance)
    for distance in ("euclidean", "cosine"):
        some = conflicts(test, distance=distance, correct=right)
        for kind in ("triples", "anchors", "nearest"):
            out[f"conflict-{kind}-{distance}"] = getattr(some, kind)
    out |= dunn_indices(test) | pair_numbers("pairs", test)
    if unseen is not None:
        out |= unseen_numbers(test, unseen)
    return {name: out[name] for name in METRICS if not math.isnan(out.get(name, math.nan))}


def dunn_indices(embeddings: Embeddings, *, trim: float = TRIM) -> dict[str, float]:
    """Every Dunn index, under its full name."""
    found = clusters.all_spreads(embeddings, trim=trim)
    return {dunn_name(a, b, distance, trim): found[distance].dunn(a, b) for a, b, distance in DUNN}


def pair_numbers(prefix: str, embeddings: Embeddings) -> dict[str, float]:
    """Verification over all pairs; nothing where no class has two samples."""
    try:
        pairs = verification.all_pairs(embeddings)
    except ArcwiseError:
        return {}
    out = {f"{prefix}-auc": verification.auc(pairs), f"{prefix}-eer": verification.equal_error_rate(pairs)}
    return out | {f"{prefix}-tar-{far:g}": verification.tar_at_far(pairs, far).tar for far in FARS}


def unseen_numbers(test: Embeddings, unseen: Embeddings) -> dict[str, float]:
    """What the embeddings are worth on classes that were not in training."""
    out: dict[str, float] = {}
    if test.prototypes is not None:
        out["open-auroc"] = openset.auroc(test, unseen)
        out |= {f"open-dir-{fpr:g}": openset.detection_rate(test, unseen, fpr).rate for fpr in FPRS}
    if len(np.unique(unseen.y)) > 1:
        out |= pair_numbers("unseen", unseen)
        if np.bincount(unseen.y).max() > 1:
            ranked = retrieval(unseen, k=(1,))
            out |= {"unseen-recall-1": ranked.recall_at[1], "unseen-map-r": ranked.map_at_r}
            out["unseen-r-precision"] = ranked.r_precision
        out |= {f"unseen-{name}": value for name, value in dunn_indices(unseen).items()}
    return out


def shown(name: str, value: float) -> str:
    """A number as a person reads it: shares in percent, radians in degrees.

    >>> shown("accuracy", 0.9977), shown("angle-own", 0.0349)
    ('99.77 %', '2.00°')
    """
    unit = METRICS[name].unit if name in METRICS else ""
    if not math.isfinite(value):
        return "∞" if value > 0 else "-"
    value = in_unit(name, value)
    digits = f"{value:.2f}" if abs(value) < 100 or unit else f"{value:.1f}"
    return f"{digits} %" if unit == "%" else f"{digits}{unit}"


def in_unit(name: str, value: float) -> float:
    """The number in the unit that is shown: percent of a share, degrees of an angle."""
    unit = METRICS[name].unit if name in METRICS else ""
    return 100.0 * value if unit == "%" else math.degrees(value) if unit == "°" else value


def plain(values: dict[str, Any]) -> dict[str, Any]:
    """The numbers as JSON holds them: what is infinite becomes null."""
    return {name: value if math.isfinite(value) else None for name, value in values.items()}
