"""Systems that lack what Linux has: no fcntl on Windows, no posix_fallocate on macOS."""

import errno
import os
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from arcwise.data import load
from arcwise.errors import Busy
from arcwise.records import Run
from arcwise.records.lock import locked


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("ARCWISE_DATA", str(tmp_path / "cache"))
    for c, name in enumerate(("cat", "dog")):
        (tmp_path / "mine" / name).mkdir(parents=True)
        for i in range(4):
            Image.fromarray(np.full((9, 12, 3), 40 * i + c, np.uint8)).save(tmp_path / "mine" / name / f"{i}.png")
    return f"folder:{tmp_path / 'mine'}"


class Msvcrt(SimpleNamespace):
    """Windows' locks as far as they are used: one holder, refused at once or after ten tries."""

    LK_NBLCK, LK_LOCK = 2, 1

    def __init__(self):
        super().__init__(asked=[], held=False, refusals=0)

    def locking(self, number, mode, count):
        self.asked.append((mode, count))
        if self.held or self.refusals:
            self.refusals -= 1
            raise OSError(errno.EDEADLOCK, "Resource deadlock avoided")
        self.held = True


@pytest.fixture
def windows(monkeypatch):
    found = Msvcrt()
    monkeypatch.setitem(sys.modules, "fcntl", None)
    monkeypatch.setitem(sys.modules, "msvcrt", found)
    return found


def test_a_folder_is_decoded_where_files_cannot_be_allocated(folder, monkeypatch):
    monkeypatch.delattr(os, "posix_fallocate")
    assert len(load(folder, size=8, test=0.25).train) == 6


def test_runs_are_locked_by_the_means_of_windows(tmp_path, windows):
    with Run(tmp_path).locked():
        assert windows.asked == [(Msvcrt.LK_NBLCK, 1)]
        with pytest.raises(Busy, match="another process"), Run(tmp_path).locked():
            pass


def test_waiting_is_asked_for_again_where_the_system_gives_up(tmp_path, windows):
    windows.refusals = 3
    with locked(tmp_path, wait=True):
        assert windows.asked == [(Msvcrt.LK_LOCK, 1)] * 4


def test_a_folder_is_decoded_by_the_means_of_windows(folder, windows):
    assert len(load(folder, size=8, test=0.25).train) == 6


def test_where_there_are_no_locks_at_all_work_goes_on(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "fcntl", None)
    monkeypatch.setitem(sys.modules, "msvcrt", None)
    with Run(tmp_path).locked():
        pass


def test_everything_is_imported_where_neither_is_there():
    code = """
import os, sys
sys.modules["fcntl"] = None
del os.posix_fallocate
import arcwise
for name in arcwise.__all__:
    getattr(arcwise, name)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
