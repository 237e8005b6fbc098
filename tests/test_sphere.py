"""Geometry: guards whose value and gradient are both finite."""

import math

import pytest
import torch

from arcwise.sphere import angle, clip, cosines, inverse_length, normalise, sine, slices


def test_normalise_gives_unit_vectors_with_a_tangential_gradient():
    x = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    assert torch.allclose(normalise(x).norm(dim=1), torch.ones(5, dtype=torch.float64))
    assert torch.autograd.gradcheck(normalise, (x,))


@pytest.mark.parametrize("length", [1e-11, 1e-9, 1e-7, 1.0, 1e7])
def test_a_short_vector_has_its_direction_still(length):
    # 3, 4, 5: the direction of (0.6, 0.8) at any length above 1e-12.
    x = torch.tensor([[0.6 * length, 0.8 * length]], dtype=torch.float64)
    assert normalise(x).tolist() == [pytest.approx([0.6, 0.8])]
    assert cosines(x, torch.tensor([[[0.0, 2.0]]], dtype=torch.float64)).tolist() == [[pytest.approx(0.8)]]


def test_a_vector_below_the_smallest_length_has_none():
    x = torch.tensor([[0.6e-13, 0.8e-13]], dtype=torch.float64, requires_grad=True)
    unit = normalise(x)
    unit.sum().backward()
    assert not unit.any() and not x.grad.any()


def test_nan_stays_nan_and_an_overflowed_length_becomes_nan():
    assert inverse_length(torch.tensor([math.nan, math.inf])).isnan().all()
    assert normalise(torch.full((1, 4), 1e30)).isnan().all()
    assert sine(torch.tensor([math.nan])).isnan().all()
    assert clip(torch.tensor([math.nan]), 0.0, 1.0).isnan().all()


def test_sine_and_angle_have_finite_gradients_at_and_beyond_the_poles():
    cos = torch.tensor([1.0 + 1e-7, 1.0, -1.0, -1.0 - 1e-7, 0.5], requires_grad=True)
    for function in (sine, angle):
        (gradient,) = torch.autograd.grad(function(cos).sum(), cos)
        assert gradient[:4].abs().max() == 0.0
        assert gradient.isfinite().all()


def test_angle_is_exact_where_arccos_is():
    theta = torch.linspace(0.01, 3.13, 100, dtype=torch.float64)
    assert torch.allclose(angle(theta.cos()), theta, rtol=1e-12)


def test_clip_passes_the_gradient_on_its_bounds():
    x = torch.tensor([-1.1, -1.0, 0.0, 1.0, 1.1], requires_grad=True)
    (gradient,) = torch.autograd.grad(clip(x, -1.0, 1.0).sum(), x)
    assert gradient.tolist() == [0.0, 1.0, 1.0, 1.0, 0.0]


def test_sub_centres_give_the_largest_cosine():
    x, w = torch.randn(4, 3), torch.randn(5, 2, 3)
    each = torch.stack([cosines(x, w[:, i : i + 1]) for i in range(2)])
    assert torch.equal(cosines(x, w), each.amax(0))


def test_scaling_a_vector_moves_the_distance_and_leaves_the_angle():
    a, b = torch.tensor([5.0, 2.0]), torch.tensor([7.0, 4.0])
    between = lambda u, v: math.degrees(float(angle(cosines(u[None], v[None, None])[0])))  # noqa: E731
    assert abs(float((a - b).norm()) - 2.83) < 5e-3
    assert abs(between(a, b) - 7.9) < 0.06
    assert abs(float((a - 1.5 * b).norm()) - 6.80) < 5e-3
    assert abs(between(a, 1.5 * b) - between(a, b)) < 1e-3


def test_slices_cover_everything_once():
    for total in (0, 1, 7, 100):
        for size in (1, 3, 100, 1000):
            covered = [i for block in slices(total, size) for i in range(block.start, block.stop)]
            assert covered == list(range(total))
