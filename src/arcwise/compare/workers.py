"""Returns finished Runs: the jobs of a comparison, trained and measured by processes that share the machine."""

from __future__ import annotations

import contextlib
import multiprocessing as mp
import os
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_EXCEPTION, Future, ProcessPoolExecutor, wait
from pathlib import Path
from types import FrameType
from typing import Any

from arcwise.compare.measure import measure
from arcwise.compare.plan import Job
from arcwise.errors import ArcwiseError
from arcwise.records import Run

Listener = Callable[[Job, dict[str, Any]], None]
PATIENCE = 20.0  # seconds to wait for a run that a process just killed may still hold


class Stopped(ArcwiseError):  # noqa: N818
    """A comparison was asked to stop; its runs are saved."""


def default_workers(device: str, jobs: int) -> int:
    """How many processes share the machine: one per core, or a few on a GPU."""
    import torch

    on_gpu = device.startswith("cuda") or (device == "auto" and torch.cuda.is_available())
    return max(1, min(jobs, 4 if on_gpu else os.cpu_count() or 1))


def trained(
    jobs: list[Job], *, workers: int, device: str = "auto", data_dir: Path | None = None, listener: Listener
) -> None:
    """Trains and measures every job that is not finished yet; a job that fails ends the comparison with its message."""
    if workers == 1:
        for job in jobs:
            finish(job, device=device, data_dir=data_dir, tell=lambda event, job=job: listener(job, event))
        return
    context = mp.get_context("spawn")
    events = context.Queue()
    threads = max(1, (os.cpu_count() or 1) // workers)
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=enter, initargs=(events, threads, os.getpid()))
    with listening(events, jobs, listener), obeying():
        try:
            with share_of_cores(threads):
                futures = [pool.submit(in_worker, i, job, device, data_dir) for i, job in enumerate(jobs)]
            done, _ = wait(futures, return_when=FIRST_EXCEPTION)
            raise_first(done)
        except BaseException as error:
            end(pool)
            if isinstance(error, KeyboardInterrupt):
                raise Stopped("stopped; all runs are saved.") from None
            raise
        pool.shutdown()


@contextlib.contextmanager
def share_of_cores(threads: int) -> Iterator[None]:
    """Lets processes that start meanwhile use this many threads each; more than there are cores wait for each other.

    Blocks of memory are kept from step to step: giving 13 MB back to the system and asking for it again at every
    convolution costs a tenth of the time, and more when two processes do it.
    """
    wanted = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), str(threads))
    wanted |= {"MALLOC_MMAP_THRESHOLD_": str(2**30), "MALLOC_TRIM_THRESHOLD_": str(2**32)}
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def raise_first(done: set[Future[None]]) -> None:
    """Raises what went wrong in a worker, if anything did."""
    for future in done:
        error = future.exception()
        if error is not None:
            raise error


def end(pool: ProcessPoolExecutor) -> None:
    """Asks every worker to save and leave, once, and waits for them."""
    processes = list((pool._processes or {}).values())  # the pool has no door for this
    for process in processes:
        if process.pid is not None:
            with contextlib.suppress(OSError):
                os.kill(process.pid, signal.SIGTERM)
    pool.shutdown(wait=True, cancel_futures=True)


@contextlib.contextmanager
def obeying() -> Iterator[None]:
    """Takes SIGTERM as Ctrl-C while it is entered."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def listening(events: Any, jobs: list[Job], listener: Listener) -> Iterator[None]:
    """Passes on what the workers tell, in a thread of its own."""
    over = threading.Event()

    def listen() -> None:
        while not over.is_set() or not events.empty():
            with contextlib.suppress(queue.Empty):
                i, event = events.get(timeout=0.2)
                listener(jobs[i], event)

    thread = threading.Thread(target=listen, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(timeout=5.0)


# ------------------------------------------------------------------------------------ in a worker

EVENTS: Any = None
PARENT = 0


def enter(events: Any, threads: int, parent: int) -> None:
    """Prepares a worker: its share of the cores, deaf to the terminal's Ctrl-C, which the parent passes on."""
    global EVENTS, PARENT
    EVENTS, PARENT = events, parent
    os.setpgrp()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    import torch

    torch.set_num_threads(threads)


def in_worker(i: int, job: Job, device: str, data_dir: Path | None) -> None:
    """One job, in a worker; it ends when the parent is gone."""

    def tell(event: dict[str, Any]) -> None:
        if os.getppid() != PARENT:
            os.kill(os.getpid(), signal.SIGTERM)
        EVENTS.put((i, event))

    finish(job, device=device, data_dir=data_dir, tell=tell)


def finish(job: Job, *, device: str, data_dir: Path | None, tell: Callable[[dict[str, Any]], None]) -> None:
    """Trains a job to its end, from wherever it was left, and measures it."""
    from arcwise.train import train

    tell({"kind": "begun"})
    last = time.monotonic() + PATIENCE
    while True:
        try:
            run = train(job.config, job.path, resume=True, device=device, data_dir=data_dir, listener=tell)
            break
        except ArcwiseError as error:
            if "another process" not in str(error) or time.monotonic() > last:
                raise
            time.sleep(0.5)
    tell({"kind": "measuring"})
    metrics = measure(run)
    tell({"kind": "done", "accuracy": metrics["test"]["accuracy"], "seconds": metrics["seconds"]})


def finished(job: Job) -> bool:
    """Whether a job's run is there, trained to its end."""
    run = Run(job.path)
    return run.exists() and run.finished
