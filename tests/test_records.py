"""Records: Embeddings and Runs come back as they were written; half-written and foreign ones are refused."""

import json
import multiprocessing
import os
import signal
import time

import numpy as np
import pytest

from arcwise.errors import ArcwiseError
from arcwise.records import FORMAT, Embeddings, Run, write


def test_a_file_is_written_whole_or_not_at_all(tmp_path):
    path = write(tmp_path / "deep" / "a.txt", "first")
    assert write(path, b"second").read_text() == "second"
    assert [p.name for p in path.parent.iterdir()] == ["a.txt"]
    (tmp_path / "file").write_text("")
    with pytest.raises(ArcwiseError, match=r"cannot write .*Choose another folder"):
        write(tmp_path / "file" / "a.txt", "x")


def test_a_full_disk_is_named_and_the_old_file_stays(tmp_path, monkeypatch):
    path = write(tmp_path / "a.txt", "old")

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ArcwiseError, match="the disk is full"):
        write(path, "new")
    assert path.read_text() == "old" and len(list(tmp_path.iterdir())) == 1


def embeddings(**options):
    x = np.random.default_rng(0).standard_normal((6, 3)).astype(np.float32)
    return Embeddings(x=x, y=np.arange(6) % 2, names=("a", "ß"), **options)


@pytest.mark.parametrize("half", [False, True])
def test_embeddings_come_back_as_they_were(tmp_path, half):
    one = embeddings(prototypes=np.eye(2, 3, dtype=np.float32), index=np.arange(6), about={"epoch": 3})
    two = Embeddings.load(one.save(tmp_path / "e.safetensors", half=half))
    assert np.array_equal(one.x.astype(np.float16) if half else one.x, two.x)
    assert np.array_equal(one.y, two.y) and one.names == two.names and two.about == {"epoch": 3}
    assert np.array_equal(one.prototypes, two.prototypes) and two.bias is None


def test_wrong_embeddings_are_refused(tmp_path):
    with pytest.raises(ArcwiseError, match=r"must lie in \[0, 2\)"):
        embeddings().__class__(x=np.zeros((1, 2), np.float32), y=np.array([2]), names=("a", "b"))
    with pytest.raises(ArcwiseError, match="there is no file"):
        Embeddings.load(tmp_path / "none.safetensors")
    (tmp_path / "e.safetensors").write_bytes(b"half")
    with pytest.raises(ArcwiseError, match="cannot be read as safetensors"):
        Embeddings.load(tmp_path / "e.safetensors")


def test_a_run_is_created_once_and_opened_often(tmp_path):
    run = Run.create(tmp_path / "run", {"seed": 3}, versions={"torch": "x"})
    assert Run.open(tmp_path / "run").config == {"seed": 3} and not run.finished
    with pytest.raises(ArcwiseError, match="--resume"):
        Run.create(tmp_path / "run", {})
    with pytest.raises(ArcwiseError, match="is not finished"):
        _ = run.metrics
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.docx").write_text("")
    with pytest.raises(ArcwiseError, match="holds other files"):
        Run.create(tmp_path / "other", {})


def test_a_run_of_another_format_is_refused(tmp_path):
    run = Run.create(tmp_path, {})
    write(run.path / "config.json", json.dumps({"format": FORMAT + 1, "config": {}}))
    with pytest.raises(ArcwiseError, match=f"format {FORMAT + 1}; this version of arcwise reads format {FORMAT}"):
        Run.open(tmp_path)
    write(run.path / "config.json", "{half")
    with pytest.raises(ArcwiseError, match="cannot be read"):
        Run.open(tmp_path)


def test_a_torn_line_of_the_journal_is_left_out(tmp_path):
    run = Run.create(tmp_path, {})
    (tmp_path / "journal.jsonl").write_text('{"kind": "steps", "step": 1}\n{"kind": "eval", "step": 1}\n{"kind": "st')
    assert [entry["step"] for entry in run.journal()] == [1, 1]
    assert len(run.journal("steps")) == 1


def hold(path, held):
    with Run(path).locked():
        held.set()
        time.sleep(60)


def test_a_lock_keeps_a_second_process_out_and_dies_with_its_process(tmp_path):
    context = multiprocessing.get_context("spawn")
    held = context.Event()
    child = context.Process(target=hold, args=(tmp_path, held), daemon=True)
    child.start()
    assert held.wait(60)
    with pytest.raises(ArcwiseError, match="another process"), Run(tmp_path).locked():
        pass
    os.kill(child.pid, signal.SIGKILL)
    child.join()
    with Run(tmp_path).locked():
        pass
