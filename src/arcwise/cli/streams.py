"""The three streams of a command, as it finds them: closed, narrow or watched; what is printed can do no harm."""

from __future__ import annotations

import os
import re
import sys
import warnings
from typing import Any

from arcwise.errors import Note

CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def harmless(text: str) -> str:
    """Text whose control characters are spelt out: none of them reaches a terminal, whatever a file is called.

    >>> harmless("a\\x1b[31mb")
    'a\\\\x1b[31mb'
    """
    return CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


class Harmless:
    """A stream on which every text is printed harmlessly; `raw` is the one below, for what draws on a terminal."""

    def __init__(self, raw: Any):
        self.raw = raw

    def write(self, text: str) -> int:
        """Writes the text, its control characters spelt out."""
        return self.raw.write(harmless(text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.raw, name)


def raw_stream(stream: Any) -> Any:
    """The stream below, for what moves the cursor of a terminal."""
    return stream.raw if isinstance(stream, Harmless) else stream


def open_streams() -> None:
    """Opens what the caller has closed, so that no file of ours takes the place of a stream and is printed into."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free: this one
    sys.stdin = sys.stdin or open(os.devnull)  # noqa: SIM115, PTH123
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115, PTH123
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115, PTH123


def guard_streams() -> None:
    """Lets letters that a stream does not have be replaced, control characters be spelt out, and notes be short."""
    open_streams()
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace" if name == "stdout" else "backslashreplace")
        if not isinstance(stream, Harmless):
            setattr(sys, name, Harmless(stream))
    before = warnings.showwarning

    def show(message: Any, category: Any, *place: Any) -> None:
        if issubclass(category, Note):
            print(f"note: {message}", file=sys.stderr)
        else:
            before(message, category, *place)

    warnings.showwarning = show
