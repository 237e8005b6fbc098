"""The demo of `make demo`, in its shortest form."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def run(*arguments):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, env=environment, cwd=ROOT)


def test_the_demo_leaves_a_report_its_figures_and_its_numbers_and_reuses_them(tmp_path):
    words = [
        "examples/demo.py",
        "--data",
        "digits[0-4]",
        "--seeds",
        "2",
        "--epochs",
        "1",
        "--out",
        str(tmp_path / "demo"),
    ]
    first = run(*words)
    assert first.returncode == 0, first.stderr
    found = json.loads((tmp_path / "demo" / "metrics.json").read_text())
    assert len(found["heads"]) == 3 and all(len(seeds) == 2 for seeds in found["seeds"].values())
    reported = json.loads((tmp_path / "demo" / "report.json").read_text())
    assert reported["seeds"]["softmax + bias"] == [0] and len(reported["heads"]) == 4
    for name in ("report.html", "report.pdf", "figures/circle.png", "figures/bias.png", "animations/test.gif"):
        assert (tmp_path / "demo" / name).stat().st_size > 1000
    assert "report.html" in first.stdout and "arcwise compare mnist5-2d" in first.stdout and "±" in first.stdout
    assert "[6/6]" in first.stderr
    again = run(*words)
    assert again.returncode == 0 and again.stderr.count("there already") == 6


def test_without_mnist_the_demo_says_so_and_takes_the_digits(tmp_path):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "ARCWISE_DATA": str(tmp_path / "empty"), "PATH": "/nowhere"}
    environment |= dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), "http://127.0.0.1:9")
    words = "from examples.demo import config; print(config('mnist[0-4]', 100, 1, None).data.source)"
    done = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, env=environment, cwd=ROOT)
    assert done.stdout.splitlines()[-1] == "digits[0-4]", done.stderr
    assert "in its place" in done.stdout


def test_the_demo_goes_through_the_door_alone_and_fits_a_page():
    text = (ROOT / "examples" / "demo.py").read_text()
    code = text.partition('"""\n\n')[2].partition("if __name__")[0]
    assert len([line for line in code.splitlines() if line.strip()]) <= 40
    assert not re.search(r"arcwise\.[a-z]+\.|from arcwise", text)


def test_wrong_input_is_a_message():
    done = run("examples/demo.py", "--seeds", "0")
    assert done.returncode == 1 and "seeds must be" in done.stderr


def test_the_training_loop_benchmark_runs_anywhere():
    done = run("benchmarks/train_loop.py", "--data", "digits", "--images", "400", "--rounds", "1")
    assert done.returncode == 0, done.stderr
    assert "both sides channels last:" in done.stdout and "ours as it is / plain as it is" in done.stdout


def test_the_published_experiments_can_be_made_again_in_small(tmp_path):
    done = run("benchmarks/results.py", "--small", "--only", "p2-mnist", "--out", str(tmp_path / "r"))
    assert done.returncode == 0, done.stderr
    assert list(tmp_path.rglob("report.html"))
