"""Checkpoints: written beside training, looked into, joined, and begun anew with other classes."""

import threading
import time

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from arcwise.cli import code_of
from arcwise.config import Config, DataConfig, HeadConfig, ModelConfig, TrainConfig, override
from arcwise.data import load
from arcwise.data.images import image_hashes
from arcwise.errors import ArcwiseError, Note
from arcwise.model import Embedder
from arcwise.overlap import trained_on
from arcwise.records import Run
from arcwise.report.content import seen_before
from arcwise.study.subject import subject
from arcwise.train import checkpoint, train
from arcwise.train.checkpoint import checkpoints_of, read_whole
from arcwise.train.loop import Trainer
from arcwise.train.saving import Saver
from arcwise.train.setup import resolve

SMALL = Config(
    recipe="digits-2d",
    data=DataConfig(source="digits[0-4]", limit=90),
    model=ModelConfig(backbone="simple_cnn", dim=3),
    head=HeadConfig(name="arcface", m=0.3, s=8.0),
    train=TrainConfig(epochs=2, batch=16, optimiser="adamw", lr=3e-3, ema=0.9, checkpoint_every=0.0),
)


def small(*settings):
    return override(SMALL, settings)


@pytest.fixture(scope="module")
def five(tmp_path_factory):
    """A run of five digits, with sub-centres and a step of its own for the prototypes."""
    place = tmp_path_factory.mktemp("five") / "run"
    return train(small("head.k=2", "head.inside=true", "head.engine=chunked"), place, device="cpu")


# ------------------------------------------------------------------------------------ beside training


def test_what_is_saved_is_what_stood_there_when_it_was_asked_for():
    go, kept, w = threading.Event(), [], torch.ones(3)

    def write(tensors):
        assert go.wait(10)
        kept.append(tensors["w"].clone())

    with Saver(beside=True) as saver:
        saver.save({"w": w}, write)
        w.zero_()  # training goes on before a byte is written
        go.set()
    assert kept[0].tolist() == [1.0, 1.0, 1.0]


def test_copies_keep_their_room_from_one_checkpoint_to_the_next():
    places = []
    with Saver(beside=True) as saver:
        for step in range(3):
            saver.save({"w": torch.full((4,), float(step))}, lambda tensors: places.append(tensors["w"].data_ptr()))
    assert len(set(places)) == 1


def test_without_it_nothing_is_copied_and_training_waits():
    w, seen = torch.ones(2), []
    with Saver(beside=False) as saver:
        saver.save({"w": w}, lambda tensors: seen.append(tensors["w"] is w))
    assert seen == [True]


def test_what_goes_wrong_beside_training_is_raised_by_the_next_one_and_at_the_end():
    def fail(tensors):
        raise ArcwiseError("the disk is full")

    saver = Saver(beside=True)
    saver.save({}, fail)
    with pytest.raises(ArcwiseError, match="the disk is full"):
        saver.save({}, lambda tensors: None)
    with pytest.raises(ArcwiseError, match="the disk is full"), Saver(beside=True) as saver:
        saver.save({}, fail)


def test_training_does_not_wait_for_a_slow_disk(tmp_path, monkeypatch):
    original, slow = checkpoint.save_tensors, 0.4

    def save(*given):
        time.sleep(slow)
        return original(*given)

    monkeypatch.setattr(checkpoint, "save_tensors", save)
    seconds = {}
    for beside in (True, False):
        run = train(
            small("train.epochs=1", "train.checkpoint_every=1000", f"train.save_beside={beside}"),
            tmp_path / str(beside), device="cpu",
        )  # fmt: skip
        seconds[beside] = run.result["seconds"]
        assert len(checkpoints_of(run)) == 1
    one, other = (load_file(checkpoints_of(Run.open(tmp_path / str(b)))[0]) for b in (True, False))
    assert one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_a_checkpoint_of_another_run_is_not_gone_on_from(tmp_path):
    one, other = (
        train(small("train.epochs=1", f"train.lr={lr}"), tmp_path / lr, device="cpu") for lr in ("0.003", "0.01")
    )
    before = load_file(one.model)
    (one.path / "result.json").unlink()
    for path in checkpoints_of(other)[-1:]:
        (one.path / "checkpoints" / path.name).write_bytes(path.read_bytes())
    with pytest.warns(Note, match="is a checkpoint of another run"):
        train(small("train.epochs=1", "train.lr=0.003"), one.path, resume=True, device="cpu")
    again = load_file(one.model)
    assert all(torch.equal(value, again[name]) for name, value in before.items())


def test_as_many_checkpoints_stay_as_asked_for(tmp_path):
    run = train(small("train.keep=4"), tmp_path / "run", device="cpu")
    steps = [int(path.stem.partition("-")[2]) for path in checkpoints_of(run)]
    assert steps == [run.result["steps"] - back for back in (3, 2, 1, 0)]


def test_what_decides_no_number_may_be_another_when_a_run_is_gone_on_with(tmp_path):
    run = train(small("train.epochs=1"), tmp_path / "run", device="cpu")
    (run.path / "result.json").unlink()
    again = train(small("train.epochs=1", "train.keep=5", "train.checkpoint_every=9"), run.path, resume=True)
    assert again.finished
    with pytest.raises(ArcwiseError, match=r"train\.lr was 0\.003"):
        train(small("train.epochs=1", "train.lr=0.1"), run.path, resume=True)


# ------------------------------------------------------------------------------------ looked into, and other classes


def test_inspect_tells_what_is_there_and_what_is_damaged(five, tmp_path, capsys):
    assert code_of(["checkpoint", "inspect", str(five.path)]) == 0
    said = capsys.readouterr().out
    assert "5 classes of 3 numbers, 2 centres each" in said and f"step {five.result['steps']}," in said
    assert code_of(["checkpoint", "inspect", str(five.path / "checkpoints")]) == 0
    assert capsys.readouterr().out == said
    whole = checkpoints_of(five)[-1].read_bytes()
    harmed = tmp_path / "step-00000001.safetensors"
    harmed.write_bytes(whole[:-5] + b"x" + whole[-4:])
    for path in (harmed, five.model):
        assert code_of(["checkpoint", "inspect", str(path)]) == 1
        assert "damaged: " in capsys.readouterr().out


def kept_of(path, at):
    tensors = read_whole(path).tensors
    owned = [n for n in tensors if n.endswith("head.weight") or (n.startswith("prototypes.") and tensors[n].ndim)]
    assert len(owned) >= 3
    return {name: tensors[name][at] for name in owned}


def test_classes_that_stay_keep_every_bit_and_new_ones_begin_at_their_images(five, tmp_path, capsys):
    out = tmp_path / "ten"
    assert (
        code_of(["checkpoint", "grow", str(five.path), "--data", "digits", "--out", str(out), "--classes", "10"]) == 0
    )
    said = capsys.readouterr().out
    assert "5 classes as they were, 5 new (5, 6, 7, 8, ...)" in said and "--resume" in said
    grown, before, after = Run.open(out), checkpoints_of(five)[-1], checkpoints_of(Run.open(out))[-1]
    for at in range(5):
        one, other = kept_of(before, at), kept_of(after, at)
        assert one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)
    tensors = read_whole(after).tensors
    assert not tensors["prototypes.0.first"][5:].any()
    splits = load(grown.settings.data)
    x = Embedder.load(out / "start.safetensors").encode(splits.train.pixels)
    x = x / np.linalg.norm(x, axis=1, keepdims=True)
    for at in range(5, 10):
        mean = x[splits.train.y == at].mean(0)
        w = tensors["model.head.weight"][at].numpy()
        cos = w @ mean / np.linalg.norm(w, axis=-1) / np.linalg.norm(mean)
        assert (cos > 0.999).all()
    assert set(grown.trained_on.names) == set("0123456789")
    assert (tensors["model.head.weight"].norm(dim=-1).mean(1)[5:] > 0).all()


def test_a_grown_run_trains_on_and_a_dropped_one_too(five, tmp_path, capsys):
    for verb, data, words in (("grow", "digits[0-6]", "2 new"), ("drop", "digits[1-3]", "2 gone")):
        out = tmp_path / verb
        assert code_of(["checkpoint", verb, str(five.path), "--data", data, "--out", str(out)]) == 0
        assert words in capsys.readouterr().out
        with pytest.warns(Note, match="test images were trained on before"):
            run = train(Run.open(out).settings, out, resume=True, device="cpu")
        assert run.result["steps"] > 0 and len(run.prototypes().w) == len(run.embeddings("test").names)
        with pytest.raises(ArcwiseError, match="holds a run already"):
            train(Run.open(out).settings, out, device="cpu")


def test_classes_that_change_again_and_again_keep_the_prototypes_of_their_names(five, tmp_path, capsys):
    """One that comes may stand before others, and one that is gone may come again."""
    run, names = five, "01234"
    for verb, wanted in (("drop", "134"), ("grow", "1346"), ("grow", "12346"), ("drop", "246"), ("grow", "0246")):
        out = tmp_path / f"{verb}-{wanted}"
        line = ["checkpoint", verb, str(run.path), "--data", f"digits[{','.join(wanted)}]", "--out", str(out)]
        assert code_of(line) == 0, capsys.readouterr().err
        before, after = checkpoints_of(run)[-1], checkpoints_of(Run.open(out))[-1]
        for name in set(names) & set(wanted):
            one, other = kept_of(before, names.index(name)), kept_of(after, wanted.index(name))
            assert all(torch.equal(one[key], other[key]) for key in one), (verb, wanted, name)
        run, names = Run.open(out), wanted


def test_a_run_with_other_classes_says_which_test_images_were_trained_on_before(five, tmp_path, capsys):
    """The split is drawn anew among more images."""
    out = tmp_path / "seven"
    assert code_of(["checkpoint", "grow", str(five.path), "--data", "digits[0-6]", "--out", str(out)]) == 0
    capsys.readouterr()
    splits = load(Run.open(out).settings.data)
    assert five.trained_on is not None
    before = int(five.trained_on.holds(image_hashes(splits.test)).sum())
    assert before > 0
    told = f"{before} of the {len(splits.test)} test images were trained on before"
    with pytest.warns(Note, match=told):
        train(Run.open(out).settings, out, resume=True, device="cpu")
    assert code_of(["evaluate", str(out)]) == 0
    assert told in capsys.readouterr().out
    [sentence] = seen_before(subject([out]))
    assert told in sentence


def test_a_run_with_other_classes_knows_all_that_was_trained_on_before(five, tmp_path, capsys):
    first = train(small("data.source=digits[5-9]"), tmp_path / "first", device="cpu")
    tuned = train(override(SMALL, [f"init={first.path}"]), tmp_path / "tuned", device="cpu")
    assert "seen_before" not in tuned.result  # other classes, other images
    out = tmp_path / "grown"
    assert code_of(["checkpoint", "grow", str(tuned.path), "--data", "digits[0-5]", "--out", str(out)]) == 0
    known = trained_on(out)
    assert known is not None and "fine-tuned" not in capsys.readouterr().err
    for run in (first, tuned):
        assert run.trained_on is not None and known.holds(run.trained_on.hashes).all()


@pytest.mark.parametrize(("verb", "data", "words"), [
    ("grow", "digits[1-7]", "lacks 1 of the run's classes, such as '0'"),
    ("drop", "digits[3-6]", "2 classes that the run lacks, such as '5'"),
    ("grow", "digits[0-4]", "nothing to change"),
    ("grow", "digits[0-5]", "--classes asks for 9"),
])  # fmt: skip
def test_classes_that_nobody_asked_to_change_are_named(verb, data, words, five, tmp_path, capsys):
    line = ["checkpoint", verb, str(five.path), "--data", data, "--out", str(tmp_path / "out"), "--classes", "9"]
    assert code_of(line) == 1
    assert words in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_run_is_not_grown_over_another_folder(five, tmp_path, capsys):
    (tmp_path / "mine.txt").write_text("mine")
    line = ["checkpoint", "grow", str(five.path), "--data", "digits", "--out"]
    assert code_of([*line, str(tmp_path)]) == 1
    assert code_of([*line, str(five.path)]) == 1
    assert "holds a run already" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
    (tmp_path / ".new.part").mkdir()
    (tmp_path / ".new.part" / "mine.txt").write_text("mine")
    assert code_of([*line, str(tmp_path / "new")]) == 1
    assert "is in the way" in capsys.readouterr().err
    assert (tmp_path / ".new.part" / "mine.txt").read_text() == "mine" and not (tmp_path / "new").exists()


# ------------------------------------------------------------------------------------ what is left of an epoch


def test_a_remainder_makes_every_image_seen_once(tmp_path):
    config = small("train.remainder=true", "train.batch=40")
    splits = load(config.data)
    trainer = Trainer(Run(tmp_path), resolve(config, splits), splits, device=torch.device("cpu"))
    sizes = [len(batch.y) for batch in trainer.epoch_batches(0, 0)]
    rows = torch.cat([batch.rows for batch in trainer.epoch_batches(0, 0)])
    assert sizes == [40, 40, 10] and sorted(rows.tolist()) == list(range(90))
    assert (trainer.steps, trainer.images_in(4), trainer.images_in(6)) == (3, 130, 180)
    whole = small("train.batch=40")
    plain = Trainer(Run(tmp_path / "plain"), resolve(whole, splits), splits, device=torch.device("cpu"))
    first = [batch.rows.tolist() for batch in plain.epoch_batches(0, 0)]
    assert first == [batch.rows.tolist() for batch in trainer.epoch_batches(0, 0)][:2]  # the rule of before stays


def test_a_remainder_of_one_image_sits_out_and_one_of_other_samplings_is_refused(tmp_path):
    run = train(small("data.limit=33", "train.remainder=true", "train.epochs=1"), tmp_path / "run", device="cpu")
    assert (run.result["steps"], run.result["images"]) == (2, 32)
    with pytest.raises(ArcwiseError, match="leaves no images over"):
        small("train.remainder=true", "train.sampling=balanced")
