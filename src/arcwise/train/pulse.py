"""Whether the other processes of a training are still there: each says so every second; who falls silent is named.

A thread of its own beats, so that long decoding, compiling or evaluating is no silence. It begins as soon as all have
met, before they form a group: where a process has been killed the others find out by an exchange that fails; where it
hangs they would wait for it for ever. Who does not even come is named as well.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta

import torch.distributed as dist
from torch.distributed import Store, TCPStore  # pyright: ignore[reportPrivateImportUsage]

from arcwise.errors import AlreadyTold, ArcwiseError

EVERY = 1.0  # seconds
ENDED = "has ended"
GONE = 3.5  # seconds without a beat after which a process is taken for gone, once an exchange has failed
LATE = 30.0  # seconds that those who have come wait for the others at least; three times the silence, if that is more
LEAVE = 5.0  # seconds that a thread which waits for the first process's answer is waited for at the end


def patience(silence: float) -> float:
    """Seconds that those who have come wait for the others: importing takes its time, more on one node than another."""
    return max(LATE, 3 * silence)


AGAIN = (
    "torchrun --max-restarts=3 starts it again by itself, from the last checkpoint; without, say the same again with "
    "--resume."
)


def meet(store: Store, rank: int, count: int, silence: float) -> list[str]:
    """Who the processes are, once all have come; raises with the ranks of those who do not."""
    try:
        store.set(f"who/{rank}", itself())
        if store.add("came", 1) == count:
            store.set("all", "1")
        store.wait(["all"], timedelta(seconds=patience(silence)))
        return met(store, count)
    except dist.DistNetworkError:  # it keeps the meeting place
        raise AlreadyTold(f"process 0 of {count} {ENDED}, and this training ends. {AGAIN}") from None
    except dist.DistError:
        missing = [other for other in range(count) if not store.check([f"who/{other}"])]
    if not missing:  # the last came at the last moment
        return met(store, count)
    named = " and ".join(f"process {other}" for other in missing)
    words = f"{named} of {count} did not come within {patience(silence):g} s, and this training ends. {AGAIN}"
    raise (ArcwiseError if rank == min(set(range(count)) - set(missing)) else AlreadyTold)(words)


def met(store: Store, count: int) -> list[str]:
    """What each process has said of itself."""
    return [store.get(f"who/{rank}").decode() for rank in range(count)]


def itself() -> str:
    """How this process is named to a person."""
    return f"{socket.gethostname()}, process id {os.getpid()}"


class Pulse:
    """Beats for this process, and watches the others; the first process watches all, all watch the first.

    `say` hands on the number that the first process says to all: the port at which it keeps the beats.
    """

    def __init__(self, rank: int, who: list[str], silence: float, say: Callable[[int | None], int]):
        self.rank, self.count, self.who, self.silence = rank, len(who), who, silence
        self.over = threading.Event()
        host = os.environ.get("MASTER_ADDR", "127.0.0.1")
        store = TCPStore(host, 0, is_master=True, wait_for_workers=False) if rank == 0 else None
        port = say(None if store is None else store.port)
        self.store = store or TCPStore(host, port, is_master=False, timeout=timedelta(seconds=patience(silence)))
        self.store.set_timeout(timedelta(seconds=max(silence, 5 * EVERY)))
        self.seen = [("", time.monotonic())] * self.count
        self.answered = time.monotonic()
        self.threads = [threading.Thread(target=work, daemon=True, name="pulse") for work in (self.run, self.guard)]
        for thread in self.threads:
            thread.start()

    @property
    def watched(self) -> list[int]:
        """Whom this process watches."""
        return self.others if self.rank == 0 else [0]

    @property
    def others(self) -> list[int]:
        """All but this process."""
        return [rank for rank in range(self.count) if rank != self.rank]

    def run(self) -> None:
        """Beats and looks, until training is over."""
        count, last, what = 0, time.monotonic(), ""
        while not self.over.wait(EVERY):
            count += 1
            if time.monotonic() - last > 5 * EVERY:  # it was this process that stood still: the others begin anew
                self.seen = [(beat, time.monotonic()) for beat, _ in self.seen]
            last = time.monotonic()
            try:
                self.store.set(f"beat/{self.rank}", str(count))
                silent = self.look(self.watched, self.silence)
                self.answered = time.monotonic()
            except dist.DistNetworkError:  # the first process keeps the beats: it has gone
                silent, what = [0], ENDED
            except dist.DistError:  # it is there, and does not answer
                silent = [0]
            if silent and not self.over.is_set():
                self.end(silent, what)

    def guard(self) -> None:
        """Looks whether the first process, which keeps the beats, answers at all: who asks it may wait for ever."""
        last = time.monotonic()
        while not self.over.wait(EVERY):
            if time.monotonic() - last > 5 * EVERY:  # it was this process that stood still
                self.answered = time.monotonic()
            last = time.monotonic()
            if last - self.answered > self.silence + EVERY and self.rank != 0:
                self.end([0])

    def look(self, ranks: list[int], silence: float) -> list[int]:
        """Which of these have not said anything new for so long."""
        now, silent = time.monotonic(), []
        for rank in ranks:
            beat = self.beat_of(rank)
            if beat != self.seen[rank][0]:
                self.seen[rank] = (beat, now)
            elif now - self.seen[rank][1] > silence:
                silent.append(rank)
        return silent

    def beat_of(self, rank: int) -> str:
        """What a process has last said; nothing where it has not begun."""
        key = f"beat/{rank}"
        return self.store.get(key).decode() if self.store.check([key]) else ""

    def end(self, silent: list[int], what: str = "") -> None:
        """Ends this process, whatever it waits for; one of those that are left says why."""
        if self.rank == min(set(range(self.count)) - set(silent)):
            what = what or f"has not answered for {self.silence:g} s"
            print(f"arcwise: {self.words(silent, what)}", file=sys.stderr, flush=True)
        os._exit(1)

    def stop(self) -> None:
        """Beats no more. A thread that let go of torch's groups while Python ends would abort the process."""
        self.over.set()
        for thread in self.threads:
            thread.join(LEAVE)

    def words(self, ranks: list[int], what: str) -> str:
        """What is said of processes that are not there any more, and what to do."""
        named = ", ".join(f"process {rank} of {self.count} ({self.who[rank]})" for rank in ranks)
        return f"{named or 'another process'} {what}, and this training ends. {AGAIN}"

    def gone(self) -> list[int]:
        """Who has not been heard for a moment: asked once an exchange has failed."""
        self.over.set()
        try:
            before = {rank: self.beat_of(rank) for rank in self.others}
            until = time.monotonic() + GONE
            while time.monotonic() < until:
                time.sleep(EVERY / 2)
                self.store.set(f"beat/{self.rank}", f"{time.monotonic()}")
            return [rank for rank in self.others if self.beat_of(rank) == before[rank]]
        except RuntimeError:
            return [0]


@contextlib.contextmanager
def watched_over(pulse: Pulse | None) -> Iterator[None]:
    """What several processes do together; an exchange that fails ends it with the name of who is gone."""
    if pulse is None:
        yield
        return
    try:
        yield
    except ArcwiseError:
        raise
    except RuntimeError as error:  # what torch raises when the others cannot be reached, or what went wrong here
        with last_word(alone=False):
            gone = pulse.gone()
        if not gone and not isinstance(error, dist.DistError):
            raise
        first = min(set(range(pulse.count)) - set(gone)) == pulse.rank
        raise (ArcwiseError if first else AlreadyTold)(pulse.words(gone, ENDED)) from None
    finally:
        pulse.stop()


@contextlib.contextmanager
def last_word(*, alone: bool) -> Iterator[None]:
    """Lets a training of several say who is gone: torchrun asks all to end when one has ended, and is asked to wait."""
    if alone or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda number, frame: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
