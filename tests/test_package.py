"""The door: few names, lazily imported; the README's code runs; heads compile."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import arcwise

ROOT = Path(__file__).parents[1]


def python(code: str) -> str:
    run = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return run.stdout.strip()


def test_the_public_door_is_small_and_every_name_opens():
    assert len(arcwise.__all__) < 40
    assert all(getattr(arcwise, name) is not None for name in arcwise.__all__)
    assert set(arcwise.__all__) <= set(dir(arcwise))
    with pytest.raises(AttributeError, match="Head"):
        _ = arcwise.Hed


def test_every_name_of_the_door_is_used_in_the_page_about_it():
    code = "\n".join(re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "python.md").read_text(), flags=re.S))
    used = set(re.findall(r"\barcwise\.(\w+)", code))
    assert set(arcwise.__all__) <= used


@pytest.mark.parametrize("name", ["train", "compare", "embed", "measure", "report", "advise"])
def test_a_function_of_the_door_stays_one_whatever_was_imported_first(name):
    code = f"""
import arcwise.{name}, arcwise
assert callable(arcwise.{name}) and arcwise.{name}.__name__ == "{name}"
from arcwise.{name} import {name} as other
assert other is arcwise.{name}
from arcwise import {name} as third
assert third is other
"""
    python(code)


def test_a_star_brings_the_door_and_nothing_else():
    names = python("from arcwise import *; print(*(name for name in dir() if not name.startswith('__')))").split()
    assert sorted(names) == sorted(name for name in arcwise.__all__ if not name.startswith("__"))
    python("from arcwise import *\nimport arcwise\nassert train is arcwise.train and Head is arcwise.Head")


def test_advise_stays_a_function_whatever_was_imported_first():
    assert python("import arcwise.advise, arcwise; print(arcwise.advise(10, 2).dim)") == "2"


def test_importing_arcwise_imports_nothing_heavy():
    heavy = ("torch", "numpy", "matplotlib", "cyclopts", "jaxtyping", "scipy", "sklearn")
    assert python(f"import arcwise, sys; print([m for m in {heavy} if m in sys.modules])") == "[]"
    optional = ("torch._dynamo", "torch._inductor", "triton", "matplotlib", "cyclopts")
    assert python(f"import arcwise, sys; arcwise.Head; print([m for m in {optional} if m in sys.modules])") == "[]"


def test_the_heads_cost_less_than_a_third_of_a_second_beyond_torch():
    code = "import torch, time; t = time.perf_counter(); import arcwise; arcwise.Head; print(time.perf_counter() - t)"
    assert any(float(python(code)) < 0.3 for _ in range(10))  # the machine may be busy


def test_numbers_of_numpy_and_torch_are_numbers():
    code = """
import numpy as np, torch, arcwise
head = arcwise.Head(np.int64(4), np.int32(6), s=np.float32(16), margin=arcwise.margins.ArcFace(torch.tensor(0.5)))
assert (head.dim, head.classes, head.s, head.margin.m) == (4, 6, 16.0, 0.5)
assert arcwise.margins.CosFace(np.float32(0.25)).m == 0.25
assert arcwise.advise(np.int64(10), 2, per_class=np.array([5] * 10)).classes == 10
"""
    python(code)


@pytest.mark.parametrize(
    "document",
    [
        "README.md",
        "CONTRIBUTING.md",
        "docs/heads.md",
        "docs/training.md",
        "docs/seeing.md",
        "docs/python.md",
        "docs/unseen.md",
    ],
)
def test_code_blocks_run(document):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / document).read_text(), flags=re.S)
    assert blocks
    python("\n".join(blocks))


def test_heads_compile_without_a_graph_break():
    """Traced and differentiated, not lowered: the slow test below also generates the code."""
    python(COMPILED.format(names="('arcface', 'adaface', 'curricularface')", backend="aot_eager", rel=1e-6))


@pytest.mark.slow
def test_every_head_compiles_with_inductor():
    python(COMPILED.format(names="arcwise.MARGINS", backend="inductor", rel=1e-4))


COMPILED = """
import copy, warnings
import torch
warnings.simplefilter("ignore")  # torch's own, while it compiles
import arcwise
for name in {names}:
    for engine in ("eager", "chunked"):
        torch._dynamo.reset()
        plain = arcwise.Head(8, 30, margin=name, engine=engine, memory=20_000, k=2)
        traced = copy.deepcopy(plain)
        call = torch.compile(traced, backend="{backend}", fullgraph=True)
        x, y = torch.randn(9, 8), torch.randint(30, (9,))
        for _ in range(2):
            torch.manual_seed(0)
            a = plain(x, y)
            torch.manual_seed(0)
            b = call(x, y)
            if "elastic" not in name:  # compiled code draws other random numbers
                assert torch.allclose(a, b, rtol={rel}), (name, engine, a, b)
            b.backward()
            assert traced.weight.grad.isfinite().all()
        for key, value in plain.margin.state_dict().items():
            assert torch.allclose(value, traced.margin.state_dict()[key]), (name, key)
"""


def test_the_changelog_knows_this_version():
    assert arcwise.__version__ in (ROOT / "CHANGELOG.md").read_text()
    assert f'version = "{arcwise.__version__}"' in (ROOT / "pyproject.toml").read_text()


def test_threads_may_open_the_door_at_once():
    code = """
import threading, arcwise
names, failed, barrier = arcwise.__all__, [], threading.Barrier(len(arcwise.__all__))

def work(name):
    barrier.wait()
    try:
        getattr(arcwise, name)
    except BaseException as error:
        failed.append((name, error))

threads = [threading.Thread(target=work, args=(name,)) for name in names]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
assert not failed, failed
"""
    python(code)
