"""What a head of so many classes needs and costs on a GPU, before it is built: bytes, seconds, the engine and why."""

from __future__ import annotations

import itertools
import statistics
from typing import Any, NamedTuple

import torch

from arcwise import optim
from arcwise.errors import ArcwiseError, count_in, number_in, one_of
from arcwise.heads import Head
from arcwise.ops import FUSED_FROM
from arcwise.ops.plan import PIECE, allowance, cost, planned, up
from arcwise.ops.sharded import FEW_PROCESSES


class Gpu(NamedTuple):
    """Memory in bytes, and peak rates of bf16 products with float32 sums (operations/s) and of memory (bytes/s)."""

    memory: float
    rate: float
    bandwidth: float


# From the makers' data sheets, without sparsity.
GPUS = {
    "h200": Gpu(139.8 * 2**30, 989e12, 4.8e12),
    "h100": Gpu(79.6 * 2**30, 989e12, 3.35e12),
    "a100": Gpu(79.3 * 2**30, 312e12, 2.0e12),
    "l40s": Gpu(44.5 * 2**30, 362e12, 0.864e12),
    "rtx4090": Gpu(23.6 * 2**30, 165e12, 1.008e12),
}
BY_CHANCE = 4.8e3  # operations of products in whose time one number is rounded to bf16 by chance (measured, H200)
EXCHANGES, LATENCY = 5, 30e-6  # of a step, and seconds that each costs however little it carries
WEIGHTS = {"float32": 4, "bf16": 2}  # bytes of a number of the prototypes
HEAD_OPTIMISERS = ("sgd", "adamw", "sgd-inside", "adamw-inside")


class HeadPlan(NamedTuple):
    """The head that is asked about; a `memory` of 0 is the engine's own choice.

    With `processes` the classes are spread over so many, each with a GPU, and `batch` is what all bring together;
    `network` is what one GPU sends and receives in a second, in GB.
    """

    classes: int
    dim: int
    batch: int
    gpu: str
    k: int
    optimiser: str
    memory: int
    processes: int = 1
    network: float = 50.0
    weights: str = "float32"

    @property
    def moving(self) -> bool:
        """Whether the optimiser steps in the backward pass."""
        return self.optimiser.endswith("inside")

    def check(self) -> None:
        """Raises where a number is out of bounds or a name unknown."""
        one_of("gpu", self.gpu, GPUS)
        one_of("optimiser", self.optimiser, HEAD_OPTIMISERS)
        one_of("weights", self.weights, WEIGHTS)
        for name, most in (("classes", 10**9), ("dim", 2**16), ("batch", 2**20), ("k", 1024)):
            count_in(name, getattr(self, name), 1, most)
        count_in("memory", self.memory, 0, 2**50)
        count_in("processes", self.processes, 1, 2**17)
        number_in("network", self.network, 1e-3, 1e5, why="It is in GB a second: 50 is InfiniBand NDR, 450 NVLink 4.")


def head_budget(wanted: HeadPlan) -> dict[str, Any]:
    """The plan in numbers: bytes by purpose, seconds of a step, the engine and the reasons."""
    classes, dim, batch, _, k, optimiser, memory, processes, *_ = wanted
    classes, size = -(-classes // processes), WEIGHTS[wanted.weights]
    gpu, moving, states = GPUS[wanted.gpu], wanted.moving, 2 if optimiser.startswith("adamw") else 1
    w, padded = classes * k * dim * size, classes * k * up(dim, PIECE) * size
    state = states * (classes * k * dim * 4 if moving else w)  # inside it is float32 whatever the prototypes are
    fused = dim % PIECE == 0 if moving else batch * classes * k >= FUSED_FROM
    budget = memory or allowance(int(gpu.memory), moving=moving)
    plan = planned(batch, classes, k, dim, size=2, memory=budget, gradient=0 if moving else size)
    spent = cost(batch, classes, k, dim, plan, w=size, state=states if moving else 0)
    held = {
        "prototypes": w,
        "gradient of the prototypes": 0 if moving else w,
        "state of the optimiser": state,
        "copies of both, for 8 does not divide the dimension": 0 if moving or padded == w else 2 * padded,
        "working memory": spent.working,
        "embeddings and their gradient": 4 * batch * dim * 4,
    }
    rounding = BY_CHANCE * classes * k * dim / gpu.rate if moving and wanted.weights == "bf16" else 0.0
    seconds = spent.seconds(gpu.rate, gpu.bandwidth) + rounding
    apart = 0.0 if moving else (3 + 2 * states) * w / gpu.bandwidth
    crossing = network_bytes(batch, dim, processes)
    network = (crossing / (wanted.network * 1e9) + EXCHANGES * LATENCY) if processes > 1 else 0.0
    times = {
        "products": spent.drag * spent.operations / (0.73 * gpu.rate) + rounding,
        "memory": spent.traffic / gpu.bandwidth + apart,
    }
    times["network"] = network
    return {
        "processes": processes, "classes_of_a_process": classes, "network_bytes": crossing,
        "seconds_of_the_network": network, "limit": max(times, key=times.__getitem__),
        "engine": "triton" if fused else "chunked" if moving else "eager",
        "fits": sum(held.values()) < gpu.memory, "bytes": held, "total": sum(held.values()),
        "device": gpu.memory, "seconds": seconds, "seconds_of_the_optimiser": apart,
        "products": spent.operations / (2.0 * batch * classes * k * dim), "plan": plan._asdict(),
        "logits": batch * classes * k * 4,
    }  # fmt: skip


def network_bytes(batch: int, dim: int, processes: int) -> int:
    """What a process sends in a step: B d units out and their gradient home, and a few numbers of each sample.

    A ring sends (P - 1) / P of what is gathered, and of what is summed and returned; of what is summed for all, twice
    that. Lengths, labels and the gradient of the losses are gathered; so are, from each of a few processes, three
    numbers of each sample, of which more processes sum up four.

    >>> network_bytes(1024, 512, 1), network_bytes(1024, 512, 8)
    (0, 3770368)
    """
    share = (processes - 1) / processes
    joined = 3 * processes if processes <= FEW_PROCESSES else 2 * 4
    return round(share * (2 * batch * dim * 4 + batch * (4 + 8 + 4) + 4 * joined * batch))


def time_head(wanted: HeadPlan) -> dict[str, Any]:
    """Median seconds and working memory of the step on this machine's GPU."""
    if not torch.cuda.is_available():
        raise ArcwiseError("--measure needs a GPU, and there is none here. Leave it out for the plan alone.")
    try:
        seconds, peak = timed_steps(wanted)
    except torch.cuda.OutOfMemoryError:
        raise ArcwiseError(
            f"this does not fit on {torch.cuda.get_device_name()}. Leave --measure out for the plan."
        ) from None
    return {"device": torch.cuda.get_device_name(), "seconds": seconds, "bytes": peak}


def timed_steps(wanted: HeadPlan) -> tuple[float, int]:
    """Median seconds of steps that follow each other, and the peak of bytes beyond w, its gradient and the inputs."""
    classes, dim, batch, _, k, optimiser, memory, processes, *_ = wanted
    if processes > 1:
        raise ArcwiseError("--measure runs on one GPU: leave --processes out, or give the classes of one process.")
    kind = torch.bfloat16 if wanted.weights == "bf16" else torch.float32
    head = Head(dim, classes, k=k, memory=memory or None, device="cuda", dtype=kind)
    inside = {"sgd-inside": optim.SGD, "adamw-inside": optim.AdamW}.get(optimiser)
    mover = None if inside is None else inside(head, lr=0.1)
    x, y = torch.randn(batch, dim, device="cuda", requires_grad=True), torch.randint(classes, (batch,), device="cuda")

    def step() -> None:
        x.grad = head.weight.grad = None
        with torch.autocast("cuda", torch.bfloat16):
            loss = head(x, y)
        loss.backward()
        if mover is not None:
            mover.step()

    for _ in range(3):
        step()
    x.grad = head.weight.grad = None
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    step()
    gradient = 0 if head.weight.grad is None else head.weight.numel() * head.weight.element_size()
    peak = torch.cuda.max_memory_allocated() - before - gradient
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(12)]
    for mark in marks:  # steps that follow each other, as in training
        mark.record()
        step()
    torch.cuda.synchronize()
    seconds = statistics.median(one.elapsed_time(next_one) / 1e3 for one, next_one in itertools.pairwise(marks))
    return seconds, peak
