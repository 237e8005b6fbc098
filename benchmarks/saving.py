"""How long training stands still while a checkpoint is written, and what that takes in memory.

    python benchmarks/saving.py [--processes 2] [--classes 200000] [--folder DIR]

A head of so many classes, momentum and network, as `arcwise train` saves them: by one process into a file, by several
(gloo) into a folder of shards, beside training and not. Medians over checkpoints, the first left out.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import platform
import resource
import socket
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import torch.multiprocessing as mp
from torch import nn

import arcwise
from arcwise.records import Run
from arcwise.train.checkpoint import TrainingState, save_checkpoint
from arcwise.train.saving import Saver
from arcwise.train.together import together

ROUNDS, DIM = 7, 256


def peak() -> float:
    """The most memory that this process ever had, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measured(classes: int, folder: str) -> dict[str, float]:
    """Seconds that training stands still per checkpoint, beside and not, seconds of a whole one, and bytes."""
    device, found = torch.device("cpu"), dict[str, float]()
    with together(device, 60.0) as us:
        head = arcwise.Head(DIM, classes, shard=not us.alone, engine="chunked")
        both = nn.ModuleDict({"embedder": nn.Linear(DIM, DIM), "head": head})
        optimiser = torch.optim.SGD(both.parameters(), lr=0.1, momentum=0.9)
        for p in both.parameters():
            p.grad = torch.zeros_like(p)
        optimiser.step()
        for name, beside in (("training waits", False), ("beside training", True)):
            run, stalls, whole = Run(Path(folder) / f"{us.count}-{name}"), [], []
            before = peak()
            with Saver(beside=beside) as saver:
                for step in range(ROUNDS + 1):
                    us.any(False)
                    began = time.perf_counter()
                    state = TrainingState(step=step)
                    save_checkpoint(
                        run, state, {"model": both}, {"optimiser": optimiser}, device, saver=saver, together=us
                    )
                    stalls.append(time.perf_counter() - began)
                    saver.wait()
                    whole.append(time.perf_counter() - began)
            found[name], found[f"{name}, whole"] = (statistics.median(times[1:]) for times in (stalls, whole))
            found[f"{name}, MiB"] = peak() - before
        found["MiB of state"] = 2 * sum(p.numel() * 4 for p in both.parameters()) / 2**20
    return found


def member(rank: int, count: int, port: int, classes: int, folder: str, answers: Any) -> None:
    """One of several processes."""
    place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": count, "MASTER_PORT": port}
    os.environ.update({name: str(value) for name, value in place.items()} | {"MASTER_ADDR": "127.0.0.1"})
    torch.set_num_threads(1)
    found = measured(classes, folder)
    if rank == 0:
        answers.put(found)


def main() -> None:
    """The table."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--processes", type=int, default=2)
    asked.add_argument("--classes", type=int, default=200_000)
    asked.add_argument("--folder", default=None)
    chosen = asked.parse_args()
    print(f"{platform.machine()}, torch {torch.__version__}, arcwise {arcwise.__version__}, {chosen.classes:,} x {DIM}")
    print("\n| processes | | training stands still | a whole checkpoint | memory of a process | its state |")
    print("| ---: | --- | ---: | ---: | ---: | ---: |")
    with contextlib.ExitStack() as held:
        folder = chosen.folder or held.enter_context(tempfile.TemporaryDirectory())
        for count in (1, chosen.processes):
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                port = free.getsockname()[1]
            start = mp.get_context("spawn")
            answers = start.Queue()
            given = (count, port, chosen.classes, folder, answers)
            members = [start.Process(target=member, args=(rank, *given)) for rank in range(count)]
            for one in members:
                one.start()
            found = answers.get(timeout=900)
            for one in members:
                one.join()
            for name in ("training waits", "beside training"):
                print(
                    f"| {count} | {name} | {1e3 * found[name]:.0f} ms | {1e3 * found[f'{name}, whole']:.0f} ms "
                    f"| + {found[f'{name}, MiB']:.0f} MiB | {found['MiB of state']:.0f} MiB |"
                )


if __name__ == "__main__":
    main()
