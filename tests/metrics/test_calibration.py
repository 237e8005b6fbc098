"""Thresholds for a wanted FAR: by definition, by simulation of whole populations, and what is said of too few."""

import itertools
import math
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from arcwise.errors import ArcwiseError
from arcwise.metrics import threshold_for
from arcwise.metrics.calibration import (
    LEAST_ACCEPTED,
    LEAST_IDENTITIES,
    People,
    Threshold,
    accepted_at,
    cosine_of,
    false_positive_rate,
    false_rate,
    mean_interval,
    order_of,
)
from arcwise.metrics.rows import BLOCK_BYTES
from arcwise.metrics.spread import student
from arcwise.records import Embeddings
from metrics import people


def some_people(seed, sizes, dim=8, noise=0.7, decimals=None):
    """Embeddings of people with so many images each; rounded, they repeat and tie."""
    random = np.random.default_rng(seed)
    y = np.repeat(np.arange(len(sizes)), sizes)
    x = random.standard_normal((len(sizes), dim))[y] + noise * random.standard_normal((len(y), dim))
    x = x if decimals is None else np.round(x, decimals)
    x[np.abs(x).max(axis=1) == 0] = 1.0
    return Embeddings(x[order := random.permutation(len(y))], y[order])


def pair_rates(e, t):
    """For every two identities the share of their pairs of images with a cosine of at least t, by slow loops."""
    unit = e.x / np.linalg.norm(e.x, axis=1, keepdims=True)
    h = {}
    for i, j in itertools.combinations(np.unique(e.y).tolist(), 2):
        scores = [math.fsum(a * b) for a in unit[e.y == i] for b in unit[e.y == j]]
        h[i, j] = sum(score >= t for score in scores) / len(scores)
    return h


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.lists(st.integers(1, 5), min_size=10, max_size=16), st.sampled_from([0.05, 0.2]))
def test_the_threshold_is_the_lowest_whose_rate_over_pairs_of_identities_is_at_most_the_wanted(seed, sizes, far):
    e = some_people(seed, sizes)
    found = threshold_for(e, far, few_identities=True)
    above, below = (np.mean(list(pair_rates(e, found.value + step).values())) for step in (1e-6, -1e-6))
    assert found.far == pytest.approx(above, abs=1e-6) and found.far <= far + 1e-9
    assert below > far - 1e-9  # a step lower it would be more
    genuine = [
        np.mean([bool(np.float32(a @ b) >= np.float32(found.value) - 2e-7) for a, b in itertools.combinations(rows, 2)])
        for i in np.unique(e.y) if len(rows := (e.x / np.linalg.norm(e.x, axis=1, keepdims=True))[e.y == i]) > 1
    ]  # fmt: skip
    assert math.isnan(found.tar) if not genuine else found.tar == pytest.approx(np.mean(genuine), abs=0.02)
    n = len(e.y)
    assert found.identities == len(sizes) and found.images == n
    assert found.impostors + found.genuine == n * (n - 1) // 2


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([0.1, 0.3]))
def test_ties_are_all_accepted_or_none(seed, far):
    e = some_people(seed, [3] * 12, dim=2, decimals=0)
    found = threshold_for(e, far, few_identities=True)
    again = threshold_for(Embeddings(e.x[::-1].copy(), e.y[::-1].copy()), far, few_identities=True)
    assert found.value == again.value and (found.far, found.tar) == pytest.approx((again.far, again.tar), abs=1e-12)
    assert found.far <= far + 1e-12


def test_one_identity_with_many_images_counts_no_more_than_one_with_few():
    e = some_people(3, [4] * 30)
    twice = Embeddings(np.concatenate([e.x, np.tile(e.x[e.y == 0], (5, 1))]), np.concatenate([e.y, np.zeros(20, int)]))
    a, b = threshold_for(e, 0.05), threshold_for(twice, 0.05)
    assert b.value == pytest.approx(a.value, abs=1e-6) and b.far == pytest.approx(a.far, abs=1e-9)
    assert b.images == a.images + 20


def test_blocks_of_any_size_give_the_same(monkeypatch):
    e = some_people(5, [3, 1, 7, 2, 4, 5, 1, 3, 6, 2, 4, 3, 2])
    whole = threshold_for(e, 0.1, few_identities=True)
    assert BLOCK_BYTES > 1000
    monkeypatch.setattr("arcwise.metrics.rows.BLOCK_BYTES", 400)
    small = threshold_for(e, 0.1, few_identities=True)
    assert small == pytest.approx(whole, abs=1e-6)


def test_the_interval_of_four_identities_by_hand():
    # h = 0.4 between 0 and 1, 0.2 between 0 and 2, 0.1 between 1 and 2, 0.1 between 2 and 3, else 0: r sums the rows.
    r = np.array([0.6, 0.5, 0.4, 0.1])
    found, steady = false_rate(r)
    assert steady and found.value == pytest.approx(1.6 / 12)
    logs = np.log((1.6 - 2 * r) / 6)
    error = math.sqrt(3 / 4 * ((logs - logs.mean()) ** 2).sum())
    freedom = 1.6**2 / (r**2).sum() - 1
    wide = error * student(freedom)
    assert (found.low, found.high) == pytest.approx((1.6 / 12 * math.exp(-wide), min(1, 1.6 / 12 * math.exp(wide))))
    alone, steady = false_rate(np.array([0.3, 0.3, 0.0, 0.0]))  # without the first nothing is left
    assert not steady and (alone.low, alone.high) == (0.0, 1.0)


def test_what_all_have_in_common_is_not_certain_of_others():
    for n in (10, 30, 300):
        for found in (mean_interval(np.ones(n)), mean_interval(np.zeros(n))):
            share = stats.beta.ppf(0.025, n, 1)  # Clopper and Pearson's, where all of n are accepted
            assert found.high - found.low == pytest.approx(1.0 - share) and found.low <= found.value <= found.high
    random, inside = np.random.default_rng(0), 0
    for _ in range(2000):
        found = mean_interval((random.random(30) < 0.95).astype(float))
        inside += found.low <= 0.95 <= found.high
    assert inside >= 0.93 * 2000


def test_the_rate_of_twins_is_not_certain():
    random, y = np.random.default_rng(5), np.repeat(np.arange(40), 3)
    twins = np.repeat(random.standard_normal((20, 64)), 2, axis=0)
    found = threshold_for(Embeddings(twins[y] + 0.02 * random.standard_normal((120, 64)), y), 0.0257)
    assert found.far == pytest.approx(20 / 780)
    wide = student(40 - 1) / math.sqrt(20)  # twenty pairs of people, each accepted whole
    assert math.log(found.far_high / found.far) == pytest.approx(wide, rel=1e-3)
    assert math.log(found.far / found.far_low) == pytest.approx(wide, rel=1e-3)


def test_the_squares_over_pairs_of_identities_are_those_of_slow_loops(monkeypatch):
    e = some_people(5, [3, 1, 7, 2, 4, 5, 1, 3, 6, 2, 4, 3, 2])
    group = People.of(e)
    value, accepted = accepted_at(group, 20.0)
    wanted = math.fsum(h * h for h in pair_rates(e, value).values())
    assert accepted.squares == pytest.approx(wanted, rel=1e-4)
    for size in (400, 1500):
        monkeypatch.setattr("arcwise.metrics.rows.BLOCK_BYTES", size)
        assert accepted_at(group, 20.0)[1].squares == pytest.approx(wanted, rel=1e-4)


@pytest.mark.parametrize("freedom", [1, 2, 5.5, 7.3, 29.9, 30.1, 64.0, 1000.0])
def test_student_is_students(freedom):
    assert student(freedom) == pytest.approx(stats.t.ppf(0.975, freedom), rel=2e-3 if freedom > 5 else 2e-1)
    assert student(freedom) > stats.t.ppf(0.975, freedom) - 3e-3  # between whole numbers it is on the safe side


def test_cosines_keep_their_order_as_whole_numbers():
    values = np.sort(np.float32([-1, -0.5, -1e-40, -0.0, 0.0, 1e-40, 1e-3, 0.5, np.nextafter(np.float32(1), 0), 1]))
    keys = order_of(values).astype(np.int64)
    assert (np.diff(keys)[np.diff(values) > 0] > 0).all()
    assert [cosine_of(int(key)) for key in keys] == values.tolist()


# ------------------------------------------------------------------------------------------ does it cover the truth?


def coverage(n, effect, far, draws, scores):
    """How often the interval holds the true rate, how wide it is as a factor, and how many draws were refused."""
    random, inside, wide, refused = np.random.default_rng(n), 0, [], 0
    for _ in range(draws):
        try:
            found = threshold_for(people.drawn(effect, n, random), far)
        except ArcwiseError:
            refused += 1
            continue
        inside += found.far_low <= people.true_rate(scores, found.value) <= found.far_high
        wide.append(found.far_high / found.far)
    return inside, wide, refused


@pytest.mark.parametrize(("n", "effect", "far"), [(20, "weak", 1e-2), (20, "strong", 1e-2), (50, "strong", 1e-2)])
def test_the_interval_covers_the_rate_of_the_population(n, effect, far):
    inside, wide, refused = coverage(n, effect, far, 60, people.truth(effect, 2000))
    assert inside >= 0.85 * len(wide) and refused <= 6  # a 90 % coverage is below 85 % in one test of fifteen


@pytest.mark.parametrize("effect", ["weak", "strong"])
def test_a_regime_of_too_few_is_refused(effect):
    with pytest.raises(ArcwiseError, match=r"20 identities are too few for FAR 0.001: it takes 46"):
        threshold_for(people.drawn(effect, 20, np.random.default_rng(0)), 1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("effect", ["weak", "strong"])
def test_five_hundred_draws_of_every_regime_are_covered(effect):
    scores = people.truth(effect)
    for n, kind, far in people.REGIMES:
        if kind == effect:
            inside, wide, refused = coverage(n, effect, far, 500, scores)
            print(n, effect, far, f"{inside} of {len(wide)}", f"x{np.median(wide or [0]):.2f}", refused)
            assert refused == 500 or inside >= 0.9 * len(wide), (n, effect, far)


# ------------------------------------------------------------------------------------------ words


def test_too_few_identities_or_pairs_say_how_many_it_takes():
    with pytest.raises(
        ArcwiseError, match=f"9 identities are too few for FAR 0.1: it takes {LEAST_IDENTITIES}, whatever"
    ):
        threshold_for(some_people(0, [5] * 9), 0.1)
    with pytest.raises(ArcwiseError, match=r"few_identities=True \(--few-identities\)"):
        threshold_for(some_people(0, [5, 5]), 0.1)
    with pytest.raises(ArcwiseError, match=r"780 impostor pairs are too few for FAR 0.01: it takes 1,000") as told:
        threshold_for(some_people(0, [1] * 40), 0.01)
    least = float(re.search(r"Ask for FAR ([0-9.]+)", str(told.value))[1])
    assert least * 780 >= LEAST_ACCEPTED and (least - 0.002) * 780 < LEAST_ACCEPTED
    threshold_for(some_people(0, [1] * 40), least, few_identities=True)


def test_a_threshold_that_was_wanted_all_the_same_says_so_for_ever():
    found = threshold_for(some_people(0, [30, 30]), 0.01, few_identities=True)
    assert isinstance(found, Threshold) and found.few and found.far <= 0.01
    assert (found.far_low, found.far_high) == (0.0, 1.0)  # of two identities nothing is known of others
    assert not threshold_for(some_people(0, [5] * 40), 0.05).few


def test_equal_rows_everywhere_accept_nobody():
    e = Embeddings(np.ones((60, 3)), np.arange(60) // 4)
    found = threshold_for(e, 0.1, few_identities=True)
    assert found.far == 0.0 and found.value > 1.0 and found.tar == 0.0


# ------------------------------------------------------------------------------------------ against a whole gallery


@pytest.mark.parametrize("effect", ["weak", "strong"])
def test_the_rate_against_a_gallery_is_near_what_a_population_has(effect):
    random = np.random.default_rng(7)
    gallery = people.pictures(people.centres(effect, 5000, random), 1, random)
    strangers = people.pictures(people.centres(effect, 1000, random), 1, random)
    found = threshold_for(people.drawn(effect, 200, random), 1e-2)
    match = (strangers @ gallery.T >= found.value).mean(axis=1)
    for enrolled, near in ((1, 0.35), (10, 0.35), (100, 0.2), (1000, 0.25)):
        true = float((1.0 - (1.0 - match) ** enrolled).mean())
        assert false_positive_rate(found.far, found.evenness, enrolled) == pytest.approx(true, rel=near), enrolled


def test_the_rate_against_a_gallery_rises_and_stays_below_independence():
    for far, even in itertools.product((1e-4, 1e-2), (0.05, 1.0, 1e3)):
        rates = [false_positive_rate(far, even, n) for n in (1, 10, 1000, 10**6)]
        assert rates == sorted(rates) and rates[0] == pytest.approx(far)
        assert all(rate <= 1.0 - (1.0 - far) ** n + 1e-9 for rate, n in zip(rates, (1, 10, 1000, 10**6), strict=True))
    assert false_positive_rate(0.0, 1.0, 100) == 0.0
