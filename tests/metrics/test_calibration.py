"""Thresholds for a wanted FAR: by definition, by simulation, and what is said where pairs are too few."""

import re
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from arcwise.errors import ArcwiseError
from arcwise.metrics import all_pairs, tar_at_far, threshold_for
from arcwise.metrics.calibration import NEEDED, wilson
from arcwise.metrics.verification import PairScores, SortedScores, score_pairs
from metrics import definitions
from metrics.samples import blobs


def impostors(scores, genuine=(10.0,)):
    """Pairs with these impostor scores."""
    return PairScores(
        genuine=SortedScores(value=np.sort(np.array(genuine))), impostor=SortedScores(value=np.sort(scores))
    )


@settings(max_examples=40)
@given(st.integers(0, 2**32 - 1), st.integers(20, 400), st.sampled_from([0.05, 0.1, 0.25, 0.5]), st.booleans())
def test_the_threshold_is_the_lowest_whose_far_is_at_most_the_wanted(seed, n, far, ties):
    rng = np.random.default_rng(seed)
    n = max(n, round(NEEDED / far))
    score, genuine = rng.standard_normal(n).round(1 if ties else 12), rng.standard_normal(30) + 1
    found = threshold_for(impostors(score, genuine), far)
    allowed = [t for t in definitions.cuts(score, genuine) if definitions.accepted(score, t) <= Fraction(str(far))]
    assert found.far == float(definitions.accepted(score, found.value)) <= far
    assert found.tar == float(definitions.accepted(genuine, found.value))
    assert found.tar == float(max(definitions.accepted(genuine, t) for t in allowed))
    assert found.far == float(max(definitions.accepted(score, t) for t in allowed))
    assert found.low <= found.value <= found.high and found.far_low <= found.far <= found.far_high
    assert found.impostors == n


def test_a_threshold_of_a_thousand_impostors_by_hand():
    # Scores 0, 1, ..., 999. FAR 0.1 allows 100 of them, 900 to 999, so the threshold is just above 899.
    # 1.96 sqrt(100 * 0.9) = 18.6: ranks 119 and 81 from the top, which are 880 and 918.
    found = threshold_for(impostors(np.arange(1000.0)), 0.1)
    assert (found.value, found.far) == (np.nextafter(899, 900), 0.1)
    assert (found.low, found.high) == (np.nextafter(880, 881), np.nextafter(918, 919))
    assert (found.far_low, found.far_high) == pytest.approx((0.0829, 0.1202), abs=1e-4)


@pytest.mark.parametrize(("far", "n"), [(0.02, 2000), (0.1, 300), (0.5, 200)])
def test_the_intervals_cover_the_truth_about_19_times_in_20(far, n):
    rng, rounds = np.random.default_rng(1), 1000
    truth, inside, rate_inside = stats.norm.ppf(1 - far), 0, 0
    for _ in range(rounds):
        found = threshold_for(impostors(rng.standard_normal(n)), far)
        inside += found.low <= truth <= found.high
        rate_inside += found.far_low <= stats.norm.sf(found.value) <= found.far_high
    assert 0.93 <= inside / rounds <= 0.975  # 0.95 -+ 3 standard deviations of the simulation, and whole ranks
    assert 0.93 <= rate_inside / rounds <= 0.975


@pytest.mark.parametrize(("share", "n"), [(0.0, 10), (0.1, 30), (0.5, 100), (0.999, 1000), (1.0, 7)])
def test_wilsons_interval_is_that_of_scipy(share, n):
    theirs = stats.binomtest(round(share * n), n).proportion_ci(method="wilson")
    assert wilson(round(share * n) / n, n) == pytest.approx((theirs.low, theirs.high), abs=1e-7)


def test_scores_in_bins_give_a_threshold_no_more_than_a_bin_higher():
    e = blobs([30, 50, 40], 4)
    exact, binned = all_pairs(e), all_pairs(e, exact=0)
    for far in (0.01, 0.1):
        fine, coarse = threshold_for(exact, far), threshold_for(binned, far)
        assert fine.value - 1e-7 <= coarse.value <= fine.value + binned.width + 1e-7
        assert coarse.far <= far and coarse.value == tar_at_far(binned, far).threshold


def test_too_few_impostors_are_refused_with_how_many_it_takes():
    pairs = score_pairs(np.linspace(0.0, 1.0, 1010), np.arange(1010) >= 1000)
    with pytest.raises(ArcwiseError, match=r"1,000 impostor pairs are too few for FAR 0\.001.*10,000 impostor pairs"):
        threshold_for(pairs, 0.001)
    for far in (0.0, 0.6, -1, float("nan")):
        with pytest.raises(ArcwiseError, match="far must be a number from"):
            threshold_for(pairs, far)


def refusal(n, far):
    with pytest.raises(ArcwiseError, match="too few") as caught:
        threshold_for(impostors(np.arange(float(n))), far)
    return str(caught.value)


@pytest.mark.parametrize("n", [1, 5, 12, 19, 20, 21, 35, 123, 140, 999, 1000, 1500, 1900, 2600, 9999])
def test_a_refusal_asks_for_a_rate_that_is_then_allowed(n):
    found = re.search(r"ask for FAR (\S+?)\.?$", refusal(n, 1e-4))
    if n >= 20:
        assert found, "there is a FAR up to 0.5 that rests on 10 of these pairs"
        assert threshold_for(impostors(np.arange(float(n))), float(found[1])).far <= float(found[1])
    else:
        assert not found, "no FAR up to 0.5 rests on 10 of these pairs"


@pytest.mark.parametrize("far", [k * 10.0**-e for e in (2, 3, 4, 5) for k in (1, 3, 7)])
def test_a_refusal_asks_for_as_many_pairs_as_are_then_enough(far):
    wanted = int(re.search(r"Bring ([\d,]+) impostor pairs", refusal(5, far))[1].replace(",", ""))
    assert threshold_for(impostors(np.arange(float(wanted))), far).impostors == wanted
    assert (wanted - 1) * far < NEEDED
