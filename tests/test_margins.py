"""The laws every margin obeys, swept over MARGINS, and numbers by hand."""

import copy
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import arcwise
from arcwise import margins
from arcwise.building import margins_from_counts
from arcwise.margins import MARGINS

DTYPES = (torch.float64, torch.float32)

# Every margin at its defaults, and where a parameter changes the formula's branch, that too.
VARIANTS = {
    **{name: MARGINS[name] for name in MARGINS},
    "sphereface 1.7": lambda: margins.SphereFace(1.7),
    "arcface 2.5": lambda: margins.ArcFace(2.5),
    "arcface per class": lambda: margins.ArcFace([0.7]),
    "combined 1.4": lambda: margins.Combined(1.4, 0.3, 0.2),
    "adaface, sharp": lambda: sharp_adaface(),
    "mv arc": lambda: margins.MVSoftmax(0.5, base="arcface"),
    "noise-filter of cosface": lambda: margins.NoiseFilter("cosface"),
}


# The steepest slope of psi, where it is not 1.
STEEPEST = {"sphereface": 4.0, "sphereface 1.7": 1.7, "combined 1.4": 1.4}


# What the papers use.
PAPERS = {
    "sphereface": {"m": 4}, "cosface": {"m": 0.35}, "arcface": {"m": 0.5}, "combined": {"m1": 1, "m2": 0.3, "m3": 0.2},
    "adaface": {"m": 0.4, "h": 0.333, "t_alpha": 0.01}, "magface": {"l_a": 10, "u_a": 110, "l_m": 0.45, "u_m": 0.8},
    "elastic-arcface": {"m": 0.5, "std": 0.05}, "elastic-cosface": {"m": 0.35, "std": 0.05},
    "curricularface": {"m": 0.5, "t_alpha": 0.01}, "mv-softmax": {"m": 0.35, "t": 1.2},
}  # fmt: skip


@pytest.mark.parametrize("name", PAPERS)
def test_a_margin_is_by_itself_that_of_its_paper(name):
    for parameter, value in PAPERS[name].items():
        assert float(getattr(MARGINS[name](), parameter)) == pytest.approx(value), parameter


def sharp_adaface():
    margin = margins.AdaFace()
    margin.mean.fill_(20.0)
    margin.std.fill_(1.0)
    return margin


def psi_over(margin, theta, norm):
    """psi(theta) for a fixed norm, statistics frozen, the drawn margin at its mean."""
    cos = theta.cos()
    return margin.eval()(cos, norm=torch.full_like(cos, norm), y=torch.zeros(len(cos), dtype=torch.long))


@pytest.mark.parametrize("norm", [1.0, 20.0, 21.0, 60.0, 200.0])
@pytest.mark.parametrize("name", VARIANTS)
def test_psi_is_continuous_never_rises_and_never_exceeds_the_cosine(name, norm):
    theta = torch.linspace(0.0, math.pi, 20_001, dtype=torch.float64)
    psi = psi_over(VARIANTS[name](), theta, norm)
    steps = psi.diff()
    assert psi.isfinite().all()
    assert (psi <= theta.cos() + 1e-12).all()
    assert (steps <= 1e-12).all()
    assert steps.abs().max() < 5.0 * math.pi / 20_000  # the steepest slope here is SphereFace's, 4
    if not name.startswith("adaface"):  # flat only where the paper's formula is: its angle stops at 0
        assert (steps[1:-1] < 0).all()


def test_adaface_is_flat_only_where_its_shifted_angle_stops_at_zero():
    theta = torch.linspace(0.0, math.pi, 20_001, dtype=torch.float64)
    psi = psi_over(sharp_adaface(), theta, 60.0)  # q = 1: the angle is shifted by -0.4
    flat = psi.diff() == 0.0
    assert flat[theta[1:] < 0.4].all()
    assert not flat[theta[:-1] > 0.4001].any()


def test_the_papers_continuation_jumps_by_0_117():
    margin = margins.ArcFace(0.5, continuation="paper")
    eps = 1e-9
    theta = torch.tensor([math.pi - 0.5 - eps, math.pi - 0.5 + eps], dtype=torch.float64)
    psi = psi_over(margin, theta, 1.0)
    assert float(psi[0] - psi[1]) == pytest.approx(0.5 * math.sin(0.5) - (1 - math.cos(0.5)), abs=1e-6)
    assert float(psi[0] - psi[1]) == pytest.approx(0.117, abs=5e-4)


@pytest.mark.parametrize("name", MARGINS)
def test_at_its_neutral_parameters_a_margin_is_normface(name):
    margin = MARGINS[name](**MARGINS[name].neutral)
    theta = torch.linspace(0.0, math.pi, 101, dtype=torch.float64)
    cos, norm, y = (
        theta.cos(),
        torch.full((101,), 30.0, dtype=torch.float64),
        torch.zeros(101, dtype=torch.long),
    )
    for mode in (True, False):
        assert torch.allclose(margin.train(mode)(cos, norm=norm, y=y), cos, rtol=0, atol=1e-15)
    assert not hasattr(margin, "others") or margin.others(cos, norm=norm, y=y) is None


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("engine", ["eager", "chunked"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_the_gradient_is_finite_and_bounded_for_every_angle(name, engine, dtype):
    """Near both poles and across the kinks: |dx| <= s (L + 1)/|x|, L the steepest slope of psi."""
    tiny = torch.logspace(-12, -1, 34, dtype=torch.float64)
    theta = torch.cat([torch.zeros(1), tiny, torch.linspace(0.1, 3.04, 99), math.pi - tiny, torch.tensor([math.pi])])
    w = torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]], dtype=torch.float64)
    x = 30.0 * torch.stack([theta.cos(), theta.sin(), torch.zeros_like(theta)], dim=1)
    x = x.to(dtype).requires_grad_()
    head = arcwise.Head(3, 3, margin="normface", s=64.0, engine=engine, checks=True).double().eval()
    head.margin = VARIANTS[name]().eval() if "per class" not in name else margins.ArcFace([0.7] * 3)
    head.weight.data = w.to(torch.float64 if dtype == torch.float64 else torch.float32)
    with torch.autocast("cpu", dtype=dtype, enabled=dtype in (torch.bfloat16, torch.float16)):
        loss = head(x, torch.zeros(len(x), dtype=torch.long), reduction="sum")
    loss.backward()
    assert loss.isfinite()
    assert x.grad.isfinite().all()
    assert head.weight.grad.isfinite().all()
    # MagFace's margin and penalty also send their gradients along x; MV-Softmax and CurricularFace steepen others
    extra = 64.0 * 0.0035 + 20.0 * (1 / 900 + 1 / 110**2) if "magface" in name else 0.0
    others = {"mv-softmax": 1.2, "mv arc": 1.2, "curricularface": 2.0}.get(name, 1.0)
    bound = 64.0 * (STEEPEST.get(name, 1.0) + others) / 30.0 + extra
    assert float(x.grad.double().norm(dim=1).max()) <= 1.05 * bound


@pytest.mark.parametrize("engine", ["eager", "chunked"])
def test_at_the_cone_point_arcfaces_gradient_is_the_zero_subgradient(engine):
    head = arcwise.Head(3, 3, s=16.0, engine=engine).double()
    head.weight.data = torch.eye(3, dtype=torch.float64)
    x = torch.tensor([[2.0, 0.0, 0.0]], dtype=torch.float64, requires_grad=True)
    psi = head.margin(torch.ones(1, dtype=torch.float64), norm=x.norm(dim=1), y=torch.tensor([0]))
    assert float(psi.detach()) == pytest.approx(math.cos(0.5))
    head(x, torch.tensor([0])).backward()
    p = torch.softmax(16.0 * torch.tensor([math.cos(0.5), 0.0, 0.0], dtype=torch.float64), 0)
    # only the two other classes pull, along their own directions
    assert x.grad[0].tolist() == pytest.approx([0.0, 8.0 * float(p[1]), 8.0 * float(p[2])], abs=1e-15)


@pytest.mark.parametrize("dtype", DTYPES)
def test_psi_does_not_lean_on_clamp(dtype, monkeypatch):
    """torch changed clamp's gradient at the bound; no margin may call it on what carries a gradient."""

    def forbidden(*args, **kwargs):
        raise AssertionError("clamp was called")

    for name in ("clamp", "clip", "clamp_min", "clamp_max"):
        monkeypatch.setattr(torch.Tensor, name, forbidden)
        monkeypatch.setattr(torch, name, forbidden)
    cos = torch.linspace(-1.0, 1.0, 11, dtype=dtype, requires_grad=True)
    for name in MARGINS:
        margin = MARGINS[name]()
        margin(
            cos, norm=torch.linspace(1.0, 200.0, 11, dtype=dtype), y=torch.zeros(11, dtype=torch.long)
        ).sum().backward()


def test_combined_is_arcface_and_cosface_at_their_parameters():
    theta = torch.linspace(0.0, math.pi, 1001, dtype=torch.float64)
    for combined, other in (
        (margins.Combined(1.0, 0.5, 0.0), margins.ArcFace(0.5)),
        (margins.Combined(1.0, 0.0, 0.35), margins.CosFace(0.35)),
        (margins.Combined(4.0, 0.0, 0.0), margins.SphereFace(4.0)),
    ):
        assert torch.allclose(psi_over(combined, theta, 1.0), psi_over(other, theta, 1.0), rtol=0, atol=1e-14)


def test_all_three_margins_of_combined_are_honoured():
    theta = torch.tensor([0.7], dtype=torch.float64)
    psi = psi_over(margins.Combined(1.3, 0.2, 0.1), theta, 1.0)
    assert float(psi) == pytest.approx(math.cos(1.3 * 0.7 + 0.2) - 0.1, abs=1e-14)


def test_the_fold_of_the_worked_example_is_undone():
    # cos(pi + 0.5) = -0.88 lies above cos(pi) = -1: the logit would rise again. Ours goes on falling.
    psi = psi_over(margins.ArcFace(0.5), torch.tensor([0.5, math.pi], dtype=torch.float64), 1.0)
    assert float(psi[0]) == pytest.approx(0.54, abs=5e-3)
    assert float(psi[1]) == pytest.approx(-1.0 - (1.0 - math.cos(0.5)))


def test_adafaces_statistics_follow_the_batch():
    margin = margins.AdaFace(t_alpha=0.1)
    norm = torch.tensor([10.0, 20.0, 30.0, 400.0])  # 400 counts as 100
    margin(torch.zeros(4), norm=norm, y=torch.zeros(4, dtype=torch.long))
    assert float(margin.mean) == pytest.approx(0.9 * 20.0 + 0.1 * 40.0)
    spread = math.sqrt(((10 - 40) ** 2 + (20 - 40) ** 2 + (30 - 40) ** 2 + (100 - 40) ** 2) / 3)
    assert float(margin.std) == pytest.approx(0.9 * 100.0 + 0.1 * spread)


def test_curricularfaces_t_follows_the_own_cosine():
    head = arcwise.Head(2, 2, margin="curricularface")
    head.weight.data = torch.eye(2)
    head(torch.tensor([[1.0, 0.0], [0.6, 0.8]]), torch.tensor([0, 0]))
    assert float(head.margin.t) == pytest.approx(0.01 * (1.0 + 0.6) / 2)


@pytest.mark.parametrize("engine", ["eager", "chunked"])
@pytest.mark.parametrize("name", MARGINS)
def test_two_forwards_before_a_backward_give_the_sum_of_their_gradients(name, engine):
    """Statistics move in the second forward; the first one's gradient must not."""
    together = arcwise.Head(4, 6, margin=name, engine=engine)
    apart = copy.deepcopy(together)
    batches, y = [torch.randn(9, 4) for _ in range(2)], torch.randint(6, (9,))
    torch.manual_seed(1)
    sum(together(x, y) for x in batches).backward()
    torch.manual_seed(1)
    for x in batches:
        apart(x, y).backward()
    assert torch.allclose(together.weight.grad, apart.weight.grad, rtol=1e-5, atol=1e-6)


def test_drawn_margins_are_clipped_at_zero_and_average_to_m():
    draws = margins.draw_margins(margins.ElasticArcFace(0.5, std=0.05), torch.zeros(100_000), high=math.pi)
    assert float(draws.mean()) == pytest.approx(0.5, abs=1e-3)
    assert float(draws.std()) == pytest.approx(0.05, abs=1e-3)
    wide = margins.ElasticArcFace(0.0, std=1.0)
    assert float(margins.draw_margins(wide, torch.zeros(1000), high=math.pi).min()) == 0.0


def test_elasticface_plus_gives_the_farthest_sample_the_largest_margin():
    cos = torch.tensor([0.9, -0.5, 0.2])
    draws = margins.draw_margins(margins.ElasticArcFace(0.5, std=0.1, plus=True), cos, high=math.pi)
    assert draws[1] > draws[2] > draws[0]


@given(st.lists(st.integers(0, 10_000), min_size=1, max_size=30).filter(any))
def test_margins_from_counts_fall_with_the_count_and_fill_the_range(counts):
    m = margins_from_counts(counts, 0.1, 0.6, 0.25).tolist()
    assert all(0.1 - 1e-6 <= value <= 0.6 + 1e-6 for value in m)
    assert max(m) == pytest.approx(0.6)
    if len({n for n in counts if n}) > 1:
        assert min(m) == pytest.approx(0.1)
    for (n, a), (other, b) in zip(zip(counts, m, strict=True), zip(counts[1:], m[1:], strict=True), strict=False):
        assert n == 0 or other == 0 or (n < other) == (a > b + 1e-9) or abs(a - b) < 1e-5


def test_a_class_without_samples_has_the_margin_of_the_rarest():
    # 1, 16 and 256 samples: n^-1/4 is 1, 1/2 and 1/4; shares 1, 1/3 and 0 of 0.3. Without samples: as with one.
    assert margins_from_counts([0, 1, 16, 256, 0]).tolist() == pytest.approx([0.5, 0.5, 0.3, 0.2, 0.5])
    assert margins_from_counts([0, 16, 256]).tolist() == pytest.approx([0.5, 0.5, 0.2])
    assert margins_from_counts([0, 7, 7]).tolist() == pytest.approx([0.5, 0.5, 0.5])


def test_a_class_may_have_the_largest_margin_there_is_also_where_float32_rounds_it_up():
    for m in ([0.5, math.pi], torch.tensor([0.5, math.pi])):
        assert margins.ArcFace(m).m.tolist() == pytest.approx([0.5, math.pi])


def test_the_commonest_class_may_have_no_margin_at_all():
    assert margins_from_counts([1, 16, 256], low=0.0, high=0.3).tolist() == pytest.approx([0.3, 0.1, 0.0])


def test_a_users_own_margin_needs_one_class():
    class Half(torch.nn.Module):
        def forward(self, cos_y, *, norm, y):
            return cos_y - 0.5

    x, y = torch.randn(5, 3), torch.randint(4, (5,))
    mine, theirs = arcwise.Head(3, 4, margin=Half()), arcwise.Head(3, 4, margin="cosface:m=0.5")
    theirs.weight.data = mine.weight.data
    assert torch.equal(mine(x, y), theirs(x, y))


@pytest.mark.parametrize("name", MARGINS)
def test_every_margin_names_its_formula_paper_and_neutral_parameters(name):
    margin = MARGINS[name]
    assert margin.formula
    assert margin.paper
    assert margin.paper.split(",")[0] in margin.__doc__
    assert isinstance(margin.neutral, dict)
    assert ">>>" in margin.__doc__
