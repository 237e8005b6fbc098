"""Conflicts: the loop over all triples, numbers by hand, ties, and which anchors count."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arcwise.metrics import conflicts
from arcwise.metrics.clusters import DISTANCES
from metrics import definitions
from metrics.samples import blobs, embeddings, labelled


def assert_is_its_definition(e, distance, allowed=None):
    found = conflicts(e, distance=distance, correct=allowed, worst=5)
    triples, anchors, nearest, excess = definitions.conflicts(e.x, e.y, distance, allowed)
    assert (found.triples, found.anchors, found.nearest) == pytest.approx(
        (triples, anchors, nearest), abs=1e-12, nan_ok=True
    )
    assert [t.to_positive - t.to_negative for t in found.worst] == pytest.approx(excess[:5], rel=1e-9, abs=1e-12)
    for t in found.worst:
        assert e.y[t.anchor] == e.y[t.positive] != e.y[t.negative] and t.anchor != t.positive
        a, p, n = definitions.prepared(e.x[[t.anchor, t.positive, t.negative]], distance)
        expected = definitions.between_points(a, p, distance), definitions.between_points(a, n, distance)
        assert (t.to_positive, t.to_negative) == pytest.approx(expected, rel=1e-9, abs=1e-12)


@settings(max_examples=50)
@given(labelled(), st.data())
def test_conflicts_are_their_definition(drawn, data):
    e = embeddings(*drawn)
    allowed = data.draw(st.none() | st.lists(st.booleans(), min_size=len(e.y), max_size=len(e.y)).map(np.array))
    assert_is_its_definition(e, "euclidean", allowed)


@settings(max_examples=60)
@given(labelled(dims=(2, 5)), st.sampled_from(["unit", "cosine", "angle"]))
def test_conflicts_on_the_sphere_are_their_definition(drawn, distance):
    e = embeddings(*drawn)
    assert_is_its_definition(e, distance)


@settings(max_examples=60)
@given(labelled(whole=True))
def test_equal_distances_are_no_conflict(drawn):
    e = embeddings(*drawn)
    assert_is_its_definition(e, "euclidean")


@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("seed", range(10))
def test_a_sample_that_is_in_two_classes_is_no_nearer_in_one_than_in_the_other(distance, seed):
    # Every class is the same set: for each p there is one n at the same distance, and n = a itself at 0.
    x = np.random.default_rng(seed).standard_normal((5, 33))
    found = conflicts(embeddings([*x, *x], np.repeat([0, 1], 5)), distance=distance)
    # Each anchor has 4 p and 5 n. The p of rank r (1 to 4) is farther than the r nearer n: 1 + 2 + 3 + 4 of 20.
    assert found.triples == 10 / 20
    assert (found.anchors, found.nearest) == (1.0, 1.0)


def test_conflicts_of_four_points_by_hand():
    # {0, 4} and {3, 10}. 0: d(p) = 4 > d(3) = 3, not > 10: 1 of 2. 4: 4 > 1, not > 6: 1 of 2.
    # 3: 7 > 3 and > 1: 2 of 2. 10: 7 > 6, not > 10: 1 of 2. Together 5 of 8, in every anchor.
    # The nearest of all four is of the other class: 3 < 4, 1 < 4, 1 < 7, 6 < 7.
    e = embeddings([[0], [4], [3], [10]], [0, 0, 1, 1])
    found = conflicts(e, worst=2)
    assert (found.triples, found.anchors, found.nearest, found.n_anchors) == (5 / 8, 1.0, 1.0, 4)
    worst = [(t.anchor, t.positive, t.negative, t.to_positive, t.to_negative) for t in found.worst]
    assert worst == [(2, 3, 1, 7.0, 1.0), (1, 0, 2, 4.0, 1.0)]  # excess 6 and 3
    only = conflicts(e, correct=np.array([True, False, False, True]))
    assert (only.triples, only.anchors, only.n_anchors) == (2 / 4, 1.0, 2)


@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("sizes", [(2, 2, 2), (3, 4, 5)])
def test_samples_that_are_all_equal_have_no_conflict(distance, sizes):
    e = embeddings(np.tile([0.1, 0.7, -0.3], (sum(sizes), 1)), np.repeat(range(3), sizes))
    found = conflicts(e, distance=distance)
    assert (found.triples, found.anchors, found.nearest, found.worst) == (0.0, 0.0, 0.0, ())


def test_classes_of_one_have_no_anchor():
    found = conflicts(embeddings([[1, 0], [0, 1], [1, 1]], [0, 1, 2]))
    assert (found.n_anchors, found.worst) == (0, ())
    assert np.isnan([found.triples, found.anchors, found.nearest]).all()  # a share of nothing is no perfect share


@pytest.mark.parametrize("dim", [2, 40])
def test_one_row_far_away_hides_no_conflict_of_the_others(dim):
    e = blobs([20, 20, 20], dim, apart=0.3)
    far = embeddings(np.concatenate([e.x, np.full((1, dim), 1e8)]), [*e.y, 0])
    correct = np.arange(61) < 60
    found, wanted = (conflicts(some, correct=correct) for some in (far, embeddings(far.x.clip(max=1e3), far.y)))
    assert (found.triples, found.anchors, found.nearest) == (wanted.triples, wanted.anchors, wanted.nearest)
    assert found.triples > conflicts(e).triples / 2


def test_a_draw_of_anchors_estimates_the_share_of_all():
    e = blobs([60, 80, 40], 4, apart=0.5)
    whole, drawn = conflicts(e), conflicts(e, limit=90)
    assert drawn.n_anchors == 90 and drawn == conflicts(e, limit=90)
    assert drawn.triples == pytest.approx(whole.triples, abs=0.05)
    assert conflicts(e, limit=180) == whole


@pytest.mark.parametrize("seed", range(3))
def test_distances_that_rise_together_have_the_same_conflicts(seed):
    e = blobs([7, 4, 9], 3, seed=seed, apart=0.5)
    unit, cosine, angle = (conflicts(e, distance=distance) for distance in ("unit", "cosine", "angle"))
    for kind in ("triples", "anchors", "nearest"):
        assert getattr(unit, kind) == getattr(cosine, kind) == getattr(angle, kind)
