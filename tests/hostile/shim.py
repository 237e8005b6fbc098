"""The failing disk of shim.c: compiled once, loaded before libc, told what to refuse."""

from __future__ import annotations

import ctypes
import errno
import json
import shutil
import subprocess
from pathlib import Path

CREATES, READS, WRITES, SYNCS, RENAMES, FOLDERS, REMOVES, LENGTHS = (2**bit for bit in range(8))
CHANGES = CREATES | WRITES | SYNCS | RENAMES | FOLDERS | REMOVES | LENGTHS

# What goes wrong, with what kinds of calls, by which error, whether it stays so, and whether half goes through.
FAULTS: dict[str, tuple[int, int, bool, bool]] = {
    "full": (CREATES | WRITES | FOLDERS | LENGTHS, errno.ENOSPC, True, False),
    "full when it is pushed": (SYNCS, errno.ENOSPC, True, False),
    "over quota": (WRITES | LENGTHS, errno.EDQUOT, True, False),
    "read-only": (CREATES | RENAMES | FOLDERS | REMOVES | LENGTHS, errno.EROFS, True, False),
    "no rights": (CREATES | RENAMES | FOLDERS | REMOVES, errno.EACCES, True, False),
    "broken once": (CHANGES, errno.EIO, False, False),
    "broken": (CHANGES, errno.EIO, True, False),
    "cannot be read": (READS, errno.EIO, False, False),
    "cannot be read any more": (READS, errno.EIO, True, False),
    "short": (WRITES, errno.EIO, False, True),
    "short, then full": (WRITES, errno.ENOSPC, True, True),
}


def compiled(folder: Path) -> Path | None:
    """The library, or nothing where there is no compiler."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        return None
    out, source = folder / "shim.so", Path(__file__).with_name("shim.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", out, source, "-ldl"], check=True)
    return out


def set_fault(folder: str, fault: str, at: int, count: str | None = None) -> None:
    """In a process with the library: call number `at` under the folder fails; with -1 none, and a file gets counts."""
    library = ctypes.CDLL(None)
    kinds, number, lasting, half = FAULTS[fault]
    library.hostile_count.restype = ctypes.c_long
    library.hostile_fault(folder.encode(), kinds, ctypes.c_long(at), number, int(lasting), int(half))
    if count is not None:
        import atexit

        def keep() -> None:
            seen = {2**bit: library.hostile_count(2**bit) for bit in range(8)}
            library.hostile_fault(b"", 0, ctypes.c_long(-1), 0, 0, 0)
            Path(count).write_text(json.dumps(seen))

        atexit.register(keep)
