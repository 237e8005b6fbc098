"""Optimisers in the backward pass: torch's own steps to rounding, nothing moved by numbers that are not finite."""

import pickle
from copy import deepcopy

import pytest
import torch

from arcwise import optim
from arcwise.errors import ArcwiseError
from arcwise.heads import Head, LinearHead
from arcwise.ops import fused_problem

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
ENGINES = ["chunked", "triton"] if fused_problem(torch.zeros(1, 8, device=DEVICE)) is None else ["chunked"]
PAIRS = [
    (optim.SGD, torch.optim.SGD, {"lr": 0.3, "momentum": 0.9, "weight_decay": 0.01}),
    (optim.SGD, torch.optim.SGD, {"lr": 0.3, "momentum": 0.8, "nesterov": True, "weight_decay": 0.05}),
    (optim.SGD, torch.optim.SGD, {"lr": 0.3, "momentum": 0.0}),
    (optim.AdamW, torch.optim.AdamW, {"lr": 0.02, "weight_decay": 0.1, "betas": (0.8, 0.95)}),
    (optim.AdamW, torch.optim.AdamW, {"lr": 0.05, "eps": 0.01, "weight_decay": 0.0}),
]


def batches(steps, b=20, d=16, c=150):
    generator = torch.Generator().manual_seed(5)
    for _ in range(steps):
        x, y = torch.randn(b, d, generator=generator), torch.randint(c, (b,), generator=generator)
        yield x.to(DEVICE), y.to(DEVICE)


def head(engine, k=1, **more):
    torch.manual_seed(1)
    return Head(16, 150, engine=engine, s=16.0, k=k, memory=60_000, **more).to(DEVICE)


@pytest.mark.parametrize(("ours", "theirs", "settings"), PAIRS)
@pytest.mark.parametrize("engine", ENGINES)
def test_steps_inside_are_those_of_the_separate_optimiser(engine, ours, theirs, settings):
    steps = 3 if engine == "triton" and DEVICE == "cpu" else 6  # the interpreter takes its time
    for k in (1, 2):
        one, other = head(engine, k), head("chunked", k)
        inside, apart = ours(one, **settings), theirs(other.parameters(), **settings)
        for x, y in batches(steps):
            for model, optimiser in ((one, inside), (other, apart)):
                optimiser.zero_grad()
                model(x, y).backward()
                optimiser.step()
        assert one.weight.grad is None
        assert torch.allclose(one.weight, other.weight, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_schedule_of_the_learning_rate_is_followed(engine):
    one, other = head(engine), head("chunked")
    pairs = [(one, optim.SGD(one, lr=0.5)), (other, torch.optim.SGD(other.parameters(), lr=0.5, momentum=0.9))]
    schedules = [torch.optim.lr_scheduler.StepLR(optimiser, 2, 0.1) for _, optimiser in pairs]
    for x, y in batches(5):
        for (model, optimiser), schedule in zip(pairs, schedules, strict=True):
            model(x, y).backward()
            optimiser.step()
            optimiser.zero_grad()
            schedule.step()
    assert torch.allclose(one.weight, other.weight, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("where", ["x", "upstream"])
def test_nothing_moves_when_a_number_is_not_finite(engine, where):
    model = head(engine)
    optimiser = optim.AdamW(model)
    (x, y), *_ = batches(1)
    before = model.weight.detach().clone()
    if where == "x":
        x[3, 2] = torch.inf
    loss = model(x, y, reduction="sum") if DEVICE == "cuda" or where == "upstream" else None
    if loss is None:  # on a CPU the head refuses such embeddings by name before anything is computed
        with pytest.raises(ArcwiseError, match="must be finite"):
            model(x, y)
        return
    (loss * (torch.nan if where == "upstream" else 1.0)).backward()
    optimiser.step()
    state = optimiser.state[model.weight]
    assert torch.equal(model.weight, before) and float(state["t"]) == 0.0
    assert not bool(state["first"].any()) and not bool(state["second"].any())


def test_accumulation_is_refused_with_a_message():
    model = head("chunked")
    optim.SGD(model, lr=0.1)
    (x, y), *_ = batches(1)
    model(x, y).backward()
    with pytest.raises(ArcwiseError, match="cannot accumulate"):
        model(x, y).backward()


def test_what_it_cannot_take_is_refused():
    with pytest.raises(ArcwiseError, match=r"takes an arcwise\.Head"):
        optim.SGD(LinearHead(4, 3), lr=0.1)
    with pytest.raises(ArcwiseError, match='engine="chunked"'):
        optim.SGD(head("eager"), lr=0.1)
    model = head("chunked")
    with pytest.raises(ArcwiseError, match="momentum above 0"):
        optim.SGD(model, lr=0.1, nesterov=True, momentum=0.0)
    with pytest.raises(ArcwiseError, match=r"betas\[1\]"):
        optim.AdamW(model, betas=(0.9, 1.5))
    optimiser = optim.SGD(model, lr=0.1)
    with pytest.raises(ArcwiseError, match="closure"):
        optimiser.step(lambda: 0.0)
    with pytest.raises(ArcwiseError, match="has an optimiser already"):
        optim.AdamW(model)
    with pytest.raises(ArcwiseError, match="nothing else"):
        optimiser.add_param_group({"params": [torch.nn.Parameter(torch.zeros(2))]})


def test_gradients_that_come_by_other_ways_are_not_lost_in_silence():
    model = head("chunked")
    optimiser = optim.SGD(model, lr=0.1)
    (x, y), *_ = batches(1)
    (model(x, y) + model.logits(x).square().mean()).backward()
    with pytest.raises(ArcwiseError, match="gradient of their own"):
        optimiser.step()
    optimiser.zero_grad()
    assert model.weight.grad is None
    model(x, y).backward()
    optimiser.step()


def test_prototypes_that_rest_do_not_move():
    model = head("chunked")
    optimiser = optim.SGD(model, lr=0.1)
    before = model.weight.detach().clone()
    (x, y), *_ = batches(1)
    x = x.requires_grad_()
    model.weight.requires_grad_(False)
    model(x, y).backward()
    model.weight.requires_grad_(True)
    model.eval()
    torch.autograd.grad(model(x, y), x)
    assert torch.equal(model.weight, before) and not optimiser.under_way
    model.train()
    model(x, y).backward()
    assert not torch.equal(model.weight, before)


@pytest.mark.parametrize("engine", ENGINES)
def test_one_backward_pass_one_step(engine):
    model = head(engine)
    optimiser = optim.SGD(model, lr=0.1)
    (x, y), (x2, y2) = batches(2)
    with pytest.raises(ArcwiseError, match="nor sum those of two losses"):
        (model(x, y) + model(x2, y2)).backward()
    optimiser.zero_grad()  # who does not want to step goes on like this
    old, new = model(x, y), model(x2, y2)
    new.backward()
    optimiser.step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        old.backward()  # its prototypes are no longer there


@pytest.mark.parametrize("engine", ENGINES)
def test_a_label_out_of_range_moves_nothing(engine, monkeypatch):
    monkeypatch.setattr("arcwise.heads.admit", lambda *_, **__: None)  # a GPU is not asked
    model = head(engine)
    optim.AdamW(model)
    before = model.weight.detach().clone()
    (x, y), *_ = batches(1)
    y[2] = 150
    loss = model(x, y)
    loss.backward()
    assert bool(loss.isnan()) and torch.equal(model.weight, before)


def test_copies_and_saved_heads_are_without_the_optimiser(tmp_path):
    model = head("chunked")
    optimiser = optim.SGD(model, lr=0.1)
    torch.save(model, tmp_path / "head.pt")
    (x, y), *_ = batches(1)
    for other in (deepcopy(model), torch.load(tmp_path / "head.pt", weights_only=False)):
        other(x, y).backward()
        assert other.mover is None and other.weight.grad is not None
    same = pickle.loads(pickle.dumps(optimiser))
    same.zero_grad()
    assert model.mover is optimiser


def test_a_state_of_something_else_is_refused():
    optimiser = optim.SGD(head("chunked"), lr=0.1)
    others = [torch.optim.SGD(head("chunked").parameters(), lr=0.1, momentum=0.9), optim.AdamW(head("chunked"))]
    others.append(optim.SGD(Head(16, 7, engine="chunked"), lr=0.1))
    for other in others:
        with pytest.raises(ArcwiseError, match=r"not the state of an arcwise\.optim\.SGD"):
            optimiser.load_state_dict(other.state_dict())


def test_without_gradients_nothing_moves():
    model = head("chunked")
    optim.SGD(model, lr=0.1)
    before = model.weight.detach().clone()
    (x, y), *_ = batches(1)
    model.score(x, y)
    assert torch.equal(model.weight, before)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_state_is_saved_and_loaded(dtype):
    one, other = (head("chunked", dtype=dtype) for _ in range(2))
    first, second = optim.AdamW(one), optim.AdamW(other)
    steps = list(batches(8))
    for x, y in steps[:5]:
        one(x, y).backward()
        first.step()
    other.load_state_dict(one.state_dict())
    second.load_state_dict(deepcopy(first.state_dict()))
    for model, optimiser in ((one, first), (other, second)):
        torch.manual_seed(3)
        for x, y in steps[5:]:
            model(x, y).backward()
            optimiser.step()
        assert optimiser.state[model.weight]["first"].dtype == torch.float32
        assert float(optimiser.state[model.weight]["t"]) == 8.0
    assert torch.equal(one.weight, other.weight)


@pytest.mark.parametrize("engine", ENGINES)
def test_small_steps_of_bf16_prototypes_count_on_average(engine):
    torch.manual_seed(0)
    model = Head(64, 2000 if DEVICE == "cuda" else 300, engine=engine, s=4.0, dtype=torch.bfloat16).to(DEVICE)
    with torch.no_grad():
        model.weight.fill_(1.0)
    optimiser = optim.SGD(model, lr=1e-4, momentum=0.0, weight_decay=1.0)  # 1 - 1e-4 is 1 in bf16
    x, y = torch.randn(4, 64, device=DEVICE), torch.arange(4, device=DEVICE)
    for _ in range(10):
        model(x, y).backward()
        optimiser.step()
    assert float(model.weight.detach()[4:].float().mean()) == pytest.approx(1.0 - 1e-3, abs=3e-4)
