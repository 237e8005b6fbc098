"""A head whose classes are spread over processes: time per step at one total of work, and what sampling classes costs.

    python benchmarks/spread.py                  the table, and docs/results/spread.png
    python benchmarks/spread.py --sampling       the loss over sampled classes beside that over all
    python benchmarks/spread.py --gpu            on one GPU: what a group of one costs, and heads of 10 and 40 million

Processes speak by gloo on this machine, one thread each; more processes than cores share them. Rounds in turn, medians.
"""

from __future__ import annotations

import argparse
import math
import platform
import socket
import statistics
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

import arcwise

CLASSES, DIM, BATCH, ROUNDS = 100_000, 256, 256, 9
COUNTS = (1, 2, 4)


def member(rank: int, port: int, answers: Any) -> None:
    """One process: a step of the head in groups of each size, in turn."""
    torch.set_num_threads(1)
    most = max(COUNTS)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=most)
    groups = {count: dist.new_group(list(range(count))) for count in COUNTS}
    steps: dict[int, Any] = {}
    for count in COUNTS:
        if rank < count:
            torch.manual_seed(rank)
            head = arcwise.Head(DIM, CLASSES, s=32.0, engine="chunked", shard=groups[count], even_batches=True)
            x = torch.randn(BATCH // count, DIM, requires_grad=True)
            steps[count] = (head, x, torch.randint(CLASSES, (BATCH // count,)))
    times: dict[int, list[float]] = {count: [] for count in COUNTS}
    for _ in range(ROUNDS + 1):
        for count in COUNTS:
            dist.barrier()
            if rank < count:
                head, x, y = steps[count]
                began = time.perf_counter()
                head(x, y).backward()
                times[count].append(time.perf_counter() - began)
                head.weight.grad = x.grad = None
    if rank == 0:
        answers.put({count: statistics.median(found[1:]) for count, found in times.items()})
    dist.barrier()
    dist.destroy_process_group()


def alone() -> float:
    """The same step without a process group, one thread."""
    torch.set_num_threads(1)
    head = arcwise.Head(DIM, CLASSES, s=32.0, engine="chunked")
    x, y = torch.randn(BATCH, DIM, requires_grad=True), torch.randint(CLASSES, (BATCH,))
    times = []
    for _ in range(ROUNDS + 1):
        began = time.perf_counter()
        head(x, y).backward()
        times.append(time.perf_counter() - began)
        head.weight.grad = x.grad = None
    return statistics.median(times[1:])


def spread_times() -> dict[int, float]:
    """Seconds of a step by the number of processes."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    start = mp.get_context("spawn")
    answers = start.Queue()
    members = [start.Process(target=member, args=(rank, port, answers)) for rank in range(max(COUNTS))]
    for one in members:
        one.start()
    found = answers.get(timeout=600)
    for one in members:
        one.join()
    return found


def draw(seconds: dict[int, float], plain: float, place: Path) -> None:
    """The figure: seconds of a step against processes, beside what halving would give."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    counts = list(seconds)
    figure, axes = plt.subplots(figsize=(4.6, 3.0), layout="constrained")
    axes.plot(counts, [seconds[c] for c in counts], "o-", label="a step, classes spread")
    axes.plot(counts, [plain / c for c in counts], ":", color="grey", label="one process, divided")
    axes.axhline(plain, color="grey", linewidth=0.8)
    axes.annotate("one process, no group", (counts[-1], plain), ha="right", va="bottom", fontsize=8, color="0.3")
    axes.set(
        xlabel="processes (gloo, one thread each, two cores)", ylabel="seconds", ylim=(0, 1.18 * plain), xticks=counts
    )
    axes.set_title(f"{CLASSES:,} classes x {DIM}, batch {BATCH} in all", fontsize=9)
    axes.legend(fontsize=8, frameon=False)
    figure.savefig(place, dpi=160)


def sampling() -> None:
    """Means over draws of the loss over sampled classes, beside that over all: the mean of logarithms is smaller."""
    torch.manual_seed(0)
    classes, dim, batch = 20_000, 128, 64
    y = torch.randint(classes, (batch,))
    whole = arcwise.Head(dim, classes, margin="arcface", s=32.0)
    w = whole.weight.detach()
    x = 20 * torch.nn.functional.normalize(w[y] + 0.06 * torch.randn(batch, dim))
    exact = float(whole.eval()(x, y).detach())
    print(f"\nloss over all {classes:,} classes: {exact:.4f}\n\n| share | as drawn | corrected | spread of one step |")
    print("| ---: | ---: | ---: | ---: |")
    for share in (0.5, 0.2, 0.1, 0.05, 0.02):
        means = []
        for corrected in (False, True):
            head = arcwise.Head(dim, classes, margin="arcface", s=32.0, sample=share, corrected=corrected)
            head.weight.requires_grad_(False)
            head.weight.copy_(w)
            means.append(torch.tensor([float(head(x, y).detach()) for _ in range(200)]))
        (plain, weighed), spread = (m.mean() for m in means), means[1].std()
        print(f"| {share:g} | {plain - exact:+.4f} | {weighed - exact:+.4f} | {spread:.4f} |")
    print(f"(ln share is what a draw leaves out where others decide: {math.log(0.1):.2f} at 0.1)")


def one_gpu(device: str, sizes: tuple[int, ...], rounds: int) -> None:
    """A head in a group of one process beside one without, and large heads in bf16 with SGD inside, beside the plan."""
    from arcwise.budget import HeadPlan, head_budget

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    backend = "nccl" if device == "cuda" else "gloo"
    dist.init_process_group(backend, init_method=f"tcp://127.0.0.1:{port}", rank=0, world_size=1)
    first, *large = sizes
    steps = {
        name: head_step(first, device, **more)
        for name, more in (("alone", {}), ("in a group of one", {"shard": True, "even_batches": True}))
    }
    for many, how in ((1, "the host waits for each step"), (10, "it waits for every tenth, as in training")):
        times: dict[str, list[float]] = {name: [] for name in steps}
        for _ in range(rounds + 3):
            for name, step in steps.items():
                times[name].append(clocked(step, device, many))
        alone_, group = (statistics.median(found[3:]) for found in times.values())
        print(
            f"\n{first:,} classes: {1e3 * alone_:.2f} ms alone, {1e3 * group:.2f} in a group of one "
            f"({group / alone_:.3f}x); {how}"
        )
    del steps
    print(
        "\n| classes (bf16, SGD inside) | a step | planned | memory | planned |\n| ---: | ---: | ---: | ---: | ---: |"
    )
    for classes in large:
        plan = head_budget(HeadPlan(classes, 512, 1024, "h200", 1, "sgd-inside", 0, weights="bf16"))
        step = head_step(classes, device, inside=True, shard=True, even_batches=True, dtype=torch.bfloat16)
        took = statistics.median([clocked(step, device) for _ in range(rounds + 2)][2:])
        used = torch.cuda.max_memory_allocated() / 2**30 if device == "cuda" else math.nan
        print(f"| {classes:,} | {1e3 * took:.1f} ms | {1e3 * plan['seconds']:.1f} ms | {used:.1f} GiB "
              f"| {plan['total'] / 2**30:.1f} GiB |", flush=True)  # fmt: skip
        del step
        if device == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
    dist.destroy_process_group()


def head_step(classes: int, device: str, *, inside: bool = False, **more: Any) -> Any:
    """A function that takes one step of an ArcFace head in bf16, 1,024 samples of 512 numbers."""
    head = arcwise.Head(512, classes, s=64.0, device=device, **more)
    mover = arcwise.optim.SGD(head, lr=0.1) if inside else None
    x, y = torch.randn(1024, 512, device=device, requires_grad=True), torch.randint(classes, (1024,), device=device)

    def step() -> None:
        x.grad = head.weight.grad = None
        with torch.autocast(device, torch.bfloat16):
            loss = head(x, y)
        loss.backward()
        if mover is not None:
            mover.step()

    return step


def clocked(step: Any, device: str, many: int = 1) -> float:
    """Seconds of a step, of so many one after the other, to their very end."""
    if device == "cuda":
        torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(many):
        step()
    if device == "cuda":
        torch.cuda.synchronize()
    return (time.perf_counter() - began) / many


def main() -> None:
    """What was asked for."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--sampling", action="store_true")
    asked.add_argument("--gpu", action="store_true")
    asked.add_argument("--device", default="cuda")
    asked.add_argument("--classes", type=int, nargs="+", default=[1_000_000, 10_000_000, 40_000_000])
    asked.add_argument("--out", default="docs/results/spread.png")
    chosen = asked.parse_args()
    print(f"{platform.machine()}, torch {torch.__version__}, arcwise {arcwise.__version__}")
    if chosen.sampling:
        sampling()
        return
    if chosen.gpu:
        one_gpu(chosen.device, tuple(chosen.classes), ROUNDS)
        return
    plain, seconds = alone(), spread_times()
    print("\n| processes | a step | of one process without a group |\n| ---: | ---: | ---: |")
    for count, took in seconds.items():
        print(f"| {count} | {took:.3f} s | {took / plain:.2f}x |")
    print(f"without a process group: {plain:.3f} s")
    draw(seconds, plain, Path(chosen.out))


if __name__ == "__main__":
    main()
