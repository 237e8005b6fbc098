"""The wheel: built from a copy of the source, installed into an empty environment, used away from the repository."""

import os
import shutil
import subprocess
import sys
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")
TORCH = f"torch=={version('torch')}"  # the build of the tests: where that is one for the CPU, no gigabytes of CUDA
DATA = {"arcwise/data/digits.npz", "arcwise/report/page.html", "arcwise/py.typed"}
EXTRAS = ("matplotlib", "typst", "timm", "pytorch_metric_learning", "lancedb", "onnx")
DOOR = f"""
import importlib.util, arcwise
print(arcwise.__file__)
assert all(getattr(arcwise, name) is not None for name in arcwise.__all__)
assert not [name for name in {EXTRAS} if importlib.util.find_spec(name)]
"""


def run(*command, cwd: Path) -> subprocess.CompletedProcess:
    ours = ("PYTHONPATH", "TRITON_INTERPRET")
    environment = {name: value for name, value in os.environ.items() if name not in ours}
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, cwd=cwd, env=environment)


def said(*command, cwd: Path) -> str:
    done = run(*command, cwd=cwd)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def skip_without_an_index(folder: Path) -> None:
    probe = ("--retries", 0, "--timeout", 20, "install", "--dry-run", "--no-deps", "--ignore-installed")
    done = run(*PIP, *probe, "hatchling", TORCH, cwd=folder)
    if done.returncode != 0:
        why = done.stderr.strip().rpartition("\n")[2]
        pytest.skip(f"pip finds no package index with hatchling and {TORCH}: {why}")


def built(folder: Path) -> Path:
    source = folder / "source"
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE", ".gitignore"):
        shutil.copy(ROOT / name, source)
    said(*PIP, "wheel", ".", "--no-deps", "-w", folder, cwd=source)
    return next(folder.glob("arcwise-*.whl"))


def installed(wheel: Path, place: Path) -> Path:
    """The folder of commands of a new environment that holds the wheel and what it needs, and no extra."""
    said(sys.executable, "-m", "venv", "--without-pip", place, cwd=wheel.parent)
    words = ("--python", place / "bin" / "python", "install", "--no-compile", "-c", ROOT / "constraints.txt")
    said(*PIP, *words, wheel, TORCH, cwd=wheel.parent)
    return place / "bin"


def test_the_wheel_brings_its_files_and_trains_in_an_empty_environment_without_any_extra(tmp_path):
    skip_without_an_index(tmp_path)
    wheel, place, empty = built(tmp_path), tmp_path / "environment", tmp_path / "empty"
    assert set(zipfile.ZipFile(wheel).namelist()) >= DATA
    empty.mkdir()
    try:
        commands = installed(wheel, place)
        assert str(place) in said(commands / "python", "-c", DOOR, cwd=empty)
        assert "train" in said(commands / "arcwise", "--help", cwd=empty)
        said(commands / "arcwise", "train", "digits-2d", "--set", "train.epochs=1", "--out", "r", cwd=empty)
        assert (empty / "r" / "model.safetensors").is_file()
    finally:
        shutil.rmtree(place, ignore_errors=True)  # pytest would keep its gigabyte
