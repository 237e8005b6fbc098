"""The engines: one result whatever the blocks, nothing of size b x c kept, no margin inside."""

import warnings
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from arcwise import ops
from arcwise.errors import ArcwiseError
from arcwise.ops import bytes_per_class, own_cosine, split_lse
from arcwise.sphere import Others


def problem(b, d, c, k):
    x = torch.randn(b, d, dtype=torch.float64, requires_grad=True)
    w = torch.randn(c, k, d, dtype=torch.float64, requires_grad=True)
    return x, w, torch.randint(c, (b,))


@pytest.mark.parametrize("mode", [None, "curricular", "mv", "mv-fixed", "filter"])
@settings(max_examples=20)
@given(
    b=st.integers(0, 9), d=st.integers(1, 6), c=st.integers(1, 40), k=st.integers(1, 3), block=st.integers(1, 45),
    seed=st.integers(0, 1000),
)  # fmt: skip
def test_chunked_equals_eager_for_any_size_block_and_mode(b, d, c, k, block, mode, seed):
    torch.manual_seed(seed)
    x, w, y = problem(b, d, c, k)
    others = None if mode is None else Others(mode, torch.rand(b, dtype=torch.float64) - 0.5, 1.2)
    results = []
    for engine in ("eager", "chunked"):
        out = split_lse(x, w, y, 8.0, others=others, engine=engine, memory=block * bytes_per_class(x, k))
        dx, dw = torch.autograd.grad((out.lse.clamp(min=-100.0) * 0.7 + out.cos_y * 1.3).sum(), (x, w))
        results.append((out.lse, out.cos_y, out.cos_other, dx, dw))
    for plain, blocked in zip(*results, strict=True):
        assert torch.allclose(plain, blocked, rtol=1e-11, atol=1e-12)


def test_the_own_class_is_left_out_not_subtracted():
    # The own class holds all of the mass: e^64 against e^-64. Subtraction would leave nothing.
    x, y = torch.tensor([[1.0, 0.0]]), torch.tensor([0])
    w = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [-1.0, 0.0]])
    for engine in ("eager", "chunked"):
        lse = split_lse(x, w, y, 64.0, engine=engine).lse
        assert float(lse) == pytest.approx(-64.0 + 0.6931472, abs=1e-4)


def test_own_cosine_is_the_one_of_the_pass():
    x, w, y = problem(7, 5, 11, 3)
    assert torch.allclose(own_cosine(x, w, y), split_lse(x, w, y, 4.0).cos_y, rtol=1e-14)
    assert torch.allclose(own_cosine(x, w[:, 0], y), split_lse(x, w[:, 0], y, 4.0).cos_y, rtol=1e-14)


def test_cos_other_is_the_largest_other_cosine_and_carries_no_gradient():
    x, w, y = problem(7, 5, 11, 1)
    cos = torch.nn.functional.normalize(x) @ torch.nn.functional.normalize(w[:, 0]).T
    cos = cos.detach()
    cos[torch.arange(7), y] = -2.0
    for engine in ("eager", "chunked"):
        other = split_lse(x, w, y, 4.0, engine=engine).cos_other
        assert torch.allclose(other, cos.amax(1))
        assert not other.requires_grad


class Largest(TorchDispatchMode):
    """The number of elements of the largest tensor that any operation returns."""

    numel = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, (tuple, list)) else (out,):
            if isinstance(tensor, torch.Tensor):
                self.numel = max(self.numel, tensor.numel())
        return out


def test_chunked_keeps_nothing_of_size_b_times_c_and_makes_nothing_beyond_its_block():
    b, d, c = 64, 4, 5_000
    x = torch.randn(b, d, requires_grad=True)
    w = torch.randn(c, d, requires_grad=True)
    y = torch.randint(c, (b,))
    saved = []
    with (
        torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t.numel()) or t, lambda t: t),
        Largest() as seen,
    ):
        memory = 100 * 4 * (5 * b + 2 * d)  # a hundred classes: five arrays of b and two of d floats for each
        out = split_lse(x, w, y, 16.0, engine="chunked", memory=memory)
        (out.lse + out.cos_y).sum().backward()
    assert max(saved) == c * d < b * c // 10
    assert b * 100 // 2 < seen.numel <= max(b * 100, c * d)


@pytest.mark.parametrize("k", [1, 2, 8])
def test_sub_centres_count_in_the_memory_of_a_block(k):
    b, d, c, memory = 256, 2, 4000 // k, 2**19
    x, w = torch.randn(b, d, requires_grad=True), torch.randn(c, k, d, requires_grad=True)
    with Largest() as seen:
        out = split_lse(x, w, torch.randint(c, (b,)), 16.0, engine="chunked", memory=memory)
        (out.lse + out.cos_y).sum().backward()
    assert memory / 10 < 4 * seen.numel <= memory / 5  # five such arrays are alive at once, at most


def test_the_bytes_of_a_class_by_hand():
    # float32, b = 10, d = 3: (5 * 10 + 2 * 3) * 4 = 224 bytes for each sub-centre, 7 * 3 numbers more where it moves.
    x = torch.zeros(10, 3)
    assert [bytes_per_class(x, k) for k in (1, 2, 5)] == [224, 448, 1120]
    assert bytes_per_class(x, 5, moving=True) == 5 * (224 + 84)
    assert bytes_per_class(x.double(), 2) == 896


@pytest.mark.parametrize("engine", ["eager", "chunked"])
@pytest.mark.parametrize("mode", ["curricular", "mv", "mv-fixed", "filter"])
def test_a_class_exactly_at_the_threshold_counts_as_it_is(engine, mode):
    x, w, y = problem(6, 4, 2, 1)  # one other class, so that cos_other is its cosine
    given = {"engine": engine, "memory": 1}
    plain = split_lse(x, w, y, 4.0, **given)
    there = split_lse(x, w, y, 4.0, others=Others(mode, plain.cos_other, 1.5), **given)
    assert torch.equal(there.lse, plain.lse)
    wanted, found = (torch.autograd.grad(out.lse.sum(), (x, w)) for out in (plain, there))
    assert all(torch.equal(a, b) for a, b in zip(wanted, found, strict=True))
    below = plain.cos_other.nextafter(torch.tensor(-2.0, dtype=torch.float64))
    beyond = split_lse(x, w, y, 4.0, others=Others(mode, below, 1.5), **given)
    assert (beyond.lse - plain.lse).abs().min() > 1e-3


def test_auto_picks_the_plain_definition_when_small_and_blocks_when_large(monkeypatch):
    picked = []
    for name in ("eager", "chunked"):
        real = getattr(ops, name)
        monkeypatch.setattr(ops, name, lambda *args, name=name, real=real: picked.append(name) or real(*args))
    split_lse(torch.randn(4, 3), torch.randn(9, 3), torch.randint(9, (4,)), 4.0)
    split_lse(torch.randn(512, 3), torch.randn(8192, 3), torch.randint(9, (512,)), 4.0)
    assert picked == ["eager", "chunked"]


def test_the_fused_engine_asks_for_a_gpu_that_is_new_enough(monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setattr(ops, "triton_missing", lambda: None)
    with FakeTensorMode():
        here, there = torch.empty(4, 16), torch.empty(4, 16, device="cuda")
    assert "needs a GPU" in ops.fused_problem(here)
    for capability, fine in {(7, 5): False, (8, 0): True, (8, 9): True, (9, 0): True}.items():
        monkeypatch.setattr("torch.cuda.get_device_capability", lambda _, found=capability: found)
        assert (ops.fused_problem(there) is None) == fine, capability


@pytest.mark.parametrize("lacking", ["triton", "triton.tools.tensor_descriptor"])
def test_a_triton_that_is_too_old_is_as_none(monkeypatch, lacking):
    monkeypatch.setattr(ops, "find_spec", lambda name: None if name.startswith(lacking) else object())
    assert "triton 3.4 or newer is not installed" in ops.triton_missing.__wrapped__()
    monkeypatch.setattr(ops, "find_spec", lambda name: object())
    assert ops.triton_missing.__wrapped__() is None


def test_an_unknown_engine_lists_the_choices():
    with pytest.raises(ArcwiseError, match=r"unknown engine 'chunky': did you mean 'chunked'"):
        split_lse(torch.randn(4, 3), torch.randn(9, 3), torch.randint(9, (4,)), 4.0, engine="chunky")


def test_no_margin_appears_in_ops():
    files = {file.stem: file for file in Path(ops.__file__).parent.glob("*.py")}
    assert {"__init__", "eager", "fused", "triton", "plan", "update"} <= set(files)
    for file in files.values():
        code = file.read_text()
        assert "margins" not in code
        assert "psi" not in code


@pytest.mark.gpu
def test_a_step_on_the_gpu_never_waits_for_it():
    import arcwise

    for name in arcwise.MARGINS:
        for engine in ("eager", "chunked"):
            head = arcwise.Head(32, 1009, margin=name, engine=engine, k=2, device="cuda", memory=10**6)
            x = torch.randn(64, 32, device="cuda", requires_grad=True)
            y = torch.randint(1009, (64,), device="cuda")
            head(x, y).backward()  # allocates
            with warnings.catch_warnings(action="ignore"):  # torch calls this mode a prototype
                torch.cuda.set_sync_debug_mode("error")
            try:
                head(x, y).backward()
            finally:
                torch.cuda.set_sync_debug_mode("default")


@pytest.mark.gpu
def test_a_bad_label_on_the_gpu_gives_nan_and_checks_name_the_row():
    import arcwise

    head = arcwise.Head(8, 10, device="cuda")
    x, y = torch.randn(4, 8, device="cuda"), torch.tensor([0, 1, 12, -1], device="cuda")
    assert head(x, y, reduction="none").isnan().tolist() == [False, False, True, True]
    head.checks = True
    with pytest.raises(ArcwiseError, match=r"row 2 holds 12"):
        head(x, y)


@pytest.mark.gpu
def test_engines_agree_on_the_gpu():
    import arcwise

    x, y = torch.randn(64, 32, dtype=torch.float64), torch.randint(1009, (64,))
    for name in arcwise.MARGINS:
        for engine in ("eager", "chunked"):
            head = arcwise.Head(32, 1009, margin=name, k=3, engine=engine, memory=10**6).double().eval()
            here = head(x, y)
            there = head.cuda()(x.cuda(), y.cuda())
            assert torch.allclose(here, there.cpu(), rtol=1e-12)
