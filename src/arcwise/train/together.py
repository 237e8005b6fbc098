"""The processes of one training, as torchrun starts them: who leads, what they agree on, what they share out."""

from __future__ import annotations

import contextlib
import datetime
import inspect
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import PrefixStore, Store, TCPStore  # pyright: ignore[reportPrivateImportUsage]

from arcwise.errors import AlreadyTold, ArcwiseError
from arcwise.launcher import launched_number, process_count, rank_and_count
from arcwise.train.pulse import AGAIN, Pulse, itself, meet, patience, watched_over

WorkResult = TypeVar("WorkResult")
EXCHANGE_TIMEOUT = datetime.timedelta(minutes=30)  # of one exchange: compiling and decoding take long, and are no fault


@dataclass(frozen=True)
class Together:
    """One process among `count`, or the only one, which needs no process group and pays nothing.

    `group` carries tensors where they are, `words` (gloo) what is said between them on the host, `aside` (gloo) what is
    said by those who save beside training.
    """

    rank: int = 0
    count: int = 1
    group: dist.ProcessGroup | None = None
    words: dist.ProcessGroup | None = None
    aside: dist.ProcessGroup | None = None

    @property
    def lead(self) -> bool:
        """Whether this process writes and speaks for all."""
        return self.rank == 0

    @property
    def restarted(self) -> bool:
        """Whether torchrun has started this training again, after one of its processes had ended."""
        return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0

    @property
    def alone(self) -> bool:
        """Whether there is no other."""
        return self.group is None

    @property
    def saving(self) -> Together:
        """The same processes, in words that those of training do not cross."""
        return replace(self, words=self.aside)

    def say(self, value: Any) -> Any:
        """What the first process says, at every process."""
        if self.alone:
            return value
        told = [value if self.lead else None]
        dist.broadcast_object_list(told, group=self.words, group_src=0)
        return told[0]

    def lead_first(self, work: Callable[[], WorkResult], then: Callable[[], WorkResult]) -> WorkResult:
        """What the first process's work gives, and what the others do once it is over; where it fails, all end."""
        if self.alone:
            return work()
        if self.lead:
            try:
                found = work()
            except BaseException as error:
                self.say((False, str(error) if isinstance(error, ArcwiseError) else f"{type(error).__name__}: {error}"))
                raise
            self.say((True, ""))
            return found
        well, words = self.say(None)
        if not well:
            raise AlreadyTold(words)
        return then()

    def told_by_all(self, value: WorkResult) -> list[WorkResult]:
        """What every process says, in the order of their ranks."""
        if self.alone:
            return [value]
        told: list[Any] = [None] * self.count
        dist.all_gather_object(told, value, group=self.words)
        return told

    def first_of(self, found: WorkResult, *, unless: WorkResult) -> WorkResult:
        """What the first process found that found anything."""
        return next((one for one in self.told_by_all(found) if one != unless), unless)

    def agreed(self, asked: int | None, due: bool) -> tuple[int | None, bool]:
        """Whether anybody was asked to end, and by which signal, and whether the first process finds something due."""
        if self.alone:
            return asked, due
        both = self.most(2 * (asked or 0) + (due and self.lead))
        return both // 2 or None, bool(both % 2)

    def any(self, flag: bool) -> bool:
        """Whether it is so at any process."""
        return bool(self.most(int(flag)))

    def most(self, number: int) -> int:
        """The largest of the processes' numbers."""
        if self.alone:
            return number
        told = torch.tensor([number])
        dist.all_reduce(told, dist.ReduceOp.MAX, group=self.words)
        return int(told)

    def summed(self, value: Tensor) -> Tensor:
        """The sum over the processes, in place."""
        if not self.alone:
            dist.all_reduce(value, group=self.group)
        return value

    def added(self, value: Tensor) -> Tensor:
        """The sum over the processes of numbers on the host, in place."""
        if not self.alone:
            dist.all_reduce(value, group=self.words)
        return value

    def share_of(self, n: int) -> slice:
        """Which of n rows are this process's: as even as can be, the first ones one more."""
        each, more = divmod(n, self.count)
        start = self.rank * each + min(self.rank, more)
        return slice(start, start + each + (self.rank < more))

    def places(self, b: int, parts: int) -> tuple[np.ndarray, list[int]]:
        """Which places of a batch of b images are this process's, where it goes through in parts, and how many of each.

        >>> Together(rank=1, count=2).places(8, 2)
        (array([2, 3, 6, 7]), [2, 2])
        """
        mine = [part[self.share_of(len(part))] for part in np.array_split(np.arange(b), parts)]
        least = b // parts // self.count
        if self.count > 1 and least < 2:
            raise ArcwiseError(
                f"each of {self.count} processes needs two images at a time at least, for the batch norms, and "
                f"{least} would be left: raise train.batch, lower train.accumulate, or take fewer processes."
            )
        return np.concatenate(mine), [len(part) for part in mine]

    def gathered(self, rows: np.ndarray) -> np.ndarray:
        """The rows of all processes, one after the other, at every process."""
        if self.alone:
            return rows
        return np.concatenate(self.told_by_all(rows))

    def average(self, tensors: list[Tensor]) -> None:
        """Takes the mean over the processes, of all tensors in one exchange, in place."""
        if self.alone or not tensors:
            return
        flat = torch.cat([t.reshape(-1).float() for t in tensors])
        self.summed(flat).div_(self.count)
        for tensor, part in zip(tensors, flat.split([t.numel() for t in tensors]), strict=True):
            tensor.copy_(part.view_as(tensor))

    def wrapped(self, model: nn.Module) -> nn.Module:
        """The network as DistributedDataParallel has it, which averages gradients beside the backward pass.

        By torch's own hook, which divides in the gradient's type: without it DDP multiplies by 1/P in float32.
        """
        if self.alone:
            return model
        from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
        from torch.nn.parallel import DistributedDataParallel

        names = inspect.signature(DistributedDataParallel.__init__).parameters
        still = "forward_sync_buffers" if "forward_sync_buffers" in names else "broadcast_buffers"  # torch renamed it
        spread = DistributedDataParallel(model, process_group=self.group, **{still: False})  # type: ignore[arg-type]
        spread.register_comm_hook(self.group, allreduce_hook)
        return spread

    def averaging(self, model: Any, *, now: bool) -> contextlib.AbstractContextManager[object]:
        """Whether DDP averages gradients in this backward pass, or waits for a later part of the batch."""
        return contextlib.nullcontext() if self.alone or now else model.no_sync()


ALONE = Together()


def launched() -> bool:
    """Whether torchrun, or another launcher in its way, has started this process beside others."""
    return dist.is_available() and (dist.is_initialized() or process_count() > 1)


def own_device(name: str) -> str:
    """The device of this process: with torchrun each has its own GPU."""
    if launched() and name in ("auto", "cuda") and torch.cuda.is_available():
        return f"cuda:{os.environ.get('LOCAL_RANK', '0')}"
    return name


def meeting_place(rank: int, silence: float) -> Store:
    """Where processes that a launcher started find each other: a place for every restart.

    Where torchrun keeps the store, torch leaves it as it is when it starts the processes again, and whoever comes first
    reads the addresses of those that are gone. Elsewhere the first process keeps it.
    """
    kept = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    host, port = os.environ["MASTER_ADDR"], launched_number("MASTER_PORT", 1, 65535)
    keeps, until = rank == 0 and not kept, time.monotonic() + patience(silence)
    there = keeps or answers(host, port, until)
    found = store_kept_at(host, port, keeps, until) if there else None
    if found is None and keeps:
        raise ArcwiseError(
            f"process 0 keeps the place where this training's processes meet, and cannot open port {port} "
            "(MASTER_PORT): another program has it, or another process is 0 too. Choose another port, or let torchrun "
            "choose one with --standalone."
        )
    if found is None:
        raise ArcwiseError(
            f"process {rank} did not find the other processes at {host}, port {port} (MASTER_ADDR and MASTER_PORT), "
            f"within {patience(silence):g} s: process 0 has not come, or another program has this port. {AGAIN}"
        )
    return PrefixStore(f"arcwise/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", found)


def answers(host: str, port: int, until: float) -> bool:
    """Whether anybody takes a connection there in time: who keeps the place may come later."""
    while (left := until - time.monotonic()) > 0:
        with contextlib.suppress(OSError), socket.create_connection((host, port), timeout=min(left, 5.0)):
            return True
        time.sleep(min(left, 0.2))
    return False


def store_kept_at(host: str, port: int, keeps: bool, until: float) -> Store | None:
    """The store there, or None; in a thread, for torch waits without end for a program that never answers."""
    made: list[Store] = []

    def make() -> None:
        wait = datetime.timedelta(seconds=max(1.0, until - time.monotonic()))
        with contextlib.suppress(dist.DistError, ValueError):
            made.append(TCPStore(host, port, is_master=keeps, timeout=wait, wait_for_workers=False))

    thread = threading.Thread(target=make, daemon=True, name="meeting")
    thread.start()
    thread.join(max(1.0, until - time.monotonic()))
    return made[0] if made else None


@contextlib.contextmanager
def together(device: torch.device, silence: float) -> Iterator[Together]:
    """The processes of this training: those that were started beside this one, or this one alone.

    They are watched from when they have met: one that says nothing for `silence` seconds ends all. They leave together,
    for nobody would notice who stands still when the others have gone.
    """
    if not launched():
        yield ALONE
        return
    with contextlib.ExitStack() as held:
        ours, pulse = not dist.is_initialized(), None
        if ours:
            held.callback(leave_group)
            rank, count = rank_and_count()
            store = meeting_place(rank, silence)
            pulse = Pulse(rank, meet(store, rank, count, silence), silence, lambda port: said_once(store, port))
            held.enter_context(watched_over(pulse))
            backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
            dist.init_process_group(backend, store=store, rank=rank, world_size=count, timeout=EXCHANGE_TIMEOUT)
        words, aside = (dist.new_group(backend="gloo", timeout=EXCHANGE_TIMEOUT) for _ in range(2))
        us = Together(dist.get_rank(), dist.get_world_size(), dist.group.WORLD, words, aside)  # type: ignore[arg-type]
        if pulse is None:
            held.enter_context(watched_over(Pulse(us.rank, us.told_by_all(itself()), silence, us.say)))
        yield us
        us.any(False)


def said_once(store: Store, value: int | None) -> int:
    """What the first process writes down, and the others read once it is there."""
    if value is not None:
        store.set("said", str(value))
    return int(store.get("said"))


def leave_group() -> None:
    """Takes down the group that was formed here."""
    if dist.is_initialized():
        with contextlib.suppress(RuntimeError):
            dist.destroy_process_group()
