"""Whether the person, or the system, asked for an end: Ctrl-C and SIGTERM are noted, not obeyed at once."""

from __future__ import annotations

import signal
import threading
from types import FrameType


class Signals:
    """Notes SIGINT and SIGTERM while it is entered; a second Ctrl-C ends the program as usual.

    >>> with Signals() as signals:
    ...     signals.asked is None
    True
    """

    def __init__(self) -> None:
        self.asked: int | None = None
        self.before: dict[int, object] = {}

    def __enter__(self) -> Signals:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self.before[number] = signal.signal(number, self.note)
        return self

    def note(self, number: int, frame: FrameType | None) -> None:
        """Remembers the first; gives way to the second."""
        if self.asked is not None:
            signal.signal(number, signal.SIG_IGN)  # a third one changes nothing
            raise KeyboardInterrupt
        self.asked = number

    def __exit__(self, *_: object) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
