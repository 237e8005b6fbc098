"""What a launcher such as torchrun says of this process: environment variables, checked."""

from __future__ import annotations

import os

from arcwise.errors import ArcwiseError


def process_count() -> int:
    """How many processes were started together, this one included; 1 where nothing says so."""
    return launched_number("WORLD_SIZE", 1, 2**20) if os.environ.get("WORLD_SIZE") else 1


def rank_and_count() -> tuple[int, int]:
    """Which of how many processes this is, where there are several."""
    missing = [name for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT") if not os.environ.get(name)]
    if missing:
        raise ArcwiseError(
            f"WORLD_SIZE says that this is one of several processes, and {', '.join(missing)} not: start them with "
            "torchrun, or unset WORLD_SIZE to train in one."
        )
    count = process_count()
    return launched_number("RANK", 0, count - 1), count


def launched_number(name: str, low: int, high: int) -> int:
    """A whole number that the launcher has set."""
    value = os.environ.get(name, "")
    if not (value.isascii() and value.isdigit() and low <= int(value[:20]) <= high):
        raise ArcwiseError(
            f"the environment variable {name} is a whole number from {low:,} to {high:,}, and here it is {value!r}: "
            "torchrun sets it; to train in one process, unset WORLD_SIZE."
        )
    return int(value)
