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

        code = code_of(sys.argv[1:])
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        os.write(2, b"arcwise: stopped.\n")
        code = 130
    if signal.getsignal(signal.SIGINT) is interrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # nothing is left that would have to be told
    sys.exit(code)


if __name__ == "__main__":  # processes that are spawned import this file too
    main()
