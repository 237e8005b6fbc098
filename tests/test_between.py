"""What lies between parts: records and runs beside others, folders that change, switches that somebody threw."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import arcwise
from arcwise import ArcwiseError, Embeddings, Prototypes, Run
from arcwise.data import load
from arcwise.headspec import HeadSpec
from arcwise.measure import measure
from arcwise.metrics import all_metrics
from arcwise.report.conclusions import answer, sentences
from arcwise.report.make import subject_of
from arcwise.study.table import Table

SMALL = ["train.epochs=1", "data.limit=200", "data.source=digits[0-4]"]


def small_run(place, *settings, **options):
    """A run of half a second."""
    options.setdefault("listener", lambda event: None)
    return arcwise.train("digits-2d", place, settings=[*SMALL, *settings], device="cpu", **options)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Runs of one head with two seeds, and of others that only look alike."""
    folder = tmp_path_factory.mktemp("runs")
    small_run(folder / "a0", "seed=0")
    small_run(folder / "a1", "seed=1")
    return folder


# ------------------------------------------------------------------------------------ records beside records


def test_classes_are_matched_by_name_whatever_their_order():
    random = np.random.default_rng(0)
    w = np.eye(4)
    y = np.repeat(np.arange(4), 10)
    found = Embeddings(w[y] + 0.3 * random.standard_normal((40, 4)), y, names=tuple("abcd"))
    centres = Prototypes(w, names=tuple("abcd"), head=HeadSpec(name="normface", s=8.0))
    order = np.array([2, 0, 3, 1])
    turned = Prototypes(w[order], names=tuple(np.array(list("abcd"))[order]), head=HeadSpec(name="normface", s=8.0))
    assert all_metrics(found, None, centres) == pytest.approx(all_metrics(found, None, turned), rel=1e-12)
    fewer = Embeddings(found.x[:20], y[:20], names=("b", "a"))  # a and b have changed places
    swapped = all_metrics(fewer, None, centres)["accuracy"]
    right = all_metrics(Embeddings(found.x[:20], y[:20], names=("a", "b")), None, centres)["accuracy"]
    assert right > 0.9 and swapped < 0.1
    with pytest.raises(ArcwiseError, match="no centre is called e"):
        all_metrics(Embeddings(found.x[:20], y[:20], names=("a", "e")), None, centres)


def test_measured_numbers_follow_what_they_were_measured_of(runs, tmp_path):
    shutil.copytree(runs / "a0", tmp_path / "run")
    run = Run.open(tmp_path / "run")
    before = measure(run)["measured"]
    assert measure(run)["measured"] == before
    test = run.embeddings("test")
    Embeddings(-test.x, test.y, test.names, test.keys, test.model).save(run.embeddings_path("test"))
    after = measure(run)["measured"]
    assert after["accuracy"] < before["accuracy"]


def test_snapshots_in_half_precision_keep_tiny_and_huge_numbers(tmp_path):
    x = np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32)
    for factor in (1e-12, 1.0, 1e12):
        Embeddings(x * np.float32(factor)).save(tmp_path / "x.safetensors", half=True)
        back = Embeddings.load(tmp_path / "x.safetensors").x
        assert np.allclose(back, x * np.float32(factor), rtol=2e-3, atol=2e-3 * factor), factor
    Embeddings(np.zeros((2, 2), np.float32)).save(tmp_path / "x.safetensors", half=True)
    assert (Embeddings.load(tmp_path / "x.safetensors").x == 0).all()


def test_a_class_whose_mean_points_nowhere_costs_no_other_number():
    x = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.1, 1.0]])
    found = all_metrics(Embeddings(x, np.array([0, 0, 1, 1]), names=("a", "b")))
    assert "neighbour-accuracy" in found and not any(np.isnan(value) for value in found.values())


def test_a_run_whose_test_embeddings_are_damaged_is_brought_to_its_end_again(runs, tmp_path):
    shutil.copytree(runs / "a0", tmp_path / "run")
    run = Run.open(tmp_path / "run")
    assert run.whole
    path = run.embeddings_path("test")
    content = path.read_bytes()
    path.write_bytes(content[:-20] + bytes([content[-20] ^ 1]) + content[-19:])
    assert not run.whole
    small_run(tmp_path / "run", "seed=0", resume=True)
    assert Run.open(tmp_path / "run").whole and np.array_equal(
        run.embeddings("test").x, Run(runs / "a0").embeddings("test").x
    )


# ------------------------------------------------------------------------------------ runs beside runs


def test_a_report_is_about_one_experiment(runs, tmp_path):
    assert subject_of([runs / "a0", runs / "a1"]).table.seeds == {"ArcFace m=0.3 s=8": [0, 1]}
    small_run(tmp_path / "lr", "seed=1", "train.lr=0.001")
    with pytest.raises(ArcwiseError, match=r"several: .* differ in train\.lr"):
        subject_of([runs / "a0", tmp_path / "lr"])
    pixels = np.random.default_rng(0).integers(0, 256, (60, 8, 8), dtype=np.uint8)
    for name, some in (("one", pixels), ("other", 255 - pixels)):
        arcwise.train("digits-2d", tmp_path / name, settings=["train.epochs=1", f"seed={len(name)}"], device="cpu",
                      data=(some, np.arange(60) % 3), listener=lambda event: None)  # fmt: skip
    with pytest.raises(ArcwiseError, match="differ in the images"):
        subject_of([tmp_path / "one", tmp_path / "other"])
    small_run(tmp_path / "straight", "seed=1", "head.gradient=straight_through")
    with pytest.raises(ArcwiseError, match="no seeds of one head"):
        subject_of([runs / "a0", tmp_path / "straight"])


def test_runs_fine_tuned_from_two_models_are_no_seeds_of_one_head(runs, tmp_path):
    start = tmp_path / "start.safetensors"
    for seed in (0, 1):
        shutil.copy(runs / f"a{seed}" / "model.safetensors", start)
        small_run(tmp_path / f"b{seed}", f"seed={seed}", f"init={start}")
    with pytest.raises(ArcwiseError, match="differ in the model they were fine-tuned from"):
        subject_of([tmp_path / "b0", tmp_path / "b1"])
    with pytest.raises(ArcwiseError, match="whether they were fine-tuned"):
        subject_of([tmp_path / "b0", runs / "a1"])
    with pytest.raises(ArcwiseError, match=r"is not the model that .*b0 was started from"):
        small_run(tmp_path / "b0", "seed=0", f"init={start}", resume=True)


def test_a_comparison_of_fine_tuned_heads_is_gone_on_with_while_its_start_is_the_same(runs, tmp_path):
    start, wide = tmp_path / "start.safetensors", tmp_path / "wide"
    small_run(wide, "model.dim=3")  # not the recipe's dimension
    shutil.copy(wide / "model.safetensors", start)
    options = {"settings": [*SMALL, f"init={start}"], "workers": 1, "device": "cpu"}
    for seeds in (1, 1, 2):
        comparison, _ = arcwise.compare("digits-2d", "softmax", tmp_path / "c", seeds=seeds, **options)
    for _ in range(2):  # a Run's folder stands for its model
        small_run(tmp_path / "b", f"init={wide}", resume=True)
    assert [run.settings.model.dim for run in comparison.finished_runs()["softmax"]] == [3, 3]
    shutil.copy(runs / "a0" / "model.safetensors", start)
    with pytest.raises(ArcwiseError, match=r"started with other settings|is not the model"):
        arcwise.compare("digits-2d", "softmax", tmp_path / "c", seeds=3, **options)


def test_margins_of_many_m_are_told_apart(tmp_path):
    for seed, margins in enumerate(([0.1, 0.2, 0.3, 0.4, 0.5], [0.5, 0.4, 0.3, 0.2, 0.1])):
        margin = arcwise.margins.ArcFace(m=torch.tensor(margins))
        small_run(tmp_path / str(seed), f"seed={seed}", head=margin)
    labels = {Run.open(tmp_path / str(seed)).head.label for seed in (0, 1)}
    assert len(labels) == 2  # not two seeds of one head


def test_a_comparison_refuses_one_head_twice_and_other_images(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ArcwiseError, match="are one head"):
        arcwise.compare("digits-2d", "arcface:s=8,arcface:m=0.5,s=8", "c", seeds=1, workers=1, settings=SMALL)
    for name in "ab":
        (tmp_path / "photos" / name).mkdir(parents=True)
        for i in range(6):
            pixels = np.random.default_rng([i, ord(name)]).integers(0, 256, (8, 8), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "photos" / name / f"{i}.png")
    settings = ["data.source=folder:photos", "data.size=8", "train.epochs=1", "train.batch=4"]
    arcwise.compare("digits-2d", "softmax", "c", seeds=1, workers=1, settings=settings, device="cpu",
                    listener=lambda job, event: None)  # fmt: skip
    (tmp_path / "photos" / "a" / "0.png").unlink()
    with pytest.raises(ArcwiseError, match="not those that"):
        arcwise.compare("digits-2d", "softmax", "c", seeds=2, workers=1, settings=settings, device="cpu",
                        listener=lambda job, event: None)  # fmt: skip


def table(values, seeds):
    """A table of accuracies."""
    return Table(
        heads=list(seeds),
        seeds=seeds,
        values={"accuracy": values},
        seconds={h: [1.0] * len(s) for h, s in seeds.items()},
    )


def test_conclusions_rest_on_shared_seeds_alone():
    apart = table({"a": [0.9, 0.91], "b": [0.1, 0.11]}, {"a": [0, 1], "b": [2, 3]})
    said = " ".join([*answer(apart, "a", ["accuracy"]), *sentences(apart, "a")])
    assert "fewer than two seeds" in said and "clearly" not in said
    partly = table({"a": [0.9, 0.91, 0.92], "b": [0.1, 0.12, 0.99]}, {"a": [0, 1, 2], "b": [0, 1, 9]})
    assert "0.99" not in " ".join(answer(partly, "a", ["accuracy"])) and "11.00" in " ".join(
        answer(partly, "a", ["accuracy"])
    )


def test_equal_gaps_are_no_proof():
    same = table({"a": [0.75, 0.5, 0.25], "b": [0.5, 0.25, 0.0]}, {"a": [0, 1, 2], "b": [0, 1, 2]})
    assert not same.difference("accuracy", "a", "b").clear
    assert "clearly better" not in answer(same, "a", ["accuracy"])[0].replace("to be clearly better", "")


# ------------------------------------------------------------------------------------ folders that change


def images_at(folder, count=4, classes="ab"):
    """Some images of each class."""
    for name in classes:
        (folder / name).mkdir(parents=True)
        for i in range(count):
            pixels = np.random.default_rng([i, ord(name)]).integers(0, 256, (8, 8), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{i}.png")


def test_a_changed_pixel_is_another_set_of_images_though_name_size_and_time_stay(tmp_path, monkeypatch):
    monkeypatch.setenv("ARCWISE_DATA", str(tmp_path / "cache"))
    images_at(tmp_path / "photos")
    source = f"folder:{tmp_path / 'photos'}"
    before = load(source, size=8)
    path = tmp_path / "photos" / "a" / "1.png"
    was, when = path.read_bytes(), path.stat()
    with Image.open(path) as image:
        pixels = np.array(image)
    for at in range(64):  # some other pixel leaves the file as long as it was
        other = pixels.copy()
        other.ravel()[at] ^= 1
        Image.fromarray(other).save(path)
        if len(path.read_bytes()) == len(was):
            break
    os.utime(path, ns=(when.st_atime_ns, when.st_mtime_ns))
    after = load(source, size=8)
    assert after.fingerprint != before.fingerprint
    rows = np.concatenate([np.asarray(part.pixels) for part in after.parts.values()])
    assert any(np.array_equal(row[..., 0], other) for row in rows)


def test_links_to_folders_are_followed_once(tmp_path, monkeypatch):
    monkeypatch.setenv("ARCWISE_DATA", str(tmp_path / "cache"))
    images_at(tmp_path / "elsewhere")
    (tmp_path / "photos").mkdir()
    for name in "ab":
        (tmp_path / "photos" / name).symlink_to(tmp_path / "elsewhere" / name)
    (tmp_path / "elsewhere" / "a" / "round").symlink_to(tmp_path / "photos")
    found = load(f"folder:{tmp_path / 'photos'}", size=8)
    assert set(found.train.names) >= {"a", "b"} and sum(map(len, found.parts.values())) >= 8


def test_images_in_both_train_and_test_are_told(tmp_path, monkeypatch):
    monkeypatch.setenv("ARCWISE_DATA", str(tmp_path / "cache"))
    images_at(tmp_path / "photos" / "train", count=5)
    images_at(tmp_path / "photos" / "test", count=2)  # the same pixels
    said = " ".join(load(f"folder:{tmp_path / 'photos'}", size=8).notes)
    assert "4 test images identical to one that is trained on" in said and "one test image a class" not in said
    images_at(tmp_path / "few", count=4)
    assert "one test image a class" in " ".join(load(f"folder:{tmp_path / 'few'}", size=8, test=0.2).notes)


def test_an_image_that_is_a_thread_is_padded_without_filling_memory(tmp_path):
    Image.fromarray(np.zeros((2, 60_000), np.uint8)).save(tmp_path / "long.png")
    look = arcwise.Preprocessing(side=8, channels=1, mean=(0.5,), std=(0.5,), fit="pad")
    assert look.pixels(np.full((2, 60_000), 200, np.uint8)).shape == (8, 8, 1)
    model = arcwise.Embedder(arcwise.ModelConfig(dim=2), preprocessing=look)
    assert model.embed(tmp_path / "long.png").shape == (1, 2)


def test_embeddings_of_a_part_are_refused_once_the_images_have_changed(tmp_path, monkeypatch, capsys):
    from arcwise.cli import code_of

    monkeypatch.setenv("ARCWISE_DATA", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    images_at(tmp_path / "photos", count=10)
    arcwise.train("digits-2d", "run", settings=["data.source=folder:photos", "data.size=8", "train.epochs=1",
                  "train.batch=8"], device="cpu", listener=lambda event: None)  # fmt: skip
    words = ["embed", "run", "folder:photos", "--part", "test", "--out", "test.safetensors"]
    assert code_of(words) == 0
    (tmp_path / "photos" / "a" / "0.png").unlink()
    assert code_of(words) == 1 and "no longer known" in capsys.readouterr().err
    assert code_of([*words[:3], "--out", "all.safetensors"]) == 0


# ------------------------------------------------------------------------------------ switches that others threw


@pytest.mark.parametrize("switch", ["dtype", "no_grad", "inference", "autocast"])
def test_training_does_not_depend_on_what_the_caller_has_switched(runs, tmp_path, switch):
    import contextlib

    from safetensors.torch import load_file

    @contextlib.contextmanager
    def double():
        torch.set_default_dtype(torch.float64)
        try:
            yield
        finally:
            torch.set_default_dtype(torch.float32)

    thrown = {
        "dtype": double, "no_grad": torch.no_grad, "inference": torch.inference_mode,
        "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    }  # fmt: skip
    with thrown[switch]():
        run = small_run(tmp_path / "run", "seed=0")
        assert torch.get_default_dtype() == (torch.float64 if switch == "dtype" else torch.float32)
    mine, theirs = load_file(run.model), load_file(Run(runs / "a0").model)
    assert all(torch.equal(mine[name], theirs[name]) for name in theirs)


def test_runs_in_threads_of_one_process_are_what_they_are_alone(runs, tmp_path):
    import threading

    from safetensors.torch import load_file

    threads = [threading.Thread(target=small_run, args=(tmp_path / f"a{seed}", f"seed={seed}")) for seed in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name in ("a0", "a1"):
        mine, theirs = load_file(Run(tmp_path / name).model), load_file(Run(runs / name).model)
        assert all(torch.equal(mine[key], theirs[key]) for key in theirs)


def test_a_head_judges_without_switching_its_mode():
    head = arcwise.Head(4, 3, margin="adaface")
    head.train()
    before = {name: value.clone() for name, value in head.state_dict().items()}
    head.score(torch.randn(8, 4), torch.randint(3, (8,)))
    assert head.training and all(module.training for module in head.modules())
    assert all(torch.equal(before[name], value) for name, value in head.state_dict().items())


@pytest.mark.parametrize("x", [torch.zeros(2, 4).to_sparse(), torch.zeros(2, 4).to(torch.float8_e4m3fn)])
def test_a_head_refuses_what_is_not_dense_or_too_coarse(x):
    with pytest.raises(ArcwiseError, match="must be dense, in float16"):
        arcwise.Head(4, 3)(x, torch.tensor([0, 1]))


def test_a_backend_that_there_is_not_draws_all_the_same(tmp_path):
    code = (
        "from arcwise.figures.canvas import offscreen; offscreen(); import matplotlib; print(matplotlib.get_backend())"
    )
    environment = {**os.environ, "MPLBACKEND": "module://nowhere"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert done.returncode == 0 and done.stdout.strip().lower() == "agg", done.stderr


def test_a_run_begun_with_other_threads_is_told(runs, tmp_path):
    run = small_run(tmp_path / "run", "train.epochs=1")
    assert run.about["threads"] == torch.get_num_threads()
    assert not [word for word in Path(tmp_path / "run").iterdir() if word.suffix == ".damaged"]


def test_a_run_that_cannot_be_written_is_measured_all_the_same(runs, tmp_path, monkeypatch):
    shutil.copytree(runs / "a0", tmp_path / "run")
    (tmp_path / "run" / "metrics.json").unlink(missing_ok=True)
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.warns(UserWarning, match="cannot be written: its numbers are not kept"):
        assert measure(str(tmp_path / "run"), again=True)["measured"]["accuracy"] > 0.0
    assert not (tmp_path / "run" / "metrics.json").exists()


def test_one_image_a_class_is_told_as_what_it_is(tmp_path, capsys):
    from arcwise.cli import code_of

    Embeddings(np.eye(3), np.arange(3)).save(tmp_path / "few.safetensors")
    assert code_of(["evaluate", str(tmp_path / "few.safetensors")]) == 1
    said = capsys.readouterr().err
    assert "no class has two images" in said and "''" not in said
