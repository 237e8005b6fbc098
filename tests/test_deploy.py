"""The container file of docs/deploy.md, as an environment: its list alone, no torch, and all that it promises works."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import arcwise
from arcwise.cli import code_of

ROOT = Path(__file__).parents[1]


def listed():
    """The packages that the container file installs beside arcwise itself."""
    (first,) = re.findall(
        r"^RUN pip install --no-cache-dir (?!--no-deps)(.*)$", (ROOT / "docs/deploy.md").read_text(), re.M
    )
    return first.split()


def test_the_list_holds_what_arcwise_depends_on_but_torch():
    text = (ROOT / "pyproject.toml").read_text()
    needed = set(re.findall(r'"([a-z0-9-]+)[>=]', text.partition("dependencies = [")[2].partition("]")[0]))
    assert needed - {"torch"} <= set(listed()) and {"onnxruntime", "lancedb", "numkong"} <= set(listed())


@pytest.mark.slow
def test_the_environment_of_the_container_file_works_without_torch(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    settings = ["data.source=digits[0-4]", "train.epochs=4", "model.dim=8"]
    arcwise.train("digits-2d", "run", settings=settings, device="cpu", listener=lambda event: None)
    others = arcwise.load("digits[5-9]").train
    for name in others.names:
        (tmp_path / "photos" / name).mkdir(parents=True)
        for i, row in enumerate(np.flatnonzero(others.y == others.names.index(name))[:6]):
            Image.fromarray(others.pixels[row][..., 0]).save(tmp_path / "photos" / name / f"{i}.png")
    for line in ("calibrate run --on photos --far 0.2 --few-identities", "export run model.onnx --on photos",
                 "gallery create people --model model.onnx"):  # fmt: skip
        assert code_of(line.split()) == 0, line
    place = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", place], check=True)
    pip = [place / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, *listed()], check=True)
    shutil.copytree(
        ROOT, tmp_path / "source", ignore=shutil.ignore_patterns(".venv", ".git", "runs", ".carry*", "site")
    )
    subprocess.run([*pip, "--no-deps", tmp_path / "source"], check=True)
    assert not list(place.glob("lib/python*/site-packages/torch*"))
    for line, says in (
        ("gallery add people photos", "30 templates added"),
        ("gallery identify people photos/5/0.png", "cosine 1.0000"),
        ("gallery remove people 5", "6 templates of 5 erased"),
        ("verify model.onnx photos/5/0.png photos/5/1.png", "cosine"),
        ("embed model.onnx photos --out x.safetensors", "30 embeddings"),
        ("evaluate model.onnx --on photos", "pairs-eer"),
        ("calibrate model.onnx --on photos --far 0.3 --few-identities", "thresholds.json"),
    ):  # fmt: skip
        done = subprocess.run([place / "bin" / "arcwise", *line.split()], capture_output=True, text=True)
        assert done.returncode == 0 and says in done.stdout, (line, done.stdout, done.stderr)
    done = subprocess.run([place / "bin" / "arcwise", "train", "digits-2d"], capture_output=True, text=True)
    assert done.returncode == 1 and "this needs torch" in done.stderr
    packages = next(place.glob("lib/python*/site-packages"))
    size = sum(path.stat().st_size for path in packages.rglob("*") if path.is_file() and not path.is_symlink())
    print(f"the environment without torch holds {size / 1e6:,.0f} MB")
