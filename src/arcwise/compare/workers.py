"""Finished Runs: the jobs of a comparison, trained and measured by processes that share the machine."""

from __future__ import annotations

import contextlib
import multiprocessing as mp
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from multiprocessing.connection import wait as wait_for
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from arcwise.compare.plan import Job
from arcwise.errors import ArcwiseError, Busy, Interrupted
from arcwise.measure import measure, measure_epochs

JobListener = Callable[[Job, dict[str, Any]], None]
PATIENCE = 20.0  # seconds to wait for a run that a process just killed may still hold


class Worker(NamedTuple):
    """A process and the pipe to it: jobs go in, events come out."""

    process: BaseProcess
    pipe: Connection


def default_workers(device: str, jobs: int) -> int:
    """How many processes share the machine: one per core, or a few on a GPU."""
    import torch

    on_gpu = device.startswith("cuda") or (device == "auto" and torch.cuda.is_available())
    return max(1, min(jobs, 4 if on_gpu else os.cpu_count() or 1))


def train_all(
    jobs: list[Job], *, workers: int, device: str = "auto", data_dir: Path | None = None, listener: JobListener
) -> None:
    """Trains and measures every job that is not finished yet; a job that fails ends the comparison with its message."""
    if jobs:
        listener(jobs[0], {"kind": "planned", "total": len(jobs)})
    try:
        if workers == 1:
            for job in jobs:
                finish_job(job, device=device, data_dir=data_dir, tell=lambda event, job=job: listener(job, event))
            return
        with sigterm_as_interrupt():
            crew = hire(min(workers, len(jobs)), device, data_dir)
            try:
                serve(crew, jobs, listener)
            finally:
                dismiss(crew)
    except (Interrupted, KeyboardInterrupt):
        raise Interrupted("stopped; all runs are saved.") from None


def hire(workers: int, device: str, data_dir: Path | None) -> list[Worker]:
    """Processes that wait for jobs, each with its share of the cores."""
    context, crew = mp.get_context("spawn"), []
    with share_of_cores(max(1, (os.cpu_count() or 1) // workers)):
        for _ in range(workers):
            ours, theirs = context.Pipe()
            process = context.Process(target=work, args=(theirs, device, data_dir), daemon=True)
            process.start()
            theirs.close()
            crew.append(Worker(process, ours))
    return crew


def serve(crew: list[Worker], jobs: list[Job], listener: JobListener) -> None:
    """Hands out the jobs and passes on what the workers tell, until all is done or one of them failed."""
    waiting, busy = deque(jobs), {}
    for worker in crew:
        busy[worker.pipe] = hand_over(worker.pipe, waiting)
    while any(busy.values()):
        for pipe in wait_for([pipe for pipe, job in busy.items() if job is not None]):
            assert isinstance(pipe, Connection)
            job = busy[pipe]
            try:
                event = pipe.recv()
            except (EOFError, OSError):
                raise ArcwiseError(
                    f"the process that trained {job.label} was ended from outside, perhaps for want of memory. "
                    "The same command goes on; --workers 1 needs less."
                ) from None
            if event["kind"] == "failed":
                raise ArcwiseError(f"{job.label}: {event['message']}")
            if event["kind"] == "free":
                busy[pipe] = hand_over(pipe, waiting)
            else:
                listener(job, event)


def hand_over(pipe: Connection, waiting: deque[Job]) -> Job | None:
    """The next job, once a worker has it; None when there is none left."""
    job = waiting.popleft() if waiting else None
    pipe.send(job)
    return job


def dismiss(crew: list[Worker]) -> None:
    """Asks whoever still works to save and leave, and waits for them."""
    for worker in crew:
        if worker.process.is_alive():
            worker.process.terminate()
    for worker in crew:
        worker.process.join()
        worker.pipe.close()


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


@contextlib.contextmanager
def sigterm_as_interrupt() -> Iterator[None]:
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


# ------------------------------------------------------------------------------------ in a worker


def work(pipe: Connection, device: str, data_dir: Path | None) -> None:
    """Takes jobs until there are none; deaf to the terminal's Ctrl-C, which the parent passes on as SIGTERM."""
    if hasattr(os, "setpgrp"):  # Windows has none
        os.setpgrp()
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def tell(event: dict[str, Any]) -> None:
        try:
            pipe.send(event)
        except OSError:  # the parent is gone: save and leave
            signal.raise_signal(signal.SIGTERM)

    with contextlib.suppress(Interrupted, EOFError):
        for job in iter(pipe.recv, None):
            try:
                finish_job(job, device=device, data_dir=data_dir, tell=tell)
                tell({"kind": "free"})
            except Interrupted:
                raise
            except ArcwiseError as error:
                tell({"kind": "failed", "message": str(error)})
            except Exception as error:  # a mistake of ours: its text must reach the person
                tell({"kind": "failed", "message": f"{type(error).__name__}: {error}"})


def finish_job(job: Job, *, device: str, data_dir: Path | None, tell: Callable[[dict[str, Any]], None]) -> None:
    """Trains a job to its end, from wherever it was left, and measures it."""
    from arcwise.train import train

    tell({"kind": "begun"})
    last = time.monotonic() + PATIENCE
    while True:
        try:
            run = train(job.config, job.path, resume=True, device=device, data_dir=data_dir, listener=tell)
            break
        except Busy:
            if time.monotonic() > last:
                raise
            time.sleep(0.5)
    tell({"kind": "measuring"})
    measure(run)
    for part in ("test", "validation"):
        measure_epochs(run, part)
    result = run.result
    tell({"kind": "done", "accuracy": result["test"]["accuracy"], "seconds": result["seconds"]})
