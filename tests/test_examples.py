"""The demo of `make demo` in its shortest form, and the programs of examples/ as they are."""

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import arcwise

ROOT = Path(__file__).parents[1]
NEEDS = {
    "plain_loop": "matplotlib",
    "lightning_module": "lightning",
    "huggingface_trainer": "transformers",
    "timm_model": "timm",
}


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
    assert len(reported["heads"]) == 3  # the lone runs with a bias stand aside
    for name in (
        "report.html",
        "report.pdf",
        "figures/circle.png",
        "figures/bias.png",
        "figures/boundaries.png",
        "animations/test.gif",
    ):
        assert (tmp_path / "demo" / name).stat().st_size > 1000
    assert "report.html" in first.stdout and "mnist5-2d" not in first.stdout and "±" in first.stdout
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


def need(package):
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed: pip install 'arcwise[examples]'")


def share(text, name):
    """The number behind a name in what an example printed."""
    found = re.search(rf"{name}.*: ([\d.]+)%", text)
    assert found, text
    return float(found[1]) / 100


@pytest.mark.parametrize("name", NEEDS)
def test_an_example_runs_and_ends_with_a_good_result(name):
    need(NEEDS[name])
    done = run(f"examples/{name}.py")
    assert done.returncode == 0, done.stderr
    assert share(done.stdout, "test accuracy") > 0.95
    if name == "plain_loop":
        unseen, pixels = share(done.stdout, "equal error rate"), share(done.stdout, "pixels alone")
        assert unseen < 0.1 and unseen < pixels / 2
    else:
        assert share(done.stdout, "nearest known image") > 0.95


def test_every_program_in_examples_is_run_here_and_named_in_the_docs():
    programs = {path.stem for path in (ROOT / "examples").glob("*.py")}
    assert programs == {*NEEDS, "demo"}
    page = (ROOT / "docs" / "python.md").read_text()
    assert all(f"(../examples/{name}.py)" in page for name in NEEDS)


@pytest.mark.parametrize("name", NEEDS)
def test_an_example_fits_a_page_and_goes_through_the_door_alone(name):
    text = (ROOT / "examples" / f"{name}.py").read_text()
    assert len(text.splitlines()) <= 60
    assert "pip install" in text.split('"""')[1]
    code = text.split('"""', 2)[2]
    assert "from arcwise" not in code and not re.search(r"import arcwise[.]", code)
    assert set(re.findall(r"\barcwise\.(\w+)", code)) <= set(arcwise.__all__)


@pytest.mark.parametrize("trainer", ["import lightning", "from transformers import Trainer"])
def test_trainers_can_be_imported_once_torchvision_is_mended(trainer):
    need(trainer.split()[1])
    done = run("-c", f"import arcwise; arcwise.mend_torchvision(); arcwise.mend_torchvision(); {trainer}")
    assert done.returncode == 0, done.stderr


def test_without_torchvision_there_is_nothing_to_mend():
    code = "import sys; sys.modules['torchvision'] = None; import arcwise; assert arcwise.mend_torchvision() is False"
    done = run("-c", code)
    assert done.returncode == 0, done.stderr
