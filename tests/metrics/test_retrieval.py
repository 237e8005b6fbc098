"""Retrieval: the loop over queries, numbers by hand, pytorch-metric-learning and scikit-learn."""

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from pytorch_metric_learning.distances import CosineSimilarity
from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator
from pytorch_metric_learning.utils.inference import CustomKNN
from sklearn.neighbors import NearestNeighbors

from arcwise.metrics import conflicts, nearest_neighbour_accuracy, retrieval
from metrics import definitions
from metrics.samples import apart, blobs, embeddings, labelled


@settings(max_examples=80)
@given(labelled(dims=(2, 5), pair=True))
def test_retrieval_is_its_definition(drawn):
    x, y = drawn
    for i in range(len(x)):  # scores are float32: nearer ones may change places
        assume(apart([definitions.cosine(x[i], x[j]) for j in range(len(x)) if j != i], 1e-5))
    k = tuple(sorted({1, min(3, len(x) - 1), len(x) - 1}))
    found = retrieval(embeddings(x, y), k=k)
    recall, r_precision, map_at_r = definitions.retrieval(x, y, k)
    assert found.recall_at == pytest.approx(recall, abs=1e-12)
    assert (found.r_precision, found.map_at_r) == pytest.approx((r_precision, map_at_r), abs=1e-12)
    assert found.queries == sum((y == label).sum() > 1 for label in y)


def test_retrieval_of_five_directions_by_hand():
    # Angles 0 10 35 (class 0), 15 50 (class 1); R = 2 and 1. Neighbours of each, nearest first:
    #  0: 10 15 35 50  hit miss -> recall@1, R-precision 1/2, MAP@R (1/1)/2
    # 10: 15  0 35 50  miss hit -> R-precision 1/2, MAP@R (1/2)/2
    # 35: 50 15 10  0  (15, 20, 25, 35 away) miss miss -> 0, 0
    # 15: 10  0 35 50  (5, 15, 20, 35 away) miss -> 0, 0, found at rank 4
    # 50: 35 15 10  0  miss -> 0, 0, found at rank 2
    theta = np.radians([0, 10, 35, 15, 50])
    e = embeddings(np.stack([np.cos(theta), np.sin(theta)], axis=1) * [[1], [2], [3], [4], [5]], [0, 0, 0, 1, 1])
    found = retrieval(e, k=(1, 2, 3, 4))
    assert found.recall_at == pytest.approx({1: 1 / 5, 2: 3 / 5, 3: 4 / 5, 4: 1.0})
    assert found.r_precision == pytest.approx((1 / 2 + 1 / 2) / 5)
    assert found.map_at_r == pytest.approx((1 / 2 + 1 / 4) / 5)
    assert found.queries == 5 and nearest_neighbour_accuracy(e) == pytest.approx(1 / 5)


@pytest.mark.parametrize("axes", [1, 2, 32])  # of many, those near enough are picked; of few, all are sorted
def test_copies_in_another_class_are_ranked_before_those_in_the_own(axes):
    # At each axis two samples of one class and two of another: of its three equals the own is last.
    x = np.repeat(np.eye(max(axes, 2))[:axes], 4, axis=0)
    y = (2 * np.arange(axes)[:, None] + [0, 0, 1, 1]).ravel()
    for order in (np.arange(len(y)), np.random.default_rng(0).permutation(len(y))):
        found = retrieval(embeddings(x[order], y[order]), k=(1, 2, 3))
        assert found == ({1: 0.0, 2: 0.0, 3: 1.0}, 0.0, 0.0, len(y))


def test_a_copy_of_the_own_class_is_found_before_what_is_farther_and_after_its_equals():
    # Class 0: two copies at e1, one at e2; class 1: one at e1, one at e2. R = 2 and 1.
    #  e1 of 0: 1 at cosine 1 (class 1), its own copy at 1, then cosine 0: ranks 2 and 4 (after class 1's e2).
    #  e2 of 0: class 1's at 1, then at 0 class 1's other and both own: ranks 3 and 4.
    #  of 1: two, or one, of class 0 at 1; then at 0 the rest of class 0 and the own: rank 4 for both.
    e = embeddings([[1, 0], [1, 0], [0, 1], [1, 0], [0, 1]], [0, 0, 0, 1, 1])
    found = retrieval(e, k=(1, 2, 3, 4))
    assert found.recall_at == pytest.approx({1: 0.0, 2: 2 / 5, 3: 3 / 5, 4: 1.0})
    assert found.r_precision == pytest.approx((1 / 2 + 1 / 2) / 5)
    assert found.map_at_r == pytest.approx((1 / 4 + 1 / 4) / 5)


def test_a_class_of_one_is_ranked_but_asks_nothing():
    theta = np.radians([0, 20, 5])
    e = embeddings(np.stack([np.cos(theta), np.sin(theta)], axis=1), [0, 0, 1])
    found = retrieval(e, k=(1, 2))
    assert found.queries == 2 and found.recall_at == {1: 0.0, 2: 1.0}
    assert (found.r_precision, found.map_at_r) == (0.0, 0.0)


def test_neighbours_at_the_smallest_angles_are_told_apart():
    # 0, 1e-5 and 2e-5 rad against 10, 11 and 12e-5: cosines that differ by 5e-9 at most, less than float32 can tell.
    theta = np.array([0, 1, 2, 10, 11, 12]) * 1e-5
    for order in (slice(None), slice(None, None, -1)):
        e = embeddings(np.stack([np.cos(theta), np.sin(theta)], axis=1)[order], np.array([0, 0, 0, 1, 1, 1])[order])
        assert nearest_neighbour_accuracy(e) == 1.0
        assert retrieval(e, k=(1,)) == ({1: 1.0}, 1.0, 1.0, 6)


@pytest.mark.parametrize("seed", range(3))
def test_on_a_crowded_circle_every_measure_finds_the_same_nearest_neighbour(seed):
    e = blobs([900, 700, 800], 2, seed=seed, apart=0.5)
    theta = np.arctan2(e.x[:, 1], e.x[:, 0])
    order = np.argsort(theta)  # the nearest is one of the two beside it
    gap = np.diff(theta[order], append=theta[order[0]] + 2 * np.pi)
    nearer = np.where(gap < np.roll(gap, 1), np.roll(order, -1), np.roll(order, 1))
    truth = (e.y[nearer] == e.y[order]).mean()
    assert 1.0 - conflicts(e, distance="angle").nearest == pytest.approx(truth, abs=1e-9)
    assert nearest_neighbour_accuracy(e) == pytest.approx(truth, abs=1e-9)
    assert retrieval(e, k=(1,)).recall_at[1] == pytest.approx(truth, abs=1e-9)


def test_no_depth_asks_for_no_recall():
    found = retrieval(blobs([4, 5], 3), k=())
    assert found.recall_at == {} and found.map_at_r == retrieval(blobs([4, 5], 3), k=(1,)).map_at_r


@pytest.mark.parametrize("seed", range(4))
def test_retrieval_is_that_of_pytorch_metric_learning(seed):
    e = blobs([9, 30, 1, 17, 23], 6, seed=seed)
    calculator = AccuracyCalculator(
        include=("precision_at_1", "r_precision", "mean_average_precision_at_r"),
        k="max_bin_count",
        device=torch.device("cpu"),
        knn_func=CustomKNN(CosineSimilarity()),
    )
    theirs = calculator.get_accuracy(torch.from_numpy(e.x), torch.from_numpy(e.y))
    ours = retrieval(e, k=(1,))
    assert ours.recall_at[1] == pytest.approx(theirs["precision_at_1"], abs=1e-9)
    assert ours.r_precision == pytest.approx(theirs["r_precision"], abs=1e-9)
    assert ours.map_at_r == pytest.approx(theirs["mean_average_precision_at_r"], abs=1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_nearest_neighbours_are_those_of_scikit_learn(seed):
    e, gallery = blobs([9, 30, 1, 17, 23], 6, seed=seed), blobs([20, 20, 20, 20, 20], 6, seed=seed)
    itself = NearestNeighbors(n_neighbors=10, metric="cosine").fit(e.x).kneighbors(return_distance=False)
    hits = e.y[itself] == e.y[:, None]
    lone = np.bincount(e.y)[e.y] == 1
    assert nearest_neighbour_accuracy(e) == pytest.approx(hits[~lone, 0].mean())
    for k in (1, 5, 10):
        assert retrieval(e, k=(k,)).recall_at[k] == pytest.approx(hits[~lone, :k].any(axis=1).mean())
    other = NearestNeighbors(n_neighbors=1, metric="cosine").fit(gallery.x).kneighbors(e.x, return_distance=False)
    assert nearest_neighbour_accuracy(e, gallery) == pytest.approx((gallery.y[other[:, 0]] == e.y).mean())


def plain_retrieval(x, y, k):
    """Recall@k, R-precision and MAP@R from one float64 product and a full sort of each row."""
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    far = -(unit @ unit.T)
    np.fill_diagonal(far, np.inf)
    hits = (y[np.argsort(far, axis=1)] == y[:, None])[:, :-1]
    wanted, ranks = hits.sum(axis=1), np.arange(1, len(x))
    hits, wanted = hits[wanted > 0], wanted[wanted > 0]
    counted = hits & (ranks <= wanted[:, None])
    precision = (counted * np.cumsum(hits, axis=1) / ranks).sum(axis=1) / wanted
    return {d: hits[:, :d].any(axis=1).mean() for d in k}, (counted.sum(axis=1) / wanted).mean(), precision.mean()


@pytest.mark.parametrize("spread", [1.0, 1e-2, 1e-3, 1e-4])  # at 1e-3 cosines differ by what float32 rounds
@pytest.mark.parametrize(("dim", "classes", "k"), [(2, 90, (1, 3)), (24, 60, (1, 5, 40)), (200, 300, (1, 300))])
def test_retrieval_of_many_is_that_of_float64(dim, classes, k, spread):
    rng = np.random.default_rng(dim)
    y = np.concatenate((rng.integers(0, classes, 1300), np.arange(classes, classes + 40)))  # forty ask nothing
    x = rng.standard_normal(dim) + spread * (rng.standard_normal((len(y), dim)) + rng.standard_normal((len(y), dim))[y])
    order = rng.permutation(len(y))
    found = retrieval(embeddings(x[order], y[order]), k=k)
    recall, r_precision, map_at_r = plain_retrieval(x, y, k)
    assert found.recall_at == pytest.approx(recall, abs=1e-12)
    assert (found.r_precision, found.map_at_r) == pytest.approx((r_precision, map_at_r), abs=1e-12)
