"""The fused engine on a GPU: errors beside those of plain torch, long curves, sizes past 32 bits, no waiting."""

import copy
import math
import warnings

import pytest
import torch
import torch.nn.functional as F

from arcwise import optim
from arcwise.config import DataConfig
from arcwise.data import load
from arcwise.heads import Head
from arcwise.margins import MARGINS

pytestmark = pytest.mark.gpu


def losses_and_gradients(name, engine, x, y, w, dtype=torch.float32, autocast=None):
    torch.manual_seed(2)
    head = Head(x.shape[1], len(w), margin=name, engine=engine, s=30.0).cuda().to(dtype)
    with torch.no_grad():
        head.weight.copy_(w)
    points = x.detach().to(dtype, copy=True).requires_grad_()
    torch.manual_seed(3)
    with torch.autocast("cuda", autocast or torch.bfloat16, enabled=autocast is not None):
        loss = head(points, y)
    loss.backward()
    return loss.detach(), points.grad, head.weight.grad


def plain_arcface(x, y, w, autocast, m=0.5, s=30.0):
    """ArcFace in plain torch under autocast: what the fused engine is measured against."""
    x, w = x.clone().requires_grad_(), w.clone().requires_grad_()
    with torch.autocast("cuda", autocast):
        cos = F.linear(F.normalize(x), F.normalize(w))
        own = cos.gather(1, y[:, None]).float().clamp(-1 + 1e-7, 1 - 1e-7)
        psi = own * math.cos(m) - (1 - own * own).sqrt() * math.sin(m)
        loss = F.cross_entropy(s * cos.float().scatter(1, y[:, None], psi), y)
    loss.backward()
    return loss.detach(), x.grad, w.grad


def off(found, wanted):
    return float((found.double() - wanted.double()).norm() / wanted.double().norm())


def trained_like(b, c, d):
    """Embeddings near their centres, as after some training: own cosines from 0.3 to 0.95."""
    torch.manual_seed(0)
    w, y = torch.randn(c, d, device="cuda"), torch.randint(c, (b,), device="cuda")
    noise = torch.linspace(0.3, 3.0, b, device="cuda")[:, None]
    return F.normalize(w)[y] * d**0.5 + noise * torch.randn(b, d, device="cuda"), y, w


@pytest.mark.parametrize("autocast", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("size", [(257, 5003, 512), (1024, 20_000, 128), (33, 1001, 72)])
def test_gradients_are_as_near_to_float64_as_those_of_plain_torch(size, autocast):
    x, y, w = trained_like(*size)
    exact = losses_and_gradients("arcface", "eager", x, y, w, torch.float64)
    found = losses_and_gradients("arcface", "triton", x, y, w, autocast=autocast)
    plain = plain_arcface(x, y, w, autocast)
    errors = [(off(a, c), off(b, c)) for a, b, c in zip(found, plain, exact, strict=True)]
    assert all(ours <= 1.5 * theirs + 1e-6 for ours, theirs in errors), errors


@pytest.mark.parametrize("name", list(MARGINS))
def test_every_margin_in_bf16_is_near_float64(name):
    x, y, w = trained_like(300, 3001, 256)
    exact = losses_and_gradients(name, "eager", x, y, w, torch.float64)
    found = losses_and_gradients(name, "triton", x, y, w, autocast=torch.bfloat16)
    plain = losses_and_gradients(name, "eager", x.bfloat16().float(), y, w.bfloat16().float())
    for a, b, c in zip(found, plain, exact, strict=True):
        assert off(a, c) <= 1.5 * max(off(b, c), 4e-3)


def test_float32_follows_the_precision_torch_is_set_to():
    x, y, w = trained_like(130, 2000, 512)
    exact = losses_and_gradients("arcface", "eager", x, y, w, torch.float64)
    fine = losses_and_gradients("arcface", "triton", x, y, w)
    torch.set_float32_matmul_precision("high")
    try:
        coarse = losses_and_gradients("arcface", "triton", x, y, w)
    finally:
        torch.set_float32_matmul_precision("highest")
    assert off(fine[2], exact[2]) < 2e-6 < off(coarse[2], exact[2]) < 2e-3


def test_three_hundred_steps_on_real_data_trace_the_eager_curve():
    images = load(DataConfig(source="digits")).train
    x = torch.from_numpy(images.pixels[:].reshape(len(images), -1)).float().cuda()
    x /= x.max()
    y = torch.from_numpy(images.y).long().cuda()
    curves = []
    for engine in ("eager", "triton"):
        torch.manual_seed(0)
        net = torch.nn.Sequential(torch.nn.Linear(x.shape[1], 128), torch.nn.ReLU(), torch.nn.Linear(128, 64)).cuda()
        head = Head(64, 10, engine=engine, s=16.0, margin="arcface").cuda()
        optimiser = torch.optim.SGD([*net.parameters(), *head.parameters()], lr=0.05, momentum=0.9)
        losses = []
        for step in range(300):
            some = slice(step * 100 % 1200, step * 100 % 1200 + 100)
            embedded = net(x[some])
            with torch.autocast("cuda", torch.bfloat16):  # the plain engine works in float32 all the same
                loss = head(embedded, y[some])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            losses.append(loss.detach())
        curves.append(torch.stack(losses).cpu())
    smooth = [curve.reshape(-1, 12).mean(1) for curve in curves]  # an epoch each
    assert torch.allclose(*smooth, rtol=0.1, atol=0.02) and float(smooth[1][-1]) < 0.5 * float(smooth[1][0])


def test_ten_million_classes_with_the_optimiser_inside_fit_in_48_gib():
    head = Head(512, 10_000_000, engine="triton", device="cuda")
    optimiser = optim.SGD(head, lr=0.1, momentum=0.9)
    x, y = torch.randn(1024, 512, device="cuda", requires_grad=True), torch.randint(10_000_000, (1024,), device="cuda")
    y[0] = 9_999_999
    last = head.weight.detach()[-1].clone()
    torch.cuda.reset_peak_memory_stats()
    with torch.autocast("cuda", torch.bfloat16):
        loss = head(x, y)
    loss.backward()
    optimiser.step()
    assert torch.cuda.max_memory_allocated() < 48 * 2**30
    assert bool(loss.isfinite()) and not torch.equal(last, head.weight.detach()[-1])


def test_a_step_waits_for_nothing_and_can_be_recorded():
    head = Head(64, 50_000, engine="triton").cuda()
    x, y = torch.randn(32, 64, device="cuda", requires_grad=True), torch.randint(50_000, (32,), device="cuda")

    def step():
        x.grad = head.weight.grad = None
        head(x, y).backward()

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        step()
    torch.cuda.synchronize()
    with warnings.catch_warnings(action="ignore"):  # torch calls this mode a prototype
        torch.cuda.set_sync_debug_mode("error")
    try:
        step()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    wanted, graph = head.weight.grad.clone(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    graph.replay()
    assert torch.equal(head.weight.grad, wanted)


def test_auto_picks_it_on_a_gpu():
    from arcwise.ops import engine_for

    x = torch.zeros(64, 8, device="cuda")
    assert engine_for(x, 2**21, moving=False) == "triton" and engine_for(x, 100, moving=False) == "eager"
    assert engine_for(x.double(), 2**28, moving=False) == "chunked"


@pytest.mark.filterwarnings("ignore:The AccumulateGrad node's stream")  # torch's own way of recording meets it
def test_torch_records_a_head_in_one_call():
    torch.manual_seed(0)
    head, y = Head(64, 5_000, engine="triton").cuda(), torch.randint(5_000, (96,), device="cuda")
    points = torch.randn(96, 64, device="cuda")

    def step(function, weight):
        x = points.clone().requires_grad_()
        weight.grad = None
        with torch.autocast("cuda", torch.bfloat16, cache_enabled=False):
            loss = function(x, y)
        loss.backward()
        return loss.detach().clone(), x.grad.clone(), weight.grad.clone()

    same = copy.deepcopy(head)
    wanted = step(same, same.weight)
    with torch.autocast("cuda", torch.bfloat16, cache_enabled=False):
        recorded = torch.cuda.make_graphed_callables(head, (points.clone().requires_grad_(), y.clone()))
    for _ in range(2):
        assert all(torch.equal(a, b) for a, b in zip(step(recorded, head.weight), wanted, strict=True))
