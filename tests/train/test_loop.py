"""Training: exact to resume, right in its averages, and stopped with a reason when numbers run away."""

import dataclasses
import math
import os
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from arcwise.config import Config, DataConfig, HeadConfig, ModelConfig, TrainConfig, override
from arcwise.data import load
from arcwise.data.sources import splits_from
from arcwise.embed import embed
from arcwise.errors import ArcwiseError, Note
from arcwise.heads import Head, LinearHead
from arcwise.margins import MARGINS
from arcwise.measure import measure
from arcwise.model import Embedder
from arcwise.recipes import recipe
from arcwise.records import Run
from arcwise.train import loop, train
from arcwise.train.checkpoint import TrainingState, checkpoints_of, save_checkpoint
from arcwise.train.loop import Trainer
from arcwise.train.optim import prototypes_inside
from arcwise.train.setup import resolve

SMALL = Config(
    data=DataConfig(source="synthetic:classes=6,per_class=20,side=8", shift=1, flip=True),
    model=ModelConfig(backbone="simple_cnn", dim=3, dropout=0.2),
    head=HeadConfig(name="arcface", m=0.3, s=8.0),
    train=TrainConfig(epochs=3, batch=16, optimiser="adamw", lr=3e-3, ema=0.9, journal_every=4, checkpoint_every=0.0),
)


def small(*settings):
    return override(SMALL, settings)


def made(config, tmp_path, **options):
    splits = load(config.data)
    config = resolve(config, splits)
    return Trainer(Run(tmp_path), config, splits, device=torch.device("cpu"), **options)


def last_checkpoint(run):
    return load_file(checkpoints_of(run)[-1])


def told(run):
    return [
        {key: entry.get(key) for key in ("kind", "step", "loss", "accuracy", "angle_own")} for entry in run.journal()
    ]


def same_tensors(one, two):
    return one.keys() == two.keys() and all(torch.equal(value, two[name]) for name, value in one.items())


# ------------------------------------------------------------------------------------- a whole run


def test_a_run_holds_all_it_should(tmp_path):
    run = train(small("train.snapshots=true", "data.unseen=5", "data.validation=0.2"), tmp_path / "run", device="cpu")
    there = {path.name for path in run.path.iterdir()}
    assert {"config.json", "journal.jsonl", "checkpoints", "model.safetensors", "result.json", "embeddings",
            "figures"} <= there  # fmt: skip
    about = run.about
    assert about["format"] == 1 and about["seed"] == 0 and "torch" in about["versions"] and "commit" in about
    assert run.settings.head.s == 8.0 and run.head.label == "ArcFace m=0.3 s=8"
    assert run.result["validation"]["accuracy"] > 0.5 and run.result["epochs"] == 3
    names = {path.stem for path in (run.path / "embeddings").iterdir()}
    assert {"test", "validation", "unseen", "train-epoch-000", "test-epoch-003", "validation-epoch-001"} <= names
    found = run.embeddings("test")
    assert found.names == tuple("01234") and len(set(found.keys)) == len(found)
    assert run.prototypes().w.shape == run.prototypes(3).w.shape == (5, 3)
    assert not np.array_equal(run.prototypes(0).w, run.prototypes(3).w)
    assert run.prototypes().model == found.model == Embedder.load(run.path).fingerprint == run.result["model"]
    assert run.embeddings("test-epoch-003").model == found.model != run.embeddings("test-epoch-002").model
    model = Embedder.load(run.path)
    assert model.names == tuple("01234") and model.dim == 3
    kinds = [entry["kind"] for entry in run.journal()]
    assert kinds.count("evaluation") == 3 and kinds[-1] == "finished"
    line = run.journal("steps")[-1]
    assert {"loss", "accuracy", "angle_own", "angle_other", "images_per_second", "lr", "gradient"} <= line.keys()


def test_the_same_seed_gives_the_same_weights_and_another_seed_others(tmp_path):
    runs = [
        train(dataclasses.replace(SMALL, seed=seed), tmp_path / f"{i}", device="cpu")
        for i, seed in enumerate((1, 1, 2))
    ]
    one, two, three = (load_file(run.model) for run in runs)
    assert same_tensors(one, two) and not same_tensors(one, three)


def test_every_head_meets_the_same_network_and_the_same_order(tmp_path):
    trainers = [made(small(f"head.name={name}"), tmp_path / name) for name in ("arcface", "softmax-bias", "cosface")]
    first = trainers[0].model.state_dict()
    for trainer in trainers[1:]:
        assert same_tensors(first, trainer.model.state_dict())
        for one, two in zip(trainers[0].epoch_batches(1, 0), trainer.epoch_batches(1, 0), strict=True):
            assert torch.equal(one.x, two.x)


def test_the_same_image_is_changed_otherwise_in_the_next_epoch(tmp_path):
    one = np.random.default_rng(0).integers(0, 256, (1, 8, 8), dtype=np.uint8)
    splits = splits_from((one.repeat(60, axis=0), np.arange(60) % 3), SMALL.data)  # all alike: order cannot be seen
    trainer = Trainer(Run(tmp_path), resolve(SMALL, splits), splits, device=torch.device("cpu"))
    first, again, second = (list(trainer.epoch_batches(epoch, 0)) for epoch in (0, 0, 1))
    for one, same, other in zip(first, again, second, strict=True):
        assert torch.equal(one.x, same.x) and not torch.equal(one.x, other.x)
    assert not torch.equal(first[0].x, first[1].x)


def test_training_leaves_the_callers_random_numbers_alone(tmp_path):
    before = torch.get_rng_state()
    train(small("train.epochs=1"), tmp_path / "run", device="cpu")
    assert torch.equal(before, torch.get_rng_state())


# ------------------------------------------------------------------------------------- exact resume


@pytest.mark.parametrize("head", ["elastic-arcface", "adaface", "softmax", "arcface inside"])
def test_a_run_stopped_anywhere_ends_in_the_same_bits(tmp_path, head):
    name, _, inside = head.partition(" ")
    settings = [f"head.name={name}", "train.sampling=balanced", "head.inside=true" if inside else "train.clip=1"]
    whole = train(small(*settings), tmp_path / "whole", device="cpu")
    steps = whole.result["steps"]

    class StopError(Exception):
        pass

    for stop_at in (1, 7, steps // 3, steps - 1):  # within a group of the journal, at an epoch's end, before the last
        original = Trainer.step

        def step(self, batch, stop_at=stop_at, original=original):
            if self.progress.step == stop_at:
                raise StopError
            original(self, batch)

        Trainer.step = step
        try:
            with pytest.raises(StopError):
                train(small(*settings), tmp_path / f"{stop_at}", device="cpu", resume=True)
        finally:
            Trainer.step = original
        torch.rand(stop_at)  # another process would have other random numbers
        again = train(small(*settings), tmp_path / f"{stop_at}", device="cpu", resume=True)
        assert same_tensors(last_checkpoint(whole), last_checkpoint(again)), stop_at
        assert same_tensors(load_file(whole.model), load_file(again.model))
        assert told(whole) == told(again)


def test_a_clock_that_is_set_back_takes_no_seconds_away(tmp_path, monkeypatch):
    real, calls = time.monotonic, iter(range(10**9))
    monkeypatch.setattr(time, "monotonic", lambda: real() - 60.0 * next(calls))
    run = train(small(), tmp_path / "run", device="cpu")
    monkeypatch.undo()
    seconds = [entry["seconds"] for entry in run.journal("steps")]
    assert run.result["seconds"] >= 0.0 and seconds == sorted(seconds)


def spawn(out, epochs, every=0):
    command = [sys.executable, "-m", "arcwise", "train", "digits-2d", "--out", str(out), "--resume", "--device", "cpu"]
    for setting in (f"train.epochs={epochs}", f"train.checkpoint_every={every}", "train.ema=0.9"):
        command += ["--set", setting]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for(condition, seconds=120.0):
    for _ in range(int(seconds / 0.01)):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("it did not happen")


def newest(out):
    return max((path.name for path in (out / "checkpoints").glob("step-*")), default="")


def killed_and_resumed(out, kills, epochs):
    """The run in `out`, killed so many times, each time at a moment of chance after some progress."""
    random, killed = np.random.default_rng(0), 0
    while killed < kills:
        child, before = spawn(out, epochs), newest(out)
        wait_for(lambda child=child, before=before: newest(out) > before or child.poll() is not None)
        time.sleep(random.uniform(0.0, 0.15))
        child.send_signal(signal.SIGKILL)
        child.communicate()
        assert child.returncode == -signal.SIGKILL, "it was over before it could be killed"
        killed += 1
    child = spawn(out, epochs)
    _, said = child.communicate()
    assert child.returncode == 0, said
    return Run.open(out)


def compare_with_unkilled(tmp_path, kills, epochs):
    run = killed_and_resumed(tmp_path / "killed", kills, epochs)
    child = spawn(tmp_path / "whole", epochs)
    child.communicate()
    whole = Run.open(tmp_path / "whole")
    assert same_tensors(last_checkpoint(whole), last_checkpoint(run))
    assert same_tensors(load_file(whole.model), load_file(run.model))
    assert told(whole) == told(run)


def test_a_killed_run_ends_in_the_same_bits(tmp_path):
    compare_with_unkilled(tmp_path, kills=2, epochs=6)


@pytest.mark.slow
def test_a_run_killed_thirty_times_ends_in_the_same_bits(tmp_path):
    compare_with_unkilled(tmp_path, kills=30, epochs=60)


@pytest.fixture
def one_thread():
    """With more of them sums are rounded in another order, and at large steps a ReLU turns that into 1 %."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("optimiser", ["adamw", "sgd"])
def test_prototypes_that_step_inside_are_those_that_step_apart(tmp_path, optimiser, one_thread):
    runs = []
    for inside in ("false", "true"):
        settings = [f"train.optimiser={optimiser}", f"head.inside={inside}", "head.engine=chunked", "model.dropout=0",
                    "train.head_lr=3", "train.weight_decay=0.5"]  # fmt: skip
        runs.append(train(small(*settings), tmp_path / inside, device="cpu"))
    apart, within = (last_checkpoint(run) for run in runs)
    weights = [key for key in apart if key.endswith("weight") and not key.startswith("optimiser.")]
    assert any(key.endswith("head.weight") for key in weights)
    assert all(torch.allclose(apart[key], within[key], rtol=1e-3, atol=1e-4) for key in weights)
    assert any(key.startswith("prototypes.") for key in within)


@pytest.mark.parametrize("setting", ["train.clip=1", "train.accumulate=2", "head.name=softmax"])
def test_prototypes_that_step_inside_go_without_clipping_and_accumulation(tmp_path, setting):
    config = small("head.inside=true")
    with pytest.raises(ArcwiseError, match=r"neither clipped nor|head\.inside"):
        train(override(config, [setting, "head.inside=true"]), tmp_path / "run", device="cpu")


@pytest.mark.parametrize(("engine", "says"), [("eager", 'not "eager"'), ("triton", "cannot run here")])
def test_an_engine_that_cannot_run_is_refused_before_the_folder_is_taken(tmp_path, monkeypatch, engine, says):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    with pytest.raises(ArcwiseError, match=says):
        train(small("head.inside=true", f"head.engine={engine}"), tmp_path / "run", device="cpu")
    assert not Run(tmp_path / "run").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_says_how_to_go_on(tmp_path, number):
    out = tmp_path / "run"
    child = spawn(out, epochs=400, every=1000)
    wait_for(lambda: (out / "journal.jsonl").exists() and (out / "journal.jsonl").stat().st_size > 0)
    child.send_signal(number)
    _, said = child.communicate(timeout=60)
    assert child.returncode == 128 + number
    assert "stopped and saved at step" in said and f"Go on with: arcwise train digits-2d --out {out} --resume" in said
    assert newest(out) and "Traceback" not in said
    assert load_file(checkpoints_of(Run.open(out))[-1])


def test_a_second_process_in_the_same_run_is_refused(tmp_path):
    out = tmp_path / "run"
    child = spawn(out, epochs=400)
    wait_for(lambda: newest(out))
    second = spawn(out, epochs=400)
    _, said = second.communicate()
    child.kill()
    child.communicate()
    assert second.returncode == 1 and "another process" in said and "Traceback" not in said


def test_a_finished_run_resumed_is_left_alone_and_without_resume_refused(tmp_path):
    run = train(small("train.epochs=1"), tmp_path / "run", device="cpu")
    before = {path: path.stat().st_mtime_ns for path in run.path.rglob("*")}
    train(small("train.epochs=1"), run.path, resume=True, device="cpu")
    assert before == {path: path.stat().st_mtime_ns for path in run.path.rglob("*")}
    with pytest.raises(ArcwiseError, match="Add --resume"):
        train(small("train.epochs=1"), run.path, device="cpu")


def test_resuming_with_other_settings_names_them(tmp_path):
    train(small("train.epochs=1"), tmp_path / "run", device="cpu")
    with pytest.raises(ArcwiseError, match=r"train\.lr was 0\.003, now 0\.1"):
        train(small("train.epochs=1", "train.lr=0.1"), tmp_path / "run", resume=True, device="cpu")


def test_a_damaged_checkpoint_gives_way_to_the_one_before(tmp_path):
    whole = train(SMALL, tmp_path / "whole", device="cpu")
    run = train(SMALL, tmp_path / "run", device="cpu")
    (run.path / "result.json").unlink()
    checkpoints_of(run)[-1].write_bytes(b"cut off")
    with pytest.warns(Note, match="the checkpoint before it is taken"):
        again = train(SMALL, run.path, resume=True, device="cpu")
    assert same_tensors(last_checkpoint(whole), last_checkpoint(again))


def test_checkpoints_that_are_all_damaged_are_set_aside_with_a_word(tmp_path):
    run = train(SMALL, tmp_path / "run", device="cpu")
    (run.path / "result.json").unlink()
    for path in checkpoints_of(run):
        path.write_bytes(b"cut off")
    with pytest.raises(ArcwiseError, match=r"now called \.damaged.*Say it again"):
        train(SMALL, run.path, resume=True, device="cpu")
    again = train(SMALL, run.path, resume=True, device="cpu")
    assert same_tensors(last_checkpoint(train(SMALL, tmp_path / "whole", device="cpu")), last_checkpoint(again))


def test_a_disk_that_fills_up_loses_nothing(tmp_path, monkeypatch):
    out = tmp_path / "run"
    real, count = os.fsync, {"left": 12}

    def fsync(descriptor):
        count["left"] -= 1
        if count["left"] < 0:
            raise OSError(28, "No space left on device")
        real(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fsync)
        with pytest.raises(ArcwiseError, match="the disk is full"):
            train(SMALL, out, device="cpu")
    assert checkpoints_of(Run.open(out)) and not list(out.rglob("*.part"))
    again, whole = train(SMALL, out, resume=True, device="cpu"), train(SMALL, tmp_path / "whole", device="cpu")
    assert same_tensors(last_checkpoint(whole), last_checkpoint(again))


def test_a_folder_that_cannot_be_written_says_so(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ArcwiseError, match="is a file: choose another --out"):
        train(SMALL, tmp_path / "file" / "run", device="cpu")


# ------------------------------------------------------------------------------------- the step itself


def test_parts_of_a_batch_have_the_gradient_of_the_whole(tmp_path):
    plain = ("model.dropout=0",)
    whole, parts = made(small(*plain), tmp_path / "a"), made(small(*plain, "train.accumulate=4"), tmp_path / "b")
    for trainer in (whole, parts):
        trainer.both.eval()  # batch norms would see the parts, not the whole
    batch = next(iter(whole.epoch_batches(0, 0)))
    one, two = (trainer.backward(batch.x, batch.y) for trainer in (whole, parts))
    assert torch.allclose(one[0], two[0]) and torch.allclose(one[1], two[1], rtol=1e-4)
    for p, q in zip(whole.parameters, parts.parameters, strict=True):
        assert torch.allclose(p.grad, q.grad, rtol=1e-3, atol=1e-6)


def test_the_loop_does_what_the_plain_loop_does(tmp_path):
    """An epoch against the textbook loop: same data, torch's own optimiser, the same head."""
    config = small("model.dropout=0", "train.optimiser=sgd", "train.lr=0.05", "train.ema=0", "train.weight_decay=0.01")
    trainer, plain = made(config, tmp_path / "a"), made(config, tmp_path / "b")
    weights = [p for p in (*plain.model.parameters(), *plain.head.parameters()) if p.ndim > 1]
    others = [p for p in (*plain.model.parameters(), *plain.head.parameters()) if p.ndim <= 1]
    sgd = torch.optim.SGD(
        [{"params": weights, "weight_decay": 0.01}, {"params": others}], lr=0.05, momentum=0.9, nesterov=True
    )
    trainer.enter_epoch(0)
    plain.both.train()
    for step, batch in enumerate(trainer.epoch_batches(0, 0), start=1):
        trainer.step(batch)
        done = step / trainer.steps
        peak = config.train.epochs / 4
        for group in sgd.param_groups:
            group["lr"] = 0.05 * (done / peak if done < peak else 1 - (done - peak) / (config.train.epochs - peak))
        sgd.zero_grad()
        plain.head(plain.model(batch.x), batch.y).backward()
        sgd.step()
    assert trainer.progress.step == trainer.steps == 6  # 6 classes of 20, less a fifth for the test, in batches of 16
    for p, q in zip(trainer.both.state_dict().values(), plain.both.state_dict().values(), strict=True):
        assert torch.allclose(p.float(), q.float(), rtol=1e-4, atol=1e-5)


STRAIGHT = ("train.optimiser=sgd", "train.momentum=0", "train.weight_decay=0", "train.schedule=constant",
            "train.ema=0", "train.lr=0.5")  # w <- w - 0.5 g  # fmt: skip


def stepped(trainer):
    """How far each parameter moved in the first step, beside its gradient: (owner, moved, gradient)."""
    trainer.enter_epoch(0)
    before = {name: p.detach().clone() for name, p in trainer.both.named_parameters()}
    gradient = {}
    for name, p in trainer.both.named_parameters():
        p.register_hook(lambda g, name=name: gradient.__setitem__(name, g.clone()))  # as it is before any clipping
    trainer.step(next(iter(trainer.epoch_batches(0, 0))))
    after = dict(trainer.both.named_parameters())
    return [(name, after[name].detach() - before[name], gradient[name]) for name in before]


def whole_length(tensors):
    return math.sqrt(sum(float(t.double().square().sum()) for t in tensors))


def test_clipping_bounds_the_length_of_a_step(tmp_path):
    _, moved, gradient = zip(*stepped(made(small(*STRAIGHT, "train.clip=0.01"), tmp_path)), strict=True)
    assert whole_length(gradient) > 0.1
    assert whole_length(moved) == pytest.approx(0.5 * 0.01, rel=1e-3)


def test_clipping_leaves_a_gradient_alone_that_is_short_enough(tmp_path):
    for _, moved, gradient in stepped(made(small(*STRAIGHT, "train.clip=1000"), tmp_path)):
        assert torch.allclose(moved, -0.5 * gradient, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("head", ["arcface", "softmax-bias"])
def test_each_owner_moves_at_its_share_of_the_learning_rate(tmp_path, head):
    settings = (f"head.name={head}", "train.backbone_lr=0.1", "train.head_lr=3")
    share = {"embedder.backbone": 0.1, "embedder.neck": 1.0, "head": 3.0}
    seen = set()
    for name, moved, gradient in stepped(made(small(*STRAIGHT, *settings), tmp_path)):
        (owner,) = (owner for owner in share if name.startswith(f"{owner}."))
        assert whole_length([gradient]) > 0
        assert torch.allclose(moved, -0.5 * share[owner] * gradient, rtol=1e-4, atol=1e-6), name
        seen.add(owner)
    assert seen == set(share)


def test_weight_decay_spares_norms_and_biases(tmp_path):
    trainer = made(small(), tmp_path)
    for group in trainer.optimiser.param_groups:
        assert {p.ndim > 1 for p in group["params"]} == {group["weight_decay"] > 0}
    held = [p for group in trainer.optimiser.param_groups for p in group["params"]]
    assert {id(p) for p in held} == {id(p) for p in trainer.both.parameters()} and len(held) == len(set(map(id, held)))


@pytest.mark.parametrize(
    ("settings", "theirs", "options"),
    [
        ({"optimiser": "sgd", "momentum": 0.8}, torch.optim.SGD, {"momentum": 0.8, "nesterov": True}),
        ({"optimiser": "adamw"}, torch.optim.AdamW, {}),
    ],
)
def test_prototypes_inside_have_the_rate_momentum_and_decay_of_those_apart(settings, theirs, options):
    config = TrainConfig(lr=0.1, head_lr=3.0, weight_decay=0.2, **settings)
    heads = [Head(3, 6, s=8.0, engine="chunked") for _ in range(2)]
    heads[1].load_state_dict(heads[0].state_dict())
    inside, apart = prototypes_inside(heads[0], config), theirs(heads[1].parameters(), 0.3, weight_decay=0.2, **options)
    for optimiser, head in zip((inside, apart), heads, strict=True):
        torch.manual_seed(1)
        for _ in range(4):
            optimiser.zero_grad()
            head(torch.randn(8, 3), torch.arange(8) % 6).backward()
            optimiser.step()
    assert torch.allclose(heads[0].weight, heads[1].weight, rtol=1e-4, atol=1e-5)


def test_the_average_is_the_average(tmp_path):
    trainer = made(small("train.ema=0.5"), tmp_path)
    trainer.enter_epoch(0)
    expected = trainer.head.weight.detach().clone()
    for step, batch in enumerate(trainer.epoch_batches(0, 0), start=1):
        trainer.step(batch)
        decay = min(0.5, (1 + step) / (10 + step))
        expected = decay * expected + (1 - decay) * trainer.head.weight.detach()
    assert torch.allclose(trainer.final["head"].weight, expected, atol=1e-6)


def test_the_margin_warms_up_from_normface(tmp_path):
    trainer = made(small("train.margin_warmup=2", "model.dropout=0"), tmp_path)
    x, y = torch.randn(8, 3), torch.arange(8) % 6
    full = trainer.head(x, y)
    trainer.head.set_strength(0.0)
    none = trainer.head(x, y)
    cos = trainer.head.logits(x)
    assert torch.allclose(none, torch.nn.functional.cross_entropy(cos, y), atol=1e-5) and full > none
    for step, strength in ((1, 1 / 12), (6, 0.5), (12, 1.0), (13, 1.0)):  # two epochs of six steps
        trainer.pace.set(step)
        assert trainer.head.strength == pytest.approx(strength)
        assert trainer.final["head"].strength == pytest.approx(strength)  # the average is judged under the same
    assert trainer.final["head"] is not trainer.head


def test_the_journal_tells_the_learning_rate_and_the_margin_of_its_step(tmp_path):
    run = train(small("train.margin_warmup=2", "train.head_lr=3"), tmp_path / "run", device="cpu")
    lines = run.journal("steps")
    assert [line["step"] for line in lines] == [4, 8, 12, 16, 18]
    for line in lines:
        done = line["step"] / 6  # epochs, of three; one-cycle peaks at a quarter of them
        share = done / 0.75 if done < 0.75 else (3 - done) / 2.25
        assert line["epoch"] == pytest.approx(done, rel=1e-5)
        assert line["lr"] == pytest.approx(3e-3 * share, rel=1e-5, abs=1e-12)
        assert line["margin"] == pytest.approx(min(1.0, done / 2), rel=1e-5)


@pytest.mark.parametrize("sampling", ["balanced", "m-per-class"])
def test_samplings_train(tmp_path, sampling):
    run = train(
        small(f"train.sampling={sampling}", "train.per_class=4", "train.epochs=6"), tmp_path / "run", device="cpu"
    )
    assert run.result["test"]["accuracy"] > 0.4


def test_an_epoch_visits_images_as_its_sampling_says(tmp_path):
    def labels(*settings):
        trainer = made(small("data.imbalance=4", *settings), tmp_path)
        return [torch.bincount(batch.y, minlength=6) for batch in trainer.epoch_batches(0, 0)], trainer.splits.train

    shuffled, images = labels()
    assert images.counts.max() == 4 * images.counts.min()
    assert (sum(shuffled).numpy() <= images.counts).all()  # no image comes twice
    balanced, _ = labels("train.sampling=balanced")
    assert sum(balanced).max() - sum(balanced).min() <= 1
    groups, _ = labels("train.sampling=m-per-class", "train.per_class=4")
    assert len(groups) > 1 and all(sorted(found.tolist()) == [0, 0, 4, 4, 4, 4] for found in groups)
    pairs, _ = labels("train.sampling=m-per-class", "train.per_class=8")
    assert all(sorted(found.tolist()) == [0, 0, 0, 0, 8, 8] for found in pairs)


def test_early_stopping_keeps_the_best_model(tmp_path):
    config = small("data.validation=0.3", "train.patience=2", "train.epochs=40", "train.lr=0.02")
    run = train(config, tmp_path / "run", device="cpu")
    found = [entry["accuracy"] for entry in run.journal("evaluation")]
    assert run.result["epochs"] == len(found) < 40
    assert run.result["validation"]["accuracy"] == pytest.approx(max(found), abs=1e-6)
    assert len(found) - 1 - int(np.argmax(found)) == 2
    with pytest.raises(ArcwiseError, match=r"data\.validation=0\.1"):
        train(small("train.patience=2"), tmp_path / "other", device="cpu")


def scripted(monkeypatch, accuracies):
    """Lets the validation accuracy of each epoch be this, whatever the network does."""
    each = iter(accuracies)
    told = {"loss": 1.0, "angle_own": 1.0, "angle_other": 1.0}
    monkeypatch.setattr(loop, "judge", lambda *_: {"accuracy": next(each), **told})


def best_weights(run, epoch):
    """What was kept of an epoch, and what the finished model holds: both by the names of the network."""
    kept = load_file(run.path / "checkpoints" / f"best-{epoch:04d}.safetensors")
    return {name.removeprefix("embedder."): v for name, v in kept.items() if name.startswith("embedder.")}


PATIENT = ("data.validation=0.3", "train.epochs=12", "train.ema=0")


def test_an_equal_accuracy_is_no_better_one(tmp_path, monkeypatch):
    scripted(monkeypatch, [0.25, *[0.5] * 11])
    run = train(small(*PATIENT, "train.patience=3"), tmp_path / "run", device="cpu")
    assert run.result["epochs"] == 5  # the best was the second, and three more were no better
    assert same_tensors(best_weights(run, 2), load_file(run.model))


def test_a_resumed_run_knows_its_best_epoch(tmp_path, monkeypatch):
    scripted(monkeypatch, [0.5, 0.875, 0.625, *[0.75] * 9])
    config = small(*PATIENT, "train.patience=3")

    class StopError(Exception):
        pass

    with monkeypatch.context() as patch:
        original = Trainer.step

        def step(self, batch):
            if self.progress.step == 3 * self.steps + 1:
                raise StopError
            original(self, batch)

        patch.setattr(Trainer, "step", step)
        with pytest.raises(StopError):
            train(config, tmp_path / "run", device="cpu")
    run = train(config, tmp_path / "run", device="cpu", resume=True)
    assert run.result["epochs"] == 5
    assert same_tensors(best_weights(run, 2), load_file(run.model))


def test_a_checkpoint_brings_back_all_of_its_progress(tmp_path):
    state = TrainingState(step=7, seconds=1.5, best=0.75, best_epoch=3, within=[1.0, 2.0, 3.0, 4.0, 5.0], stopped=True)
    assert all(value != getattr(TrainingState(), name) for name, value in vars(state).items())
    trainer = made(small(), tmp_path)
    with trainer.saver as saver:
        save_checkpoint(trainer.run, state, trainer.modules, trainer.optimisers, trainer.device, saver=saver)
    assert made(small(), tmp_path).progress == state


def test_a_step_is_recorded_anew_when_the_backbone_begins_to_move(tmp_path, monkeypatch):
    begun, trainer = [], made(small("train.record=true"), tmp_path)
    batch = next(iter(trainer.epoch_batches(0, 0)))

    class Played:
        def __init__(self, work, before):
            begun.append(trainer.progress.step)
            self.work = work

        def __call__(self, x, y):
            return self.work(x, y)

    monkeypatch.setattr(loop, "Recording", Played)
    trainer.config = override(trainer.config, ["train.frozen_epochs=1"])
    trainer.device, trainer.backward = SimpleNamespace(type="cuda"), lambda x, y: (x.sum(), x.sum())
    for step in range(2 * trainer.steps):
        trainer.progress.step = step
        trainer.forward_and_backward(batch)
    assert begun == [0, trainer.steps]


def test_the_seconds_until_a_checkpoint_are_kept_and_gone_on_from(tmp_path, monkeypatch):
    clock = [1000.0]
    monkeypatch.setattr(loop.time, "monotonic", lambda: clock[0])
    config = small("train.journal_every=1000", "train.epochs=2", "train.ema=0")
    for stop_at, seconds in ((3, 30.0), (5, 50.0)):  # ten seconds a step, and an hour between two sittings
        with monkeypatch.context() as patch:
            original = Trainer.step

            def step(self, batch, stop_at=stop_at, original=original):
                if self.progress.step == stop_at:
                    raise KeyError
                clock[0] += 10.0
                original(self, batch)

            patch.setattr(Trainer, "step", step)
            with pytest.raises(KeyError):
                train(config, tmp_path / "run", device="cpu", resume=True)
        assert made(config, tmp_path / "run").progress.seconds == seconds
        clock[0] += 3600.0


@pytest.mark.parametrize("channels", [1, 3])
def test_colour_images_are_mirrored_and_grey_ones_are_not_where_nothing_was_said(channels):
    pixels = np.zeros((8, 4, 4, channels), np.uint8)
    splits = splits_from((pixels, np.arange(8) % 2), DataConfig(flip=None))
    resolved = resolve(dataclasses.replace(SMALL, data=DataConfig(source="given", flip=None)), splits)
    assert resolved.data.flip is (channels == 3)


def test_the_mirror_image_counts_in_the_final_numbers(tmp_path):
    run = train(small("train.mirror=true", "train.epochs=1"), tmp_path / "run", device="cpu")
    images, model = load(SMALL.data).test, Embedder.load(run.path).eval()
    look = model.preprocessing
    x = (torch.from_numpy(images.pixels).permute(0, 3, 1, 2) / 255 - look.mean[0]) / look.std[0]
    with torch.no_grad():
        both = model(x) + model(x.flip(3))
    found = run.embeddings("test").x
    assert run.embeddings("test").model == f"mirror:{model.fingerprint}" and measure(run)["measured"]["accuracy"] > 0
    assert np.allclose(found, both.numpy(), atol=1e-4) and not np.allclose(found, model.encode(images.pixels), atol=0.1)
    cos = torch.nn.functional.normalize(both) @ torch.nn.functional.normalize(torch.from_numpy(run.prototypes().w)).T
    own = cos[torch.arange(len(both)), torch.from_numpy(images.y)].clamp(-1, 1).arccos().mean()
    assert run.result["test"]["angle_own"] == pytest.approx(float(own), abs=1e-3)
    assert run.journal("evaluation")[-1]["angle_own"] == pytest.approx(float(own), abs=1e-3)


def test_snapshots_are_of_every_epoch_and_patience_counts_evaluations(tmp_path):
    settings = (
        "train.snapshots=true",
        "train.evaluate_every=2",
        "train.epochs=4",
        "data.validation=0.3",
        "train.patience=2",
    )
    run = train(small(*settings), tmp_path / "run", device="cpu")
    assert len(run.journal("evaluation")) >= 2
    epochs = run.result["epochs"]
    assert len(list((run.path / "embeddings").glob("train-epoch-*"))) == epochs + 1


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (("train.frozen_epochs=1",), "add --init MODEL"),
        (("train.batch_norm=frozen",), "add --init MODEL"),
        (("head.name=curricularface", "train.margin_warmup=1"), "changes more: set it to 0"),
        (("head.name=magface", "train.margin_warmup=1"), "changes more: set it to 0"),
        (("head.name=softmax", "head.m=0.3"), "no scale, margin, engine or gradient"),
        (("head.name=softmax", "head.engine=chunked"), "no scale, margin, engine or gradient"),
        (("head.name=arcface:m=0.3", "head.m=0.2"), "both set m"),
    ],
)
def test_settings_that_would_be_ignored_are_refused(tmp_path, settings, says):
    with pytest.raises(ArcwiseError, match=says):
        train(small(*settings), tmp_path / "run", device="cpu")


def test_a_margin_s_own_parameters_leave_the_scale_alone(tmp_path):
    assert made(small("head.name=elastic-arcface:plus=true"), tmp_path / "a").head.s == 8.0
    assert made(small("head.name=elastic-arcface:s=12"), tmp_path / "b").head.s == 12.0


# ------------------------------------------------------------------------------------- out of bounds


def test_a_learning_rate_that_runs_away_stops_with_a_reason(tmp_path):
    config = small(
        "train.optimiser=sgd", "train.lr=1e4", "train.schedule=constant", "train.weight_decay=0.5", "train.ema=0"
    )
    with pytest.raises(
        ArcwiseError, match=r"training stopped at step \d+: .* not finite.*The last good checkpoint is .*step-"
    ):
        train(override(config, ["train.epochs=60"]), tmp_path / "run", device="cpu")
    kept = last_checkpoint(Run.open(tmp_path / "run"))
    weights = {n: value for n, value in kept.items() if n.startswith("model") and "running" not in n}
    assert "model.head.weight" in weights and all(value.isfinite().all() for value in weights.values())


def test_a_gradient_that_is_not_finite_moves_nothing_and_is_named(tmp_path):
    trainer = made(small(), tmp_path)
    trainer.enter_epoch(0)
    trainer.model.neck.fc.weight.register_hook(lambda g: g * math.nan)
    before = [p.detach().clone() for p in trainer.parameters]
    told = r"step 1: the gradient of neck\.fc\.weight .*the learning rate there was 0\.000667.*train\.clip=1"
    with pytest.raises(ArcwiseError, match=told):  # 0.003 (1/6) / 0.75: the first of six steps, the peak at 0.75
        trainer.step(next(iter(trainer.epoch_batches(0, 0))))
    assert all(torch.equal(p, q) for p, q in zip(trainer.parameters, before, strict=True))


# ------------------------------------------------------------------------------------- fine-tuning


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    config = small("data.source=digits[0-4]", "train.epochs=4", "train.checkpoint_every=1000")
    return train(config, tmp_path_factory.mktemp("start") / "run", device="cpu")


def test_fine_tuning_starts_from_the_model_with_prototypes_at_class_means(tmp_path, start):
    config = dataclasses.replace(
        small("data.source=digits[5-9]", "train.frozen_epochs=1", "train.epochs=2"), init=str(start.path)
    )
    splits = load(dataclasses.replace(config.data, size=8, channels=1))
    model = Embedder.load(start.path)
    trainer = Trainer(Run(tmp_path / "a"), resolve(config, splits), splits, device=torch.device("cpu"), start=model)
    x = torch.nn.functional.normalize(torch.from_numpy(embed(model, splits.train).x))
    means = torch.stack([x[torch.from_numpy(splits.train.y) == c].mean(0) for c in range(5)])
    cos = torch.nn.functional.cosine_similarity(trainer.head.weight, means)
    assert torch.allclose(cos, torch.ones(5), atol=1e-5)
    trainer.enter_epoch(0)
    before = {name: value.clone() for name, value in trainer.model.backbone.state_dict().items()}
    for batch in trainer.epoch_batches(0, 0):
        trainer.step(batch)
    assert same_tensors(before, trainer.model.backbone.state_dict())  # at rest, its statistics too
    trainer.enter_epoch(1)
    trainer.step(next(iter(trainer.epoch_batches(1, 0))))
    assert not same_tensors(before, trainer.model.backbone.state_dict())


def test_sub_centres_start_close_to_the_class_mean_and_apart_from_each_other(tmp_path, start):
    config = dataclasses.replace(small("data.source=digits[5-9]", "head.k=3"), init=str(start.path))
    splits = load(dataclasses.replace(config.data, size=8, channels=1))
    model = Embedder.load(start.path)
    trainer = Trainer(Run(tmp_path / "a"), resolve(config, splits), splits, device=torch.device("cpu"), start=model)
    x = torch.nn.functional.normalize(torch.from_numpy(embed(model, splits.train).x))
    w = torch.nn.functional.normalize(trainer.head.weight.detach(), dim=-1)
    assert w.shape == (5, 3, 3)
    for c in range(5):
        mean = torch.nn.functional.normalize(x[torch.from_numpy(splits.train.y) == c].mean(0), dim=0)
        assert (w[c] @ mean > 0.999).all()
        assert (torch.pdist(w[c]) > 1e-4).all()  # equal ones would learn the same for ever


def test_fine_tuning_runs_and_resumes_like_any_run(tmp_path, start):
    config = dataclasses.replace(
        small("data.source=digits[5-9]", "train.batch_norm=frozen", "train.epochs=8"), init=str(start.path)
    )
    run = train(config, tmp_path / "run", device="cpu")
    before = run.result["test"]
    assert before["accuracy"] > 0.6
    assert Embedder.load(run.path).names == tuple("56789")
    (run.path / "result.json").unlink()
    again = train(config, run.path, resume=True, device="cpu")
    assert again.result["test"] == before


def test_devices_that_are_not_there_are_refused(tmp_path):
    for name in ("gpu", "cuda:99", "cuda" if not torch.cuda.is_available() else "xla"):
        with pytest.raises(ArcwiseError, match="Choose auto, cpu or cuda"):
            train(recipe("digits-2d"), tmp_path / "run", device=name)


# ------------------------------------------------------------------------------------- what went wrong before


def test_a_mistake_in_the_settings_does_not_take_the_folder(tmp_path):
    for wrong, says in {
        "model.backbone=foo": "unknown backbone 'foo'",
        "head.m=9": "m must be a number from 0 to 3",
        "train.batch=1": "at least two images at a time",
        "train.accumulate=16": "at least two images at a time",
        "head.name=arcface:q=1": "unknown parameter of arcface 'q'",
    }.items():
        with pytest.raises(ArcwiseError, match=says):
            train(small(wrong), tmp_path / "run", device="cpu")
        assert not (tmp_path / "run" / "config.json").exists()
    with pytest.raises(ArcwiseError, match=r"multiple of train\.per_class"):
        train(small("train.sampling=m-per-class", "train.per_class=5"), tmp_path / "run", device="cpu")
    train(small("train.epochs=1"), tmp_path / "run", device="cpu")


def test_somebody_elses_folder_is_left_alone(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / ".x.123.part").write_text("theirs")
    with pytest.raises(ArcwiseError, match="holds other files"):
        train(SMALL, tmp_path, device="cpu")
    assert sorted(path.name for path in tmp_path.rglob("*")) == [".x.123.part", "sub"]


def test_resuming_with_other_images_is_refused(tmp_path):
    run = train(small("train.epochs=1"), tmp_path / "run", device="cpu", data=load(SMALL.data))
    (run.path / "result.json").unlink()
    other = load(dataclasses.replace(SMALL.data, source="synthetic:classes=6,per_class=21,side=8"))
    with pytest.raises(ArcwiseError, match="added, removed, renamed or changed"):
        train(small("train.epochs=1"), run.path, resume=True, device="cpu", data=other)


def test_the_same_pixels_under_other_labels_are_other_images():
    splits = load(SMALL.data)
    for handed_over in (False, True):
        before = dataclasses.replace(splits, handed_over=handed_over)
        for name, part in before.parts.items():
            y = part.y.copy()
            first, last = int(np.flatnonzero(y == 0)[0]), int(np.flatnonzero(y == 5)[0])
            y[first], y[last] = 5, 0  # two images change places: as many of each class as before
            after = dataclasses.replace(before, **{name: dataclasses.replace(part, y=y)})
            assert after.fingerprint != before.fingerprint
    assert load(SMALL.data).fingerprint == splits.fingerprint


def test_a_finished_run_without_its_model_is_finished_again(tmp_path):
    run = train(small("train.epochs=1"), tmp_path / "run", device="cpu")
    before = load_file(run.model)
    run.model.unlink()
    (run.path / "checkpoints" / ".step-1.safetensors.4711.part").write_text("by a killed process")
    train(small("train.epochs=1"), run.path, resume=True, device="cpu")
    assert same_tensors(load_file(run.model), before) and not list(run.path.rglob("*.part"))


def test_heads_may_be_written_in_capitals(tmp_path):
    head = made(small("head.name=Softmax-Bias"), tmp_path / "a").head
    assert isinstance(head, LinearHead) and head.bias is not None
    assert isinstance(made(small("head.name=CosFace"), tmp_path / "b").head.margin, MARGINS["cosface"])


def test_large_folders_train_as_small_ones(tmp_path, monkeypatch):
    """Streamed from disk, a run gives the bits it gives from memory."""
    whole = train(small("train.epochs=2"), tmp_path / "whole", device="cpu")
    monkeypatch.setattr("arcwise.data.loader.room", lambda _: 0)
    streamed = train(small("train.epochs=2"), tmp_path / "streamed", device="cpu")
    assert same_tensors(load_file(whole.model), load_file(streamed.model))


def test_images_that_are_judged_again_and_again_are_brought_to_the_device_once(tmp_path, monkeypatch):
    from arcwise.train import evaluate

    made = []

    class Counted(evaluate.Loader):
        def __init__(self, images, **options):
            made.append(len(images))
            super().__init__(images, **options)

    monkeypatch.setattr(evaluate, "Loader", Counted)
    run = train(small("train.snapshots=true", "data.validation=0.2", "train.epochs=4"), tmp_path / "run", device="cpu")
    parts = [len(run.embeddings(name)) for name in ("validation", "test", "train-epoch-000")]
    assert len(run.journal("evaluation")) == 4
    assert sorted(made) == sorted([*parts, *parts[:2]])  # as a whole where they are judged, and some for snapshots
