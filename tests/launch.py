"""A few processes as torchrun starts them: each runs one function, and what it returns comes back."""

from __future__ import annotations

import os
import socket
import sys
import traceback
from collections.abc import Callable
from typing import Any

import torch
import torch.multiprocessing as mp


def started(rank: int, count: int, port: int, function: Callable[..., Any], given: tuple, answers: Any) -> None:
    """One process: in the environment that torchrun sets."""
    place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count, "MASTER_PORT": port}
    os.environ.update({name: str(value) for name, value in place.items()} | {"MASTER_ADDR": "127.0.0.1"})
    torch.set_num_threads(1)
    try:
        answers.put((rank, True, function(*given)))
    except BaseException:
        answers.put((rank, False, traceback.format_exc()))
    sys.stdout.flush()


def launch(function: Callable[..., Any], count: int, *given: Any) -> list[Any]:
    """What `function(*given)` returns in each of `count` processes that were started together, by rank."""
    if count == 1:
        return [function(*given)]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    start = mp.get_context("spawn")
    answers = start.Queue()
    members = [start.Process(target=started, args=(r, count, port, function, given, answers)) for r in range(count)]
    for member in members:
        member.start()
    try:
        found = {rank: (well, said) for rank, well, said in (answers.get(timeout=240) for _ in members)}
    finally:
        for member in members:
            member.join(10)
            member.kill()
    for rank in range(count):
        well, said = found[rank]
        assert well, f"process {rank} of {count}:\n{said}"
    return [found[rank][1] for rank in range(count)]
