"""Naming known classes and turning unseen ones away: loops, numbers by hand, scikit-learn."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, confusion_matrix, precision_recall_fscore_support, roc_auc_score

from arcwise.headspec import HeadSpec
from arcwise.metrics import accuracy, all_metrics, auroc, detection_rate, margin_kept, nearest_neighbour_accuracy
from arcwise.metrics.identification import class_table, confusion, mean_centres, nearest_prototype, rightly_named
from arcwise.metrics.openset import best_match
from arcwise.records import Prototypes
from metrics import definitions
from metrics.samples import apart, blobs, blobs_and_centres, embeddings, labelled


@st.composite
def gallery(draw):
    """Known samples with the centres of their classes, some with sub-centres, and samples of unseen classes."""
    x, y = draw(labelled(dims=(2, 4)))
    rng, k = np.random.default_rng(draw(st.integers(0, 2**32 - 1))), draw(st.integers(0, 3))
    shape = (y.max() + 1, x.shape[1]) if not k else (y.max() + 1, k, x.shape[1])
    return x, y, rng.standard_normal(shape), rng.standard_normal((draw(st.integers(1, 12)), x.shape[1]))


# ------------------------------------------------------------------------------------------ by loops


@settings(max_examples=60)
@given(gallery())
def test_a_sample_is_named_by_its_nearest_centre(drawn):
    x, y, centres, _ = drawn
    e, head = embeddings(x, y), Prototypes(centres)
    found, angles = nearest_prototype(e, head), [definitions.centre_angles(row, centres) for row in x]
    assert found.predicted.tolist() == [min(range(len(a)), key=a.__getitem__) for a in angles]
    near = {"rel": 1e-6, "abs": 4e-8}  # the arccos of 1 rounded once is 1.5e-8, where a sample is its centre
    assert found.angle_own.tolist() == pytest.approx([a[own] for a, own in zip(angles, y, strict=True)], **near)
    if len(centres) > 1:
        others = [min(a[:own] + a[own + 1 :]) for a, own in zip(angles, y.tolist(), strict=True)]
        assert found.angle_other.tolist() == pytest.approx(others, **near)
        ahead = [other - a[own] for a, other, own in zip(angles, others, y, strict=True)]
        for m in (0.0, 0.3, 0.5):
            assert margin_kept(e, head, m) == pytest.approx(sum(gap >= m for gap in ahead) / len(x))
    assert accuracy(e, head) == pytest.approx((found.predicted == y).mean()) == rightly_named(e, head).mean()


@settings(max_examples=40)
@given(gallery())
def test_the_best_match_and_the_open_set_numbers_are_their_definitions(drawn):
    x, y, centres, outside = drawn
    known, unseen, head = embeddings(x, y), embeddings(outside, np.zeros(len(outside))), Prototypes(centres)
    match = best_match(known, head)
    truth = [definitions.best_centre(row, centres) for row in x]
    assert match.score.tolist() == pytest.approx([score for score, _ in truth])
    assert match.match.tolist() == [label for _, label in truth]
    assert auroc(known, unseen, head) == pytest.approx(definitions.open_auroc(x, outside, centres), abs=1e-12)
    for fpr in (0.0, 0.01, 0.1, 0.25, 0.5, 1.0):
        found = detection_rate(known, unseen, head, fpr)
        assert found.rate == pytest.approx(definitions.detection_rate(x, y, outside, centres, fpr), abs=1e-12), fpr
        assert (best_match(unseen, head).score >= found.threshold).mean() <= fpr


@settings(max_examples=40)
@given(gallery(), st.booleans())
def test_a_linear_head_names_by_its_product_and_bias(drawn, biased):
    x, y, centres, _ = drawn
    centres = centres if centres.ndim == 2 else centres[:, 0]
    bias = np.linspace(-1.0, 1.0, len(centres))
    head = Prototypes(centres, bias) if biased else Prototypes(centres, head=HeadSpec(name="softmax"))
    e = embeddings(x, y)
    logits = [[definitions.dot(row, w) + biased * b for w, b in zip(centres, bias, strict=True)] for row in x]
    assert nearest_prototype(e, head).predicted.tolist() == [max(range(len(z)), key=z.__getitem__) for z in logits]


@settings(max_examples=40)
@given(labelled(dims=(2, 5)), st.data())
def test_the_nearest_neighbour_is_found_by_cosine(drawn, data):
    x, y = drawn
    among = data.draw(st.sampled_from([None, "reference"]))
    other, labels = (x, y) if among is None else (np.roll(x, 1, axis=1) + 0.1, y)
    hits = asked = 0
    for i in range(len(x)):
        if among is None and sum(y == y[i]) < 2:
            continue
        asked += 1
        rows = [j for j in range(len(other)) if among is not None or j != i]
        assume(apart([definitions.cosine(x[i], other[j]) for j in rows], 1e-5))
        hits += labels[max(rows, key=lambda j: definitions.cosine(x[i], other[j]))] == y[i]
    reference = None if among is None else embeddings(other, labels)
    wanted = hits / asked if asked else math.nan
    assert nearest_neighbour_accuracy(embeddings(x, y), reference) == pytest.approx(wanted, nan_ok=True)


@settings(max_examples=30)
@given(labelled(dims=(2, 5)))
def test_the_mean_centre_of_a_class_is_the_direction_of_its_mean_direction(drawn):
    members = definitions.groups(*drawn, "angle")
    truth = [definitions.centroid(members[label], "angle") for label in sorted(members)]
    assert mean_centres(embeddings(*drawn)).ravel().tolist() == pytest.approx([*itertools.chain(*truth)], abs=1e-9)


# ------------------------------------------------------------------------------------------ by hand


def test_three_samples_and_two_centres_by_hand():
    # Centres at 0 and 90 degrees. Samples at 20 (class 0), 60 (class 0, named 1), 80 (class 1):
    # the other centre is further by 70 - 20 = 50, 30 - 60 = -30, 80 - 10 = 70 degrees; 0.5 rad is 28.6, 1 rad is 57.3.
    theta = np.radians([20, 60, 80])
    e = embeddings(np.stack([np.cos(theta), np.sin(theta)], axis=1) * 3, [0, 0, 1])
    head = Prototypes(np.eye(2) * [[5], [1]])
    assert nearest_prototype(e, head).predicted.tolist() == [0, 1, 1]
    assert accuracy(e, head) == pytest.approx(2 / 3)
    assert tuple(margin_kept(e, head, m) for m in (0.5, 1.0, 1.3)) == pytest.approx((2 / 3, 1 / 3, 0.0))


def test_the_shares_that_keep_a_margin_are_of_the_whole_margin():
    # Centres at 0 and 90 degrees, samples of class 0 at 20, 35 and 40: ahead by 90 - 2 * 20 = 50 degrees, 20 and 10,
    # which is 0.87, 0.35 and 0.17 rad. All are beyond half of 0.3 rad, and two beyond half of 0.5.
    theta = np.radians([20, 35, 40, 90])
    e = embeddings(np.stack([np.cos(theta), np.sin(theta)], axis=1), [0, 0, 0, 1])
    found = all_metrics(e, centres=Prototypes(np.eye(2)))
    assert found["accuracy"] == 1.0
    assert found["margin-kept-0.3"] == pytest.approx(3 / 4) and found["margin-kept-0.5"] == pytest.approx(2 / 4)
    assert margin_kept(e, Prototypes(np.eye(2)), 0.3) == pytest.approx(3 / 4)


@pytest.mark.parametrize("name", ["arcface", "softmax"])
def test_a_sample_as_near_to_an_earlier_class_is_named_wrongly(name):
    head = Prototypes(np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]), head=HeadSpec(name=name))
    e = embeddings([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], [2, 2, 1, 1])  # the last is half-way to 0 and 2
    assert rightly_named(e, head).tolist() == [False, False, True, False]
    found = nearest_prototype(e, head)
    assert found.lead.tolist() == pytest.approx([0.0, 0.0, math.pi / 2, 0.0])


def test_a_copy_of_another_class_before_one_of_the_own_is_the_nearest_neighbour():
    e = embeddings([[1, 0], [1, 0], [1, 0], [0, 1], [0, 1]], [1, 0, 0, 2, 2])
    assert nearest_neighbour_accuracy(e) == pytest.approx(2 / 4)  # the first has nobody of its class
    known = embeddings([[2, 0], [3, 0], [0, 5]], [1, 0, 2])
    assert nearest_neighbour_accuracy(embeddings([[1, 0], [1, 0], [0, 1]], [0, 0, 2]), known) == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("name", "w"),
    [
        ("arcface", [[1, 0], [0, 1], [1, 0]]),
        ("arcface", [[[1, 0], [-1, 0]], [[0, 1], [0, 1]], [[0, -1], [1, 0]]]),  # with sub-centres
        ("softmax", [[1, 0], [0, 1], [1, 0]]),
    ],
)
def test_a_tie_with_another_class_is_never_counted_for_the_own(name, w):
    head = Prototypes(np.array(w, float), head=HeadSpec(name=name))
    e = embeddings([[1, 0], [1, 0], [0, 1], [1, 1]], [0, 2, 1, 0])  # the last is half-way between all three
    assert rightly_named(e, head).tolist() == [False, False, True, False]
    assert accuracy(e, head) == 1 / 4 and all_metrics(e, centres=head)["accuracy"] == 1 / 4


@pytest.mark.parametrize("y", sorted(set(itertools.permutations([0, 0, 1]))))
def test_of_neighbours_that_are_equal_another_class_is_the_nearest_wherever_it_stands(y):
    e = embeddings([[1, 0], [1, 0], [1, 0], [0, 1], [0, 1]], [*y, 2, 2])
    assert nearest_neighbour_accuracy(e) == pytest.approx(2 / 4)  # one of the first three has nobody of its class
    assert nearest_neighbour_accuracy(e, embeddings([[2, 0], [4, 0], [8, 0], [0, 5]], [*y, 2])) == pytest.approx(2 / 5)


def test_known_and_unseen_samples_by_hand():
    # Centres at 0 and 90 degrees. Known: 10 (right, cos 10), 50 (of class 0, matched to 1, cos 40), 95 (right, cos 5).
    # Unseen: 180 + 20 (best is 90, cos 110), 30 (cos 30). Known beats unseen: 2 + 1 + 2 of 6.
    # FPR 0: above cos 30 are 10 and 95, both right: 2/3. FPR 1/2 and 1 let all in: still 2/3, for 50 is named wrongly.
    at = lambda *degrees: np.stack([np.cos(np.radians(degrees)), np.sin(np.radians(degrees))], axis=1)  # noqa: E731
    known, head = embeddings(at(10, 50, 95), [0, 0, 1]), Prototypes(np.eye(2))
    unseen = embeddings(at(200, 30), [0, 0])
    assert auroc(known, unseen, head) == pytest.approx(5 / 6)
    assert [detection_rate(known, unseen, head, fpr).rate for fpr in (0.0, 0.5, 1.0)] == pytest.approx([2 / 3] * 3)
    assert math.degrees(math.acos(detection_rate(known, unseen, head, 0.0).threshold)) == pytest.approx(30.0)


def test_every_known_sample_is_found_where_every_false_alarm_is_allowed():
    # The known sample is further from its centre (60 degrees) than the unseen one (10 degrees).
    known = embeddings([[0.5, math.sqrt(0.75)]], [0])
    head = Prototypes(np.array([[1.0, 0.0]]))
    unseen = embeddings([[math.cos(0.17), math.sin(0.17)]], [0])
    assert detection_rate(known, unseen, head, 0.5).rate == 0.0
    assert detection_rate(known, unseen, head, 1.0).rate == 1.0


# ------------------------------------------------------------------------------------------ scikit-learn


@pytest.mark.parametrize("seed", range(4))
def test_the_confusion_and_its_table_are_those_of_scikit_learn(seed):
    e, head = blobs_and_centres([9, 30, 1, 17, 23], 3, seed=seed, apart=0.8)
    predicted = nearest_prototype(e, head).predicted
    matrix = confusion(e.y, predicted, 5)
    assert matrix.tolist() == confusion_matrix(e.y, predicted, labels=range(5)).tolist()
    precision, recall, f1, support = precision_recall_fscore_support(e.y, predicted, labels=range(5), zero_division=0.0)
    table = class_table(matrix, e.names)
    assert [(row.recall, row.precision, row.f1, row.n) for row in table] == [
        pytest.approx(four) for four in zip(recall, precision, f1, support, strict=True)
    ]
    assert accuracy(e, head) == pytest.approx(accuracy_score(e.y, predicted))
    for i, row in enumerate(table):
        wrong = np.where(np.arange(5) == i, 0, matrix[i])
        assert row.mistaken_for == (e.names[wrong.argmax()] if wrong.any() else "")


def test_a_class_without_samples_has_no_row():
    rows = class_table(confusion(np.array([0, 2, 2]), np.array([0, 1, 2]), 3), ("a", "b", "c"))
    assert [(row.name, row.n, row.mistaken_for) for row in rows] == [("a", 1, ""), ("c", 2, "b")]
    assert (rows[1].recall, rows[1].precision, rows[1].f1) == (0.5, 1.0, pytest.approx(2 / 3))


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.int64])
def test_labels_of_few_bits_are_counted_as_well(dtype):
    y = np.arange(120).astype(dtype)  # 119 * 120 needs 14 bits
    assert np.array_equal(confusion(y, y, 120), np.eye(120, dtype=np.int64))


@pytest.mark.parametrize("seed", range(3))
def test_open_set_auroc_is_that_of_scikit_learn(seed):
    (known, head), unseen = blobs_and_centres([20, 30, 10], 4, seed=seed), blobs([25, 15], 4, seed=seed + 10)
    score = np.concatenate([best_match(e, head).score for e in (known, unseen)])
    assert auroc(known, unseen, head) == pytest.approx(roc_auc_score(np.arange(100) < 60, score), abs=1e-12)
