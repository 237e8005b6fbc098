"""`arcwise plan`: what a head of so many classes needs and costs on a GPU, before it is built."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING, Any

from arcwise.cli.advise import Whole
from arcwise.cli.progress import byte_text

if TYPE_CHECKING:
    from arcwise.budget import HeadPlan

GIB = 2.0**30


def plan_command(
    *,
    classes: Whole,
    dim: Whole = 512,
    batch: Whole = 1024,
    gpu: str = "h200",
    k: Whole = 1,
    optimiser: str = "sgd",
    memory: Whole = 0,
    processes: Whole = 1,
    network: float = 50.0,
    weights: str = "float32",
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
        Samples in a step, of all processes together.
    gpu
        One of h200, h100, a100, l40s, rtx4090.
    k
        Sub-centres of a class.
    optimiser
        sgd or adamw; sgd-inside or adamw-inside for a step in the backward pass (arcwise.optim).
    memory
        Working memory in bytes that the engine may use; 0 lets it decide.
    processes
        Over how many processes, each with a GPU, the classes are spread.
    network
        What one GPU sends in a second, in GB: 50 is InfiniBand NDR, 450 NVLink 4 inside a machine.
    weights
        float32, or bf16: half the memory, rounded by chance where the optimiser steps inside.
    measure
        Run the step on the GPU of this machine, and put what it took beside the plan.
    json_
        Print for a machine.
    """
    from arcwise.budget import HeadPlan, head_budget, time_head

    wanted = HeadPlan(classes, dim, batch, gpu, k, optimiser, memory, processes, network, weights)
    wanted.check()
    found = head_budget(wanted)
    if measure:
        found["measured"] = time_head(wanted)
    if json_:
        print(json.dumps(found))
        return
    show_plan(found, wanted)
    print(f"\nNext: {plan_advice(found, wanted, measure=measure)}")


def plan_advice(found: dict[str, Any], wanted: HeadPlan, *, measure: bool) -> str:
    """What to type next: the head, where it fits, else the nearest plan that does."""
    classes, dim, batch, gpu, k, optimiser, memory, processes, *_ = wanted
    from arcwise.budget import head_budget

    if processes > 1:
        return spread_advice(found, wanted)

    if found["fits"]:
        head = f"head = arcwise.Head({dim}, {classes}, k={k}{more_of_head(wanted)})"
        head += {
            "sgd-inside": "; arcwise.optim.SGD(head, lr=0.1)",
            "adamw-inside": "; arcwise.optim.AdamW(head, lr=1e-3)",
        }.get(optimiser, "")
        return head if measure else f"{head}; or add --measure on a machine with that GPU"
    for narrower in (dim, dim // 2, dim // 4, dim // 8):
        for other in ("adamw-inside", "sgd-inside") if optimiser.startswith("adamw") else ("sgd-inside",):
            if narrower and head_budget(wanted._replace(dim=narrower, optimiser=other))["fits"]:
                words = ["--classes", classes, "--dim", narrower, "--batch", batch, "--gpu", gpu]
                words += ["--k", k, "--optimiser", other] + (["--memory", memory] if memory else [])
                words += ["--weights", "bf16"] if wanted.weights == "bf16" else []
                return f"arcwise plan {shlex.join(map(str, words))}"
    return spread_advice(found, wanted)


def more_of_head(wanted: HeadPlan) -> str:
    """What a head is given beside its sizes."""
    memory = f", memory={wanted.memory}" if wanted.memory else ""
    return memory + (", dtype=torch.bfloat16" if wanted.weights == "bf16" else "")


def spread_advice(found: dict[str, Any], wanted: HeadPlan) -> str:
    """What to type where classes are spread over processes: the command, or the fewest processes on which they fit."""
    from arcwise.budget import head_budget

    if found["fits"]:
        return (
            f"torchrun ... your_training.py with head = arcwise.Head({wanted.dim}, {wanted.classes}, k={wanted.k}, "
            f"shard=True{more_of_head(wanted)}); docs/scale.md has the launchers"
        )
    count = max(2, wanted.processes)
    while count < 2**16 and not head_budget(wanted._replace(processes=count))["fits"]:
        count *= 2
    words = ["--classes", wanted.classes, "--dim", wanted.dim, "--batch", wanted.batch, "--gpu", wanted.gpu]
    words += ["--k", wanted.k, "--optimiser", wanted.optimiser, "--processes", count]
    words += ["--weights", "bf16"] if wanted.weights == "bf16" else []
    return f"arcwise plan {shlex.join(map(str, words))}"


def show_plan(found: dict[str, Any], wanted: HeadPlan) -> None:
    """The plan for a person."""
    classes, dim, batch, gpu, _, _, memory, processes, network, _ = wanted
    working = found["bytes"]["working memory"]
    print(f"{classes:,} classes of {dim} numbers, batch {batch:,}, bf16 products on one {gpu}\n")
    if processes > 1:
        each = found["classes_of_a_process"]
        print(f"spread over {processes:,} processes, {each:,} classes in each; what follows is one of them\n")
    for name, size in found["bytes"].items():
        if size:
            print(f"{size_text(size)}  {name}")
    print(
        f"{size_text(found['total'])}  of {found['device'] / GIB:.0f} GiB: {'fits' if found['fits'] else 'too much'}\n"
    )
    print(f"{time_text(found['seconds'])}  forward and backward of the head, estimated")
    if found["seconds_of_the_optimiser"]:
        print(f"{time_text(found['seconds_of_the_optimiser'])}  the optimiser's step on the prototypes after it")
    if processes > 1:
        sent = byte_text(found["network_bytes"])
        print(
            f"{time_text(found['seconds_of_the_network'])}  {sent} over the network at {network:g} GB/s, "
            "at any number of classes"
        )
        print(f"\nwhat limits: {found['limit']}")
    if memory and working > memory:
        print(f"\n{memory:,} bytes are not enough for the smallest block: {working:,} will be used.")
    show_engine(found)
    if "measured" in found:
        took = found["measured"]
        print(f"\nmeasured on {took['device']}: {1e3 * took['seconds']:.2f} ms,", end=" ")
        print(f"{took['bytes'] / GIB:.2f} GiB of working memory")
        if gpu not in took["device"].lower().replace(" ", ""):
            print(f"(the plan above is for one {gpu})")


def size_text(size: int) -> str:
    """Bytes in GiB, or in smaller units where that would be 0.

    >>> size_text(3 * 2**30), size_text(80)
    ('      3.00 GiB', '          80 B')
    """
    return f"{size / GIB:10.2f} GiB" if size >= 0.005 * GIB else f"{byte_text(size):>14}"


def time_text(seconds: float) -> str:
    """Milliseconds, or that it is fewer than can be told.

    >>> time_text(0.0123), time_text(1e-9)
    ('     12.30 ms ', '    < 0.01 ms ')
    """
    return f"{1e3 * seconds:10.2f} ms " if seconds >= 5e-6 else "    < 0.01 ms "


def show_engine(found: dict[str, Any]) -> None:
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
