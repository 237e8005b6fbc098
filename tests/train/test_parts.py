"""The schedules, the journal and its TensorBoard file."""

import itertools
import math
import struct

import pytest
import torch

from arcwise.config import SCHEDULES, TrainConfig
from arcwise.heads import Head, LinearHead
from arcwise.records import Run
from arcwise.train.checkpoint import TrainingState
from arcwise.train.journal import Journal, masked, stays
from arcwise.train.schedule import rate
from arcwise.train.tally import Tally


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_schedules_warm_up_to_one_and_never_rise_after_it(schedule):
    end = 0.0 if schedule == "constant" else 0.1
    config = TrainConfig(epochs=10, schedule=schedule, warmup=2.0, power=2.0, final_lr=end)
    values = [rate(i / 10, config) for i in range(101)]
    assert values[0] == 0 and values[10] == pytest.approx(0.5) and values[20] == pytest.approx(1.0)
    assert all(b <= a + 1e-12 for a, b in itertools.pairwise(values[20:]))
    assert values[-1] == pytest.approx(1.0 if schedule == "constant" else 0.1)


def test_schedules_by_hand():
    assert rate(6.0, TrainConfig(epochs=10, schedule="polynomial", warmup=2.0, power=2.0)) == pytest.approx(0.25)
    assert rate(1.25, TrainConfig(epochs=10)) == pytest.approx(0.5)  # one-cycle peaks at a quarter
    assert rate(6.25, TrainConfig(epochs=10)) == pytest.approx(0.5)


@pytest.mark.parametrize("head", [Head(2, 3, s=4.0), LinearHead(2, 3)])
def test_the_journals_means_are_of_all_images_and_a_tie_is_not_a_correct_answer(head):
    # Centres at 0, 0 and 90 degrees. Own angles 0, 90, 0, 30 degrees; other angles 0, 0, 90, 60.
    head.weight.data = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    x = torch.tensor([[2.0, 0.0], [3.0, 0.0], [0.0, 1.0], [0.5, 0.75**0.5]])
    y = torch.tensor([0, 2, 2, 2])
    tally = Tally([0.0] * 5, torch.device("cpu"))
    for some in (slice(0, 1), slice(1, 4)):
        tally.add(head, head.losses(x[some], y[some]), x[some], y[some])
    found = tally.means()
    assert found["accuracy"] == 2 / 4
    assert found["angle_own"] == pytest.approx(math.radians((0 + 90 + 0 + 30) / 4), abs=1e-3)
    assert found["angle_other"] == pytest.approx(math.radians((0 + 0 + 90 + 60) / 4), abs=1e-3)
    assert found["loss"] == pytest.approx(head(x, y).item(), rel=1e-5)
    tally.clear()
    assert tally.means() == {}


def test_the_journal_takes_back_what_came_after_the_checkpoint(tmp_path):
    run = Run.create(tmp_path, {})
    journal = Journal(run, TrainingState())
    for step in (1, 2, 3):
        journal.write("steps", step=step, loss=1.0 / step)
    Journal(run, TrainingState(step=2)).write("steps", step=3, loss=float("nan"))
    assert [(entry["step"], entry["loss"]) for entry in run.journal()] == [(1, 1.0), (2, 0.5), (3, None)]


def test_a_line_without_a_step_stays():
    assert stays({"kind": "note"}, TrainingState()) and stays({"kind": "note"}, TrainingState(step=5))


def test_tensorboard_files_are_records_of_events(tmp_path):
    run = Run.create(tmp_path, {})
    journal = Journal(run, TrainingState(), tensorboard=True)
    journal.write("steps", step=300, loss=0.25)
    content = next((tmp_path / "tensorboard").iterdir()).read_bytes()
    events = []
    while content:
        (length,) = struct.unpack("<Q", content[:8])
        data = content[12 : 12 + length]
        assert content[8:12] == masked(content[:8]) and content[12 + length : 16 + length] == masked(data)
        events.append(data)
        content = content[16 + length :]
    assert b"brain.Event:2" in events[0]
    assert b"steps/loss" in events[1] and struct.pack("<f", 0.25) in events[1] and b"\x10\xac\x02" in events[1]
