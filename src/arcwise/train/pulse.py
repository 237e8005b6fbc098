"""Whether the other processes of a training are still there: each says so every second; who falls silent is named.

A thread of its own beats, so that long decoding, compiling or evaluating is no silence. Where a process has been
killed the others find out by an exchange that fails; where it hangs they would wait for it for ever.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from datetime import timedelta

import torch.distributed as dist
from torch.distributed import TCPStore  # pyright: ignore[reportPrivateImportUsage]

from arcwise.errors import AlreadyTold, ArcwiseError
from arcwise.train.together import Together

EVERY = 1.0  # seconds
ENDED = "has ended"
GONE = 3.5  # seconds without a beat after which a process is taken for gone, once an exchange has failed
LEAVE = 5.0  # seconds that a thread which waits for the first process's answer is waited for at the end


class Pulse:
    """Beats for this process, and watches the others; the first process watches all, all watch the first."""

    def __init__(self, us: Together, silence: float):
        self.us, self.silence, self.over = us, silence, threading.Event()
        host = os.environ.get("MASTER_ADDR", "127.0.0.1")
        store = TCPStore(host, 0, is_master=True, wait_for_workers=False) if us.lead else None
        port = us.say(None if store is None else store.port)
        self.store = store or TCPStore(host, port, is_master=False, timeout=timedelta(seconds=silence))
        self.store.set(f"who/{us.rank}", f"{socket.gethostname()}, process id {os.getpid()}")
        self.store.set(f"beat/{us.rank}", "0")
        us.any(False)  # everybody has said who it is
        self.who = [self.store.get(f"who/{rank}").decode() for rank in range(us.count)]
        self.seen = [("", time.monotonic())] * us.count
        self.answered = time.monotonic()
        self.threads = [threading.Thread(target=work, daemon=True, name="pulse") for work in (self.run, self.guard)]
        for thread in self.threads:
            thread.start()

    @property
    def watched(self) -> list[int]:
        """Whom this process watches."""
        return [rank for rank in range(self.us.count) if rank != self.us.rank] if self.us.lead else [0]

    def run(self) -> None:
        """Beats and looks, until training is over."""
        count, last, what = 0, time.monotonic(), ""
        while not self.over.wait(EVERY):
            count += 1
            if time.monotonic() - last > 5 * EVERY:  # it was this process that stood still: the others begin anew
                self.seen = [(beat, time.monotonic()) for beat, _ in self.seen]
            last = time.monotonic()
            try:
                self.store.set(f"beat/{self.us.rank}", str(count))
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
            if last - self.answered > self.silence + EVERY and not self.us.lead:
                self.end([0])

    def look(self, ranks: list[int], silence: float) -> list[int]:
        """Which of these have not said anything new for so long."""
        now, silent = time.monotonic(), []
        for rank in ranks:
            beat = self.store.get(f"beat/{rank}").decode()
            if beat != self.seen[rank][0]:
                self.seen[rank] = (beat, now)
            elif now - self.seen[rank][1] > silence:
                silent.append(rank)
        return silent

    def end(self, silent: list[int], what: str = "") -> None:
        """Ends this process, whatever it waits for; one of those that are left says why."""
        if self.us.rank == min(set(range(self.us.count)) - set(silent)):
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
        count = self.us.count
        named = ", ".join(f"process {rank} of {count} ({self.who[rank]})" for rank in ranks)
        return (
            f"{named or 'another process'} {what}, and this training ends. torchrun --max-restarts=3 starts it again "
            "by itself, from the last checkpoint; without, say the same again with --resume."
        )

    def gone(self) -> list[int]:
        """Who has not been heard for a moment: asked once an exchange has failed."""
        self.over.set()
        everyone = [rank for rank in range(self.us.count) if rank != self.us.rank]
        try:
            before = {rank: self.store.get(f"beat/{rank}") for rank in everyone}
            until = time.monotonic() + GONE
            while time.monotonic() < until:
                time.sleep(EVERY / 2)
                self.store.set(f"beat/{self.us.rank}", f"{time.monotonic()}")
            return [rank for rank in everyone if self.store.get(f"beat/{rank}") == before[rank]]
        except RuntimeError:
            return [0]


@contextlib.contextmanager
def beating(us: Together, silence: float) -> Iterator[None]:
    """Watches over a training of several processes; an exchange that fails ends it with the name of who is gone."""
    if us.alone:
        yield
        return
    pulse, before = Pulse(us, silence), None
    if threading.current_thread() is threading.main_thread():  # torchrun ends all when one has ended: first a word
        before = signal.signal(signal.SIGTERM, lambda number, frame: None)
    try:
        yield
    except ArcwiseError:
        raise
    except RuntimeError as error:  # what torch raises when the others cannot be reached, or what went wrong here
        gone = pulse.gone()
        if not gone and not isinstance(error, dist.DistError):
            raise
        first = min(set(range(us.count)) - set(gone)) == us.rank
        raise (ArcwiseError if first else AlreadyTold)(pulse.words(gone, ENDED)) from None
    finally:
        pulse.stop()
        if before is not None:
            signal.signal(signal.SIGTERM, before)
