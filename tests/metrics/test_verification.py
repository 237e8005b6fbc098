"""ROC, AUC, EER, TAR at a FAR and folds: loops over thresholds and pairs, numbers by hand, scikit-learn, and bins."""

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score, roc_curve

from arcwise.metrics import all_pairs, auc, eer, fold_accuracy, roc, tar_at_far
from arcwise.metrics.folds import best_threshold
from arcwise.metrics.verification import WIDTH, equal_error_rate, given_pairs, score_pairs
from metrics import definitions
from metrics.samples import apart, blobs, embeddings, labelled

FARS = (0.0, 0.001, 0.01, 0.05, 0.1, 0.25, 0.3, 0.5, 0.7, 1.0)
TIED = st.integers(-4, 4).map(lambda k: k / 8)  # a few values, so that scores are often equal
FREE = st.floats(-1, 1, allow_subnormal=False)


def score_lists(least=1, most=14):
    """Genuine and impostor scores, with many ties or with few."""
    return st.sampled_from([TIED, FREE]).flatmap(
        lambda one: st.tuples(*[st.lists(one, min_size=least, max_size=most)] * 2)
    )


def pairs_of(genuine, impostor):
    return score_pairs(np.array([*genuine, *impostor]), np.arange(len(genuine) + len(impostor)) < len(genuine))


# ------------------------------------------------------------------------------------------ by loops


@given(score_lists(), st.lists(FREE, min_size=1, max_size=5))
def test_far_and_tar_are_the_shares_at_or_above_a_threshold(lists, thresholds):
    pairs = pairs_of(*lists)
    thresholds += [lists[0][0], lists[1][-1]]
    for scores, ours in zip(lists, (pairs.genuine, pairs.impostor), strict=True):
        truth = [float(definitions.accepted(scores, t)) for t in thresholds]
        assert ours.above(np.array(thresholds)).tolist() == truth
        assert [float(ours.above(t)) for t in thresholds] == truth


@given(score_lists())
def test_auc_is_its_definition_with_ties_counted_half(lists):
    assert auc(pairs_of(*lists)) == pytest.approx(definitions.auc(*lists), abs=1e-12)


@settings(max_examples=200)
@given(score_lists())
def test_the_equal_error_rate_is_its_definition(lists):
    pairs = pairs_of(*lists)
    found, rates = eer(pairs), definitions.equal_error_rates(*lists)
    assert min(abs(equal_error_rate(pairs) - rate) for rate in rates) <= 1e-12
    assert found.far == float(definitions.accepted(lists[1], found.threshold))
    assert found.tar == float(definitions.accepted(lists[0], found.threshold))


def test_no_score_lies_beyond_those_of_equal_and_opposite_directions():
    # In float32 the length of a direction is 1 up to rounding: a product of two nearly equal ones may exceed 1.
    draw = np.random.default_rng(0)
    x = draw.standard_normal(256) + 1e-7 * draw.standard_normal((40, 256))
    pairs = all_pairs(embeddings([*x, *-x], np.repeat([0, 1], 40)))
    assert pairs.genuine.value.max() == 1.0 and pairs.impostor.value.min() == -1.0


@settings(max_examples=60)
@given(score_lists())
def test_tar_at_far_is_its_definition(lists):
    pairs = pairs_of(*lists)
    for far in FARS:
        found = tar_at_far(pairs, far)
        assert found.tar == definitions.tar_at_far(*lists, far), far
        assert found.far == float(definitions.accepted(lists[1], found.threshold)) <= far
        assert found.tar == float(definitions.accepted(lists[0], found.threshold))


@settings(max_examples=60)
@given(score_lists())
def test_the_roc_runs_through_points_of_the_definition_from_no_impostor_to_all(lists):
    far, tar, threshold = roc(pairs_of(*lists))
    assert far.tolist() == [float(definitions.accepted(lists[1], t)) for t in threshold]
    assert tar.tolist() == [float(definitions.accepted(lists[0], t)) for t in threshold]
    assert far[0] == 0.0 and far[-1] == 1.0 and (np.diff(threshold) <= 0).all()
    assert set(far) == {0.0} | {float(definitions.accepted(lists[1], t)) for t in lists[1]}  # 400 points hold them all


@settings(max_examples=40)
@given(labelled(dims=(2, 5), pair=True))
def test_all_pairs_are_the_cosines_of_all_pairs(drawn):
    e, (genuine, impostor) = embeddings(*drawn), definitions.all_scores(*drawn)
    pairs = all_pairs(e)
    assert (pairs.genuine.total, pairs.impostor.total, pairs.width) == (len(genuine), len(impostor), 0.0)
    assert pairs.genuine.value.tolist() == pytest.approx(sorted(genuine), abs=1e-6)
    assert pairs.impostor.value.tolist() == pytest.approx(sorted(impostor), abs=1e-6)
    assume(apart([*genuine, *impostor], 1e-5))
    assert auc(pairs) == pytest.approx(definitions.auc(genuine, impostor), abs=1e-12)
    assert tar_at_far(pairs, 0.1).tar == definitions.tar_at_far(genuine, impostor, 0.1)


@settings(max_examples=60)
@given(st.data(), st.sampled_from([TIED, FREE]), st.integers(2, 10))
def test_accuracy_over_folds_is_its_definition(data, one, folds):
    score = data.draw(st.lists(one, min_size=folds, max_size=25))
    same = data.draw(st.lists(st.booleans(), min_size=len(score), max_size=len(score)))
    found = fold_accuracy(np.array(score), np.array(same), folds=folds)
    for held, t, accuracy in zip(definitions.fold_rows(len(score), folds), found.thresholds, found.folds, strict=True):
        rest = [i for i in range(len(score)) if i not in held]
        on_rest = definitions.rightly_answered([score[i] for i in rest], [same[i] for i in rest], t)
        assert on_rest == definitions.best_share([score[i] for i in rest], [same[i] for i in rest])
        on_held = definitions.rightly_answered([score[i] for i in held], [same[i] for i in held], t)
        assert accuracy == pytest.approx(float(on_held))
    assert found.mean == pytest.approx(math.fsum(found.folds) / folds)
    assert found.spread == pytest.approx(math.sqrt(math.fsum((a - found.mean) ** 2 for a in found.folds) / folds))


# ------------------------------------------------------------------------------------------ by hand


def test_four_genuine_and_five_impostor_pairs_by_hand():
    # genuine 0.9 0.8 0.5 0.2, impostor 0.6 0.5 0.3 0.1 0.0
    # AUC: 0.9 and 0.8 beat 5 each, 0.5 beats 3 and ties 1, 0.2 beats 2: (5 + 5 + 3.5 + 2)/20
    # t = 0.5: FAR 2/5, FRR 1/4, gap 0.15; above 0.5: 1/5 and 2/4; t = 0.3: 3/5 and 1/4. The rate is (2/5 + 1/4)/2.
    # FAR <= 0.2 allows one impostor, 0.6, so t is just above 0.5: TAR 2/4. FAR <= 0.4 allows 0.5: TAR 3/4.
    pairs = pairs_of([0.9, 0.8, 0.5, 0.2], [0.6, 0.5, 0.3, 0.1, 0.0])
    assert auc(pairs) == pytest.approx(15.5 / 20)
    found = eer(pairs)
    assert (found.far, found.tar) == pytest.approx((2 / 5, 3 / 4))
    assert equal_error_rate(pairs) == pytest.approx(0.325)
    assert (tar_at_far(pairs, 0.2).tar, tar_at_far(pairs, 0.4).tar, tar_at_far(pairs, 0.0).tar) == (0.5, 0.75, 0.5)
    assert tar_at_far(pairs, 0.0).threshold == np.nextafter(0.6, 1)


def test_pairs_that_are_told_apart_without_error_and_those_that_are_swapped():
    right, wrong = pairs_of([0.9, 0.8], [0.2, 0.1]), pairs_of([0.2, 0.1], [0.9, 0.8])
    assert (auc(right), equal_error_rate(right), tar_at_far(right, 0.0).tar) == (1.0, 0.0, 1.0)
    assert (auc(wrong), equal_error_rate(wrong), tar_at_far(wrong, 0.0).tar) == (0.0, 1.0, 0.0)


def test_scores_that_are_all_equal_say_nothing():
    pairs = pairs_of([0.5] * 3, [0.5] * 4)
    assert (auc(pairs), equal_error_rate(pairs)) == (0.5, 0.5)
    assert (tar_at_far(pairs, 0.99).tar, tar_at_far(pairs, 1.0).tar) == (0.0, 1.0)


def test_accuracy_over_two_folds_by_hand():
    # Fold 1: 0.9 same, 0.4 not, 0.3 same; fold 2: 0.8 same, 0.6 not, 0.1 not.
    # Fold 2 is best cut between 0.6 and 0.8, at 0.7: right for 0.9 and 0.4, wrong for 0.3: 2/3.
    # Fold 1 is cut best between 0.4 and 0.9 (0.65) or below 0.3 (0.3), 2/3 each; the lower accepts 0.8 and 0.6: 2/3.
    score, same = np.array([0.9, 0.4, 0.3, 0.8, 0.6, 0.1]), np.array([True, False, True, True, False, False])
    found = fold_accuracy(score, same, folds=2)
    assert found.thresholds[0] == pytest.approx(0.7) and found.folds[0] == pytest.approx(2 / 3)
    assert (found.thresholds[1], found.folds[1]) in [(0.3, pytest.approx(2 / 3)), (0.65, 1.0)]


def test_the_best_threshold_lies_between_two_neighbouring_numbers_too():
    for dtype in (np.float32, np.float64):
        low = dtype(0.3)
        for _ in range(8):  # half of all neighbours have a middle that rounds down to the lower one
            high = np.nextafter(low, dtype(1))
            t = best_threshold(np.array([low, high]), np.array([False, True]))
            assert low < t <= high
            low = high


def test_given_pairs_are_scored_by_their_cosine():
    # (3, 4) and (4, 3): 24/25; (3, 4) and (-4, 3): 0.
    e = embeddings([[3, 4], [8, 6], [-4, 3]], [0, 0, 1])
    score, same = given_pairs(e, np.array([[0, 1], [2, 0]]))
    assert score.tolist() == pytest.approx([0.96, 0.0]) and same.tolist() == [True, False]


# ------------------------------------------------------------------------------------------ laws of ranks


@settings(max_examples=60)
@given(st.tuples(*[st.lists(st.integers(-20, 20), min_size=1, max_size=20)] * 2))
def test_an_increasing_map_of_the_scores_changes_no_rank_metric(lists):
    genuine, impostor = (np.array(some, float) / 20 for some in lists)
    before = pairs_of(genuine, impostor)
    maps = (np.exp, np.arctan, lambda s: s**3, lambda s: 5 * s - 7, lambda s: np.sign(s) * np.sqrt(np.abs(s)))
    for increasing in maps:
        after = pairs_of(increasing(genuine), increasing(impostor))
        assert auc(after) == auc(before)
        assert equal_error_rate(after) == equal_error_rate(before)
        assert [tar_at_far(after, far).tar for far in FARS] == [tar_at_far(before, far).tar for far in FARS]


@given(score_lists())
def test_turning_the_scores_round_turns_auc_round(lists):
    genuine, impostor = lists
    turned = pairs_of([-s for s in genuine], [-s for s in impostor])
    assert auc(turned) == pytest.approx(1.0 - auc(pairs_of(genuine, impostor)), abs=1e-12)


# ------------------------------------------------------------------------------------------ scikit-learn


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("digits", [1, 2, 12])
def test_auc_and_tar_at_far_are_those_of_scikit_learn(seed, digits):
    rng = np.random.default_rng(seed)
    same = rng.random(500) < 0.3
    score = np.round(rng.standard_normal(500) + same, digits)
    pairs = score_pairs(score, same)
    assert auc(pairs) == pytest.approx(roc_auc_score(same, score), abs=1e-12)
    far, tar, _ = roc_curve(same, score, drop_intermediate=False)
    for wanted in FARS:
        assert tar_at_far(pairs, wanted).tar == pytest.approx(tar[far <= wanted + 1e-12].max(), abs=1e-12), wanted
    theirs = {(round(f, 9), round(t, 9)) for f, t in zip(far, tar, strict=True)}
    found = roc(pairs)
    assert {(round(f, 9), round(t, 9)) for f, t in zip(found.far, found.tar, strict=True)} <= theirs
    best = np.abs(far - (1 - tar)).argmin()
    assert equal_error_rate(pairs) == pytest.approx((far[best] + 1 - tar[best]) / 2, abs=2 / 150)


# ------------------------------------------------------------------------------------------ scores counted in bins


def both_ways(seed, sizes=(30, 50, 1, 80), dim=4):
    e = blobs(sizes, dim, seed=seed, apart=0.7)
    return all_pairs(e), all_pairs(e, exact=0)


@pytest.mark.parametrize("seed", range(3))
def test_bins_hold_as_many_scores_as_there_are(seed):
    exact, binned = both_ways(seed)
    assert binned.width == WIDTH and exact.width == 0.0
    assert binned.genuine.total == exact.genuine.total and binned.impostor.total == exact.impostor.total


@pytest.mark.parametrize("seed", range(3))
def test_at_every_edge_of_a_bin_the_counts_are_exact(seed):
    exact, binned = both_ways(seed)
    edges = binned.impostor.value
    assert (binned.impostor.at_least(edges) != exact.impostor.at_least(edges)).sum() == 0
    assert (binned.genuine.at_least(edges) != exact.genuine.at_least(edges)).sum() == 0


def test_a_score_just_below_an_edge_is_not_taken_for_a_higher_one():
    # The cosines of the first to the others are -1e-9 and 0: one of them is at least 0.
    e = embeddings([[1, 0], [-1e-9, 1], [0, 1]], [0, 1, 1])
    assert all_pairs(e).impostor.at_least(0.0) == 1
    assert all_pairs(e, exact=0).impostor.at_least(0.0) == 1


@pytest.mark.parametrize("seed", range(3))
def test_bins_change_auc_by_no_more_than_pairs_that_share_a_bin(seed):
    exact, binned = both_ways(seed)
    same, other = binned.genuine.count / binned.genuine.total, binned.impostor.count / binned.impostor.total
    assert abs(auc(binned) - auc(exact)) <= (same * other).sum() / 2 + 1e-12


@pytest.mark.parametrize("seed", range(3))
def test_bins_raise_the_threshold_by_no_more_than_their_width(seed):
    exact, binned = both_ways(seed)
    for far in (0.001, 0.01, 0.1, 0.5):
        fine, coarse = tar_at_far(exact, far), tar_at_far(binned, far)
        assert fine.threshold <= coarse.threshold + 1e-7 and coarse.threshold <= fine.threshold + WIDTH + 1e-7
        assert coarse.far <= far
        assert exact.genuine.above(fine.threshold + WIDTH + 1e-7) <= coarse.tar <= fine.tar


@pytest.mark.parametrize("seed", range(3))
def test_bins_move_the_equal_error_rate_by_no_more_than_one_bin_holds(seed):
    exact, binned = both_ways(seed)
    fine, coarse = eer(exact), eer(binned)
    gap = abs(fine.far - (1 - fine.tar))
    mass = max((s.count / s.total).max() for s in (binned.genuine, binned.impostor))
    assert abs(coarse.far - (1 - coarse.tar)) <= gap + 2 * mass
    assert abs(equal_error_rate(exact) - equal_error_rate(binned)) <= gap + 2 * mass
    assert coarse.far == pytest.approx(float(exact.impostor.above(coarse.threshold)), abs=mass)


def test_the_ends_of_the_scale_have_their_bins():
    # Cosines 1, 1 (genuine), and -1, -1, 0, 0 (impostor).
    e = embeddings([[1, 0], [2, 0], [-1, 0], [0, 1]], [0, 0, 1, 2])
    binned = all_pairs(e, exact=0)
    assert (auc(binned), equal_error_rate(binned), tar_at_far(binned, 0.0).tar) == (1.0, 0.0, 1.0)
    assert binned.impostor.at_least(-1.0) == 5 and binned.impostor.at_least(-1.0 + WIDTH) == 3


@pytest.mark.parametrize("seed", range(2))
def test_bins_tell_cosines_apart_that_lie_close_together(seed):
    random = np.random.default_rng(seed)
    y = np.repeat(np.arange(20), 8)
    centres = 5.0 + 0.05 * random.standard_normal((20, 16))  # every cosine is above 0.999
    e = embeddings(centres[y] + 0.035 * random.standard_normal((160, 16)), y)
    exact, binned = all_pairs(e), all_pairs(e, exact=0)
    assert 0.8 < auc(exact) < 0.999
    assert auc(binned) == pytest.approx(auc(exact), abs=0.003)
    assert equal_error_rate(binned) == pytest.approx(equal_error_rate(exact), abs=0.01)
    for far in (0.01, 0.1):
        assert tar_at_far(binned, far).far <= far
        assert tar_at_far(binned, far).tar == pytest.approx(tar_at_far(exact, far).tar, abs=0.02)
    edges = binned.impostor.value
    assert (binned.impostor.at_least(edges) == exact.impostor.at_least(edges)).all()
    assert (binned.genuine.at_least(edges) == exact.genuine.at_least(edges)).all()
