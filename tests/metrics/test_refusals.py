"""Input that cannot be measured is refused in words that help; what can be measured never warns."""

import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from arcwise import metrics
from arcwise.errors import ArcwiseError
from arcwise.metrics.identification import mean_centres, nearest_prototype
from arcwise.metrics.verification import given_pairs, score_pairs
from arcwise.records import Embeddings, Prototypes
from metrics import definitions
from metrics.samples import blobs, blobs_and_centres, embeddings

CENTRES = blobs_and_centres([5, 4, 3], 3)[1]
OF_ONE_SET = {
    "dunn_index": metrics.dunn_index,
    "silhouette": metrics.silhouette,
    "davies_bouldin": metrics.davies_bouldin,
    "class_angles": metrics.class_angles,
    "conflicts": metrics.conflicts,
    "all_pairs": metrics.all_pairs,
    "retrieval": lambda e: metrics.retrieval(e, k=(1,)),
    "accuracy": lambda e: metrics.accuracy(e, CENTRES),
    "margin_kept": lambda e: metrics.margin_kept(e, CENTRES, 0.3),
    "nearest_neighbour_accuracy": metrics.nearest_neighbour_accuracy,
    "mean_centres": mean_centres,
    "auroc": lambda e: metrics.auroc(e, e, CENTRES),
    "detection_rate": lambda e: metrics.detection_rate(e, e, CENTRES, 0.1),
    "all_metrics": lambda e: metrics.all_metrics(e, None, CENTRES),
    "all_metrics twice": lambda e: metrics.all_metrics(e, e, CENTRES),
    "given_pairs": lambda e: given_pairs(e, np.zeros((0, 2), np.int64)),
}
for kind in ("dunn_index", "silhouette", "davies_bouldin", "conflicts"):
    for metric in ("unit", "cosine", "angle"):
        OF_ONE_SET[f"{kind} {metric}"] = partial(getattr(metrics, kind), distance=metric)
NEED_TWO_CLASSES = (
    "dunn_index",
    "silhouette",
    "davies_bouldin",
    "class_angles",
    "conflicts",
    "all_pairs",
    "all_metrics",
)
NEED_DIRECTIONS = [
    name for name in OF_ONE_SET if name not in ("dunn_index", "silhouette", "davies_bouldin", "conflicts")
]  # fmt: skip


def good():
    return blobs([5, 4, 3], 3)


@pytest.mark.parametrize("name", OF_ONE_SET)
def test_no_embeddings_are_refused(name):
    empty = Embeddings(x=np.zeros((0, 3)), y=np.zeros(0, np.int64), names=("a", "b"))
    with pytest.raises(ArcwiseError, match="there are no embeddings to measure"):
        OF_ONE_SET[name](empty)


@pytest.mark.parametrize("name", OF_ONE_SET)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_rows_that_are_not_finite_are_refused_and_the_first_is_named(name, value):
    e = good()
    e.x[[4, 7], [1, 2]] = value
    with pytest.raises(ArcwiseError, match=r"2 of 12 embeddings are not finite, the first in row 4\. Leave those"):
        OF_ONE_SET[name](e)


@pytest.mark.parametrize("name", NEED_DIRECTIONS)
def test_rows_without_direction_are_refused_and_the_first_is_named(name):
    e = good()
    e.x[[5, 6]] = 0.0
    with pytest.raises(ArcwiseError, match="row 5 has length 0 and so no direction"):
        OF_ONE_SET[name](e)


def test_rows_without_direction_have_a_euclidean_distance():
    e = good()
    e.x[5] = 0.0
    x, y, plain = e.x, e.y, {"between": "nearest", "inside": "diameter", "trim": 100.0}
    found = metrics.conflicts(e)
    assert metrics.dunn_index(e) == pytest.approx(definitions.dunn(x, y, distance="euclidean", **plain))
    assert metrics.silhouette(e) == pytest.approx(definitions.silhouette(x, y, "euclidean"))
    assert metrics.davies_bouldin(e) == pytest.approx(definitions.davies_bouldin(x, y, "euclidean"))
    truth = definitions.conflicts(x, y, "euclidean")[:3]
    assert (found.triples, found.anchors, found.nearest) == pytest.approx(truth)


@pytest.mark.parametrize("name", [name for name in OF_ONE_SET if name.split()[0] in NEED_TWO_CLASSES])
def test_one_class_is_refused_where_classes_are_compared(name):
    e = good()
    with pytest.raises(ArcwiseError, match=r"compares at least 2 classes; the embeddings hold 1"):
        OF_ONE_SET[name](replace(e, y=np.zeros_like(e.y)))


def test_one_class_is_enough_where_none_are_compared():
    e = replace(good(), y=np.zeros(12, np.int64))
    assert metrics.nearest_neighbour_accuracy(e) == 1.0
    assert metrics.retrieval(e).map_at_r == 1.0
    assert 0.0 <= metrics.accuracy(e, CENTRES) <= 1.0


def test_one_class_with_its_one_centre_is_always_right_and_ahead():
    e, centre = embeddings([[1, 0], [0, 1]], [0, 0]), Prototypes(np.array([[1.0, 1.0]]))
    assert metrics.accuracy(e, centre) == 1.0 and metrics.margin_kept(e, centre, 0.5) == 1.0


def test_one_sample_per_class_leaves_no_pair_to_verify_and_no_query():
    e = embeddings(np.eye(3) + 0.1, [0, 1, 2])
    with pytest.raises(ArcwiseError, match="no class has two samples, so there is no pair of the same class"):
        metrics.all_pairs(e)
    with pytest.raises(ArcwiseError, match="no class has two samples, so no query"):
        metrics.retrieval(e, k=(1,))
    found = metrics.all_metrics(e)
    assert set(found) == {"angle-closest", "packing"}  # nothing else can be said of classes of one


def test_embeddings_that_are_all_equal_are_measured():
    e = embeddings(np.tile([0.3, 0.1, 0.2], (9, 1)), np.repeat(range(3), 3))
    found = metrics.all_metrics(e, e, Prototypes(np.eye(3)))
    assert found["pairs-auc"] == 0.5 and found["pairs-eer"] == 0.5 and found["pairs-tar-0.1"] == 0.0
    assert found["angle-own"] == pytest.approx(0.0, abs=1e-7) and found["packing"] == pytest.approx(0.0, abs=1e-7)
    assert found["accuracy"] == pytest.approx(1 / 3) and found["open-auroc"] == 0.5
    without = ("conflict", "silhouette", "dunn", "unseen-dunn")
    assert {value for name, value in found.items() if name.startswith(without)} == {0.0}
    assert len([name for name in found if name.startswith(without)]) == 6 + 3 + 2 * 24
    assert {value for name, value in found.items() if name.startswith("davies")} == {math.inf}


@pytest.mark.parametrize(
    "call",
    [
        lambda e, w: metrics.accuracy(e, w),
        lambda e, w: metrics.margin_kept(e, w, 0.3),
        lambda e, w: metrics.auroc(e, e, w),
        lambda e, w: metrics.detection_rate(e, e, w, 0.1),
        lambda e, w: metrics.all_metrics(e, None, w),
    ],
)
@pytest.mark.parametrize(("value", "words"), [(0.0, "centre 1 has length 0"), (math.nan, "not finite")])
def test_prototypes_without_direction_are_refused(call, value, words):
    w = CENTRES.w.copy()
    w[1] = value
    with pytest.raises(ArcwiseError, match=words):
        call(good(), Prototypes(w))


@pytest.mark.parametrize("name", [name for name in OF_ONE_SET if name not in ("given_pairs", "auroc")])
def test_embeddings_without_labels_are_refused_in_words(name):
    with pytest.raises(ArcwiseError, match="these embeddings have no labels"):
        OF_ONE_SET[name](replace(good(), y=None))


def test_rows_of_two_models_are_not_taken_for_one():
    e, other = replace(good(), model="a" * 64), replace(good(), model="b" * 64)
    with pytest.raises(ArcwiseError, match="two models"):
        metrics.all_metrics(e, other)
    with pytest.raises(ArcwiseError, match="two models"):
        metrics.accuracy(e, replace(CENTRES, model="b" * 64))
    with pytest.raises(ArcwiseError, match="two models"):
        metrics.auroc(e, other, replace(CENTRES, model="a" * 64))


def test_a_label_without_a_centre_is_refused():
    e = good()
    with pytest.raises(ArcwiseError, match="label 2 has no centre: there are 2"):
        nearest_prototype(e, Prototypes(CENTRES.w[:2]))


def test_unseen_embeddings_of_another_dimension_are_refused():
    with pytest.raises(ArcwiseError, match="dimension"):
        metrics.auroc(good(), blobs([3, 3], 5), CENTRES)
    with pytest.raises(ArcwiseError, match="dimension"):
        metrics.nearest_neighbour_accuracy(good(), blobs([3, 3], 5))


@pytest.mark.parametrize("name", ["dunn_index cosine", "davies_bouldin angle", "class_angles", "mean_centres"])
def test_a_class_whose_directions_cancel_is_refused_by_its_number(name):
    e = embeddings([[1, 0], [0, 1], [1, 1], [-1, -1]], [1, 1, 3, 3])
    with pytest.raises(ArcwiseError, match="the mean of class 3 has length 0"):
        OF_ONE_SET[name](e)


def test_one_sample_has_no_neighbour():
    with pytest.raises(ArcwiseError, match="one sample has no neighbour"):
        metrics.nearest_neighbour_accuracy(embeddings([[1, 0]], [0]))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda e: metrics.dunn_index(e, trim=0.0),
            "trim must be a number from 1 to 100, got 0.0. It is the percentile",
        ),
        (lambda e: metrics.dunn_index(e, trim=101), "trim must be a number from 1 to 100"),
        (lambda e: metrics.retrieval(e, k=(1, 12)), "k must be at most 11, got 12"),
        (lambda e: metrics.retrieval(e, k=(0,)), "k must be a whole number of at least 1"),
        (lambda e: metrics.conflicts(e, limit=0), "limit must be a whole number of at least 1"),
        (lambda e: metrics.conflicts(e, distance="cosin"), "unknown distance 'cosin': did you mean 'cosine'"),
        (lambda e: metrics.conflicts(e, correct=np.ones(5, bool)), "correct"),
        (lambda e: metrics.detection_rate(e, e, CENTRES, 1.5), "fpr must be a number from 0 to 1"),
        (lambda e: metrics.tar_at_far(metrics.all_pairs(e), -0.1), "far must be a number from 0 to 1"),
        (lambda e: metrics.roc(metrics.all_pairs(e), points=1), "points must be a whole number of at least 2"),
        (lambda e: given_pairs(e, np.array([[0, 12]])), "two row numbers each, from 0 to 11"),
    ],
)
def test_arguments_that_make_no_sense_are_refused_by_name(call, words):
    with pytest.raises(ArcwiseError) as caught:
        call(good())
    assert words in str(caught.value)


@pytest.mark.parametrize("same", [[True, True], [False, False]])
def test_scores_need_both_kinds_of_pairs(same):
    with pytest.raises(ArcwiseError, match="some of the same class and some of different ones"):
        score_pairs(np.array([0.1, 0.2]), np.array(same))


def test_scores_that_are_not_finite_are_refused():
    score, same = np.array([0.1, math.nan, 0.3, 0.4]), np.array([True, False, True, False])
    with pytest.raises(ArcwiseError, match="score 1 is not finite"):
        score_pairs(score, same)
    with pytest.raises(ArcwiseError, match="score 1 is not finite"):
        metrics.fold_accuracy(score, same, folds=2)


def test_folds_need_as_many_pairs():
    with pytest.raises(ArcwiseError, match="10 folds need at least as many pairs, each with its answer; got 4"):
        metrics.fold_accuracy(np.arange(4.0), np.array([True, False, True, False]))
    with pytest.raises(ArcwiseError, match="folds must be a whole number of at least 2"):
        metrics.fold_accuracy(np.arange(4.0), np.array([True, False, True, False]), folds=1)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_every_precision_of_embeddings_is_measured(dtype):
    e = good()
    rounded = replace(e, x=e.x.astype(dtype))
    expected = metrics.all_metrics(replace(rounded, x=rounded.x.astype(np.float64)))
    assert metrics.all_metrics(rounded) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("scale", [1e160, 1e300, 1e-160, 1e-300])
@pytest.mark.parametrize("name", OF_ONE_SET)
def test_rows_whose_squares_no_number_holds_are_refused_in_words(name, scale):
    e = blobs([5, 4, 3], 3)
    with pytest.raises(ArcwiseError, match="Divide all of them by one number"):
        OF_ONE_SET[name](replace(e, x=e.x.astype(np.float64) * scale))
