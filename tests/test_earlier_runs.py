"""Runs that version 0.1 left behind, kept small in tests/fixtures: they open, resume, are measured and reported."""

import json
import shutil
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

import arcwise
from arcwise.cli import code_of
from arcwise.data.sources import load_whole
from arcwise.records import Comparison, Run
from arcwise.study.subject import subject

pytestmark = pytest.mark.filterwarnings("ignore:.*before arcwise wrote checksums")
FIXTURE = Path(__file__).parent / "fixtures" / "v0_1"
EXPECTED = json.loads((FIXTURE / "expected.json").read_text())


@pytest.fixture
def old(tmp_path, monkeypatch):
    """A copy of the fixture, which is also the working folder: its folder of images is named relative to it."""
    shutil.copytree(FIXTURE, tmp_path / "f")
    monkeypatch.chdir(tmp_path / "f")
    return tmp_path / "f" / "old"


def test_a_finished_run_opens_and_tells_what_it_was(old):
    run = Run.open(old / "finished")
    assert run.finished and run.head.label == "ArcFace m=0.3 s=8"
    assert run.settings.data.unseen == "5-9" and run.settings.train.epochs == 2
    assert {key: run.result[key] for key in EXPECTED["finished"]} == EXPECTED["finished"]
    assert run.embeddings("unseen").keys[:2] == ("#0", "#1")
    assert run.prototypes().w.shape == run.prototypes(1).w.shape == (5, 2)
    assert run.prototypes().head.s == 8.0


def test_it_is_measured_to_the_same_numbers_and_keeps_its_result(old):
    run = Run.open(old / "finished")
    found = arcwise.measure(run)["measured"]
    assert found.keys() == EXPECTED["measured"].keys()
    for name, value in EXPECTED["measured"].items():
        assert (found[name] is None) == (value is None) and (
            value is None or found[name] == pytest.approx(value, rel=1e-12)
        )
    assert {key: run.result[key] for key in EXPECTED["finished"]} == EXPECTED["finished"]


def test_an_unfinished_run_resumes_to_the_same_bits(old):
    """Saved at step 10 of 16 by the earlier version; the weights are those that version ended with, unstopped."""
    before = Run.open(old / "unfinished")
    threads = before.about["threads"]
    import torch

    was = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        run = arcwise.train(before.settings, before.path, resume=True, device="cpu")
    finally:
        torch.set_num_threads(was)
    weights = {name: sha256(value.tobytes()).hexdigest() for name, value in load_file(run.model).items()}
    assert weights == EXPECTED["whole"]
    assert run.result["test"] == EXPECTED["whole_test"]


def test_a_finished_run_is_not_trained_again(old):
    before = (old / "finished" / "model.safetensors").stat().st_mtime_ns
    run = Run.open(old / "finished")
    assert arcwise.train(run.settings, run.path, resume=True, device="cpu").path == run.path
    assert (old / "finished" / "model.safetensors").stat().st_mtime_ns == before


def test_a_comparison_is_tabulated_and_reported(old, capsys):
    assert [len(runs) for runs in Comparison.open(old / "comparison").runs().values()] == [2, 2]
    about = subject([old / "comparison"])
    assert about.heads == ["softmax + bias", "ArcFace m=0.3 s=8"] and about.champion == "ArcFace m=0.3 s=8"
    for head, told in zip(about.heads, EXPECTED["comparison"].values(), strict=True):
        assert about.table.values["accuracy"][head] == told["values"]
    assert code_of(["report", str(old / "comparison"), "--html"]) == 0
    assert "ArcFace m=0.3 s=8" in (old / "comparison" / "report.html").read_text()


def test_a_run_with_snapshots_is_reported_with_its_film(old):
    assert code_of(["report", str(old / "finished"), "--html", "--out", str(old / "report")]) == 0
    assert (old / "report" / "animations" / "test.gif").is_file()
    assert {"sample", "circle", "dunn-epochs", "neighbours"} <= {p.stem for p in (old / "report" / "figures").iterdir()}


def test_models_get_the_framing_they_were_trained_with(old):
    assert arcwise.Embedder.load(old / "finished").preprocessing.fit == "stretch"
    model = arcwise.Embedder.load(old / "folder")
    assert (model.preprocessing.fit, model.preprocessing.resample) == ("crop", "bicubic")
    config = arcwise.Config().data
    config = type(config)(source="folder:pictures", size=8, channels=3)
    images, _ = load_whole(config, data_dir=old.parent / "cache")
    found = arcwise.embed(model, images)
    assert np.array_equal(found.x, np.array(EXPECTED["folder"], np.float32))
    paths = [Path("pictures") / key for key in found.keys]
    assert np.array_equal(arcwise.embed(model, paths).x, found.x)
    assert found.model == model.fingerprint and found.keys[0] == "a/0.png"
