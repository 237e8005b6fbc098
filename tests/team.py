"""Processes that speak to each other by gloo: started once for a module, and given functions to run together."""

from __future__ import annotations

import os
import tempfile
import traceback
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

MOST = 4


def member(rank: int, place: str, calls: Any, answers: Any) -> None:
    """One process: takes functions from its queue until it is told to stop."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{place}", rank=rank, world_size=MOST)
    groups = {count: dist.new_group(list(range(count))) for count in range(1, MOST + 1)}
    while (call := calls.get()) is not None:
        function, processes, given = call
        if rank < processes:
            torch.manual_seed(1000 + rank)  # each its own: what must agree has to be agreed upon
            try:
                answers.put((rank, True, function(groups[processes], *given)))
            except BaseException:
                answers.put((rank, False, traceback.format_exc()))
    dist.destroy_process_group()


class Team:
    """Up to four processes; `run(function, 3, ...)` calls function(group, ...) in three and returns what each said."""

    def __init__(self) -> None:
        start = mp.get_context("spawn")
        self.answers, self.calls = start.Queue(), [start.Queue() for _ in range(MOST)]
        place = os.path.join(tempfile.mkdtemp(), "meet")  # noqa: PTH118
        self.members = [
            start.Process(target=member, args=(rank, place, self.calls[rank], self.answers), daemon=True)
            for rank in range(MOST)
        ]
        for process in self.members:
            process.start()

    def run(self, function: Callable[..., Any], processes: int, *given: Any) -> list[Any]:
        """What the function returned in each of so many processes, by rank."""
        for calls in self.calls:
            calls.put((function, processes, given))
        found: dict[int, Any] = {}
        for _ in range(processes):
            rank, well, said = self.answers.get(timeout=120)
            assert well, f"process {rank} of {processes}:\n{said}"
            found[rank] = said
        return [found[rank] for rank in range(processes)]

    def close(self) -> None:
        """Ends the processes."""
        for calls in self.calls:
            calls.put(None)
        for process in self.members:
            process.join(20)
            process.kill()
