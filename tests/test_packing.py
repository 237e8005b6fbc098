"""How far apart directions can be: exact cases, laws, an independent beta function, chance by simulation."""

import itertools
import math

import pytest
import torch
from scipy.special import betainc, ive

from arcwise.packing import TAMMES, largest_smallest_angle, log_cap_share, random_smallest_angle, sphere_mean


@pytest.mark.parametrize(
    ("classes", "dim", "degrees"),
    [(1, 5, 180), (2, 1, 180), (3, 1, 0), (2, 7, 180), (3, 2, 120), (10, 2, 36), (4, 2, 90), (4, 3, 109.4712),
     (5, 3, 90), (6, 3, 90), (10, 3, 66.1468), (12, 3, 63.4349), (24, 3, 43.6908), (8, 4, 90), (1024, 512, 90)],
)  # fmt: skip
def test_the_known_arrangements(classes, dim, degrees):
    assert math.degrees(largest_smallest_angle(classes, dim)[0]) == pytest.approx(degrees, abs=1e-3)


def test_the_smallest_angle_never_grows_with_more_classes_and_never_shrinks_with_more_dimensions():
    for dim in (1, 2, 3, 4, 8, 64, 512):
        angles = [largest_smallest_angle(c, dim)[0] for c in [*range(1, 200), 1000, 10**4, 10**6, 10**9]]
        assert all(a >= b for a, b in itertools.pairwise(angles)), dim
    for classes in (5, 10, 14, 15, 100, 10**5):
        angles = [largest_smallest_angle(classes, d)[0] for d in (1, 2, 3, 4, 8, 64, 512)]
        assert all(a <= b for a, b in itertools.pairwise(angles)), classes


def test_solved_cases_respect_the_cap_bound():
    for n, degrees in TAMMES.items():
        assert math.log(n) + log_cap_share(math.radians(degrees) / 2, 3) <= 1e-9


def test_the_share_of_a_cap_equals_scipys_incomplete_beta():
    for dim in (2, 3, 10, 129, 512):
        for radius in (0.1, 0.5, 1.0, 1.4, 1.55):
            share = 0.5 * betainc((dim - 1) / 2, 0.5, math.sin(radius) ** 2)
            if share > 1e-300:
                assert log_cap_share(radius, dim) == pytest.approx(math.log(share), rel=1e-10, abs=1e-11)


@pytest.mark.parametrize(("classes", "dim"), [(10, 2), (50, 3), (100, 16), (300, 128)])
def test_chance_agrees_with_simulation(classes, dim):
    smallest = []
    for _ in range(400):
        x = torch.nn.functional.normalize(torch.randn(classes, dim, dtype=torch.float64))
        cos = (x @ x.T).fill_diagonal_(-1.0)
        smallest.append(math.acos(min(1.0, float(cos.max()))))
    median = sorted(smallest)[200]
    assert random_smallest_angle(classes, dim) == pytest.approx(median, rel=0.2)


@pytest.mark.parametrize("s", [0.1, 2.0, 50.0, 1e6])
def test_the_mean_over_the_sphere_is_a_bessel_function(s):
    assert sphere_mean(s, 2) == pytest.approx(ive(0, s), rel=2e-3)
    assert sphere_mean(s, 3) == pytest.approx(-math.expm1(-2 * s) / (2 * s), rel=2e-3)
    assert sphere_mean(s, 4) == pytest.approx(2 * ive(1, s) / s, rel=2e-3)
    if s < 100:
        assert sphere_mean(s / 10, 200) == pytest.approx(sphere_mean(s / 10, 64), rel=0.3)
