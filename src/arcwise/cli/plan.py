"""`arcwise plan`: what a head of so many classes needs and costs on a device, before it is built."""

from __future__ import annotations

import itertools
import json
import shlex
import statistics
from typing import Any, NamedTuple

from arcwise.cli.advise import Whole
from arcwise.errors import ArcwiseError, count_in, one_of


class Device(NamedTuple):
    """Memory in bytes, and peak rates of bf16 products with float32 sums (operations/s) and of memory (bytes/s)."""

    memory: float
    rate: float
    bandwidth: float


# From the makers' data sheets, without sparsity.
DEVICES = {
    "h200": Device(139.8 * 2**30, 989e12, 4.8e12),
    "h100": Device(79.6 * 2**30, 989e12, 3.35e12),
    "a100": Device(79.3 * 2**30, 312e12, 2.0e12),
    "l40s": Device(44.5 * 2**30, 362e12, 0.864e12),
    "rtx4090": Device(23.6 * 2**30, 165e12, 1.008e12),
}
OPTIMISERS = ("sgd", "adamw", "sgd-inside", "adamw-inside")
GIB = 2.0**30


class Wanted(NamedTuple):
    """The head that is asked about; a `memory` of 0 is the engine's own choice."""

    classes: int
    dim: int
    batch: int
    device: str
    k: int
    optimiser: str
    memory: int

    @property
    def moving(self) -> bool:
        """Whether the optimiser steps in the backward pass."""
        return self.optimiser.endswith("inside")


def run(
    *,
    classes: Whole,
    dim: Whole = 512,
    batch: Whole = 1024,
    device: str = "h200",
    k: Whole = 1,
    optimiser: str = "sgd",
    memory: Whole = 0,
    measure: bool = False,
    json_: bool = False,
) -> None:
    """Say what a head will need and cost on a GPU, which engine it takes, and why.

    Parameters
    ----------
    classes
        How many classes.
    dim
        The dimension of the embedding.
    batch
        Samples in a step.
    device
        One of h200, h100, a100, l40s, rtx4090.
    k
        Sub-centres of a class.
    optimiser
        sgd or adamw; sgd-inside or adamw-inside for a step in the backward pass (arcwise.optim).
    memory
        Working memory in bytes that the engine may use; 0 lets it decide.
    measure
        Run the step on the GPU of this machine, and put what it took beside the plan.
    json_
        Print for a machine.
    """
    one_of("device", device, DEVICES)
    one_of("optimiser", optimiser, OPTIMISERS)
    for name, value, most in (
        ("classes", classes, 10**9),
        ("dim", dim, 2**16),
        ("batch", batch, 2**20),
        ("k", k, 1024),
    ):
        count_in(name, value, 1, most)
    count_in("memory", memory, 0, 2**50)
    wanted = Wanted(classes, dim, batch, device, k, optimiser, memory)
    found = planning(wanted)
    if measure:
        found["measured"] = measured(wanted)
    if json_:
        print(json.dumps(found))
        return
    show(found, wanted)
    print(f"\nNext: {advice(found, wanted, measure=measure)}")


def advice(found: dict[str, Any], wanted: Wanted, *, measure: bool) -> str:
    """What to type next: the head, where it fits, else the nearest plan that does."""
    classes, dim, batch, device, k, optimiser, memory = wanted
    if found["fits"]:
        head = f"head = arcwise.Head({dim}, {classes}, k={k}" + (f", memory={memory})" if memory else ")")
        head += {
            "sgd-inside": "; arcwise.optim.SGD(head, lr=0.1)",
            "adamw-inside": "; arcwise.optim.AdamW(head, lr=1e-3)",
        }.get(optimiser, "")
        return head if measure else f"{head}; or add --measure"
    for narrower in (dim, dim // 2, dim // 4, dim // 8):
        for other in ("adamw-inside", "sgd-inside") if optimiser.startswith("adamw") else ("sgd-inside",):
            if narrower and planning(wanted._replace(dim=narrower, optimiser=other))["fits"]:
                words = ["--classes", classes, "--dim", narrower, "--batch", batch, "--device", device]
                words += ["--k", k, "--optimiser", other] + (["--memory", memory] if memory else [])
                return f"arcwise plan {shlex.join(map(str, words))}"
    return (
        f"spread the classes over several devices: on one {device} they do not fit with {dim // 8 or 1} numbers each."
    )


def planning(wanted: Wanted) -> dict[str, Any]:
    """The plan in numbers: bytes by purpose, seconds of a step, the engine and the reasons."""
    from arcwise.ops import FUSED_FROM
    from arcwise.ops.plan import PIECE, allowance, cost, planned, up

    classes, dim, batch, _, k, optimiser, memory = wanted
    device, moving, states = DEVICES[wanted.device], wanted.moving, 2 if optimiser.startswith("adamw") else 1
    w, padded = classes * k * dim * 4, classes * k * up(dim, PIECE) * 4
    fused = dim % PIECE == 0 if moving else batch * classes * k >= FUSED_FROM
    budget = memory or allowance(int(device.memory), moving=moving)
    plan = planned(batch, classes, k, dim, size=2, memory=budget, gradient=0 if moving else 4)
    spent = cost(batch, classes, k, dim, plan, state=states if moving else 0)
    held = {
        "prototypes": w,
        "gradient of the prototypes": 0 if moving else w,
        "state of the optimiser": states * w,
        "copies of both, for 8 does not divide the dimension": 0 if moving or padded == w else 2 * padded,
        "working memory": spent.working,
        "embeddings and their gradient": 4 * batch * dim * 4,
    }
    seconds = spent.seconds(device.rate, device.bandwidth)
    apart = 0.0 if moving else (3 + 2 * states) * w / device.bandwidth
    return {
        "engine": "triton" if fused else "chunked" if moving else "eager",
        "fits": sum(held.values()) < device.memory, "bytes": held, "total": sum(held.values()),
        "device": device.memory, "seconds": seconds, "seconds_of_the_optimiser": apart,
        "products": spent.operations / (2.0 * batch * classes * k * dim), "plan": plan._asdict(),
        "logits": batch * classes * k * 4,
    }  # fmt: skip


def show(found: dict[str, Any], wanted: Wanted) -> None:
    """The plan for a person."""
    classes, dim, batch, device, _, _, memory = wanted
    working = found["bytes"]["working memory"]
    print(f"{classes:,} classes of {dim} numbers, batch {batch:,}, bf16 products on one {device}\n")
    for name, size in found["bytes"].items():
        if size:
            print(f"{size / GIB:10.2f} GiB  {name}")
    print(
        f"{found['total'] / GIB:10.2f} GiB  of {found['device'] / GIB:.0f}: {'fits' if found['fits'] else 'too much'}\n"
    )
    print(f"{1e3 * found['seconds']:10.2f} ms   forward and backward of the head, estimated")
    if found["seconds_of_the_optimiser"]:
        print(f"{1e3 * found['seconds_of_the_optimiser']:10.2f} ms   the optimiser's step on the prototypes after it")
    if memory and working > memory:
        print(f"\n{memory:,} bytes are not enough for the smallest block: {working:,} will be used.")
    describe(found)
    if "measured" in found:
        took = found["measured"]
        print(f"\nmeasured on {took['device']}: {1e3 * took['seconds']:.2f} ms,", end=" ")
        print(f"{took['bytes'] / GIB:.2f} GiB of working memory")
        if device not in took["device"].lower().replace(" ", ""):
            print(f"(the plan above is for one {device})")


def describe(found: dict[str, Any]) -> None:
    """The engine, and why it is this one."""
    if found["engine"] != "triton":
        why = {
            "eager": "so few cosines that the plain definition is as quick",
            "chunked": "the fused engine moves prototypes only where 8 divides the dimension",
        }[found["engine"]]
        print(f"\nengine {found['engine']}: {why}; the times above are triton's.")
        return
    plan = found["plan"]
    kept = "in the place of the gradient" if plan["room"] == "gradient" else "in memory of their own"
    print(f"\nengine triton: the logits would be {found['logits'] / GIB:.1f} GiB in float32 and are never built.")
    print(
        f"blocks of {plan['block']:,} classes; units of w {'kept' if plan['keep_units'] else 'computed twice'}; ",
        end="",
    )
    print(f"{found['products']:.2f} products a step" + (f", cosines kept {kept}" if plan["kept"] else "") + ".")


def measured(wanted: Wanted) -> dict[str, Any]:
    """Median seconds and working memory of the step on this machine's GPU."""
    import torch

    if not torch.cuda.is_available():
        raise ArcwiseError("--measure needs a GPU, and there is none here. Leave it out for the plan alone.")
    try:
        seconds, peak = timed(wanted)
    except torch.cuda.OutOfMemoryError:
        raise ArcwiseError(
            f"this does not fit on {torch.cuda.get_device_name()}. Leave --measure out for the plan."
        ) from None
    return {"device": torch.cuda.get_device_name(), "seconds": seconds, "bytes": peak}


def timed(wanted: Wanted) -> tuple[float, int]:
    """Median seconds of steps that follow each other, and the peak of bytes beyond w, its gradient and the inputs."""
    import torch

    from arcwise import optim
    from arcwise.heads import Head

    classes, dim, batch, _, k, optimiser, memory = wanted
    head = Head(dim, classes, k=k, memory=memory or None, device="cuda")
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
