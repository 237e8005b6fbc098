"""Working memory as the operating system sees it, in a process of its own."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import json, sys
sys.path.insert(0, {benchmarks!r})
import torch, arcwise
from head_cpu import step, working_memory
x, y = torch.randn(256, 64, requires_grad=True), torch.randint(60_000, (256,))
used = {{}}
for name, engine, memory in (("eager", "eager", None), ("8", "chunked", 2**23), ("32", "chunked", 2**25)):
    head = arcwise.Head(64, 60_000, engine=engine, memory=memory)
    step(head, x, y)
    used[name] = min(working_memory(head, x, y) for _ in range(8)) / 2**20
print(json.dumps(used))
"""


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs Linux")
def test_chunked_stays_inside_its_memory_and_eager_does_not():
    benchmarks = str(Path(__file__).parents[2] / "benchmarks")
    run = subprocess.run([sys.executable, "-c", SCRIPT.format(benchmarks=benchmarks)], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    used = json.loads(run.stdout)
    beyond = 8  # MiB: threads' own buffers of the matrix products
    assert used["8"] <= 8 + beyond
    assert used["32"] <= 32 + beyond
    assert used["eager"] > 100  # 60,000 x 256 floats are 59 MiB
