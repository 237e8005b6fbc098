"""A process that has imported everything and forks one child per command: what is left is the command itself.

It reads one JSON line per command, {"tokens", "cwd", "env", "out", "err", ...}, answers {"pid"} and, when the child is
gone, {"status", "seconds"}; status is the exit code, or minus the signal that ended it. Started as
`python -m hostile.zygote`; `Zygote` talks to it.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PRELOADED = (
    "arcwise.__main__", "arcwise.cli", "arcwise.compare", "arcwise.report.make", "arcwise.report.margins_page",
    "arcwise.train.loop", "matplotlib.pyplot", "matplotlib.backends.backend_agg", "hostile.limits",
)  # fmt: skip


class Zygote:
    """The process, as the tests see it."""

    def __init__(self, **environment: str):
        self.environment = environment
        path = os.pathsep.join([str(ROOT / "src"), str(ROOT / "tests")])
        told = {
            **os.environ,
            "PYTHONPATH": path,
            "OMP_NUM_THREADS": "1",
            "PATH": "/nowhere",
            "COLUMNS": "120",
            **environment,
        }
        told.pop("TRITON_INTERPRET", None)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "hostile.zygote"], env=told, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self.answer() == {"ready": True}

    def answer(self) -> dict[str, Any]:
        """The next line that it says."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the process that forks is gone"
        return json.loads(line)

    def begin(self, **wanted: Any) -> int:
        """The process id of a child that has just begun."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(wanted) + "\n")
        self.process.stdin.flush()
        return self.answer()["pid"]

    def run(self, **wanted: Any) -> dict[str, Any]:
        """How a child ended that nobody disturbs from outside."""
        self.begin(**wanted)
        return self.answer()

    def close(self) -> None:
        """Ends it."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(30)
        self.process.stdout.close()


# ---------------------------------------------------------------------------------------------- in the process


def preload() -> None:
    """Imports what the verbs import when they are first called."""
    import torch
    from PIL import Image

    from arcwise.cli import VERBS

    for name in (*PRELOADED, *(target.partition(":")[0] for target, _ in VERBS.values())):
        importlib.import_module(name)
    Image.init()
    torch.zeros(2, 2) @ torch.zeros(2, 2)


def serve() -> None:
    """Forks until its input ends; only a child ever returns a code."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    preload()
    gc.freeze()
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        wanted, began = json.loads(line), time.monotonic()
        child = os.fork()
        if child == 0:
            leave(code_of_child(wanted))
        print(json.dumps({"pid": child}), flush=True)
        _, status = os.waitpid(child, 0)
        ended = {"status": os.waitstatus_to_exitcode(status), "seconds": time.monotonic() - began}
        print(json.dumps(ended), flush=True)


def code_of_child(wanted: dict[str, Any]) -> int:
    """The exit code of the child; what nobody catches is printed as Python prints it."""
    try:
        become(wanted)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    return 1


def leave(code: int) -> None:
    """Ends the child: threads are waited for and files flushed, but torch is not taken to pieces, which takes long."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):
            stream.flush()
    os._exit(code)


def become(wanted: dict[str, Any]) -> None:
    """Runs the command in the child, as a process of its own would; until then Ctrl-C is nothing to it."""
    for number, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(wanted[name], os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.chdir(wanted["cwd"])
    os.environ.update(wanted.get("env", {}))
    if wanted.get("apart"):
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.execv(sys.executable, [sys.executable, "-m", "arcwise", *wanted["tokens"]])
    sys.argv = ["arcwise", *wanted["tokens"]]
    if "fault" in wanted:
        from hostile.shim import set_fault

        set_fault(**wanted["fault"])
    if "moment" in wanted or "events" in wanted:
        watch(wanted["cwd"], wanted.get("moment"), wanted.get("events"))
    with contextlib.ExitStack() as stack:
        for name in wanted.get("limits", ()):
            stack.enter_context(getattr(importlib.import_module("hostile.limits"), name)())
        from arcwise.__main__ import main

        signal.signal(signal.SIGINT, signal.default_int_handler)
        main()


WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
WATCHED = ("open", "os.rename", "os.remove", "os.mkdir", "os.truncate", "os.rmdir")


def watch(folder: str, moment: dict[str, Any] | None, events: str | None) -> None:
    """Counts what is done to files under a folder; at the moment's number its signal is sent to this very process."""
    seen, root, sync = [0], os.path.realpath(folder), os.fsync

    def count() -> None:
        if moment is not None and seen[0] == moment["at"]:
            strike(moment["signals"])
        seen[0] += 1

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event not in WATCHED or not isinstance(arguments[0], str | bytes | os.PathLike):
            return
        if event == "open" and not (isinstance(arguments[2], int) and arguments[2] & WRITING):
            return
        if os.path.join(root, os.fsdecode(arguments[0])).startswith(root):  # noqa: PTH118
            count()

    def fsync(descriptor: int) -> None:
        count()
        sync(descriptor)
        count()

    os.fsync = fsync
    sys.addaudithook(hook)
    if events is not None:
        atexit.register(lambda: Path(events).write_text(str(seen[0])))


def strike(signals: list[int]) -> None:
    """Sends itself the first signal, and any other ten milliseconds after the one before."""
    this = os.getpid()
    if signals[1:] and os.fork() == 0:  # nobody in this process may be waited for, so another one strikes
        for number in signals[1:]:
            time.sleep(0.01)
            with contextlib.suppress(ProcessLookupError):
                os.kill(this, number)
        os._exit(0)
    os.kill(this, signals[0])


if __name__ == "__main__":
    serve()
