"""Cases that failed once, as the long runs print them: they are tried again with every test."""

from __future__ import annotations

# A reader, and the edits of its file.
FILES: list[tuple[str, tuple]] = []

# Command lines, in the sandbox.
COMMANDS: list[list[str]] = []

# Kills: the verb, by what, and when: a number of things done to files, or a share of the time.
KILLS: list[tuple[str, str, int | float]] = []

# Failing disks: the verb, what goes wrong, and at which call.
DISK: list[tuple[str, str, int]] = []
