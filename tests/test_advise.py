"""The advisor: the papers' scales, what room there is, and what it warns of."""

import math
import subprocess
import sys

import pytest
import torch

from arcwise import advise
from arcwise.advise import parting_rate
from arcwise.errors import ArcwiseError


def test_the_scales_are_the_papers_and_the_larger_rules():
    few, many = advise(10, 512), advise(93431, 512)
    assert few.s_adacos == pytest.approx(math.sqrt(2) * math.log(9))
    assert few.s_cosface == pytest.approx(0.9 * math.log(9 * 0.9 / 0.1))
    assert few.s == few.s_cosface
    assert many.s == many.s_adacos == pytest.approx(16.19, abs=0.01)
    assert "CosFace ruled" in few.reasons[0]
    assert "AdaCos ruled" in many.reasons[0]


def test_the_low_end_is_where_twins_push_each_other_apart_at_the_pace_of_the_learning_rate():
    """Two of five prototypes at one place, three more at right angles: the share of the twin is s p."""
    s, m = advise(5, 2).s_parts, 0.5
    angle = torch.tensor([0.0, 0.0, math.pi / 2, math.pi, -math.pi / 2], dtype=torch.float64)
    logits = s * torch.cos(angle)  # of a sample at its own centre, class 0, which is also that of class 1
    own = torch.tensor([1.0, 0, 0, 0, 0], dtype=torch.float64)
    share = torch.softmax(torch.where(own > 0, s * math.cos(m) * own, logits), dim=0)[1]
    assert advise(5, 2).m == 0.5 and s * float(share) == pytest.approx(1.0, abs=1e-6)
    assert 2.0 < s < 2.1 and any("the low end: below about 2.1" in reason for reason in advise(5, 2).reasons)


def test_the_low_end_also_says_from_where_on_a_small_learning_rate_is_a_risk():
    # benchmarks/small_scale.py: of 40 runs of 132 steps, those in which two classes stayed together (docs/LOG.md)
    together = {8e-3: (31, 23, 16, 15, 15), 2e-3: (29, 27, 26, 22, 21), 5e-4: (30, 28, 28, 25, 24)}
    way = {
        (s, lr): min(1.0, parting_rate(s, classes=5, dim=2, m=0.5)) * 132 * lr
        for s in (0.5, 1.0, 2.0, 4.0, 8.0)
        for lr in together
    }
    runs = {(s, lr): n for lr, many in together.items() for s, n in zip((0.5, 1.0, 2.0, 4.0, 8.0), many, strict=True)}
    far = [runs[at] for at, gone in way.items() if gone > 0.9]
    near = [runs[at] for at, gone in way.items() if gone <= 0.4]
    assert len(far) + len(near) == 15
    (said,) = (reason for reason in advise(5, 2).reasons if "s, the low end" in reason)
    assert f"in {min(far)} or {max(far)} where" in said and f"in {min(near)} to {max(near)} where" in said
    assert "a larger learning rate" in said


def test_many_classes_in_the_plane_are_warned_about():
    advice = advise(20, 2)
    assert any("cannot work" in warning for warning in advice.warnings)
    assert advice.m < 0.5
    assert not any("cannot work" in warning for warning in advise(93431, 512).warnings)


def test_the_posterior_at_a_centre_is_the_softmax_of_the_best_arrangement():
    for classes in (3, 10, 40):
        advice = advise(classes, 2)
        theta = torch.arange(classes, dtype=torch.float64) * 2 * math.pi / classes
        for s, expected in ((advice.s, advice.posterior), (advice.s_reaches, 0.9)):
            assert float(torch.softmax(s * theta.cos(), 0)[0]) == pytest.approx(expected, abs=1e-9)
    cross = advise(8, 4)  # six at right angles, one opposite
    assert cross.posterior == pytest.approx(1 / (1 + 6 * math.exp(-cross.s) + math.exp(-2 * cross.s)), rel=1e-3)
    phi = (1 + 5**0.5) / 2
    corner = torch.tensor([[0, a, b * phi] for a in (1.0, -1.0) for b in (1, -1)], dtype=torch.float64)
    icosahedron = torch.nn.functional.normalize(torch.cat([corner, corner.roll(1, 1), corner.roll(2, 1)]))
    cos = icosahedron @ icosahedron[0]
    twelve = advise(12, 3)
    assert twelve.posterior == pytest.approx(float(torch.softmax(twelve.s * cos, 0)[0]), rel=0.1)
    assert float(torch.softmax(twelve.s_reaches * cos, 0)[0]) == pytest.approx(0.9, rel=0.05)
    simplex = advise(10, 512)
    assert simplex.s_reaches == pytest.approx(simplex.s_cosface)
    assert simplex.posterior == pytest.approx(0.9)
    assert any("crowded" in warning for warning in advise(10, 2).warnings)
    assert not any("crowded" in warning for warning in advise(93431, 512).warnings)


def test_uneven_and_few_samples_are_mentioned():
    assert any("margins_from_counts" in reason for reason in advise(3, 8, per_class=[10, 100, 1000]).reasons)
    assert any("only 2" in reason for reason in advise(3, 8, per_class=2).reasons)


@pytest.mark.parametrize("classes", [1, 2, 3, 10, 10**6, 10**12])
@pytest.mark.parametrize("dim", [1, 2, 3, 512])
def test_the_advice_is_finite_and_prints(classes, dim):
    advice = advise(classes, dim)
    assert all(math.isfinite(v) for v in (advice.s, advice.m, advice.best_angle, advice.random_angle))
    assert advice.s > 0
    assert "suggested" in str(advice)


@pytest.mark.parametrize(
    ("classes", "dim", "per_class", "said"),
    [
        (0, 2, None, "classes must be a whole number of at least 1, got 0"),
        (3, 0, None, "dim must be a whole number of at least 1, got 0"),
        (3, 2, [1, 2], "per_class must be one number, or 3 of them"),
        (3, 2, -1, "per_class must be a whole number of at least 0, got -1"),
        (3, 2, [0, 0, 0], "not all 0"),
        (10**160, 2, None, "classes must be at most 1,000,000,000,000"),
    ],
)
def test_bad_numbers_are_refused(classes, dim, per_class, said):
    with pytest.raises(ArcwiseError, match=said):
        advise(classes, dim, per_class=per_class)


def test_advice_needs_no_torch():
    code = "import sys; sys.modules['torch'] = None; import arcwise; print(arcwise.advise(10, 2).s)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.startswith("3.9")
