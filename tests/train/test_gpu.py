"""Training on a GPU: recorded steps trace the plain curve, wait for nothing, and hold still when numbers run away."""

import math
import warnings

import numpy as np
import pytest
import torch

from arcwise.config import Config, DataConfig, HeadConfig, ModelConfig, TrainConfig, override
from arcwise.data import load
from arcwise.errors import ArcwiseError
from arcwise.records import Run
from arcwise.train import train
from arcwise.train.loop import Trainer
from arcwise.train.setup import resolve

pytestmark = pytest.mark.gpu

SMALL = Config(
    data=DataConfig(source="synthetic:classes=6,per_class=80,side=16", shift=1, flip=True, rotate=5.0, cutout=3),
    model=ModelConfig(backbone="vgg8", dim=8, norm=True),
    head=HeadConfig(name="adaface", s=16.0),
    train=TrainConfig(epochs=10, batch=32, lr=0.05, ema=0.9, clip=5.0, journal_every=1000, amp=False),
)


def made(tmp_path, *settings):
    config = override(SMALL, settings)
    splits = load(config.data)
    return Trainer(Run(tmp_path), resolve(config, splits), splits, device=torch.device("cuda", 0))


def curve(trainer, steps):
    losses, epoch = [], 0
    while len(losses) < steps:
        trainer.enter_epoch(epoch)
        for batch in trainer.epoch_batches(epoch, 0):
            before = trainer.tally.sums[0].item()
            trainer.step(batch)
            losses.append((trainer.tally.sums[0].item() - before) / trainer.batch)
        epoch += 1
    return losses[:steps]


@pytest.fixture
def exact(monkeypatch):
    """Products in float32 and kernels that repeat themselves, so that two curves differ by what the test changes."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", False)


@pytest.mark.parametrize("head", ["adaface", "arcface", "softmax", "curricularface", "cosface:k=3"])
def test_recorded_steps_trace_the_plain_curve(tmp_path, exact, head):
    settings = [f"head.name={head}", "train.lr=0.01"]
    plain, again = (np.array(curve(made(tmp_path / n, *settings, "train.record=false"), 30)) for n in ("a", "b"))
    recorded = np.array(curve(made(tmp_path / "recorded", *settings), 30))
    assert recorded[-1] < recorded[0]
    allowed = 3 * np.abs(again - plain).max() + 1e-3 * plain[0]  # what the same steps differ by from run to run
    assert np.abs(recorded - plain).max() <= allowed


def test_a_recorded_step_waits_for_nothing(tmp_path):
    trainer = made(tmp_path)
    curve(trainer, 10)
    batches = iter(trainer.epoch_batches(5, 0))
    trainer.step(next(batches))  # the order of an epoch travels to the device with its first batch
    torch.cuda.synchronize()
    with warnings.catch_warnings(action="ignore"):  # torch calls this mode a prototype
        torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(3):
            trainer.step(next(batches))
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("optimiser", ["sgd", "adamw"])
def test_no_weight_moves_from_the_first_bad_step_on(tmp_path, optimiser):
    trainer = made(tmp_path, f"train.optimiser={optimiser}", "train.record=false")
    curve(trainer, 5)
    trainer.model.neck.fc.weight.register_hook(lambda g: g * math.nan)
    before = [p.detach().clone() for p in trainer.parameters]
    batches = iter(trainer.epoch_batches(3, 0))
    first = trainer.progress.step + 1
    for _ in range(4):
        trainer.step(next(batches))
    assert all(torch.equal(p, q) for p, q in zip(trainer.parameters, before, strict=True))
    assert trainer.guard.failed_at() == first
    with pytest.raises(ArcwiseError, match=rf"stopped at step {first}: the gradient of neck\.fc\.weight"):
        trainer.close_group()


def test_a_whole_run_trains_resumes_and_evaluates(tmp_path):
    config = override(SMALL, ["train.amp=true", "train.margin_warmup=2", "head.name=arcface"])
    run = train(config, tmp_path / "run", device="cuda")
    assert run.result["test"]["accuracy"] > 0.8
    (run.path / "result.json").unlink()
    again = train(config, run.path, resume=True, device="cuda")
    assert again.result["test"]["accuracy"] == pytest.approx(run.journal("finished")[-1]["accuracy"], abs=0.02)


def test_streamed_and_resident_batches_are_the_same_on_the_device():
    from arcwise.data import Loader
    from arcwise.data.samplers import epoch_order

    images = load(SMALL.data).train
    rows = epoch_order(images.y, "shuffled", batch=16, seed=0)
    options = {"mean": (0.5,), "std": (0.2,), "config": SMALL.data, "device": "cuda"}
    for one, two in zip(
        Loader(images, **options).training(rows, seed=0),
        Loader(images, resident=0, **options).training(rows, seed=0),
        strict=True,
    ):
        assert torch.equal(one.x, two.x) and torch.equal(one.y, two.y)
