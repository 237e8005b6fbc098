"""Streams as a command finds them: closed, narrow, a pipe that is gone; and Ctrl-C from the first moment on."""

import io
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from arcwise.cli import code_of, tell_unraisable
from arcwise.cli.streams import Harmless, harmless, raw_stream

PYTHON = [sys.executable, "-m", "arcwise"]


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize(("words", "code"), [("recipes", 0), ("recipes nothing", 1), ("recipes --nothing", 2)])
def test_a_closed_stream_changes_no_exit_code(closed, words, code):
    done = subprocess.run(f"{' '.join(PYTHON)} {words} {closed}", shell=True, capture_output=True, text=True)
    assert done.returncode == code and "Traceback" not in done.stderr


def test_no_file_takes_the_place_of_a_closed_stream(tmp_path):
    """With stdout closed the next file that is opened would be number 1, and be printed into."""
    words = (
        f"{' '.join(PYTHON)} train digits-2d --set train.epochs=1 --set data.limit=100 --out {tmp_path}/run >&- 2>&-"
    )
    assert subprocess.run(words, shell=True).returncode == 0
    from arcwise.records import Run

    assert Run.open(tmp_path / "run").whole


def test_a_pipe_that_nobody_reads_is_no_error():
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([*PYTHON, "recipes"], stdout=writer, stderr=subprocess.PIPE, text=True)
    os.close(writer)
    assert done.returncode == 0 and done.stderr == ""


def test_output_that_cannot_be_written_is_one_line_and_exit_code_1():
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([*PYTHON, "recipes"], stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1 and done.stderr.startswith("arcwise: cannot write the result: No space left")


def test_a_narrow_locale_prints_what_it_can():
    narrow = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = subprocess.run([*PYTHON, "margins"], env=narrow, capture_output=True)
    assert done.returncode == 0 and b"Traceback" not in done.stderr and b"arcface" in done.stdout


def test_control_characters_of_names_reach_no_terminal(capsys, tmp_path):
    evil = "\x1b]0;owned\x07\x1b[31m"
    (tmp_path / f"a{evil}").mkdir()
    assert code_of(["data", "show", f"folder:{tmp_path}/a{evil}"]) == 1
    assert code_of([f"verb{evil}"]) == 2
    said = capsys.readouterr()
    assert "\x1b" not in said.err + said.out and "\\x1b[31m" in said.err
    assert harmless("a\tb\n\r\x9b") == "a\tb\n\\x0d\\x9b"


def test_what_draws_on_a_terminal_gets_the_stream_below():
    below = io.StringIO()
    above = Harmless(below)  # type: ignore[arg-type]
    print("\x1b[1m", file=above)
    print("\x1b[1m", file=raw_stream(above))
    assert below.getvalue() == "\\x1b[1m\n\x1b[1m\n"
    assert raw_stream(below) is below


ODD = "[/b] [red]\x1b[2J"  # markup to rich, and a control sequence to a terminal


def test_a_comparisons_panel_and_table_show_names_as_they_are(capsys):
    from types import SimpleNamespace

    from rich.console import Console

    from arcwise.cli.comparison_display import ComparisonDisplay, print_table
    from arcwise.study.table import Table

    drawn, display, job = io.StringIO(), ComparisonDisplay(), SimpleNamespace(label=f"one {ODD}")
    for event in ({"kind": "start", "total": 9}, {"kind": "data", "what": f"decoding {ODD}"}):
        display(job, event)  # type: ignore[arg-type]
    Console(file=drawn, width=200).print(display.panel())
    head = f"two {ODD}"
    print_table(Table(heads=[head], seeds={head: [0]}, values={"accuracy": {head: [0.5]}}, seconds={head: [1.0]}))
    said = drawn.getvalue() + capsys.readouterr().out
    assert all(f"{word} [/b] [red]\\x1b[2J" in said for word in ("one", "decoding", "two")) and "\x1b" not in said


def test_ctrl_c_where_nothing_can_be_raised_is_no_traceback(capsys):
    class Interrupted:
        def __del__(self):
            raise KeyboardInterrupt

    class Broken:
        def __del__(self):
            raise ValueError("told")

    before = sys.unraisablehook
    assert code_of(["recipes"]) == 0 and sys.unraisablehook is before
    sys.unraisablehook = partial(tell_unraisable, sys.__unraisablehook__)
    try:
        Interrupted()
        assert "Traceback" not in capsys.readouterr().err
        Broken()
        assert "ValueError: told" in capsys.readouterr().err
    finally:
        sys.unraisablehook = before


@pytest.mark.parametrize("wait", [0.15, 0.25, 0.4, 0.7])
@pytest.mark.parametrize("again", [False, True])
def test_ctrl_c_ends_a_command_quietly_from_the_first_moment_on(wait, again, tmp_path):
    words = [*PYTHON, "train", "digits-2d", "--out", str(tmp_path / "run"), "--set", "train.epochs=500"]
    child = subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's background jobs ignore Ctrl-C
    )  # fmt: skip
    time.sleep(wait)
    child.send_signal(signal.SIGINT)
    if again:
        time.sleep(0.01)
        child.send_signal(signal.SIGINT)
    _, said = child.communicate(timeout=60)
    if "site.py" in said or "importlib._bootstrap" in said or "runpy" in said:
        pytest.skip("Python itself had not started yet")
    assert child.returncode in (130, -signal.SIGINT) and "Traceback" not in said
