"""Training from the command line: one command from a name or a folder to a Run, and messages for every mistake."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from PIL import Image

from arcwise.config import override
from arcwise.errors import ArcwiseError
from arcwise.model import has_bf16
from arcwise.recipes import RECIPES, recipe
from arcwise.records import Embeddings, Run
from arcwise.train import train
from arcwise.train.setup import same_config


def arcwise(*arguments, **options):
    command = [sys.executable, "-m", "arcwise", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, **options)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "first run"
    said = arcwise("train", "digits-2d", "--out", out, "--set", "train.epochs=3", "--set", "data.test=0.1", "--seed", 4)
    assert said.returncode == 0, said.stderr
    return out, said


def test_training_says_what_it_does_and_what_to_type_next(run):
    out, said = run
    assert "accuracy" in said.stdout and f"Next: arcwise evaluate '{out}', or" in said.stdout
    assert "arcface:m=0.3,s=8 · 10 classes" in said.stderr and "images/s" in said.stderr and "left" in said.stderr
    assert "epoch   3  test accuracy" in said.stderr and "nearest other" in said.stderr
    assert Run.open(out).about["seed"] == 4


def test_a_run_that_is_there_is_not_overwritten(run):
    out, _ = run
    again = arcwise("train", "digits-2d", "--out", out)
    assert again.returncode == 1 and "--resume" in again.stderr and "Traceback" not in again.stderr
    same = ("--set", "train.epochs=3", "--set", "data.test=0.1", "--seed", 4)
    resumed = arcwise("train", "digits-2d", "--out", out, *same, "--resume", "--json")
    assert resumed.returncode == 0 and json.loads(resumed.stdout)["epochs"] == 3


def test_embed_gives_the_embeddings_of_the_run(run, tmp_path):
    out, _ = run
    said = arcwise("embed", out, "digits", "--out", tmp_path / "t.safetensors", "--part", "test")
    assert said.returncode == 0, said.stderr
    ours, theirs = Embeddings.load(tmp_path / "t.safetensors"), Run.open(out).embeddings("test")
    assert np.allclose(ours.x, theirs.x, atol=1e-5) and np.array_equal(ours.y, theirs.y)
    whole = arcwise("embed", out / "model.safetensors", "digits[7]", "--out", tmp_path / "seven.safetensors")
    assert whole.returncode == 0 and Embeddings.load(tmp_path / "seven.safetensors").names == ("7",)
    wrong = arcwise("embed", out, "synthetic", "--part", "test")
    assert wrong.returncode == 1 and "Leave --part out" in wrong.stderr


def test_the_accuracy_is_that_of_the_embeddings_and_prototypes(run):
    out, _ = run
    found = Run.open(out).embeddings("test")
    unit = [v / np.linalg.norm(v, axis=1, keepdims=True) for v in (found.x, Run.open(out).prototypes().w)]
    correct = ((unit[0] @ unit[1].T).argmax(1) == found.y).mean()
    assert correct == pytest.approx(Run.open(out).result["test"]["accuracy"], abs=1e-6)


def test_a_users_folder_trains_with_one_command(tmp_path):
    random = np.random.default_rng(0)
    for c, name in enumerate(("red things", "green things", "blue things")):
        (tmp_path / "mine" / name).mkdir(parents=True)
        for i in range(20):
            pixels = random.integers(0, 80, (30, 40, 3), dtype=np.uint8)
            pixels[..., c] += 120
            Image.fromarray(pixels).save(tmp_path / "mine" / name / f"{i}.jpg")
    (tmp_path / "mine" / "red things" / "broken.jpg").write_text("no image")
    environment = {**os.environ, "ARCWISE_DATA": str(tmp_path / "cache")}
    settings = ("--set", "data.size=32", "--set", "train.epochs=4", "--set", "train.batch=16")
    source = f"folder:{tmp_path / 'mine'}"
    said = arcwise("train", "folder", "--data", source, "--out", tmp_path / "run", *settings, env=environment)
    assert said.returncode == 0, said.stderr
    assert "skipped red things/broken.jpg: no image that Pillow can read" in said.stderr
    assert "decoding mine: 61 images of 61 images" in said.stderr
    metrics = Run.open(tmp_path / "run").result
    assert metrics["test"]["accuracy"] == 1.0 and metrics["broken_images"] == 1
    shown = arcwise("data", "show", source, env=environment)
    assert shown.returncode == 0 and "3 classes" in shown.stdout and "broken.jpg" in shown.stderr


def test_recipes_are_listed_with_what_they_take_and_reach():
    said = arcwise("recipes")
    assert said.returncode == 0 and all(name in said.stdout for name in RECIPES)
    assert said.stdout.count("takes ") == said.stdout.count("reaches ") == len(RECIPES) and "TODO" not in said.stdout
    one = arcwise("recipes", "cifar10")
    assert "train.epochs=" in one.stdout and "Next: arcwise train cifar10" in one.stdout
    assert json.loads(arcwise("recipes", "mnist", "--json").stdout)["model"]["backbone"] == "vgg8"


def test_data_lists_its_sources(tmp_path):
    said = arcwise("data", "list", "--data-dir", tmp_path)
    assert said.returncode == 0 and "fashion-mnist  to be fetched" in said.stdout and str(tmp_path) in said.stdout
    show = arcwise("data", "show", "digits[0-4]", "--unseen", "5-9", "--json")
    assert set(json.loads(show.stdout)["parts"]) == {"train", "test", "unseen"}


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("train",), 2, "RECIPE"),
        (("train", "digits3d"), 1, "did you mean 'digits-2d'"),
        (("train", "digits-2d", "--set", "train.epoch=3"), 1, "did you mean 'train.epochs'"),
        (("train", "digits-2d", "--head", "arcfase"), 1, "did you mean 'arcface'"),
        (("train", "digits-2d", "--head", "softmax:m=1"), 1, "write softmax alone"),
        (("train", "digits-2d", "--head", "softmax", "--set", "head.name=arcface"), 1, "say the same thing"),
        (("train", "digits-2d", "--set", "seed=3"), 1, "--seed"),
        (("train", "digits-2d", "--seed", "x"), 2, "Try: arcwise train --help"),
        (("train", "digits-2d", "--device", "tpu"), 1, "Choose auto, cpu or cuda"),
        (("train", "digits-2d", "--init", "nowhere.safetensors"), 1, "there is no model"),
        (("train", "digits-2d", "--init", "x", "--set", "model.dim=3"), 1, "is the model's own with --init"),
        (("train", "digits-2d", "--data", "folder:/nowhere"), 1, "there is no folder"),
        (("train", "folder"), 1, "folder of images per class"),
        (("train", "digits-2d", "--set", "model.backbone=vgg"), 1, "did you mean 'vgg8'"),
        (("train", "digits-2d", "--set", "model.backbone=vgg8", "--set", "data.size=4"), 1, "at least 8"),
        (("data", "get", "imagenet"), 1, "unknown data set 'imagenet'"),
        (("data", "show", "mnits"), 1, "did you mean 'mnist'"),
        (("embed", "nowhere", "digits"), 1, "there is no model"),
        (("recipes", "mnits"), 1, "did you mean 'mnist'"),
    ],
)
def test_mistakes_get_a_message_and_leave_no_run(tmp_path, arguments, code, says):
    said = arcwise(*arguments, cwd=tmp_path)
    assert said.returncode == code, said.stderr
    assert says in said.stderr + said.stdout and "Traceback" not in said.stderr
    assert not list(tmp_path.rglob("config.json"))


def test_the_live_display_is_drawn_on_a_terminal(monkeypatch, capsys):
    from arcwise.cli import progress

    monkeypatch.setattr(progress, "terminal", lambda: True)
    display = progress.TrainDisplay()
    start = {"kind": "start", "total": 100, "step": 0, "images": {"train": 5}, "classes": 3, "device": "cpu",
             "out": "r", "head": "arcface", "broken": {}}  # fmt: skip
    numbers = {"loss": 1.5, "accuracy": 0.5, "angle_own": 0.5, "angle_other": 1.0}
    with display:
        display(start)
        display({"kind": "steps", "step": 40, "epoch": 1.5, "images_per_second": 1234.0, **numbers})
        display({"kind": "evaluation", "epoch": 1, "part": "test", **numbers})
        from rich.console import Console

        console = Console(record=True, width=100, file=open(os.devnull, "w"))  # noqa: PTH123, SIM115
        console.print(display.panel())
        console.file.close()
    text = console.export_text()
    for piece in ("40%", "left", "own centre", "nearest other", "28.6°", "57.3°", "1,234", "test, epoch 1"):
        assert piece in text, text


# ---------------------------------------------------------------- classes nobody has seen, and what is left behind


def test_unseen_classes_are_judged_at_the_end_of_training_and_evaluate_comes_next(tmp_path):
    out = tmp_path / "run"
    said = arcwise("train", "digits-2d", "--data", "digits", "--unseen", "7-9", "--out", out, "--set", "train.epochs=2")
    assert said.returncode == 0, said.stderr
    line = next(line for line in said.stdout.splitlines() if line.startswith("unseen"))
    assert "equal error rate" in line and "recall@1" in line and "AUROC" in line and "of 3 classes" in line
    assert f"Next: arcwise evaluate {out} --only 'unseen-*'" in said.stdout
    assert arcwise("evaluate", out, "--only", "unseen-*").stdout.count("unseen-") > 10
    both = arcwise("train", "digits-2d", "--unseen", "7", "--set", "data.unseen=8", "--out", tmp_path / "b")
    assert both.returncode == 1 and "say the same thing" in both.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("folder", "--head", "arcfase"),
        ("folder", "--data", "folder:/nowhere"),
        ("digits-2d", "--set", "data.unseen=11"),
    ],
)
def test_a_command_that_fails_at_once_leaves_no_folder(tmp_path, words):
    said = arcwise("train", *words, cwd=tmp_path)
    assert said.returncode == 1 and not list(tmp_path.iterdir())


def test_embed_makes_no_folder_nobody_asked_for(run, tmp_path):
    said = arcwise("embed", run[0], "digits", "--out", tmp_path / "new" / "x.safetensors")
    assert said.returncode == 1 and "make it first" in said.stderr and not (tmp_path / "new").exists()


def test_evaluate_says_what_a_number_needs_and_which_there_are(run, tmp_path):
    file = run[0] / "embeddings" / "test.safetensors"
    said = arcwise("evaluate", file, "--only", "open*")
    assert said.returncode == 1 and "needs the prototypes of a run: --prototypes RUN" in said.stderr
    assert "neighbour-accuracy" in said.stderr and "dunn-centroid-mean-angle-95" in said.stderr
    assert "no number is called 'nothing*'" in arcwise("evaluate", run[0], "--only", "nothing*").stderr
    said = arcwise("evaluate", run[0], "--only", "open*")  # a run brings its prototypes: other classes are lacking
    assert said.returncode == 1 and "train with --unseen" in said.stderr and "--prototypes" not in said.stderr
    mixed = arcwise("evaluate", run[0], file, "--only", "accuracy")
    assert mixed.returncode == 0 and "needs the prototypes" in mixed.stdout


def test_data_show_lists_classes_defaults_and_the_whole_next_command(tmp_path):
    random = np.random.default_rng(0)
    for c in range(14):
        (tmp_path / "in" / f"s{c % 2}-{c:02d}").mkdir(parents=True)
        for i in range(3):
            Image.fromarray(random.integers(0, 255, (20, 20, 3), np.uint8)).save(
                tmp_path / "in" / f"s{c % 2}-{c:02d}" / f"{i}.png"
            )
    said = arcwise("data", "show", "folder:in", cwd=tmp_path)
    assert said.returncode == 0, said.stderr
    assert "64 x 64" in said.stdout and "else --set data.channels=1" in said.stdout and "data.flip=false" in said.stdout
    assert "0  s0-00  (2)" in said.stdout and "and 2 more: --classes lists them all" in said.stdout
    every = arcwise("data", "show", "folder:in", "--unseen", "s1-*", "--set", "data.size=32", "--classes", cwd=tmp_path)
    assert "s1-13" in every.stdout and "more:" not in every.stdout
    assert "Next: arcwise train folder --data folder:in --unseen 's1-*' --set data.size=32" in every.stdout


def test_data_show_takes_the_depth_that_its_note_tells_of(tmp_path):
    random = np.random.default_rng(0)
    for folder in ("greek/alpha", "greek/beta", "latin/a"):
        (tmp_path / "in" / folder).mkdir(parents=True)
        for i in range(3):
            Image.fromarray(random.integers(0, 255, (20, 20), np.uint8)).save(tmp_path / "in" / folder / f"{i}.png")
    said = arcwise("data", "show", "folder:in", cwd=tmp_path)
    assert "2 classes; their folders hold 3 folders" in said.stderr and "--depth 2" in said.stderr
    deep = arcwise("data", "show", "folder:in", "--depth", "2", cwd=tmp_path)
    assert "2  latin/a  (2)" in deep.stdout, deep.stderr
    assert "Next: arcwise train folder --data folder:in --set data.depth=2" in deep.stdout


def test_figures_of_a_run_go_into_it(run):
    said = arcwise("figures", run[0], "--only", "circle")
    assert said.returncode == 0 and (run[0] / "figures" / "circle.png").is_file()
    why = arcwise("figures", run[0], "--only", "sphere")
    assert why.returncode == 1 and "three dimensions (--set model.dim=3)" in why.stderr


def test_a_run_begun_before_its_recipe_was_changed_goes_on_as_it_was(tmp_path):
    short = ["data.source=digits[0-4]", "train.epochs=1", "train.warmup=0"]
    before = override(recipe("mnist5-2d"), [*short, "train.lr=0.002", "train.batch=128", "train.schedule=one-cycle"])
    run = train(before, tmp_path / "run", device="cpu")
    now = override(recipe("mnist5-2d"), short)
    assert same_config(run, now).train.lr == 0.002
    with pytest.raises(ArcwiseError, match=r"other settings: train\.lr was 0\.002, now 0\.5"):
        same_config(run, override(now, ["train.lr=0.5"]))


@pytest.mark.skipif(not has_bf16(torch.device("cpu")), reason="this processor has no bf16")
def test_bf16_on_a_cpu_is_asked_for_and_leaves_embeddings_in_float32(tmp_path):
    short = ["train.epochs=3"]
    exact, mixed = (
        train("digits-2d", tmp_path / str(i), settings=[*short, f"train.amp_cpu={i}"], device="cpu") for i in (0, 1)
    )
    x, z = exact.embeddings("test").x, mixed.embeddings("test").x
    assert x.dtype == z.dtype == np.float32 and not np.array_equal(x, z)
    assert abs(exact.result["test"]["accuracy"] - mixed.result["test"]["accuracy"]) < 0.15
    assert len(np.unique(z.view(np.uint32) & 0xFFFF)) > 10  # not rounded to bf16
