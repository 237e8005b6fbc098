"""A folder held by one process at a time; the system lets go when that process ends, however it ends."""

from __future__ import annotations

import contextlib
import importlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from arcwise.errors import ArcwiseError, Busy
from arcwise.records.files import cannot_write

LOCK = ".lock"  # of a folder as a whole
A_MOMENT = 0.5  # seconds


@contextlib.contextmanager
def locked(folder: Path, *, busy: str = "", wait: bool = False, name: str = LOCK) -> Iterator[None]:
    """Holds the folder against other processes, or raises Busy with the words given; `wait` waits for them instead.

    Another `name` is another lock, of something in it, and its file goes when it is let go.
    """
    new = [place for place in (folder, *folder.parents) if not place.exists()]
    words = busy or f"{folder} is being written by another process. Wait for it, or choose another."
    with taken(folder / name, wait=wait, busy=words):
        try:
            yield
        finally:
            if name != LOCK:
                with contextlib.suppress(OSError):
                    (folder / name).unlink()
            elif new and not wait:
                remove_unused(folder, new)


def taken(path: Path, *, wait: bool, busy: str) -> IO[Any]:
    """The lock's file, held: that which bears the name now, for who held it before may have taken it away."""
    while True:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            handle = path.open("a")
            if not take(handle, wait):
                handle.close()
                raise Busy(busy)
            if bears_its_name(handle, path):
                return handle
            handle.close()
        except OSError as error:
            raise ArcwiseError(cannot_write(path.parent, error)) from error


def bears_its_name(handle: IO[Any], path: Path) -> bool:
    """Whether an open file is the one that is at a path."""
    try:
        return os.path.samestat(os.fstat(handle.fileno()), path.stat())
    except FileNotFoundError:
        return False


def remove_unused(folder: Path, new: list[Path]) -> None:
    """Takes away folders that were made to be locked, when nothing was put into them."""
    with contextlib.suppress(OSError):  # not empty: it was used
        if [item.name for item in folder.iterdir()] == [LOCK]:
            (folder / LOCK).unlink()
            for place in new:
                place.rmdir()


def take(handle: IO[Any], wait: bool) -> bool:
    """Whether the file is ours now. Without either of the two modules there are no locks to be had."""
    for module, way in (("fcntl", by_fcntl), ("msvcrt", by_msvcrt)):
        try:
            found = importlib.import_module(module)
        except ImportError:
            continue
        return attempt(lambda found=found, way=way: way(found, handle, wait))
    return True


def attempt(call: Callable[[], object]) -> bool:
    """Whether the system granted it, within a moment: a process that was ended may have a child that is just ending."""
    end = time.monotonic() + A_MOMENT
    while True:
        try:
            call()
            return True
        except OSError:
            if time.monotonic() > end:
                return False
            time.sleep(A_MOMENT / 10)


def by_fcntl(fcntl: Any, handle: IO[Any], wait: bool) -> None:
    """Where there is Unix."""
    fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))


def by_msvcrt(msvcrt: Any, handle: IO[Any], wait: bool) -> None:
    """On Windows, where waiting gives up after ten seconds: then it is asked again."""
    handle.seek(0)
    while True:
        try:
            return msvcrt.locking(handle.fileno(), msvcrt.LK_LOCK if wait else msvcrt.LK_NBLCK, 1)
        except OSError:
            if not wait:
                raise
