"""Sets of a few images, with odd names: every figure and the report, also where the locale knows ASCII alone."""

import os
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from arcwise.cli import code_of
from arcwise.errors import Note
from arcwise.records import Run

NAMES = (b"ant", b"`dog", b"[red]b", b"$x$ #let", b"caf\xe9", "漢字".encode())


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run on six classes of five images, one of each to test on, with snapshots."""
    place = tmp_path_factory.mktemp("few")
    random = np.random.default_rng(0)
    for at, name in enumerate(NAMES):
        folder = Path(os.fsdecode(os.fsencode(place / "images") + b"/" + name))
        folder.mkdir(parents=True)
        for i in range(5):
            pixels = random.integers(0, 60, (8, 8), dtype=np.uint8)
            pixels[at : at + 3, at : at + 3] += 180
            Image.fromarray(pixels).save(folder / f"{i}.png")
    settings = ["data.size=8", "data.test=0.2", "train.epochs=2", "train.snapshots=true", "train.batch=12"]
    words = [word for setting in settings for word in ("--set", setting)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ARCWISE_DATA", str(place / "cache"))
        out = place / "run"
        assert code_of(["train", "digits-2d", "--data", f"folder:{place}/images", "--out", str(out), *words]) == 0
    found = Run.open(out)
    assert len(found.embeddings("test")) == len(NAMES) and "caf\\xe9" in found.embeddings("test").names
    return found


def test_every_figure_of_a_few_images_is_drawn(run, capsys, monkeypatch):
    monkeypatch.setenv("ARCWISE_DATA", str(run.path.parent / "cache"))
    with warnings.catch_warnings(action="always", category=Note):
        code = code_of(["figures", str(run.path)])
    said = capsys.readouterr().err
    assert code == 0 and "note: left out: the figure roc, because no class has two samples" in said, said
    drawn = {path.stem for path in (run.path / "figures").iterdir() if path.stat().st_size > 1000}
    assert {"neighbours", "training", "confusion", "embeddings", "angles", "samples"} <= drawn


def test_a_report_on_a_few_images_is_written_in_any_locale(run, tmp_path):
    narrow = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    narrow["ARCWISE_DATA"] = str(run.path.parent / "cache")
    words = ["report", str(run.path), "--out", str(tmp_path / "paper"), "--html", "--pdf"]
    done = subprocess.run([sys.executable, "-m", "arcwise", *words], env=narrow, capture_output=True)
    assert done.returncode == 0 and b"Traceback" not in done.stderr, done.stderr
    page = (tmp_path / "paper" / "report.html").read_text(encoding="utf-8")
    assert all(name in page for name in ("`dog", "[red]b", "$x$ #let", "caf\\xe9", "漢字"))
    assert (tmp_path / "paper" / "report.pdf").read_bytes().startswith(b"%PDF")
