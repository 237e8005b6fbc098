"""A few processes as torchrun starts them: each runs one function, and what it returns comes back.

They are started once and kept for the next function: to begin a process takes longer than most of what is asked of it.
"""

from __future__ import annotations

import atexit
import os
import queue
import socket
import sys
import traceback
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

PATIENCE = 240  # seconds


def member(rank: int, calls: Any, answers: Any) -> None:
    """One process: runs what it is given, each time in the environment that torchrun sets."""
    torch.set_num_threads(1)
    while (call := calls.get()) is not None:
        count, port, function, given = call
        place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count, "MASTER_PORT": port}
        os.environ.update({name: str(value) for name, value in place.items()} | {"MASTER_ADDR": "127.0.0.1"})
        try:
            answers.put((rank, True, function(*given)))
        except BaseException:
            answers.put((rank, False, traceback.format_exc()))
        if dist.is_initialized():
            dist.destroy_process_group()
        sys.stdout.flush()


class Crew:
    """Processes that wait for work."""

    def __init__(self) -> None:
        self.start = mp.get_context("spawn")
        self.answers = self.start.Queue()
        self.members: list[tuple[Any, Any]] = []

    def run(self, count: int, function: Callable[..., Any], given: tuple) -> dict[int, tuple[bool, Any]]:
        """What each of so many processes says, by rank; those that do not answer are ended, and new ones start."""
        while len(self.members) < count:
            calls = self.start.Queue()
            process = self.start.Process(target=member, args=(len(self.members), calls, self.answers), daemon=True)
            process.start()
            self.members.append((process, calls))
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        for _, calls in self.members[:count]:
            calls.put((count, port, function, given))
        try:
            said = [self.answers.get(timeout=PATIENCE) for _ in range(count)]
        except queue.Empty:
            self.close()
            raise
        return {rank: (well, what) for rank, well, what in said}

    def close(self) -> None:
        """Ends all of them."""
        for process, _ in self.members:
            process.kill()
        self.__init__()


CREW = Crew()
atexit.register(CREW.close)


def launch(function: Callable[..., Any], count: int, *given: Any) -> list[Any]:
    """What `function(*given)` returns in each of `count` processes that work together, by rank."""
    if count == 1:
        return [function(*given)]
    found = CREW.run(count, function, given)
    for rank in range(count):
        well, said = found[rank]
        assert well, f"process {rank} of {count}:\n{said}"
    return [found[rank][1] for rank in range(count)]
