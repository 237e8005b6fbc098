"""Time and peak memory of one forward + backward of an ArcFace head on a GPU, peers beside ours.

    python benchmarks/head_gpu.py                      the table of docs/results.md (two minutes on an H200)
    python benchmarks/head_gpu.py --sizes 1024x100000  one size, as batch x classes

All contenders run in one process, one after the other, on the same embeddings of 512 numbers, under bf16 autocast with
prototypes in float32. "launched" is the median over steps that follow each other without a pause, "recorded" the
same step replayed as a CUDA graph, which is how `arcwise train` runs. Memory is the peak beyond what was there before
the step and beyond the gradient of w. Peers that are not installed are left out.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import math
import statistics
from collections.abc import Callable
from functools import partial
from importlib.metadata import PackageNotFoundError, version

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import arcwise
from arcwise import optim

S, M, DIM = 64.0, 0.5, 512


class PlainTorch(nn.Module):
    """ArcFace as one writes it in a notebook: the whole logits matrix, cross-entropy, autograd.

    Under autocast its cosines are bf16, whose steps near 1 are 0.25 of a logit at s = 64; `wide` takes them to float32
    before they are scaled, as careful code does.
    """

    def __init__(self, classes: int, *, wide: bool = False):
        super().__init__()
        self.weight, self.wide = nn.Parameter(torch.randn(classes, DIM)), wide

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        cos = F.linear(F.normalize(x), F.normalize(self.weight))
        cos = cos.float() if self.wide else cos
        own = cos.gather(1, y[:, None]).float().clamp(-1 + 1e-7, 1 - 1e-7)
        psi = own * math.cos(M) - (1 - own * own).sqrt() * math.sin(M)
        psi = torch.where(own > -math.cos(M), psi, own - M * math.sin(M))
        return F.cross_entropy(S * cos.scatter(1, y[:, None], psi.to(cos.dtype)), y)


def compiled(classes: int, *, wide: bool = False) -> nn.Module:
    torch.compiler.reset()
    return torch.compile(PlainTorch(classes, wide=wide))  # type: ignore[return-value]


def metric_learning(classes: int) -> nn.Module:
    from pytorch_metric_learning.losses import ArcFaceLoss

    return ArcFaceLoss(classes, DIM, margin=math.degrees(M), scale=int(S))


class CutCrossEntropy(nn.Module):
    """apple's kernel: plain softmax without margin, in bf16."""

    def __init__(self, classes: int):
        from cut_cross_entropy import linear_cross_entropy  # pyright: ignore[reportMissingImports]

        super().__init__()
        self.weight, self.loss = nn.Parameter(torch.randn(classes, DIM)), linear_cross_entropy

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self.loss((S * F.normalize(x)).bfloat16(), F.normalize(self.weight).bfloat16(), y)


def ours(engine: str, memory: int | None = None) -> Callable[[int], nn.Module]:
    return lambda classes: arcwise.Head(DIM, classes, s=S, engine=engine, memory=memory)


def inside(classes: int) -> nn.Module:
    head = arcwise.Head(DIM, classes, s=S, engine="triton")
    optim.SGD(head, lr=0.1, momentum=0.9)  # known to the head as its mover
    return head


RECORDED = ("arcwise", "plain torch")  # the others wait for the GPU in a step, which a CUDA graph cannot
CONTENDERS: dict[str, tuple[Callable[[int], nn.Module], int]] = {  # and the most cosines that it has memory for
    "arcwise triton": (ours("triton"), 2**40),
    "arcwise triton, 512 MiB": (ours("triton", memory=2**29), 2**31),
    "arcwise triton, SGD inside": (inside, 2**40),
    "arcwise chunked": (ours("chunked"), 2**27),
    "plain torch": (PlainTorch, 2**31),
    "plain torch, torch.compile": (compiled, 5 * 2**30),
    "plain torch, float32 logits": (partial(PlainTorch, wide=True), 2**31),
    "plain torch, float32 logits, torch.compile": (partial(compiled, wide=True), 5 * 2**30),
    "pytorch-metric-learning": (metric_learning, 2**31),
    "cut-cross-entropy (no margin)": (CutCrossEntropy, 5 * 2**30),
}


def all_metrics(head: nn.Module, b: int, classes: int, steps: int, *, record: bool) -> dict[str, float]:
    """Milliseconds launched and recorded, GiB beyond what must be there, and the loss."""
    torch.manual_seed(0)
    x = torch.randn(b, DIM, device="cuda", requires_grad=True)
    y = torch.randint(classes, (b,), device="cuda")
    optimiser = getattr(head, "mover", None)

    def step() -> Tensor:
        x.grad = None
        for parameter in head.parameters():
            parameter.grad = None
        with torch.autocast("cuda", torch.bfloat16):
            loss = head(x, y)
        loss.backward()
        if optimiser is not None:
            optimiser.step()
        return loss.detach()

    first = float(step())
    for _ in range(2):
        step()
    x.grad = None
    for parameter in head.parameters():
        parameter.grad = None
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    step()
    torch.cuda.synchronize()
    gradient = sum(p.numel() * p.element_size() for p in head.parameters() if p.grad is not None)
    beyond = torch.cuda.max_memory_allocated() - before - gradient
    launched, again = timed(step, steps), recorded(step, steps) if record else math.nan
    return {"launched": launched, "recorded": again, "GiB": beyond / 2**30, "loss": first}


def timed(step: Callable[[], object], steps: int) -> float:
    """The median of steps that follow each other."""
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(steps + 1)]
    marks[0].record()
    for mark in marks[1:]:
        step()
        mark.record()
    torch.cuda.synchronize()
    return statistics.median(a.elapsed_time(b) for a, b in itertools.pairwise(marks))


def recorded(step: Callable[[], object], steps: int) -> float:
    """The same as a CUDA graph."""
    graph, side = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        step()
    torch.cuda.current_stream().wait_stream(side)
    with torch.cuda.graph(graph):
        step()
    graph.replay()
    return timed(graph.replay, steps)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", default=["1024x100000", "1024x1000000", "4096x1000000", "1024x10000000"])
    parser.add_argument("--only", default="", help="contenders whose names hold this")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    names = ["torch", "triton", "pytorch-metric-learning", "cut-cross-entropy"]
    about = {"device": torch.cuda.get_device_name(), "cuda": torch.version.cuda, **{n: installed(n) for n in names}}
    print(", ".join(f"{name} {what}" for name, what in about.items() if what), flush=True)
    print("\n| batch x classes | head | launched, ms | recorded, ms | beyond w, GiB | loss |")
    print("| --- | --- | ---: | ---: | ---: | ---: |")
    found = []
    for size in args.sizes:
        b, classes = (int(number) for number in size.split("x"))
        for name, (make, most) in CONTENDERS.items():
            if args.only not in name or b * classes > most:
                continue
            row = contend(name, make, b, classes, max(4, args.steps * 10**6 // max(classes, 10**6)))
            found.append({"size": size, "head": name, **row})
    if args.json:
        print(json.dumps({**about, "rows": found}))


def contend(name: str, make: Callable[[int], nn.Module], b: int, classes: int, steps: int) -> dict[str, float]:
    """One row of the table, printed."""
    try:
        with torch.device("cuda"):
            head = make(classes)
        row = all_metrics(head, b, classes, steps, record=name.startswith(RECORDED))
        cells = [
            f"{row[key]:.{digits}f}" for key, digits in (("launched", 2), ("recorded", 2), ("GiB", 2), ("loss", 3))
        ]
    except (ImportError, RuntimeError, AssertionError) as error:
        row, cells = {}, [str(error).split("\n")[0][:60], "", "", ""]
    print(f"| {b:,} x {classes:,} | {name} | {' | '.join(cells)} |".replace("nan", "-"), flush=True)
    head = None
    gc.collect()
    torch.cuda.empty_cache()
    return row


def installed(name: str) -> str:
    """The version of a package, or nothing."""
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


if __name__ == "__main__":
    main()
