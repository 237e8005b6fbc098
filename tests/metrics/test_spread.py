"""Spreads over seeds and projections to draw: scipy, scikit-learn, numbers by hand."""

import math
import statistics

import numpy as np
import pytest
from scipy import stats
from sklearn.decomposition import PCA

from arcwise.errors import ArcwiseError
from arcwise.metrics.projection import project
from arcwise.metrics.spread import T95, difference, spread


def test_the_mean_and_spread_of_four_numbers_by_hand():
    # 2 4 4 6: mean 4, squares 4 + 0 + 0 + 4 over 3.
    assert spread([2.0, 4.0, 4.0, 6.0]) == (4.0, pytest.approx(math.sqrt(8 / 3)), 2.0, 6.0, 4)
    assert spread([3.0]) == (3.0, 0.0, 3.0, 3.0, 1)


@pytest.mark.parametrize(
    ("values", "deviation"),
    [([1.0, 3.0], math.sqrt(2)), ([1.0, 2.0, 6.0], math.sqrt(7)), ([0.0, 0.0, 3.0], math.sqrt(3))],
)  # (1 + 1)/1; mean 3: (4 + 1 + 9)/2; mean 1: (1 + 1 + 4)/2
def test_the_spread_of_two_and_three_numbers_by_hand(values, deviation):
    assert spread(values).deviation == pytest.approx(deviation)


@pytest.mark.parametrize("n", [2, 3, 4, 5, 10])
def test_the_spread_is_that_of_pythons_own_statistics(n):
    values = np.random.default_rng(n).standard_normal(n).tolist()
    found = spread(values)
    assert (found.mean, found.deviation) == pytest.approx((statistics.mean(values), statistics.stdev(values)))
    assert (found.low, found.high, found.n) == (min(values), max(values), n)


def test_an_infinite_number_has_an_infinite_mean_and_an_unknown_one_an_unknown_mean():
    assert spread([1.0, math.inf]).mean == math.inf
    assert math.isnan(spread([1.0, math.nan]).mean)
    assert math.isnan(spread([]).mean)


def test_students_t_is_that_of_scipy():
    assert pytest.approx([stats.t.ppf(0.975, n) for n in range(1, len(T95) + 1)], abs=6e-4) == T95


@pytest.mark.parametrize("n", [2, 3, 8, 31, 40])
def test_a_paired_difference_has_the_interval_of_scipy(n):
    a, b = np.random.default_rng(n).standard_normal((2, n))
    found, theirs = difference(a.tolist(), b.tolist()), stats.ttest_rel(a, b).confidence_interval(0.95)
    assert found.mean == pytest.approx((a - b).mean())
    wider = T95[min(n - 1, 30) - 1] / stats.t.ppf(0.975, n - 1)  # beyond the table: its last row, a little wider
    assert found.high - found.mean == pytest.approx((theirs.high - found.mean) * wider, rel=1e-3)
    assert found.mean - found.low == pytest.approx((found.mean - theirs.low) * wider, rel=1e-3)
    assert 1.0 <= wider + 1e-3 < 1.02


@pytest.mark.parametrize(
    ("a", "clear"),
    [
        ([1.0, 1.1, 1.2], True),
        ([-1.0, -1.1, -1.2], True),
        ([1.0, 2.0, 3.0], False),  # 2 -+ 4.303 / sqrt 3 = 2.48
        ([-1.0, 1.0, 0.0], False),
        ([0.0, 0.0, 0.0], False),
        ([0.5, 0.5, 0.5], False),  # gaps without spread tell nothing of the next
        ([5.0], False),
        ([], False),
    ],
)
def test_a_difference_is_clear_where_its_interval_leaves_0_out(a, clear):
    assert difference(a, [0.0] * len(a)).clear is clear


def test_one_pair_has_a_difference_and_no_interval():
    found = difference([3.0], [1.0])
    assert found.mean == 2.0 and math.isnan(found.low) and not found.clear
    assert math.isnan(difference([1.0, math.inf], [1.0, 2.0]).mean)


@pytest.mark.parametrize("dim", [2, 3])
def test_principal_directions_are_those_of_scikit_learn(dim):
    x = np.random.default_rng(0).standard_normal((50, 6)) * [5, 1, 3, 0.5, 2, 0.1] + 7
    ours, theirs = project(x, dim=dim, centres=x[:4]), PCA(dim).fit(x)
    assert np.abs(ours.x) == pytest.approx(np.abs(theirs.transform(x)))
    assert ours.centres == pytest.approx(ours.x[:4])
    assert f"{theirs.explained_variance_ratio_.sum():.0%} of the variance" in ours.method


def test_points_without_spread_are_drawn_at_the_middle():
    assert project(np.ones((5, 3)), dim=2).x.tolist() == [[0.0, 0.0]] * 5
    assert project(np.ones((1, 3)), dim=2).x.tolist() == [[0.0, 0.0]]


def test_one_dimension_is_drawn_in_the_dimensions_that_were_asked_for():
    found = project(np.arange(5.0)[:, None], dim=2).x
    assert found.shape == (5, 2) and np.ptp(found[:, 1]) == 0.0


def test_an_unknown_projection_is_refused():
    with pytest.raises(ArcwiseError, match="unknown method 'pcs': did you mean 'pca'"):
        project(np.ones((5, 3)), method="pcs")
