"""The demo of `make demo`, in its shortest form."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "examples" / "first_look.py"


def first_look(*arguments):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run([sys.executable, str(SCRIPT), *arguments], capture_output=True, text=True, env=environment)


def test_the_demo_leaves_a_report_a_figure_and_its_numbers(tmp_path):
    run = first_look("--out", str(tmp_path), "--seeds", "2", "--epochs", "2")
    assert run.returncode == 0, run.stderr
    results = json.loads((tmp_path / "metrics.json").read_text())
    assert all(len(runs) == 2 for runs in results["runs"].values())
    page = (tmp_path / "report.html").read_text()
    assert all(name in page for name in results["heads"])
    assert "http" not in page.replace("http-equiv", "")  # self-contained
    assert (tmp_path / "figures" / "embeddings.png").read_bytes().startswith(b"\x89PNG")
    assert "report.html" in run.stdout
    assert run.stderr.count("seed") == 8  # progress, a line a run


def test_wrong_input_is_a_usage_error():
    run = first_look("--seeds", "0")
    assert run.returncode == 2
    assert "at least 1" in run.stderr


def test_the_training_loop_benchmark_runs_anywhere():
    command = [sys.executable, "benchmarks/train_loop.py", "--data", "digits", "--images", "400", "--rounds", "1"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    run = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment)
    assert run.returncode == 0, run.stderr
    assert "both sides channels last:" in run.stdout and "ours as it is / plain as it is" in run.stdout
