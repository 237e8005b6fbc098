"""The command line as a person types it: results on stdout, messages on stderr, exit codes 0, 1, 2."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from arcwise.margins import MARGINS
from arcwise.report.margins_page import page_text

ROOT = Path(__file__).parents[2]


def arcwise(*arguments, **options):
    return subprocess.run([sys.executable, "-m", "arcwise", *arguments], capture_output=True, text=True, **options)


def test_help_lists_the_verbs_and_is_quick():
    times = [1.0]
    while min(times) >= 0.4 and len(times) < 20:  # the machine may be busy; the command needs one quiet moment
        start = time.perf_counter()
        run = arcwise("--help")
        times.append(time.perf_counter() - start)
    assert run.returncode == 0
    assert "advise" in run.stdout
    assert "margins" in run.stdout
    assert min(times) < 0.4


def test_help_imports_no_torch():
    code = "import sys; sys.modules['torch'] = None; from arcwise.cli import code_of; code_of(['--help'])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0


def test_advise_prints_advice_and_the_next_line_to_type():
    run = arcwise("advise", "--classes", "93431", "--dim", "512")
    assert run.returncode == 0
    assert "s = 16.2, m = 0.5" in run.stdout
    assert re.search(r"Next: head = arcwise\.Head\(512, 93431", run.stdout)
    assert run.stderr == ""


def test_advise_speaks_json():
    run = arcwise("advise", "--classes", "10", "--dim", "2", "--per-class", "7", "--json")
    assert json.loads(run.stdout)["m"] == pytest.approx(0.314, abs=1e-3)


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["advize"], 2, 'Did you mean "advise"'),
        (["advise", "--classes", "ten", "--dim", "2"], 2, "--classes"),
        (["advise", "--dim", "2"], 2, "--classes"),
        (["advise", "--classes", "2.5", "--dim", "2"], 2, "2.5"),
        (["advise", "--classes", "1" + "0" * 200, "--dim", "2"], 1, "at most"),
        (["margins", "--json", "--page", "p.md"], 1, "give one of them"),
        (["advise", "--classes", "3", "--dim", "2", "--colour", "red"], 2, "--colour"),
        (["advise", "--classes", "0", "--dim", "2"], 1, "classes must be a whole number of at least 1"),
        (["advise", "--classes", "3", "--dim", "-2"], 1, "dim must be"),
        (["advise", "--classes", "3", "--dim", "2", "--per-class", "1", "2"], 1, "per_class must be"),
        (["advise", "--classes", "3", "--dim", "2", "--per-class", "-1"], 1, "per_class must be"),
        (["margins", "--page", "page.pdf"], 1, "--page page.md"),
        (["margins", "--page", "/proc/none/page.md"], 1, "cannot write"),
    ],
)
def test_wrong_input_gives_a_message_and_a_code_but_no_traceback(arguments, code, says):
    run = arcwise(*arguments)
    assert run.returncode == code
    assert says in run.stderr
    assert "Traceback" not in run.stderr
    assert run.stdout == ""


def test_json_is_strict_even_where_a_scale_is_infinite():
    run = arcwise("advise", "--classes", "5", "--dim", "1", "--json")
    assert json.loads(run.stdout, parse_constant=pytest.fail)["s_reaches"] is None


def test_a_full_disk_is_reported_without_a_traceback():
    with Path("/dev/full").open("w") as full:
        run = subprocess.run(
            [sys.executable, "-m", "arcwise", "margins"], stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert run.returncode == 1
    assert "cannot write the result" in run.stderr
    assert "Traceback" not in run.stderr


def test_margins_lists_all_of_them():
    run = arcwise("margins")
    assert all(name in run.stdout for name in MARGINS)
    assert [row["name"] for row in json.loads(arcwise("margins", "--json").stdout)] == list(MARGINS)


@pytest.mark.parametrize("arguments", [["margins"], ["recipes"]])
def test_a_closed_pipe_is_no_error(arguments):
    reader, writer = os.pipe()
    os.close(reader)  # as `head` does once it has what it wants
    try:
        command = [sys.executable, "-m", "arcwise", *arguments]
        run = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True)
    finally:
        os.close(writer)
    assert run.returncode == 0
    assert run.stderr == ""


def test_ctrl_c_ends_any_verb_with_the_shells_code_and_no_traceback():
    code = """
import signal, sys, types
from arcwise.__main__ import main
from arcwise.cli import VERBS
signal.signal(signal.SIGINT, signal.default_int_handler)  # jobs in the background ignore it
sys.modules["waiting"] = types.ModuleType("waiting")
sys.modules["waiting"].wait_command = lambda: signal.raise_signal(signal.SIGINT)
VERBS["wait"] = ("waiting:wait_command", "Wait.")
sys.argv = ["arcwise", "wait"]
main()
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.returncode == 128 + signal.SIGINT
    assert run.stderr == "arcwise: stopped.\n"


def test_the_page_is_written_with_a_figure_for_every_margin(tmp_path):
    run = arcwise("margins", "--page", str(tmp_path / "margins.md"), env={**os.environ, "MPLBACKEND": "Agg"})
    assert run.returncode == 0, run.stderr
    text = (tmp_path / "margins.md").read_text()
    for link in re.findall(r"\]\((.*?\.png)\)", text):
        assert (tmp_path / link).stat().st_size > 10_000
    assert sorted(p.stem for p in (tmp_path / "margins").iterdir()) == sorted(MARGINS)


def test_the_committed_page_is_the_generated_one():
    assert (ROOT / "docs" / "margins.md").read_text() == page_text("margins")
    assert sorted(p.stem for p in (ROOT / "docs" / "margins").glob("*.png")) == sorted(MARGINS)


def test_every_setting_of_a_recipe_is_explained(capsys):
    from arcwise.cli import code_of

    assert code_of(["recipes", "folder"]) == 0
    settings = [line for line in capsys.readouterr().out.splitlines() if re.match(r"(data|model|head|train)\.", line)]
    assert len(settings) > 50 and not [line for line in settings if "  # " not in line]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["train", "folder", "leaves"], "arcwise train folder --data folder:leaves"),
        (["train", "leaves"], "arcwise train folder --data folder:leaves"),
        (["train", "folder", "--data", "folder:leaves/x.csv"], "name the folder that it lies in, folder:leaves"),
    ],
)
def test_a_folder_in_the_wrong_place_is_told_where_it_belongs(words, said, tmp_path, monkeypatch, capsys):
    from arcwise.cli import code_of

    monkeypatch.chdir(tmp_path)
    (tmp_path / "leaves").mkdir()
    (tmp_path / "leaves" / "x.csv").write_text("file,label\n")
    assert code_of(words) in (1, 2) and said in capsys.readouterr().err
