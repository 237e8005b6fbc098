"""The fused engine: the definition's numbers for any size, mode and plan; on a CPU through triton's interpreter."""

import subprocess
import sys

import pytest
import torch
import torch.utils.checkpoint
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from arcwise import ops
from arcwise.errors import ArcwiseError
from arcwise.heads import Head
from arcwise.margins import MARGINS
from arcwise.ops import split_lse
from arcwise.ops.eager import eager
from arcwise.sphere import Others, cosines, normalise

pytest.importorskip("triton.tools.tensor_descriptor")
import triton
import triton.language as tl

from arcwise.ops import plan as plan_of
from arcwise.ops import triton as kernels
from arcwise.ops.fused import fused
from arcwise.ops.plan import planned

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
MODES = [None, "curricular", "mv", "mv-fixed", "filter"]


def problem(b, c, k, d, seed=0):
    torch.manual_seed(seed)
    x, w = torch.randn(b, d, device=DEVICE), torch.randn(c, k, d, device=DEVICE)
    y = torch.randint(c, (b,), device=DEVICE)
    y[0], y[-1] = c - 1, 0
    return x.requires_grad_(), w.requires_grad_(), y


def run(function, x, w, y, others=None, s=16.0, **more):
    """The three outputs and the two gradients, for upstream gradients of both signs."""
    x, w = x.detach().requires_grad_(), w.detach().requires_grad_()
    out = function(x, w, y, s, others, **more)
    generator = torch.Generator().manual_seed(7)
    d_lse, d_cos = (torch.randn(len(x), generator=generator).to(x) for _ in range(2))
    lse = out[0].clamp(min=-1e4)
    d_x, d_w = torch.autograd.grad((lse @ d_lse) + (out[1] @ d_cos), (x, w))
    return *(v.detach() for v in (lse, *out[1:])), d_x, d_w


def ours(x, w, y, s, others, **more):
    return fused(x, w, y, s, others, **more)


def exact(x, w, y, others=None, s=16.0):
    wide = None if others is None else Others(others.mode, others.above.double(), others.t)
    return run(eager, x.double(), w.double(), y, wide, s)


def off(found, wanted):
    """The error as a share of what is wanted, or of 1 where that is next to nothing."""
    return float((found.double() - wanted).norm() / wanted.norm().clamp(min=1.0))


@settings(max_examples=25 if DEVICE == "cpu" else 12, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(
    b=st.integers(1, 140), c=st.integers(2, 290), k=st.sampled_from([1, 1, 2, 3]), d=st.integers(2, 70),
    mode=st.sampled_from(MODES), memory=st.sampled_from([1, 200_000, 2**30]), seed=st.integers(0, 1000),
)  # fmt: skip
def test_fused_is_the_definition_for_any_size_mode_and_memory(b, c, k, d, mode, memory, seed):
    x, w, y = problem(b, c, k, d, seed)
    others = None if mode is None else Others(mode, between_cosines(x, w), 1.2)
    plain, wanted = run(eager, x, w, y, others), exact(x, w, y, others)
    for found, there, true in zip(run(ours, x, w, y, others, memory=memory), plain, wanted, strict=True):
        assert off(found, true) < 3e-6 + 2.0 * off(there, true)


def between_cosines(x, w):
    """A threshold for each sample in the widest gap between its larger cosines: rounding must not carry one across."""
    cos = cosines(x.detach().double(), w.detach().double()).sort(dim=1).values
    upper = cos[:, (cos.shape[1] - 1) // 2 :]
    gap = upper.diff(dim=1).argmax(1, keepdim=True)
    return ((upper.gather(1, gap) + upper.gather(1, gap + 1)) / 2).squeeze(1).float()


@pytest.mark.parametrize("memory", [1, 150_000, 2**28])
@pytest.mark.parametrize("w_type", [torch.float32, torch.bfloat16])
def test_cosines_that_are_kept_change_little(monkeypatch, memory, w_type):
    monkeypatch.setattr(plan_of, "BLOCK_CELLS", 2**13)
    x, w, y = problem(33, 300, 1, 64)
    w = w.detach().to(w_type).float().requires_grad_()
    wanted = exact(x, w, y)
    found = run(ours, x, w.to(w_type), y, memory=memory, products=torch.float16)
    assert [off(a, b) < limit for a, b, limit in zip(found, wanted, (1e-3, 1e-6, 1e-3, 2e-3, 4e-3), strict=True)] == [
        True
    ] * 5


def test_labels_at_the_borders_of_tiles_and_blocks(monkeypatch):
    monkeypatch.setattr(plan_of, "BLOCK_CELLS", 2**13)
    x, w, _ = problem(9, 400, 1, 16)
    y = torch.tensor([0, 127, 128, 255, 256, 383, 384, 399, 127], device=DEVICE)
    for found, wanted in zip(run(ours, x, w, y), exact(x, w, y), strict=True):
        assert off(found, wanted) < 3e-6


def test_all_samples_of_one_class_and_one_class_alone():
    x, w, _ = problem(40, 3, 2, 8)
    y = torch.zeros(40, dtype=torch.int64, device=DEVICE)
    for found, wanted in zip(run(ours, x, w, y), exact(x, w, y), strict=True):
        assert off(found, wanted) < 3e-6
    for s in (16.0, 48.0, 64.0):
        lse, cos_y, _ = fused(x, w[:1], y, s, None)
        assert bool((lse < -1e29).all()) and bool(cos_y.isfinite().all())
        assert all(not bool(g.any()) for g in torch.autograd.grad(lse.sum(), (x, w)))


@triton.jit
def rounding_kernel(values, out, seed, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out + at, kernels.tile_by_chance(tl.load(values + at), tl.load(seed).to(tl.uint32), at))


def test_rounding_by_chance_is_right_on_average_at_every_place_and_in_every_step():
    n, steps, digit = 4096, 64, 2.0**-7
    values = 1.0 + digit * torch.linspace(0.05, 0.95, n, device=DEVICE)
    every = torch.empty(steps, n, device=DEVICE, dtype=torch.bfloat16)
    for step in range(steps):
        rounding_kernel[(1,)](values, every[step], torch.tensor(65537 * (step + 1), device=DEVICE), N=n)
    up = (every.double() - 1.0) / digit
    assert set(up.unique().tolist()) == {0.0, 1.0}
    wanted = torch.linspace(0.05, 0.95, n, device=DEVICE, dtype=torch.float64)
    spread = (wanted * (1 - wanted)).sqrt()
    off_by = (up - wanted) / spread  # of mean 0 and variance 1, each apart from all others
    assert abs(off_by.mean()) < 5 / (steps * n) ** 0.5
    assert (off_by.mean(0) * steps**0.5).square().mean().sub(1).abs() < 0.15
    assert (off_by.mean(1) * n**0.5).square().mean().sub(1).abs() < 0.9
    for one, other in ((off_by[1:], off_by[:-1]), (off_by[:, 1:], off_by[:, :-1]), (off_by[:, 64:], off_by[:, :-64])):
        assert abs((one * other).mean()) < 5 / one.numel() ** 0.5
    odd = torch.tensor([torch.inf, -torch.inf, torch.nan, 0.0], device=DEVICE)
    kept = torch.empty(4, device=DEVICE, dtype=torch.bfloat16)
    rounding_kernel[(1,)](odd, kept, torch.tensor(7, device=DEVICE), N=4)
    assert torch.equal(kept.isnan().cpu(), torch.tensor([False, False, True, False]))
    assert kept[:2].isinf().all() and float(kept[3]) < 1e-30


@pytest.mark.parametrize("mode", MODES[1:])
def test_a_class_exactly_at_the_threshold_counts_as_it_is(mode):
    x, w, y = problem(6, 2, 1, 8)  # one other class, so that cos_other is its cosine
    plain = run(ours, x, w, y)
    there = run(ours, x, w, y, Others(mode, plain[2], 1.5))
    assert all(torch.allclose(found, wanted, rtol=1e-6, atol=1e-7) for found, wanted in zip(there, plain, strict=True))
    beyond = run(ours, x, w, y, Others(mode, plain[2] - 1e-3, 1.5))
    assert (beyond[0] - plain[0]).abs().min() > 1e-3


def test_a_sample_whose_other_classes_are_all_left_out_spoils_no_gradient():
    x, w, y = problem(20, 3, 1, 8)
    others = Others("filter", torch.full((20,), 0.9, device=DEVICE))
    others.above[3] = -2.0
    for found, wanted in zip(run(ours, x, w, y, others, 48.0)[1:], exact(x, w, y, others, 48.0)[1:], strict=True):
        assert off(found, wanted) < 1e-5


def test_the_own_class_is_left_out_not_subtracted():
    x, y = torch.tensor([[1.0, 0.0]], device=DEVICE), torch.tensor([0], device=DEVICE)
    w = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [-1.0, 0.0]], device=DEVICE)
    assert float(split_lse(x, w, y, 64.0, engine="triton").lse) == pytest.approx(-64.0 + 0.6931472, abs=1e-4)


@pytest.mark.parametrize("s", [1e-3, 64.0, 1e4])
def test_any_scale_is_finite(s):
    x, w, y = problem(5, 140, 1, 8)
    for found, wanted in zip(run(ours, x, w, y, s=s), exact(x, w, y, s=s), strict=True):
        assert off(found, wanted) < 1e-5 * max(1.0, s / 64.0)


def test_rows_without_direction_and_rows_that_are_not_finite():
    x, w, y = problem(6, 9, 1, 8)
    with torch.no_grad():
        w[3] = 0.0
        x[2] = 0.0
        x[4, 1] = torch.nan
        y[4] = 3  # not even a row without direction hides it
    lse, cos_y, other, d_x, _ = run(ours, x, w, y)
    bad = torch.tensor([False] * 4 + [True, False], device=DEVICE)
    assert torch.equal(lse.isnan(), bad) and torch.equal(cos_y.isnan(), bad)
    assert bool(d_x[~bad].isfinite().all()) and bool((d_x[2] == 0).all())
    assert bool(other[~bad].isfinite().all())


@pytest.mark.parametrize("k", [1, 2])
def test_what_is_not_a_number_stays_none(k):
    x, w, y = problem(6, 9, k, 8)
    with torch.no_grad():
        x[4, 1] = torch.nan
    _, _, other = fused(x, w, y, 16.0, None)
    assert other.isnan().tolist() == [False] * 4 + [True, False]
    with torch.no_grad():
        x[4, 1] = 0.0
        w[5, -1, 0] = torch.nan  # of two sub-centres the one that is whole must not hide the other
    lse, _, _ = fused(x, w, y, 16.0, None)
    assert bool(lse[y != 5].isnan().all())


def test_prototypes_may_lie_anywhere_and_labels_be_narrow():
    x, w, y = problem(7, 200, 1, 64)
    wanted = run(ours, x, w, y)
    shifted = torch.empty(200 * 64 + 3, device=DEVICE)[3:].view(200, 1, 64).copy_(w.detach())
    turned = torch.empty(64, 1, 200, device=DEVICE).permute(2, 1, 0).copy_(w.detach())
    for other in (shifted, turned):
        assert all(torch.equal(a, b) for a, b in zip(run(ours, x, other, y), wanted, strict=True))
    for kind in (torch.int16, torch.int32):
        assert torch.equal(split_lse(x, w, y.to(kind), 16.0, engine="triton").cos_y, wanted[1])


def test_tiny_gradients_in_fp16_stay_numbers():
    x, w, y = problem(5, 30, 1, 8)
    lse, cos_y, _ = fused(x, w, y, 16.0, None, products=torch.float16)
    for g in torch.autograd.grad(1e-37 * (lse.sum() + cos_y.sum()), (x, w)):
        assert bool(g.isfinite().all())


def test_a_large_scale_keeps_no_cosines():
    x, w, y = problem(8, 50, 1, 64)
    for found, wanted in zip(
        run(ours, x, w, y, s=1e4, products=torch.float16)[3:], run(ours, x, w, y, s=1e4)[3:], strict=True
    ):
        assert off(found, wanted.double()) < 0.03


def test_a_head_may_be_checkpointed():
    x, _, y = problem(9, 40, 1, 16)
    head = Head(16, 40, engine="triton").to(DEVICE)
    wanted = torch.autograd.grad(head(x, y), x)[0]
    again = torch.utils.checkpoint.checkpoint(head, x, y, use_reentrant=False)
    assert torch.equal(torch.autograd.grad(again, x)[0], wanted)


@pytest.mark.parametrize("memory", [1, 2**28])
def test_gradients_of_prototypes_are_tangential_in_bf16(memory):
    _, w, y = problem(60, 30, 1, 64)
    near = normalise(w[y, 0]) + 0.04 * torch.randn(60, 64, device=DEVICE)
    d_w = run(ours, near, w, y, products=torch.bfloat16, memory=memory)[4]
    inward = (d_w * normalise(w)).sum(-1).abs() / d_w.norm(dim=-1)
    assert float(inward.detach().max()) < 0.02


def test_the_same_input_gives_the_same_bits():
    x, w, y = problem(70, 200, 1, 24)
    for a, b in zip(run(ours, x, w, y, memory=1), run(ours, x, w, y, memory=1), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("products", [torch.float32, torch.float16])
def test_a_graph_that_is_kept_gives_the_same_gradient_again(products):
    x, w, y = problem(20, 150, 1, 64)
    lse, _, _ = fused(x, w, y, 16.0, None, products=products)
    first = torch.autograd.grad(lse.sum(), (x, w), retain_graph=True)
    for a, b in zip(first, torch.autograd.grad(lse.sum(), (x, w)), strict=True):
        assert off(a, b.double()) < (1e-6 if products == torch.float32 else 2e-3)


def test_second_derivatives_are_refused():
    x, w, y = problem(4, 9, 1, 8)
    lse, _, _ = fused(x, w, y, 16.0, None)
    (d_x,) = torch.autograd.grad(lse.sum(), x, create_graph=True)
    with pytest.raises(ArcwiseError, match="differentiated once"):
        d_x.sum().backward()


def test_prototypes_or_embeddings_may_be_frozen():
    x, w, y = problem(7, 20, 1, 8)
    wanted = exact(x, w, y)
    gradients = torch.autograd.grad(eager(x, w, y, 16.0, None)[0].sum(), (x, w))
    for frozen in (0, 1):
        both = [x.detach().requires_grad_(frozen != 0), w.detach().requires_grad_(frozen != 1)]
        lse, _, _ = fused(both[0], both[1], y, 16.0, None)
        lse.sum().backward()
        assert both[frozen].grad is None
        assert off(both[1 - frozen].grad, gradients[1 - frozen].double()) < 1e-5
    with torch.no_grad():
        assert off(fused(x, w, y, 16.0, None)[0], wanted[0]) < 1e-6


@settings(max_examples=200)
@given(
    b=st.integers(1, 5000), c=st.integers(1, 20_000_000), k=st.integers(1, 5), d=st.integers(1, 2048),
    size=st.sampled_from([2, 4]), memory=st.integers(1, 2**36), gradient=st.sampled_from([0, 2, 4]),
)  # fmt: skip
def test_a_plan_stays_inside_its_memory_or_has_the_smallest_block(b, c, k, d, size, memory, gradient):
    plan = planned(b, c, k, d, size=size, memory=memory, gradient=gradient)
    classes, deep, wide = -(-c // 128) * 128, -(-d // 64) * 64, -(-b // 16) * 16
    used = plan.shares * b * deep * 4 + plan.block * k * (wide * size + 4 * -(-b // 128))
    used += (classes if plan.keep_units else plan.block) * k * deep * size
    used += plan.kept * plan.block * wide * 2 if plan.room == "own" else 0
    assert plan.block % 128 == 0 and (used <= memory or (plan.block == 128 and not plan.keep_units))
    assert plan.room == "own" or wide * 2 <= d * gradient


@pytest.mark.parametrize("name", list(MARGINS))
def test_every_margin_has_the_loss_and_gradient_of_the_plain_engine(name):
    x, _, y = problem(24, 60, 1, 16)
    results = []
    for which in ("eager", "triton"):
        torch.manual_seed(3)
        head = Head(16, 60, margin=name, engine=which, s=24.0).to(DEVICE)
        points = x.detach().requires_grad_()
        torch.manual_seed(4)
        loss = head(points, y)
        loss.backward()
        results.append((loss.detach(), points.grad, head.weight.grad))
    for plain, other in zip(*results, strict=True):
        assert off(other, plain.double()) < 1e-5


def test_thirty_steps_trace_the_plain_curve():
    curves = []
    for which in ("eager", "triton"):
        torch.manual_seed(0)
        x, y = torch.randn(48, 12, device=DEVICE), torch.arange(48, device=DEVICE) % 20
        layer, head = torch.nn.Linear(12, 16).to(DEVICE), Head(16, 20, engine=which, s=16.0).to(DEVICE)
        optimiser = torch.optim.SGD([*layer.parameters(), *head.parameters()], lr=0.5, momentum=0.9)
        losses = []
        for _ in range(30):
            optimiser.zero_grad()
            loss = head(layer(x), y)
            loss.backward()
            optimiser.step()
            losses.append(loss.item())
        curves.append(torch.tensor(losses))
    assert torch.allclose(curves[0], curves[1], rtol=1e-4) and curves[0][-1] < 0.3 * curves[0][0]


def test_where_it_cannot_run_it_says_why(monkeypatch):
    x, w, y = problem(4, 9, 1, 8)
    with pytest.raises(ArcwiseError, match="works in float32"):
        split_lse(x.double(), w, y, 8.0, engine="triton")
    assert split_lse(x[:0], w, y[:0], 8.0, engine="triton").lse.shape == (0,)
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    if DEVICE == "cpu":
        with pytest.raises(ArcwiseError, match="needs a GPU"):
            split_lse(x, w, y, 8.0, engine="triton")
    monkeypatch.setattr(ops, "triton_missing", lambda: "triton 3.4 or newer is not installed.")
    with pytest.raises(ArcwiseError, match=r"triton 3\.4"):
        split_lse(x, w, y, 8.0, engine="triton")


COMPILE = """
import torch, triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from arcwise.ops import triton as kernels
tile = lambda *shape, of="bf16": f"tensordesc<{of}[{','.join(map(str, shape))}]>"
f, i, whole = "*fp32", "i32", {"PRECISION": "tf32", "UPCAST": False, "BM": 128, "BN": 128, "BK": 64, "D": 512}
def compiled(kernel, signature, **constants):
    names = kernel.arg_names
    types = {name: "constexpr" if name in constants else signature[name] for name in names}
    values = {(names.index(name),): value for name, value in constants.items() if name in names}
    triton.compile(ASTSource(kernel, types, values), target=GPUTarget("cuda", 90, 32),
                   options={"num_warps": 4, "num_stages": 3})
base = dict(x=tile(128, 64), unit=tile(128, 64), y="*i64", above=f, t=f, start=i, b=i, n=i, padded=i, scale="fp32")
compiled(kernels.lse_kernel, {**base, "top": f, "total": f, "best": f, "kept": tile(32, 128, of="i16")},
         K=1, MODE=1, KEEP=True, **whole)
compiled(kernels.slopes_kernel, {**base, "kept": f, "lse": f, "d_lse": f, "slopes": tile(128, 128), "radial": f,
         "counted": "*i32", "unscale": f, "s": "fp32", "log2e": "fp32", "skip": "fp32"},
         K=3, MODE=0, KEEP=False, SKIP=True, **whole)
state = tile(128, 1, 32, of="fp32")
compiled(kernels.to_w_kernel, dict(slopes=tile(128, 64), x=tile(64, 128), w=tile(128, 1, 32), inverse=f, radial=f,
         counted="*i32", d_w=f, unscale=f, first=state, second=state, hyper=f, gate="*i1", b=i, n=i, padded=i,
         start=i, count=i),
         K=1, SKIP=True, UPDATE=2, NARROW=True, PARTS=8, **whole)
print("compiled")
"""


def test_kernels_compile_for_a_hopper_gpu_without_one():
    environment = {"PATH": "/usr/bin:/bin", "HOME": "/tmp", "PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run([sys.executable, "-c", COMPILE], capture_output=True, text=True, env=environment)
    assert done.stdout.strip() == "compiled", done.stderr[-2000:]


@pytest.mark.parametrize("autocast", [None, torch.float16])
def test_skipped_tiles_change_no_gradient_by_more_than_the_bound(autocast):
    torch.manual_seed(0)
    c, d, s, skip = 700, 64, 24.0, 1e-3
    w, y = torch.randn(c, d, device=DEVICE), torch.arange(140, device=DEVICE) % 130
    x = normalise(w[y]) + 0.02 * torch.randn(140, d, device=DEVICE)
    found = []
    for some in (0.0, skip):
        head = Head(d, c, s=s, engine="triton", skip=some, device=DEVICE)
        points = x.clone().requires_grad_()
        with torch.no_grad():
            head.weight.copy_(w)
        with torch.autocast(DEVICE, autocast, enabled=autocast is not None):
            loss = head(points, y)
        loss.backward()
        found.append((loss.detach(), points.grad, head.weight.grad))
    (whole, d_x, d_w), (loss, d_x_some, d_w_some) = found
    assert torch.equal(whole, loss)  # the forward pass leaves nothing out
    change = (d_x - d_x_some).norm(dim=1) * x.norm(dim=1)
    assert bool((change <= c * s * skip / len(x)).all())  # c slopes at most, each off by s skip / b at most
    assert bool((d_w_some == 0).all(1).sum() > (d_w == 0).all(1).sum())  # and something was left out


@pytest.mark.filterwarnings("ignore:All-NaN slice")  # of the interpreter's numpy
def test_skipping_hides_no_nan():
    x, w, y = problem(140, 300, 1, 16)
    with torch.no_grad():
        x[3, 0] = torch.nan
    assert bool(run(ours, x, w, y, skip=1e-2)[4].isnan().all())


@pytest.mark.parametrize("k", [1, 2])
def test_skipping_nothing_is_exact(k):
    x, w, y = problem(30, 300, k, 16)
    same_tiles = k == 1 or DEVICE == "cuda"  # else the interpreter's BLAS rounds by the shape of a tile
    for a, b in zip(run(ours, x, w, y), run(ours, x, w, y, skip=1e-30), strict=True):
        assert torch.equal(a, b) if same_tiles else off(a, b.double()) < 1e-6
