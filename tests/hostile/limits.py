"""Limits while something hostile runs: of time and memory, of training's length, and no network at all."""

from __future__ import annotations

import base64
import contextlib
import importlib
import itertools
import resource
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

SECONDS = 10.0
MORE_MEMORY = 6 * 2**30  # bytes of address space, beyond what is taken already
STEPS = 3
DOT = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


class TooLong(BaseException):
    """Something took longer than it may; nothing that catches exceptions stops it."""


@contextlib.contextmanager
def time_limit(seconds: float = SECONDS) -> Iterator[None]:
    """Raises TooLong in the main thread when the block takes longer, of the processor or six times that by the clock.

    On a busy machine the clock alone would call things slow that only waited their turn.
    """

    def too_long() -> bool:
        return time.process_time() - worked > seconds or time.perf_counter() - began > 6 * seconds

    def stop(number: int, frame: object) -> None:
        if too_long():
            raise TooLong(f"more than {seconds:g} s")

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGALRM, stop)
    began, worked = time.perf_counter(), time.process_time()
    signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
    if too_long():
        raise TooLong(f"more than {seconds:g} s")


@contextlib.contextmanager
def memory_limit(more: int = MORE_MEMORY) -> Iterator[None]:
    """Refuses memory beyond what is taken now and so many bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken + more, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@contextlib.contextmanager
def unchecked() -> Iterator[None]:
    """Leaves the types of arguments unchecked while it is entered: what happens is what happens to a user."""
    from jaxtyping import config

    before = config.jaxtyping_disable
    config.update("jaxtyping_disable", True)
    try:
        yield
    finally:
        config.update("jaxtyping_disable", before)


@contextlib.contextmanager
def short_training() -> Iterator[None]:
    """Ends every training after a few steps, whatever its settings say."""
    from arcwise.train.loop import Trainer

    begin = Trainer.__init__

    def cut(self: Any, *arguments: Any, **options: Any) -> None:
        begin(self, *arguments, **options)
        self.total = min(self.total, max(STEPS, self.progress.step))

    with mock.patch.object(Trainer, "__init__", cut):
        yield


@contextlib.contextmanager
def one_process() -> Iterator[None]:
    """Trains the first two runs of a comparison, here, however many workers were asked for."""
    compare = importlib.import_module("arcwise.compare")  # the name itself is a function's
    train_all = compare.train_all

    def alone(jobs: Any, **options: Any) -> None:
        train_all(jobs[:2], **{**options, "workers": 1})

    with mock.patch.object(compare, "train_all", alone):
        yield


@contextlib.contextmanager
def few_pictures() -> Iterator[None]:
    """Draws two figures at most, saves none of their pixels, and makes no film."""
    from arcwise.report import make

    draw = make.drawings

    def some(*arguments: Any, **options: Any) -> Iterator[Any]:
        yield from itertools.islice(draw(*arguments, **options), 2)

    def nothing(figure: Any, kind: str = "png", *, close: bool = True) -> bytes:
        from matplotlib import pyplot

        pyplot.close(figure)
        return DOT if kind == "png" else b"<svg/>"

    with (
        mock.patch.object(make, "drawings", some),
        mock.patch.object(make, "figure_bytes", nothing),
        mock.patch.object(make, "animation_track", return_value=None),
    ):
        yield


@contextlib.contextmanager
def few_margins() -> Iterator[None]:
    """Knows two margins only."""
    from arcwise.margins import MARGINS

    with mock.patch.dict(MARGINS, {name: MARGINS[name] for name in ("normface", "arcface")}, clear=True):
        yield


@contextlib.contextmanager
def no_network() -> Iterator[None]:
    """Refuses every connection, and every package manager."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise OSError(101, "Network is unreachable")

    with (
        mock.patch.object(socket.socket, "connect", refuse),
        mock.patch.object(socket, "create_connection", refuse),
        mock.patch.object(socket, "getaddrinfo", refuse),
        mock.patch("arcwise.data.fetch.shutil.which", return_value=None),
    ):
        yield
