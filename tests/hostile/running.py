"""One command line run in a sandbox, here or in a process of its own, and the verdict."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from hostile.cases import where
from hostile.limits import (
    TooLong,
    few_pictures,
    memory_limit,
    no_network,
    one_process,
    short_training,
    time_limit,
    unchecked,
)
from hostile.sandbox import Sandbox
from hostile.templates import no_waiting

CODES = (0, 1, 2, 130)
SECONDS = 20.0


class Outcome(NamedTuple):
    """What a command line came to: its exit code (None where it never left by itself), words, and what it raised."""

    code: int | None
    out: str
    err: str
    raised: str
    seconds: float


class Fault(NamedTuple):
    """A command line that did not pass, and why."""

    case: list[str]
    kind: str
    words: str

    @property
    def group(self) -> tuple[str, str]:
        """Faults of one cause, mostly."""
        return self.kind, self.words.splitlines()[0][:160]


@contextlib.contextmanager
def streams() -> Iterator[tuple[io.BytesIO, io.BytesIO]]:
    """stdout and stderr as bytes, while it is entered; what was there before is put back, whatever happens."""
    out, err, before = io.BytesIO(), io.BytesIO(), (sys.stdout, sys.stderr, sys.argv)
    sys.stdout = io.TextIOWrapper(out, "utf-8", errors="strict", write_through=True)
    sys.stderr = io.TextIOWrapper(err, "utf-8", errors="backslashreplace", write_through=True)
    kept = sys.stdout, sys.stderr
    try:
        yield out, err
    finally:
        sys.stdout, sys.stderr, sys.argv = before
        for stream in kept:
            with contextlib.suppress(ValueError, OSError):
                stream.detach()


@contextlib.contextmanager
def surroundings(sandbox: Sandbox) -> Iterator[None]:
    """The sandbox as working folder, home and cache; no network, short trainings, few pictures."""
    with pytest.MonkeyPatch.context() as patch, contextlib.ExitStack() as stack:
        for name, value in environment(sandbox).items():
            patch.setenv(name, value)
        patch.chdir(sandbox.folder)
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        for limit in (no_network, short_training, one_process, few_pictures, no_waiting, unchecked):
            stack.enter_context(limit())
        yield


def environment(sandbox: Sandbox) -> dict[str, str]:
    """What a process is told: where home and the cache are, and that there is no way out."""
    nowhere = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:9")
    return nowhere | {
        "HOME": str(sandbox.folder / "home"), "ARCWISE_DATA": str(sandbox.folder / "cache"), "HF_HUB_OFFLINE": "1",
        "COLUMNS": "120", "ARCWISE_MIRROR": "",
    }  # fmt: skip


def run_here(tokens: list[str], sandbox: Sandbox) -> Outcome:
    """The command in this process."""
    from arcwise.cli import code_of

    code, raised, began = None, "", time.perf_counter()
    with surroundings(sandbox), streams() as (out, err):
        sys.argv = ["arcwise", *tokens]
        try:
            with time_limit(SECONDS), memory_limit():
                code = code_of(tokens)
        except SystemExit as leave:
            code = leave.code if isinstance(leave.code, int) else 1
        except TooLong as error:
            raised = f"TooLong in {where(error)}"
        except BaseException as error:
            last = traceback.format_exception_only(error)[-1].strip()
            raised = f"{type(error).__name__} in {where(error)}\n{last}"[:1500]
    return Outcome(code, text(out), text(err), raised, time.perf_counter() - began)


def text(stream: io.BytesIO) -> str:
    """What was written to it."""
    return stream.getvalue().decode(errors="replace")


def run_apart(tokens: list[str], sandbox: Sandbox, *, seconds: float = 60.0) -> Outcome:
    """The command as a process of its own; its network leads nowhere."""
    path = os.pathsep.join([str(Path(__file__).parents[2] / "src"), os.environ.get("PYTHONPATH", "")])
    told = {**os.environ, **environment(sandbox), "PYTHONPATH": path, "PATH": "/nowhere", "OMP_NUM_THREADS": "1"}
    began = time.perf_counter()
    command = [sys.executable, "-m", "arcwise", *tokens]
    try:
        done = subprocess.run(
            command, cwd=sandbox.folder, env=told, capture_output=True, timeout=seconds, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired:
        return Outcome(None, "", "", "TooLong", seconds)
    out, err = (stream.decode(errors="replace") for stream in (done.stdout, done.stderr))
    return Outcome(done.returncode, out, err, "", time.perf_counter() - began)


def judge(
    tokens: list[str], sandbox: Sandbox, run: Callable[[list[str], Sandbox], Outcome] = run_here
) -> tuple[str, Fault | None]:
    """How a command ended, and what is wrong with that; the sandbox is as before."""
    try:
        found = run(tokens, sandbox)
        changed = sandbox.changes(tokens[0] if tokens else "")
    finally:
        sandbox.restore()
    end = "cut short" if found.raised.startswith("TooLong") else "raised" if found.raised else f"exit {found.code}"
    if found.raised and end == "raised":
        return end, Fault(tokens, "raised", found.raised)
    if "Traceback" in found.err:
        return end, Fault(tokens, "traceback", " ".join(found.err.splitlines()[-2:]))
    if found.code not in CODES and end != "cut short":
        return end, Fault(tokens, "exit code", f"{found.code}\n{found.err[-300:]}")
    if found.code in (1, 2) and not found.err.strip():
        return end, Fault(tokens, "silent", f"exit {found.code}, and nothing is said")
    if changed:
        kinds = sorted({change.split(":")[0] + " in " + change.split(": ")[1].split("/")[0] for change in changed})
        return end, Fault(tokens, "wrote", f"{tokens[0]} {', '.join(kinds)}\n{'; '.join(changed[:8])}")
    return end, None


def shrunk(fault: Fault, sandbox: Sandbox) -> Fault:
    """The same fault from as few words as possible."""
    tokens, at = list(fault.case), 0
    while at < len(tokens):
        fewer = tokens[:at] + tokens[at + 1 :]
        again = judge(fewer, sandbox)[1]
        if again is not None and again.group == fault.group:
            tokens, fault = fewer, again
        else:
            at += 1
    return fault


def fault_report(faults: list[Fault], sandbox: Sandbox, *, most: int = 2) -> str:
    """The faults by their groups, each shrunk, as they may be pasted into FOUND."""
    groups: dict[tuple[str, str], list[Fault]] = {}
    for fault in faults:
        groups.setdefault(fault.group, []).append(fault)
    lines = [f"{len(faults)} faults in {len(groups)} groups; a command may be pasted into tests/hostile/found.py"]
    for (kind, words), many in sorted(groups.items(), key=lambda group: -len(group[1])):
        lines += ["", f"{len(many)} x {kind}: {words}"]
        for fault in sorted(many, key=lambda fault: len(repr(fault.case)))[:most]:
            less = shrunk(fault, sandbox) if kind != "exit code" else fault
            lines += [f"    {less.case!r},", f"        # {' '.join(less.words.splitlines()[1:])[:300]}"]
    return "\n".join(lines)
