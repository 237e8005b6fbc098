"""Comparisons: the same start for every head, runs reused, kills survived, tables as counted by hand."""

import json
import math
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import deque

import numpy as np
import pytest

from arcwise.compare import compare
from arcwise.compare.plan import plan_jobs
from arcwise.compare.workers import default_workers, hand_over, share_of_cores, work
from arcwise.config import override
from arcwise.errors import ArcwiseError
from arcwise.headspec import folder_name, split_heads
from arcwise.recipes import recipe
from arcwise.records import Comparison, Run
from arcwise.report.content import repeat_command
from arcwise.report.make import subject_of
from arcwise.study.table import comparison_table, table_of

BASE = override(recipe("digits-2d"), ["train.epochs=2", "data.unseen=8-9", "data.source=digits[0-7]"])


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    out = tmp_path_factory.mktemp("comparison") / "c"
    return compare(BASE, ["softmax", "arcface"], out, seeds=[0, 1], workers=1, device="cpu")


def test_one_run_per_head_and_seed_and_a_table_of_their_numbers(finished):
    comparison, table = finished
    assert sorted(p.name for p in comparison.path.iterdir() if p.is_dir()) == sorted(
        folder_name(head, seed) for head in ("softmax", "arcface") for seed in (0, 1)
    )
    by_hand = [Run.open(comparison.path / f"arcface-seed{s}").metrics["measured"]["accuracy"] for s in (0, 1)]
    assert table.values["accuracy"]["arcface"] == by_hand
    assert table.spread("accuracy", "arcface").mean == pytest.approx(np.mean(by_hand))
    assert {"unseen-auc", "open-auroc", "dunn-centroid-radius-cosine-95"} <= table.values.keys()
    written = json.loads((comparison.path / "metrics.json").read_text())
    gap = written["metrics"]["accuracy"]["differences"]["arcface - softmax"]
    other = [Run.open(comparison.path / f"softmax-seed{s}").metrics["measured"]["accuracy"] for s in (0, 1)]
    assert gap["mean"] == pytest.approx(np.mean(np.subtract(by_hand, other)))
    assert gap["low"] <= gap["mean"] <= gap["high"] and gap["n"] == 2


def test_the_accuracy_measured_is_that_of_training(finished):
    comparison, _ = finished
    for head in ("softmax", "arcface"):
        run = comparison.run(head, 0)
        assert run.metrics["measured"]["accuracy"] == pytest.approx(run.result["test"]["accuracy"], abs=1e-9)


def test_every_head_meets_the_same_first_network_and_order(tmp_path):
    base = override(BASE, ["train.epochs=1", "train.snapshots=true"])
    comparison, _ = compare(base, ["softmax", "cosface:m=0.2"], tmp_path / "c", seeds=[3], workers=1, device="cpu")
    first, second = (comparison.run(h, 3).embeddings("test-epoch-000").x for h in ("softmax", "cosface:m=0.2"))
    assert np.array_equal(first, second)


def test_runs_that_are_there_are_reused_and_heads_can_be_added(finished):
    comparison, _ = finished
    before = (comparison.path / "softmax-seed0" / "model.safetensors").stat().st_mtime_ns
    told = []
    _, table = compare(
        BASE, ["softmax", "arcface", "normface"], comparison.path, seeds=[0, 1], workers=1, device="cpu",
        listener=lambda job, event: told.append((job.label, event["kind"])),
    )  # fmt: skip
    assert table.heads == ["softmax", "arcface", "normface"]
    assert ("softmax seed 0", "steps") not in told and ("normface seed 1", "steps") in told
    assert (comparison.path / "softmax-seed0" / "model.safetensors").stat().st_mtime_ns == before


def test_two_workers_share_the_cores(tmp_path):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    words = "compare digits-2d --heads softmax,arcface --seeds 2 --workers 2 --device cpu --json --data digits[0-7]"
    changes = ["--set", "train.epochs=2", "--set", "data.unseen=8-9", "--out", str(tmp_path / "c")]
    command = [sys.executable, "-m", "arcwise", *words.split(), *changes]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert "[4/4]" in done.stderr and "left" in done.stderr
    table = json.loads(done.stdout)
    assert table["heads"] == ["softmax", "arcface"]
    config = Run.open(tmp_path / "c" / "arcface-seed1").about
    assert config["threads"] == 1


def test_a_comparison_killed_at_any_moment_goes_on_where_it_was(tmp_path):
    words = "compare digits-2d --heads softmax,arcface --seeds 1 --workers 2 --device cpu --set train.epochs=8 --out"
    command = [sys.executable, "-m", "arcwise", *words.split(), str(tmp_path / "c")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    first = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
    until = time.monotonic() + 60
    while not list((tmp_path / "c").glob("*/journal.jsonl")) and time.monotonic() < until:
        time.sleep(0.05)
    first.send_signal(signal.SIGKILL)
    first.wait()
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    runs = Comparison.open(tmp_path / "c").runs()
    assert {head: [run.settings.seed for run in found] for head, found in runs.items()} == {
        "softmax": [0],
        "arcface": [0],
    }


def test_ctrl_c_saves_every_run_and_says_how_to_go_on(tmp_path):
    words = "compare digits-2d --heads softmax,arcface --seeds 1 --workers 2 --device cpu --set train.epochs=9000 --out"
    command = [sys.executable, "-m", "arcwise", *words.split(), str(tmp_path / "c")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    run = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # background jobs ignore it
    )  # fmt: skip
    until = time.monotonic() + 60
    while len(list((tmp_path / "c").glob("*/journal.jsonl"))) < 2 and time.monotonic() < until:
        time.sleep(0.05)
    run.send_signal(signal.SIGINT)
    _, said = run.communicate(timeout=60)
    assert run.returncode == 130 and "saved" in said and "same command" in said and "Traceback" not in said
    assert len(list((tmp_path / "c").glob("*/checkpoints/*.safetensors"))) == 2


@pytest.mark.parametrize(
    ("text", "message"), [("softmax,,arcface", "one comma each"), ("softmax,softmax", "twice"), ("", "one comma each")]
)
def test_lists_of_heads_that_make_no_sense_are_refused(text, message):
    with pytest.raises(ArcwiseError, match=message):
        split_heads(text)


def test_a_head_that_does_not_exist_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(ArcwiseError, match="did you mean"):
        compare(BASE, ["softmax", "arcfase"], tmp_path / "c", seeds=[0], workers=1, device="cpu")
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize("workers", [-1, 257])
def test_workers_are_counted_before_anything_is_written(tmp_path, workers):
    with pytest.raises(ArcwiseError, match="workers must be"):
        compare(BASE, ["softmax"], tmp_path / "c", seeds=1, workers=workers, device="cpu")
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize(
    ("device", "gpu", "jobs", "workers"),
    [("auto", True, 9, 4), ("auto", False, 9, 6), ("cpu", True, 9, 6), ("cuda:1", True, 9, 4), ("cpu", False, 2, 2),
     ("cuda", True, 3, 3), ("cpu", False, 0, 1)],
)  # fmt: skip
def test_one_process_per_core_or_four_on_a_gpu_but_no_more_than_jobs(monkeypatch, device, gpu, jobs, workers):
    monkeypatch.setattr("torch.cuda.is_available", lambda: gpu)
    monkeypatch.setattr("os.cpu_count", lambda: 6)
    assert default_workers(device, jobs) == workers


def test_processes_that_start_get_their_share_of_threads_and_the_rest_is_as_before(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    before = dict(os.environ)
    with share_of_cores(3):
        assert os.environ["OMP_NUM_THREADS"] == os.environ["MKL_NUM_THREADS"] == "3"
    assert dict(os.environ) == before


def test_jobs_are_handed_over_in_turn_and_then_the_word_that_none_is_left(tmp_path):
    ours, theirs = multiprocessing.Pipe()
    jobs = plan_jobs(BASE, ["softmax"], [0, 1], tmp_path)
    waiting = deque(jobs)
    handed = [hand_over(ours, waiting) for _ in range(3)]
    assert handed == [*jobs, None] and all(theirs.poll() and theirs.recv() == job for job in handed)


@pytest.mark.parametrize(
    ("error", "message"), [(ArcwiseError("the disk is full."), "the disk is full."), (KeyError("a"), "KeyError: 'a'")]
)
def test_a_worker_tells_why_a_job_failed_and_takes_the_next(monkeypatch, error, message):
    def finish(job, **_):
        if job == "bad":
            raise error

    monkeypatch.setattr(sys.modules["arcwise.compare.workers"], "finish_job", finish)
    monkeypatch.setattr("os.setpgrp", lambda: None)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    ours, theirs = multiprocessing.Pipe()
    for job in ("bad", "good", None):
        ours.send(job)
    work(theirs, "cpu", None)
    theirs.close()
    assert [ours.recv(), ours.recv()] == [{"kind": "failed", "message": message}, {"kind": "free"}]


def test_other_settings_in_the_same_folder_are_refused(finished):
    comparison = Comparison.open(finished[0].path)
    before = comparison.about
    assert {"softmax", "arcface"} <= set(before["heads"]) and before["seeds"] == [0, 1]
    with pytest.raises(ArcwiseError, match=r"train\.epochs was 2, now 3"):
        compare(override(BASE, ["train.epochs=3"]), ["softmax"], comparison.path, seeds=[0], workers=1, device="cpu")
    assert Comparison.open(comparison.path).about == before  # what was there is still told


def test_what_a_killed_process_left_is_no_strangers_file(tmp_path):
    base, out = override(BASE, ["train.epochs=1"]), tmp_path / "c"
    compare(base, ["softmax"], out, seeds=[0], workers=1, device="cpu")
    shutil.rmtree(out / "softmax-seed0")
    (out / "softmax-seed0").mkdir()
    (out / "softmax-seed0" / ".config.json.99.part").write_text("{")
    _, table = compare(base, ["softmax"], out, seeds=[0], workers=1, device="cpu")
    assert Comparison.open(out).run("softmax", 0).finished and table.seeds == {"softmax": [0]}


def test_a_folder_with_other_files_is_left_alone(tmp_path):
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(ArcwiseError, match="other files"):
        compare(BASE, ["softmax"], tmp_path, seeds=[0], workers=1)


def test_jobs_go_seed_by_seed(tmp_path):
    made = plan_jobs(BASE, ["softmax", "arcface:m=0.3,s=16"], [0, 1], tmp_path)
    assert [job.label for job in made][:2] == ["softmax seed 0", "arcface:m=0.3,s=16 seed 0"]
    assert made[1].config.head.m is None and made[1].config.head.names_s


def test_infinite_numbers_are_null_in_the_file_and_infinite_in_the_table(finished):
    comparison, _ = finished
    run = comparison.run("softmax", 0)
    metrics = run.metrics
    metrics["measured"]["accuracy"] = None
    (run.path / "metrics.json").write_text(json.dumps(metrics))
    table = table_of({"softmax": [run]})
    assert math.isinf(table.values["accuracy"]["softmax"][0])
    metrics.pop("definitions")
    (run.path / "metrics.json").write_text(json.dumps(metrics))
    assert comparison_table(comparison).values["accuracy"]["softmax"][0] < 1.0  # measured again


def test_a_report_repeats_the_heads_as_they_were_given(finished):
    comparison, _ = finished
    command = repeat_command(subject_of([comparison.path]).runs)
    assert command.startswith("arcwise compare digits-2d --heads softmax,arcface") and "m=0.3" not in command
    with pytest.raises(ArcwiseError, match=r"arcface and arcface:m=0\.3 are one head"):
        compare(BASE, ["arcface:m=0.3"], comparison.path, seeds=[0, 1], workers=1, device="cpu")
