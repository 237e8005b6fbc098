"""Saving beside training: what a checkpoint holds is copied to the host, and written while the next steps are taken."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from types import TracebackType

import torch
from torch import Tensor

Tensors = Mapping[str, Tensor]


class Saver:
    """Writes one checkpoint at a time. With `beside` training waits for a copy of its tensors and no longer.

    The copies keep their room from one checkpoint to the next, so that a second one costs no new memory; without
    `beside` nothing is copied, and training stands still until all is on the disk. What goes wrong beside training is
    raised by the next `save`, or by `wait`.

    >>> kept = []
    >>> with Saver(beside=True) as saver:
    ...     saver.save({"w": torch.ones(2)}, lambda tensors: kept.append(tensors["w"].sum().item()))
    >>> kept
    [2.0]
    """

    def __init__(self, *, beside: bool):
        self.beside = beside
        self.room: dict[str, Tensor] = {}
        self.thread: threading.Thread | None = None
        self.error: BaseException | None = None

    def __enter__(self) -> Saver:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: BaseException | TracebackType | None) -> None:
        self.join()
        if kind is None:
            self.wait()

    def save(self, tensors: Tensors, write: Callable[[Tensors], object]) -> None:
        """Has the tensors written as they are now; waits for the checkpoint before, if that is still on its way."""
        self.wait()
        if not self.beside:
            write(tensors)
            return
        copies = self.copied(tensors)
        self.thread = threading.Thread(target=self.work, args=(copies, write), name="saving", daemon=True)
        self.thread.start()

    def work(self, tensors: Tensors, write: Callable[[Tensors], object]) -> None:
        """Writes, and keeps what goes wrong for whoever waits."""
        try:
            with torch.inference_mode(False), torch.no_grad():
                write(tensors)
        except BaseException as error:
            self.error = error

    def copied(self, tensors: Tensors) -> Tensors:
        """The tensors as they are now, on the host."""
        self.room = {name: self.place_for(name, value) for name, value in tensors.items()}
        for name, value in tensors.items():
            self.room[name].copy_(value.detach(), non_blocking=True)
        if any(value.is_cuda for value in tensors.values()):
            torch.cuda.current_stream().synchronize()
        return self.room

    def place_for(self, name: str, value: Tensor) -> Tensor:
        """Room for a copy: that of the checkpoint before, where it fits."""
        room = self.room.get(name)
        if room is not None and room.shape == value.shape and room.dtype == value.dtype:
            return room
        return torch.empty(value.shape, dtype=value.dtype, pin_memory=value.is_cuda)

    def join(self) -> None:
        """Waits until nothing is being written any more."""
        if self.thread is not None:
            self.thread.join()
            self.thread = None

    def wait(self) -> None:
        """Waits until the last checkpoint is whole on the disk, or raises what went wrong."""
        self.join()
        error, self.error = self.error, None
        if error is not None:
            raise error
