"""METRICS: every number by its full name, each one entry: what it says, its unit, which way is better, its function.

A number goes into `arcwise evaluate`, the tables of comparisons and reports, and the docs by standing here.
"""

from __future__ import annotations

import hashlib
import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from importlib.resources import files
from typing import Any, Literal, NamedTuple

import numpy as np

from arcwise.errors import ArcwiseError
from arcwise.metrics import clusters, identification, openset, verification
from arcwise.metrics.conflicts import Conflicts, conflicts
from arcwise.metrics.retrieval import Retrieval, retrieval
from arcwise.metrics.rows import NoDirection
from arcwise.records import Embeddings, Prototypes, refuse_other_models

MARGINS_KEPT = (0.3, 0.5)  # radians
FARS = (1e-1, 1e-2, 1e-3)
FPRS = (1e-1, 1e-2)
TRIM = 95.0
FEW_MEMBERS = 10  # of a class: below, a sample is left out of the mean that it is compared with
KEEPS = f"of each class the members within the {TRIM:g}th percentile of distance to its centroid are kept: 9 of 10"
TRUE_ACCEPTS = (
    "the share of pairs of one class that is taken for the same (true accepts), at the threshold that takes the named "
    "share of pairs of two classes for the same (false accepts)"
)
MARGIN_KEPT = "the share of samples whose nearest other centre is at least so much further away than the own"
FOUND_FIRST = "the share of samples whose nearest neighbour is of their class"
NEAREST_POINT = "the mean of both errors at the threshold where they are nearest to each other; nothing is interpolated"
BETWEEN_INSIDE = tuple((a, b) for a in clusters.BETWEEN for b in clusters.INSIDE)
DUNN = tuple((a, b, c) for a, b in BETWEEN_INSIDE for c in clusters.DISTANCES)


@dataclass(frozen=True)
class Evidence:
    """What numbers are computed from: test embeddings, the head's centres, and embeddings of unseen classes.

    What several numbers need is computed once. Where something is missing, or allows no such number, it is None.
    """

    test: Embeddings
    unseen: Embeddings | None = None
    centres: Prototypes | None = None

    @cached_property
    def named(self) -> identification.Named | None:
        """What the head takes each test sample for."""
        return None if self.centres is None else identification.nearest_prototype(self.test, self.centres)

    @cached_property
    def angles(self) -> clusters.Angles:
        """Angles to and between class means."""
        return clusters.class_angles(self.test, aside_below=FEW_MEMBERS)

    @cached_property
    def extended(self) -> bool:
        """Whether any class has two samples, and so an extent that could be measured."""
        return bool(np.bincount(self.test.labels).max(initial=0) > 1)

    @cached_property
    def spreads(self) -> dict[str, clusters.Spreads] | None:
        """What Dunn indices are made of, by distance."""
        return clusters.all_spreads(self.test, trim=TRIM) if self.extended else None

    @cached_property
    def conflicts(self) -> dict[str, Conflicts]:
        """Conflicts by distance; anchors are the samples that the head names rightly."""
        right = None if self.named is None else self.named.predicted == self.test.labels
        return {d: conflicts(self.test, distance=d, correct=right, worst=0) for d in ("euclidean", "cosine")}

    @cached_property
    def pairs(self) -> verification.PairScores | None:
        """The scores of all pairs of test samples."""
        return pairs_of(self.test)

    @cached_property
    def unseen_pairs(self) -> verification.PairScores | None:
        """The scores of all pairs of unseen classes."""
        return None if self.unseen is None or self.unseen_classes < 2 else pairs_of(self.unseen)

    @cached_property
    def unseen_spreads(self) -> dict[str, clusters.Spreads] | None:
        """What Dunn indices of unseen classes are made of."""
        return clusters.all_spreads(self.unseen, trim=TRIM) if self.unseen is not None and self.like_unseen else None

    @cached_property
    def unseen_ranking(self) -> Retrieval | None:
        """How unseen samples find their like."""
        return retrieval(self.unseen, k=(1,)) if self.unseen is not None and self.like_unseen else None

    @cached_property
    def like_unseen(self) -> bool:
        """Whether there are two unseen classes, and two samples of one of them."""
        if self.unseen is None or self.unseen_classes < 2:
            return False
        return bool(np.bincount(self.unseen.labels).max() > 1)

    @cached_property
    def unseen_classes(self) -> int:
        """How many unseen classes there are."""
        return 0 if self.unseen is None or self.unseen.y is None else len(np.unique(self.unseen.y))

    def open_set(self, measure: Callable[..., float]) -> float | None:
        """A number of known samples against unseen ones."""
        if self.unseen is None or self.centres is None:
            return None
        return measure(self.test, self.unseen, self.centres)


Section = Literal["closed", "open", "dunn", "more"]


class Metric(NamedTuple):
    """One number: what it says, its unit ("%" and "°" are of shares and radians), which way is better, where it stands.

    `section` is the table of a report that shows it: the classes trained on ("closed"), classes nobody has seen
    ("open"), the Dunn indices ("dunn"), or none but the appendix ("more"). `compute` takes the Evidence, and returns
    None where that does not allow the number. `headline` numbers are those that heads are judged by; `short` is what a
    small panel says, `note` how it is defined where a careful reader would have to guess.
    """

    label: str
    unit: Literal["%", "°", ""]
    better: Literal["higher", "lower"]
    section: Section
    compute: Callable[[Evidence], float | None]
    headline: bool = False
    short: str = ""
    note: str = ""


def pairs_of(embeddings: Embeddings) -> verification.PairScores | None:
    """Verification over all pairs; nothing where no class has two samples."""
    try:
        return verification.all_pairs(embeddings)
    except ArcwiseError:
        return None


def dunn_name(between: str, inside: str, distance: str, trim: float = TRIM) -> str:
    """The full name of a Dunn index.

    >>> dunn_name("nearest", "diameter", "cosine")
    'dunn-nearest-diameter-cosine-95'
    """
    return f"dunn-{between}-{inside}-{distance}-{trim:g}"


MAIN_DUNN = dunn_name("nearest", "diameter", "unit")
MEAN_DUNN = dunn_name("centroid", "mean", "unit")


def dunn_metric(between: str, inside: str, distance: str) -> Metric:
    """One Dunn index of the test samples."""
    return Metric(
        f"Dunn: {between}, {inside}, {distance}, {TRIM:g} % kept", "", "higher", "dunn",
        lambda e: None if e.spreads is None else e.spreads[distance].dunn(between, inside),
        headline=dunn_name(between, inside, distance) in (MAIN_DUNN, MEAN_DUNN), note=KEEPS,
    )  # fmt: skip


def unseen_dunn_metric(between: str, inside: str, distance: str) -> Metric:
    """The same of unseen classes."""
    shown = dunn_name(between, inside, distance) == MEAN_DUNN
    return Metric(
        f"unseen classes, Dunn: {between}, {inside}, {distance}, {TRIM:g} % kept", "", "higher",
        "open" if shown else "more",
        lambda e: None if e.unseen_spreads is None else e.unseen_spreads[distance].dunn(between, inside), note=KEEPS,
    )  # fmt: skip


def pair_metrics(prefix: str, where: str, section: Section, pairs: Callable[[Evidence], Any]) -> dict[str, Metric]:
    """AUC, EER and TAR at some FAR over pairs."""

    def over(measure: Callable[[verification.PairScores], float]) -> Callable[[Evidence], float | None]:
        return lambda e: None if (found := pairs(e)) is None else measure(found)

    made = {
        f"{prefix}-auc": Metric(f"{where}: AUC", "%", "higher", section, over(verification.auc), section == "open"),
        f"{prefix}-eer": Metric(
            f"{where}: equal error rate", "%", "lower", section, over(verification.equal_error_rate), note=NEAREST_POINT
        ),
    }
    shown = 1e-3 if section == "closed" else 1e-2  # unseen classes are few: a smaller rate would rest on few pairs
    for far in FARS:
        made[f"{prefix}-tar-{far:g}"] = Metric(
            f"{where}: TAR at FAR {far:g}", "%", "higher", section if far == shown else "more",
            over(lambda found, far=far: verification.tar_at_far(found, far).tar), note=TRUE_ACCEPTS,
        )  # fmt: skip
    return made


def margin_metric(m: float) -> Metric:
    """How many samples keep a margin of m."""
    return Metric(
        f"margin of {m:g} rad kept", "%", "higher", "closed",
        lambda e: None if e.named is None else float((e.named.lead >= m).mean()),
        headline=m == 0.5, note=MARGIN_KEPT,
    )  # fmt: skip


def conflict_metrics(distance: str) -> dict[str, Metric]:
    """The three shares of conflicts under one distance."""
    main = distance == "cosine"
    told = {
        "triples": ("triples in conflict", "closed", main),
        "anchors": ("samples in a conflict", "closed" if main else "more", False),
        "nearest": ("nearest neighbour of another class", "closed" if main else "more", False),
    }
    return {
        f"conflict-{kind}-{distance}": Metric(
            f"{words}, {distance}", "%", "lower", section,  # type: ignore[arg-type]
            lambda e, kind=kind: getattr(e.conflicts[distance], kind), headline,
        )
        for kind, (words, section, headline) in told.items()
    }  # fmt: skip


def cluster_metrics(distance: str) -> dict[str, Metric]:
    """Silhouette and Davies-Bouldin under one distance."""
    return {
        f"silhouette-{distance}": Metric(
            f"silhouette, {distance}", "", "higher", "closed" if distance == "cosine" else "more",
            lambda e: clusters.silhouette(e.test, distance=distance) if e.extended else None,  # type: ignore[arg-type]
        ),
        f"davies-bouldin-{distance}": Metric(
            f"Davies-Bouldin, {distance}", "", "lower", "closed" if distance == "unit" else "more",
            lambda e: clusters.davies_bouldin(e.test, distance=distance) if e.extended else None,  # type: ignore[arg-type]
        ),
    }  # fmt: skip


def ranking_metric(
    words: str, number: Callable[[Retrieval], float], *, section: Section, headline: bool, note: str = ""
) -> Metric:
    """A number of how unseen samples find their like."""
    return Metric(
        f"unseen classes: {words}", "%", "higher", section,
        lambda e: None if e.unseen_ranking is None else number(e.unseen_ranking), headline, note=note,
    )  # fmt: skip


def detected(known: Embeddings, unseen: Embeddings, centres: Prototypes, *, fpr: float) -> float:
    """The share of known samples found and named at a rate of false alarms."""
    return openset.detection_rate(known, unseen, centres, fpr).rate


METRICS: dict[str, Metric] = {
    "accuracy": Metric(
        "accuracy, by the head without margin", "%", "higher", "closed",
        lambda e: None if e.named is None else float((e.named.predicted == e.test.labels).mean()), True, "accuracy",
    ),
    "neighbour-accuracy": Metric(
        "accuracy, by the nearest neighbour", "%", "higher", "closed",
        lambda e: identification.nearest_neighbour_accuracy(e.test),
    ),
    **{f"margin-kept-{m:g}": margin_metric(m) for m in MARGINS_KEPT},
    "angle-own": Metric(
        "mean angle to the own class mean", "°", "lower", "closed", lambda e: e.angles.own, headline=True,
        note="to the mean of the images that are measured, not to the learned centre w, to which training tells the "
        f"angle; in classes below {FEW_MEMBERS} members to the mean of the others: a sample pulls its own mean",
    ),
    "angle-closest": Metric(
        "smallest angle between class means", "°", "higher", "closed", lambda e: e.angles.closest, headline=True
    ),
    "packing": Metric(
        "the same as a share of the best possible packing", "%", "higher", "closed", lambda e: e.angles.packing
    ),
    **{name: one for distance in ("euclidean", "unit", "cosine") for name, one in cluster_metrics(distance).items()},
    **{name: one for distance in ("euclidean", "cosine") for name, one in conflict_metrics(distance).items()},
    **{dunn_name(*variant): dunn_metric(*variant) for variant in DUNN},
    **pair_metrics("pairs", "all pairs", "closed", lambda e: e.pairs),
    **pair_metrics("unseen", "pairs of unseen classes", "open", lambda e: e.unseen_pairs),
    "unseen-recall-1": ranking_metric(
        "recall@1", lambda r: r.recall_at[1], section="open", headline=True,
        note=FOUND_FIRST,
    ),
    "unseen-map-r": ranking_metric("MAP@R", lambda r: r.map_at_r, section="open", headline=False),
    "unseen-r-precision": ranking_metric("R-precision", lambda r: r.r_precision, section="more", headline=False),
    "open-auroc": Metric(
        "known against unseen samples: AUROC", "%", "higher", "open", lambda e: e.open_set(openset.auroc), True,
        "known against unseen: AUROC",
    ),
    **{
        f"open-dir-{fpr:g}": Metric(
            f"known samples found and named at FPR {fpr:g}", "%", "higher", "open",
            lambda e, fpr=fpr: e.open_set(partial(detected, fpr=fpr)),
        )
        for fpr in FPRS
    },
    **{f"unseen-{dunn_name(*variant)}": unseen_dunn_metric(*variant) for variant in DUNN},
}  # fmt: skip


def all_metrics(
    test: Embeddings, unseen: Embeddings | None = None, centres: Prototypes | None = None
) -> dict[str, float]:
    """Every number of METRICS that these embeddings allow, under its name.

    >>> x = np.array([[2.0, 0.1], [2.0, -0.1], [0.1, 2.0], [-0.1, 2.0]])
    >>> found = all_metrics(Embeddings(x, np.array([0, 0, 1, 1]), names=("a", "b")))
    >>> found["neighbour-accuracy"], "accuracy" in found
    (1.0, False)
    """
    refuse_other_models(test, unseen, centres)
    if centres is not None and centres.names:
        y = identification.labels_among(test, centres.names)
        test = replace(test, y=y, names=centres.names)
    evidence = Evidence(test, unseen, centres)
    computed = {name: computed_from(evidence, metric) for name, metric in METRICS.items()}
    return {name: value for name, value in computed.items() if value is not None and not math.isnan(value)}


def computed_from(evidence: Evidence, metric: Metric) -> float | None:
    """One number; None where the mean of a class that it compares with points nowhere."""
    try:
        return metric.compute(evidence)
    except NoDirection:
        return None


def dunn_indices(embeddings: Embeddings) -> dict[str, float]:
    """Every Dunn index, under its full name."""
    evidence = Evidence(embeddings)
    found = {dunn_name(*variant): computed_from(evidence, METRICS[dunn_name(*variant)]) for variant in DUNN}
    return {name: math.nan if value is None else value for name, value in found.items()}


def definitions() -> str:
    """A fingerprint of the entries and of the code that computes them: numbers that bear another are measured again."""
    sha = hashlib.sha256(sources().encode())
    for name, metric in METRICS.items():
        ours = (metric.compute.__module__ or "").startswith("arcwise.metrics")
        sha.update(f"{name}\n{'' if ours else source_of(metric.compute)}\n".encode())
    return sha.hexdigest()[:16]


def source_of(compute: Callable[..., object]) -> str:
    """The text of a function that is not of this package, where it can be read."""
    try:
        return inspect.getsource(compute)
    except (OSError, TypeError):
        return repr(getattr(compute, "__qualname__", compute))


@lru_cache(maxsize=1)
def sources() -> str:
    """The text of the modules of this package, where it can be read."""
    found = sorted(
        (item for item in files("arcwise.metrics").iterdir() if item.name.endswith(".py")), key=lambda i: i.name
    )
    return "".join(item.read_text(encoding="utf-8") for item in found)


def headline_metrics() -> list[str]:
    """The names of the numbers that heads are judged by."""
    return [name for name, metric in METRICS.items() if metric.headline]


def metrics_in(*sections: Section) -> list[str]:
    """The names of the numbers that stand in these sections."""
    return [name for name, metric in METRICS.items() if metric.section in sections]


def number_text(name: str, value: float) -> str:
    """A number as a person reads it: shares in percent, radians in degrees.

    >>> number_text("accuracy", 0.9977), number_text("angle-own", 0.0349)
    ('99.77 %', '2.00°')
    """
    unit = METRICS[name].unit if name in METRICS else ""
    if not math.isfinite(value):
        return "∞" if value > 0 else "-"
    value = in_unit(name, value)
    digits = f"{value:.{digits_shown(name, value)}f}"
    return f"{digits} %" if unit == "%" else f"{digits}{unit}"


def digits_shown(name: str, value: float) -> int:
    """How many digits stand after the point, of a number in the unit that is shown; Dunn's index may be tiny.

    >>> digits_shown("angle-own", 0.0), digits_shown(MAIN_DUNN, 0.0042), digits_shown("silhouette-unit", 250.0)
    (2, 4, 1)
    """
    size = abs(value)
    if size >= 100:
        return 2 if name in METRICS and METRICS[name].unit else 1
    return min(4, 1 - math.floor(math.log10(size))) if 0.0 < size < 0.1 and "dunn" in name else 2


def in_unit(name: str, value: float) -> float:
    """The number in the unit that is shown: percent of a share, degrees of an angle."""
    unit = METRICS[name].unit if name in METRICS else ""
    return 100.0 * value if unit == "%" else math.degrees(value) if unit == "°" else value


def with_unit(name: str) -> str:
    """What a number says, with its unit."""
    metric = METRICS[name]
    return metric.label + (f" ({metric.unit})" if metric.unit else "")


def finite_or_null(values: dict[str, float]) -> dict[str, Any]:
    """The numbers as JSON holds them: what is infinite becomes null."""
    return {name: value if math.isfinite(value) else None for name, value in values.items()}
