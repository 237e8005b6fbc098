"""The command line as `python -m arcwise`, and as `arcwise`: Ctrl-C ends it quietly from the first moment on."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType


def interrupt(number: int, frame: FrameType | None) -> None:
    """The first Ctrl-C ends what is under way; a second one, while it ends, changes nothing."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    raise KeyboardInterrupt


def main() -> None:
    """Runs one command and leaves with its exit code."""
    try:
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # a shell may have it ignored
            signal.signal(signal.SIGINT, interrupt)
        from arcwise.cli import code_of

        sys.exit(code_of())
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        os.write(2, b"arcwise: stopped.\n")
        sys.exit(130)
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # nothing is left that could be stopped


if __name__ == "__main__":  # processes that are spawned import this file too
    main()
