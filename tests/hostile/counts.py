"""How many cases of what ended how: printed at the end of a long run, and kept as JSON where a file is named.

HOSTILE_FILES=100000 HOSTILE_COMMANDS=10000 HOSTILE_KILLS=300 HOSTILE_DISK=2000    how many cases
HOSTILE_SEED=0                                                                     the first seed
HOSTILE_COUNTS=counts.json                                                         where the counts go
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from pathlib import Path

DEFAULTS = {"FILES": 100_000, "COMMANDS": 10_000, "PROCESSES": 300, "KILLS": 300, "DISK": 2_000}


def wanted(part: str) -> int:
    """How many cases a part of the long run has."""
    return int(os.environ.get(f"HOSTILE_{part}", DEFAULTS[part]))


def first_seed() -> int:
    """Where the seeds begin: another number gives other cases."""
    return int(os.environ.get("HOSTILE_SEED", "0"))


class Counts:
    """Cases by name and end, with the time they took."""

    def __init__(self, part: str):
        self.part, self.ends, self.seconds = part, dict[str, Counter[str]](), Counter[str]()
        self.began = time.perf_counter()

    def add(self, name: str, end: str, seconds: float) -> None:
        """One more case."""
        self.ends.setdefault(name, Counter())[end] += 1
        self.seconds[name] += seconds

    @property
    def total(self) -> int:
        """All cases."""
        return sum(sum(ends.values()) for ends in self.ends.values())

    def close(self, groups: int) -> None:
        """Prints the table, and puts it into the file that was asked for, beside other parts."""
        seconds = time.perf_counter() - self.began
        print(f"\n{self.part}: {self.total:,} cases in {seconds:.0f} s, {groups} groups of findings")
        for name, ends in self.ends.items():
            each = 1e3 * self.seconds[name] / max(1, sum(ends.values()))
            print(f"  {name:36} {sum(ends.values()):7,}  {each:8.2f} ms   {dict(ends.most_common())}")
        if os.environ.get("HOSTILE_COUNTS"):
            path = Path(os.environ["HOSTILE_COUNTS"])
            known = json.loads(path.read_text()) if path.is_file() else {}
            known[self.part] = {
                "cases": self.total, "seconds": round(seconds), "groups of findings": groups,
                "seed": first_seed(), "ends": {name: dict(ends) for name, ends in self.ends.items()},
            }  # fmt: skip
            path.write_text(json.dumps(known, indent=1) + "\n")
