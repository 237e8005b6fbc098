"""Processes of one training that are killed or stand still: the others say who, and torchrun goes on to the end."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from arcwise.records import Run

SETTINGS = ("data.limit=160", "train.batch=20", "train.checkpoint_every=0", "train.silence=8")


ONE_PLACE = ("--standalone", "--nproc-per-node", "2")


def torchrun(out, *options, where=ONE_PLACE, more=(), epochs=4):
    """The command as a person types it, in two processes."""
    words = [sys.executable, "-m", "torch.distributed.run", *where, *options]
    words += ["-m", "arcwise", "train", "digits-2d", "--out", str(out), "--device", "cpu", *more]
    for setting in (*SETTINGS, f"train.epochs={epochs}"):
        words += ["--set", setting]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env)


def process_of(rank, out):
    """The process id of one of them."""
    for place in Path("/proc").glob("[0-9]*"):
        try:
            words, env = (place / "cmdline").read_bytes(), (place / "environ").read_bytes()
        except OSError:
            continue
        if (
            str(out).encode() in words
            and f"\0RANK={rank}\0".encode() in b"\0" + env
            and b"distributed.run" not in words
        ):
            return int(place.name)
    return None


def wait_for(found, seconds=60.0):
    """What is found, once it is there."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if (value := found()) is not None and value is not False:
            return value
        time.sleep(0.05)
    raise AssertionError("it did not come in time")


@pytest.fixture(scope="module")
def unharmed(tmp_path_factory):
    """How the training ends where nothing happens to it."""
    out = tmp_path_factory.mktemp("unharmed") / "run"
    said, _ = torchrun(out).communicate(timeout=120)
    return Run.open(out).result["model"], said


def newest_step(out):
    """The step of the newest whole checkpoint."""
    return max((int(place.parent.name[5:]) for place in (out / "checkpoints").glob("step-*/state.json")), default=0)


def newest_state(out):
    """What the newest whole checkpoint tells."""
    return max((out / "checkpoints").glob("step-*/state.json"))


def journal_lines(out):
    """How many lines the journal has."""
    path = out / "journal.jsonl"
    return len(path.read_text().splitlines()) if path.exists() else 0


def harmed(out, how, rank, step, delay, *options):
    """What is said and left when a process is harmed after a step."""
    training = torchrun(out, *options)
    wait_for(lambda: newest_step(out) >= step or training.poll() is not None)
    time.sleep(delay)
    victim = process_of(rank, out)
    if victim is not None:
        os.kill(victim, how)
    said, _ = training.communicate(timeout=150)
    return training.returncode, said, victim


FAULTS = [(signal.SIGKILL, 0), (signal.SIGKILL, 1), (signal.SIGSTOP, 0), (signal.SIGSTOP, 1)]


@pytest.fixture(scope="module")
def ends(unharmed, tmp_path_factory):
    """What came of each fault; torchrun waits half a minute for a process that stands still, so all at once."""
    place = tmp_path_factory.mktemp("harmed")

    def end(fault):
        out = place / f"{fault[0].name}-{fault[1]}"
        return *harmed(out, *fault, 5, 0.0, "--max-restarts", "2"), Run.open(out).result["model"]

    with ThreadPoolExecutor(len(FAULTS)) as at_once:
        return dict(zip(FAULTS, at_once.map(end, FAULTS), strict=True))


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="processes are found by /proc")
@pytest.mark.parametrize(("how", "rank"), FAULTS)
def test_a_process_that_is_gone_is_named_and_training_goes_on_to_the_same_end(how, rank, unharmed, ends):
    code, said, victim, model = ends[how, rank]
    assert code == 0, said
    what = "has ended" if how == signal.SIGKILL else "has not answered"
    assert f"process {rank} of 2 (" in said and f"process id {victim}) {what}" in said, said
    assert "going on from step" in said
    assert model == unharmed[0]
    assert said.count("arcwise: process") == 1


def test_one_process_speaks_for_all(unharmed):
    assert unharmed[1].count("Next: ") == 1 and unharmed[1].count("epoch   4") == 1


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="processes are found by /proc")
def test_a_training_goes_on_with_the_node_that_is_left(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        place = f"127.0.0.1:{free.getsockname()[1]}"
    where = ("--nnodes", "1:2", "--nproc-per-node", "1", "--rdzv-backend", "c10d", "--rdzv-endpoint", place,
             "--rdzv-conf", "last_call_timeout=4,keep_alive_interval=1,keep_alive_max_attempt=2",
             "--max-restarts", "3")  # fmt: skip
    out = tmp_path / "run"
    nodes = [torchrun(out, where=where, more=("--resume",), epochs=6)]
    time.sleep(1.0)  # the first keeps the meeting place
    nodes.append(torchrun(out, where=where, more=("--resume",), epochs=6))
    wait_for(lambda: newest_step(out) >= 3)
    assert json.loads(newest_state(out).read_text())["processes"] == 2
    nodes[1].send_signal(signal.SIGKILL)
    os.kill(process_of(1, out), signal.SIGKILL)
    said, _ = nodes[0].communicate(timeout=150)
    nodes[1].communicate(timeout=20)
    assert nodes[0].returncode == 0, said
    assert "process 1 of 2 (" in said and "going on from step" in said
    result = Run.open(out).result
    assert result["steps"] == 48 and "processes" not in result  # one ended it, and needed no group


MOMENTS = {"step": 1.5, "save": 0.0, "load": 0.0}  # of a fault; seconds between two checkpoints


@pytest.mark.slow
def test_forty_faults_at_random_moments(unharmed, tmp_path):
    random_, counted = random.Random(int(os.environ.get("HOSTILE_SEED", "0"))), dict.fromkeys(MOMENTS, 0)
    for number in range(40):
        out, moment = tmp_path / str(number), list(MOMENTS)[number % 3]
        how, rank = random_.choice((signal.SIGKILL, signal.SIGSTOP)), random_.randrange(2)
        more = ("--set", f"train.checkpoint_every={MOMENTS[moment]}", "--resume")
        step, delay = random_.randrange(1, 30), random_.random() * 0.3
        if moment == "load":
            before = torchrun(out, more=more)
            wait_for(lambda out=out, step=step: newest_step(out) >= step)
            before.send_signal(signal.SIGTERM)
            before.communicate(timeout=150)
            step, delay = 0, 0.0
        training = torchrun(out, "--max-restarts", "3", more=more)
        if moment == "load":
            wait_for(lambda out=out, rank=rank: process_of(rank, out))
            delay = random_.random() * 5.0  # importing, meeting, reading the checkpoint
        elif moment == "save":
            wait_for(lambda out=out, step=step, t=training: newest_step(out) >= step or t.poll() is not None)
        else:
            wait_for(lambda out=out, t=training: journal_lines(out) > 0 or t.poll() is not None)
        time.sleep(delay)
        victim = process_of(rank, out)
        if victim is not None and training.poll() is None:
            os.kill(victim, how)
            if (out / "result.json").exists():
                os.kill(victim, signal.SIGCONT)  # it was over, and the others may have left
            else:
                counted[moment] += 1
        said, _ = training.communicate(timeout=200)
        assert training.returncode == 0, (number, moment, how, rank, said)
        assert Run.open(out).result["model"] == unharmed[0], (number, moment, how, rank)
        shutil.rmtree(out)
        print(f"{number + 1} of 40: {how.name} of process {rank} in a {moment}; {counted}", flush=True)
