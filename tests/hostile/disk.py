"""Commands on a disk that fails: what goes wrong, at which call, and what has to be true afterwards."""

from __future__ import annotations

import shutil
from pathlib import Path
from random import Random
from typing import NamedTuple

from hostile.cases import told
from hostile.kills import WRITERS, Butcher, shown, why_half
from hostile.shim import FAULTS


class Fault(NamedTuple):
    """Which command, what goes wrong with the disk, and at which call."""

    verb: str
    fault: str
    at: int


class Breaker:
    """Runs commands on a failing disk; the butcher's zygote has the library that makes it fail."""

    def __init__(self, butcher: Butcher):
        self.butcher = butcher

    def calls(self, verb: str, fault: str) -> int:
        """How many calls of the kinds that the fault refuses a command makes."""
        calls = self.butcher.undisturbed(verb).calls
        return sum(seen for kind, seen in calls.items() if kind & FAULTS[fault][0])

    def draw(self, seed: int, verb: str | None = None) -> Fault:
        """A fault of a seed."""
        random = Random(f"disk {verb} {seed}")
        verb = verb or random.choice([name for name, one in WRITERS.items() if not one.apart for _ in range(one.share)])
        fault = random.choice([name for name in FAULTS if self.calls(verb, name)])
        return Fault(verb, fault, random.randrange(self.calls(verb, fault)))

    def attempt(self, fault: Fault) -> tuple[str, str | None]:
        """How the command ended, and what is wrong with that or afterwards."""
        folder, alone = self.butcher.place(fault.verb), self.butcher.undisturbed(fault.verb)
        try:
            told_to = {"folder": str(folder), "fault": fault.fault, "at": fault.at}
            ended = self.butcher.zygote.run(**self.butcher.wanted(fault.verb, folder, ""), fault=told_to)
            end = f"exit {ended['status']}"
            errors = (folder / "err").read_text(errors="replace")
            wrong = self.wrong_with(ended["status"], errors, folder)
            if wrong is None and "Input/output error" in errors and ended["status"] == 0:
                return "left out", None  # an image that could not be read, and that is told
            if wrong is None and ended["status"] == 0:
                wrong = self.wrong_result(fault.verb, folder, alone.result)
            return end, wrong or self.butcher.gone_on_with(fault.verb, folder, alone)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def wrong_with(self, code: int, errors: str, folder: Path) -> str | None:
        """What is wrong with the end itself: no words, a traceback, or half a file."""
        last = " | ".join(errors.strip().splitlines()[-2:])
        if "Traceback" in errors:
            return f"traceback: {last}"
        if code not in (0, 1) or (code == 1 and "arcwise: " not in errors):
            return f"exit code: {code}: {last}"
        half = [f"{path.relative_to(folder)}: {why}" for path in shown(folder) if (why := why_half(path))]
        return f"half a file: {'; '.join(half[:4])}" if half else None

    def wrong_result(self, verb: str, folder: Path, undisturbed: str) -> str | None:
        """What is wrong with a command that says it succeeded."""
        try:
            same = told(WRITERS[verb].result(folder)) == undisturbed
        except Exception as error:
            return f"says it succeeded: {type(error).__name__}: {error}"
        return None if same else "says it succeeded: with another result"
