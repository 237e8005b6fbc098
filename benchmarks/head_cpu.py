"""Time and peak working memory of one forward + backward of an ArcFace head on the CPU, peers beside ours.

    python benchmarks/head_cpu.py                    the table of docs/results.md (about five minutes)
    python benchmarks/head_cpu.py --classes 10000    one size

All contenders run in one process, in turn, on the same embeddings; the time is the median of the rounds.
Working memory is the peak of the process beyond what it held before the step and beyond the gradient of w.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import math
import platform
import statistics
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import arcwise

S, M = 64.0, 0.5


class PlainTorch(nn.Module):
    """ArcFace as one writes it in a notebook: the whole logits matrix, cross-entropy, autograd."""

    def __init__(self, dim: int, classes: int):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(classes, dim))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        cos = F.normalize(x) @ F.normalize(self.weight).T
        own = cos.gather(1, y[:, None]).clamp(-1 + 1e-7, 1 - 1e-7)
        psi = own * math.cos(M) - (1 - own * own).sqrt() * math.sin(M)
        psi = torch.where(own > -math.cos(M), psi, own - M * math.sin(M))
        return F.cross_entropy(S * cos.scatter(1, y[:, None], psi), y)


def metric_learning(dim: int, classes: int) -> nn.Module:
    """pytorch-metric-learning's ArcFaceLoss, with the same margin and scale."""
    from pytorch_metric_learning.losses import ArcFaceLoss

    return ArcFaceLoss(classes, dim, margin=math.degrees(M), scale=int(S))


CONTENDERS: dict[str, Callable[[int, int], nn.Module]] = {
    "plain torch": PlainTorch,
    "pytorch-metric-learning": metric_learning,
    "arcwise eager": lambda dim, classes: arcwise.Head(dim, classes, s=S, engine="eager"),
    "arcwise chunked": lambda dim, classes: arcwise.Head(dim, classes, s=S, engine="chunked"),
}


def status(field: str) -> int:
    """A line of /proc/self/status in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    raise OSError(f"/proc/self/status has no {field}")


def step(module: nn.Module, x: Tensor, y: Tensor) -> float:
    """Seconds of one forward + backward."""
    x.grad = None
    module.zero_grad(set_to_none=True)
    start = time.perf_counter()
    module(x, y).backward()
    return time.perf_counter() - start


def working_memory(module: nn.Module, x: Tensor, y: Tensor) -> int:
    """Peak bytes of one step beyond what was there before and beyond the parameters' gradients."""
    x.grad = None
    module.zero_grad(set_to_none=True)
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    before = status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # resets the high-water mark
    module(x, y).backward()
    return status("VmHWM") - before - sum(p.numel() * p.element_size() for p in module.parameters())


def measure(classes: int, rounds: int, *, b: int, dim: int) -> dict[str, dict[str, float]]:
    """Median seconds and working memory of every contender at one number of classes."""
    torch.manual_seed(0)
    x, y = torch.randn(b, dim, requires_grad=True), torch.randint(classes, (b,))
    modules = {name: build(dim, classes) for name, build in CONTENDERS.items()}
    for module in modules.values():
        step(module, x, y)
    times = {name: [] for name in modules}
    for _ in range(rounds):
        for name, module in modules.items():
            times[name].append(step(module, x, y))
            module.zero_grad(set_to_none=True)
    return {
        name: {"seconds": statistics.median(times[name]), "working_bytes": working_memory(module, x, y)}
        for name, module in modules.items()
    }


def machine() -> str:
    """Processor, threads and versions, in one line."""
    models = [
        line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line
    ]
    versions = ", ".join(f"{name} {version(name)}" for name in ("torch", "arcwise", "pytorch-metric-learning"))
    return f"{models[0] if models else platform.machine()}, {torch.get_num_threads()} threads; {versions}"


def verdicts(results: dict[int, dict[str, dict[str, float]]]) -> list[str]:
    """What is claimed of the chunked engine (size, peer, quantity, at most), each with what came out."""
    claims = (
        (100_000, "plain torch", "seconds", 0.85),
        (100_000, "pytorch-metric-learning", "seconds", 1.0),
        (500_000, "plain torch", "working_bytes", 0.1),
    )
    lines = []
    for classes, peer, what, most in claims:
        if classes in results:
            share = results[classes]["arcwise chunked"][what] / results[classes][peer][what]
            met = "met" if share <= most else "MISSED"
            lines.append(f"{met}: chunked at {classes:,} classes, {what} at most {most:g}x {peer}'s: {share:.3f}x")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--classes", type=int, nargs="*", default=[10_000, 100_000, 500_000])
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--dim", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, help="also write the numbers here")
    args = parser.parse_args()
    print(machine())
    print(
        f"float32, b = {args.batch}, d = {args.dim}, s = {S:g}, m = {M:g}, forward + backward, median of {args.rounds}"
    )
    print("\n| classes | head | time | of plain torch | working memory | of plain torch |")
    print("| ---: | --- | ---: | ---: | ---: | ---: |")
    results = {}
    for classes in args.classes:
        results[classes] = rows = measure(classes, args.rounds, b=args.batch, dim=args.dim)
        plain = rows["plain torch"]
        for name, row in rows.items():
            seconds, used = row["seconds"], row["working_bytes"]
            print(
                f"| {classes:,} | {name} | {seconds:.3f} s | {seconds / plain['seconds']:.2f}x "
                f"| {used / 2**20:,.0f} MiB | {used / plain['working_bytes']:.3f}x |",
                flush=True,
            )
    print("\n" + "\n".join(verdicts(results)))
    if args.json:
        args.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
