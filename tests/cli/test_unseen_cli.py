"""Classes nobody has seen, from the command line: embed, verify, pairs, evaluate, calibrate, gallery, export."""

import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import warnings
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import arcwise
from arcwise import Embeddings, Run
from arcwise.cli import code_of
from arcwise.metrics.verification import score_pairs
from arcwise.records.thresholds import CalibratedThreshold, keep_threshold, read_thresholds
from gallery.kit import threshold

WITHOUT_TORCH = "import sys; sys.modules['torch'] = None; from arcwise.__main__ import main; main()"


def arc(capsys, line, code=0, stdin=None, monkeypatch=None):
    """What a command prints; its exit code is looked at."""
    if stdin is not None:
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
    capsys.readouterr()
    found = code_of(shlex.split(line))
    said = capsys.readouterr()
    assert found == code, said.out + said.err
    return said.out if code == 0 else said.err


def without_torch(line, folder):
    """What a command prints in a process that has no torch."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", WITHOUT_TORCH, *shlex.split(line)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def write_images(images, folder, first=0, count=1000):
    """Some images of each class as files, one folder for each."""
    seen = dict.fromkeys(images.names, 0)
    for i in range(len(images)):
        name = images.names[images.y[i]]
        seen[name] += 1
        if first < seen[name] <= first + count:
            (folder / name).mkdir(parents=True, exist_ok=True)
            Image.fromarray(np.asarray(images.pixels[i])[..., 0]).save(folder / name / f"{seen[name]:04}.png")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A model of the digits 0 to 4, and the others as files: 5 and 6, and 7 to 9 in two parts."""
    folder = tmp_path_factory.mktemp("unseen")
    settings = ["data.source=digits[0-4]", "train.epochs=8", "model.dim=8"]
    arcwise.train("digits-2d", folder / "run", settings=settings, device="cpu", listener=lambda event: None)
    other, strange = arcwise.load("digits[5-6]").train, arcwise.load("digits[7-9]").train
    write_images(other, folder / "calibration", count=60)
    write_images(strange, folder / "known", count=5)
    write_images(strange, folder / "asked", first=5, count=8)
    (folder / "broken").mkdir()
    (folder / "broken" / "a.png").write_bytes(b"no image")
    (folder / "broken" / "b.png").write_bytes((folder / "known" / "7" / "0001.png").read_bytes())
    return folder


@pytest.fixture
def here(place, monkeypatch):
    monkeypatch.chdir(place)
    return place


# ------------------------------------------------------------------------------------ embed


def test_embed_takes_files_folders_sources_and_a_list(here, capsys, monkeypatch):
    said = arc(capsys, "embed run known/7/0001.png known/7/0002.png --out one.safetensors")
    assert "2 embeddings of 8 dimensions, without labels" in said
    assert Embeddings.load("one.safetensors").keys == ("known/7/0001.png", "known/7/0002.png")
    arc(capsys, "embed run known --out two.safetensors")
    two = Embeddings.load("two.safetensors")
    assert two.names == ("7", "8", "9") and np.bincount(two.y).tolist() == [5, 5, 5] and "known/7/0001.png" in two.keys
    arc(capsys, "embed run known asked 'digits[5-6]' --out three.safetensors")
    three = Embeddings.load("three.safetensors")
    assert set(three.names) == {"5", "6", "7", "8", "9"} and np.isin(["7", "9"], three.names).all()
    assert (three.y[:15] == np.repeat([three.names.index(n) for n in "789"], 5)).all()  # one class of one name
    arc(capsys, "embed run - --out four.safetensors", stdin="known/8/0001.png\n\nknown/9/0002.png\n",
        monkeypatch=monkeypatch)  # fmt: skip
    four = Embeddings.load("four.safetensors")
    assert four.keys == ("known/8/0001.png", "known/9/0002.png") and four.y is None
    for nothing in ("", "\n \n"):
        said = arc(capsys, "embed run - --out five.safetensors", code=1, stdin=nothing, monkeypatch=monkeypatch)
        assert "standard input names no images: one path on each line is read, as in ls *.jpg | arcwise embed" in said
    assert np.allclose(four.x[0], two.x[two.keys.index("known/8/0001.png")], rtol=1e-5, atol=1e-6)
    assert "nowhere.png cannot be used" in arc(capsys, "embed run nowhere.png --out five.safetensors", code=1)
    assert not Path("five.safetensors").exists()


def test_broken_images_are_named_and_left_out(here, capsys):
    assert code_of(["embed", "run", "broken", "--out", "some.safetensors"]) == 0
    said = capsys.readouterr()
    assert "skipped broken/a.png" in said.err and "1 embedding of" in said.out
    assert Embeddings.load("some.safetensors").keys == ("broken/b.png",)
    assert "None of the 1 can" in arc(capsys, "embed run broken/a.png --out none.safetensors", code=1)
    assert not Path("none.safetensors").exists() and not list(Path().glob(".none*"))
    with pytest.raises(arcwise.ArcwiseError, match=r"broken/a\.png"):
        arcwise.Embedder.load("run").embed(["broken/b.png", "broken/a.png"])


def test_embedding_that_was_stopped_goes_on(here, capsys, monkeypatch):
    arc(capsys, "embed run 'digits[5-9]' --out whole.safetensors")
    wanted, seen = Path("whole.safetensors").read_bytes(), []
    from arcwise import embed as package
    from arcwise.model import Embedder

    del package
    encode = Embedder.encode

    def stopping(self, pixels):
        seen.append(len(pixels))
        if len(seen) == 6:
            raise KeyboardInterrupt
        return encode(self, pixels)

    module = sys.modules["arcwise.embed"]
    monkeypatch.setattr(module, "SAVED_EVERY", 0.0)
    monkeypatch.setattr(Embedder, "encode", stopping)
    assert code_of(shlex.split("embed run 'digits[5-9]' --batch 64 --out part.safetensors")) == 130
    assert not Path("part.safetensors").exists()
    arc(capsys, "embed run 'digits[5-9]' --batch 64 --out part.safetensors")
    total = len(Embeddings.load("part.safetensors"))
    assert sum(seen) - 64 == total  # what was done before was not done again
    part, whole = Embeddings.load("part.safetensors"), Embeddings.load("whole.safetensors")
    assert part.keys == whole.keys and np.allclose(part.x, whole.x, rtol=1e-5, atol=1e-6) and wanted
    assert not list(Path().glob(".part*"))


def test_files_that_change_places_with_their_times_begin_anew(tmp_path):
    from arcwise.embed import listed_work

    one, other = tmp_path / "a.bmp", tmp_path / "b.bmp"
    for shade, path in ((10, one), (200, other)):
        Image.new("L", (8, 8), shade).save(path)
        os.utime(path, (1e9, 1e9))
    look = arcwise.Preprocessing(side=8, channels=1, mean=(0.3,), std=(0.4,))
    model = arcwise.Embedder(arcwise.ModelConfig(dim=2), preprocessing=look)
    work = listed_work(model, [one, other], ("a", "b"))
    before = work.digest
    assert before == work.digest
    for source, target in ((one, "t"), (other, "a.bmp"), (tmp_path / "t", "b.bmp")):
        source.rename(tmp_path / target)
    assert work.digest != before


def test_another_model_or_other_images_begin_anew(here, capsys, monkeypatch):
    module = sys.modules["arcwise.embed"]
    monkeypatch.setattr(module, "SAVED_EVERY", 0.0)
    images = [f"known/{name}/{i:04}.png" for name in "789" for i in range(1, 6)]
    encoder, done = arcwise.Embedder.load("run"), []

    class Stops:
        dim, preprocessing, fingerprint = encoder.dim, encoder.preprocessing, encoder.fingerprint

        def encode(self, pixels):
            done.append(len(pixels))
            if len(done) == 2:
                raise KeyboardInterrupt
            return encoder.encode(pixels)

    with pytest.raises(KeyboardInterrupt):
        module.embed_into("new.safetensors", Stops(), images, batch=5)
    state = json.loads(Path(".new.safetensors.json").read_text())
    assert state["done"] == 5
    for changed in ("model", "work", "mirror"):
        nothing = bytes(5 * 8 * 4)
        sums = zlib.crc32(json.dumps([5, {}]).encode(), zlib.crc32(nothing))
        Path(".new.safetensors.json").write_text(json.dumps({**state, "crc32": sums, changed: "another"}))
        Path(".new.safetensors.rows").write_bytes(nothing)
        module.embed_into("new.safetensors", encoder, images, batch=5)
        assert not (Embeddings.load("new.safetensors").x == 0).all(axis=1).any()


def flipped(content, at):
    """The bytes with one bit turned round."""
    return content[:at] + bytes([content[at] ^ 4]) + content[at + 1 :]


@pytest.mark.parametrize("damage", ["none", "a bit", "zeros", "cut", "another image broken", "fewer done", "checksum"])
def test_rows_that_changed_since_they_were_kept_are_not_gone_on_with(here, monkeypatch, damage):
    module = sys.modules["arcwise.embed"]
    monkeypatch.setattr(module, "SAVED_EVERY", 0.0)
    Path("broken.png").write_bytes(b"no image")
    images = ["known/7/0001.png", "broken.png", *(f"known/8/{i:04}.png" for i in range(1, 10))]
    encoder, done = arcwise.Embedder.load("run"), []
    rows, state = Path(".new.safetensors.rows"), Path(".new.safetensors.json")

    def tell(now, total):
        done.append(now)
        if len(done) == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        module.embed_into("new.safetensors", encoder, images, batch=5, tell=tell)
    told, content = json.loads(state.read_text()), rows.read_bytes()
    assert told["done"] == 5 and told["broken"].keys() == {"1"}
    changed = {
        "another image broken": {"broken": {"2": told["broken"]["1"]}}, "fewer done": {"done": 4, "broken": {}},
        "checksum": {"crc32": told["crc32"] ^ 1},
    }  # fmt: skip
    state.write_text(json.dumps({**told, **changed.get(damage, {})}))
    damaged = {"a bit": flipped(content, 77), "zeros": bytes(len(content)), "cut": content[:70]}
    rows.write_bytes(damaged.get(damage, content))
    module.embed_into("new.safetensors", encoder, images, batch=5, tell=tell)
    wanted, found = arcwise.embed(encoder, images, broken={}), Embeddings.load("new.safetensors")
    assert found.keys == wanted.keys and np.allclose(found.x, wanted.x, rtol=1e-5, atol=1e-6)
    assert done[1] == (10 if damage == "none" else 5)


# ------------------------------------------------------------------------------------ verify and calibrate


def test_without_a_threshold_verify_shows_the_cosine_and_how_to_get_one(here, capsys):
    said = arc(capsys, "verify run known/7/0001.png known/7/0002.png")
    found = arcwise.embed(arcwise.Embedder.load("run"), ["known/7/0001.png", "known/7/0002.png"]).x.astype(np.float64)
    cos = found[0] @ found[1] / np.prod(np.linalg.norm(found, axis=1))
    assert f"cosine {cos:.4f}, angle {np.degrees(np.arccos(cos)):.1f}°" in said and "same" not in said
    assert "arcwise calibrate run --on SOURCE" in said
    yours = arc(capsys, "verify run known/7/0001.png known/7/0001.png --threshold 0.9")
    assert yours.startswith("same       cosine 1.0000, angle 0.0°") and "yours" in yours
    table = arc(capsys, "verify run known/7/0001.png known/8/0001.png known/9/0001.png --threshold -0.99")
    assert table.count("*") >= 6 and "3  known/9/0001.png" in table
    values = json.loads(arc(capsys, "verify run known/7/0001.png known/7/0002.png known/8/0001.png --json"))
    assert len(values["pairs"]) == 3 and values["threshold"] is None and values["pairs"][0]["same"] is None
    assert values["pairs"][0]["cosine"] == pytest.approx(cos, abs=1e-6)


@pytest.mark.parametrize(("line", "says"), [
    ("verify run known/7/0001.png", "two images"), ("verify run a.png b.png", "a.png"),
    ("verify nowhere known/7/0001.png known/7/0002.png", "nowhere"),
    ("verify run known/7/0001.png known/7/0002.png --threshold 2", "threshold must"),
    ("verify run known/7/0001.png known/7/0002.png --threshold 0.5 --far 0.1", "one of them"),
    ("verify run known/7/0001.png broken/a.png", "broken/a.png"), ("verify run known asked", "directory"),
    ("calibrate run --on broken", "classes|identit|labels"), ("calibrate run --on known/7", "who is who"),
    ("calibrate run --on known --far 0", "far must"), ("calibrate run --on known --far nan", "far must"),
    ("calibrate run --on 'digits[0-4]' --far 0.1", "trained on"),
    ("calibrate run --on known --far 0.01", "few-identities"), ("evaluate run --on 'digits[0-4]'", "trained on"),
    ("evaluate run --on known --unseen x.safetensors", "with files and runs"),
    ("evaluate run run --on known", "name one"),
    ("evaluate run --on known --by age", "age|table"), ("evaluate run --by age", "go with"),
    ("evaluate run --pairs nowhere.csv", "arcwise pairs make"), ("export run here.onnx --on nowhere", "nowhere"),
    ("export run nowhere/here.onnx --on known", "no folder"),
    ("export run here.onnx --on known --precision fp8", "fp8"),
    ("pairs make known -n 7 --folds 2", "cannot be split"), ("pairs make known -n 600 --folds 2", "too few|at most"),
    ("embed run known --part test --out x.safetensors", "known is a path"),
    ("evaluate run --on known known", "0001.png is named more than once"),
    ("calibrate run --on known known --far 0.2", "0001.png is named more than once"),
    ("calibrate run --on known known/../known --far 0.2", "0001.png is named more than once"),
    ("calibrate run --on folder:known known --far 0.2", "0001.png is named more than once"),
    ("pairs make known/7 -n 20", "1 identity is too few for 10 folds"),
    ("evaluate run --on broken --out known", "known holds other files"),  # before anything is embedded
    ("pairs make nowhere", "nowhere"), ("gallery create run --model run", "needs a folder of its own|holds a run"),
    ("gallery add nobody known --model run", "no gallery"), ("gallery list known", "no gallery"),
])  # fmt: skip
def test_what_cannot_be_done_is_said(here, capsys, line, says):
    before = {path: path.stat().st_mtime_ns for path in here.rglob("*") if path.is_file()}
    said = arc(capsys, line, code=1)
    assert re.search(says, said) and "Traceback" not in said, said
    after = {path: path.stat().st_mtime_ns for path in here.rglob("*") if path.is_file()}
    assert {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)} <= {
        here / "run/.lock"
    }


def test_two_folders_may_hold_files_of_one_name(here, tmp_path):
    from arcwise.cli.embed import works_of
    from arcwise.encoders import load_encoder

    places = [f"folder:{place}" for place in ("known", tmp_path / "more")]
    shutil.copytree("known", tmp_path / "more")
    work = works_of(load_encoder("run"), places, 0, None, {})
    assert len(set(work.keys)) == len(work) == 2 * len(list(Path("known").rglob("*.png")))


def test_too_few_identities_are_refused_before_anything_is_embedded(here, capsys, monkeypatch):
    def embedded(*arguments, **options):
        raise AssertionError("images were embedded")

    monkeypatch.setattr(arcwise.Embedder, "encode", embedded)
    assert "3 identities are too few for FAR 0.01: it takes 15" in arc(capsys, "calibrate run --on known --far 0.01", 1)


def test_a_threshold_is_kept_beside_the_model_and_decides(here, capsys):
    said = arc(capsys, "calibrate run --on calibration --far 0.2 --few-identities")
    assert "2 identities" in said and "Too few identities" in said and "Next: arcwise verify run" in said
    (mine,) = read_thresholds(here / "run" / "thresholds.json")
    assert (
        mine.few_identities and mine.source == "calibration" and mine.model == arcwise.Embedder.load("run").fingerprint
    )
    arc(capsys, "calibrate run --on calibration --far 0.3 --few-identities")
    arc(capsys, "calibrate run --on calibration --far 0.2 --few-identities")
    both = read_thresholds(here / "run" / "thresholds.json")
    assert sorted(one.far for one in both) == [0.2, 0.3] and both[1] == CalibratedThreshold.from_values(
        both[1].as_values()
    )
    said = arc(capsys, "verify run known/7/0001.png known/7/0001.png")
    assert said.startswith("same") and "chosen for a false accept rate of 20 %" in said and "Too few" in said
    assert "30 %" in arc(capsys, "verify run known/7/0001.png known/7/0001.png --far 0.3")
    assert "only for" in arc(capsys, "verify run known/7/0001.png known/7/0001.png --far 0.25", code=1)
    values = json.loads(arc(capsys, "verify run known/7/0001.png known/8/0002.png --json"))
    assert values["calibrated"]["few_identities"] and values["threshold"] == pytest.approx(mine.cosine)
    assert values["calibrated"]["squared_l2"] == pytest.approx(2 - 2 * mine.cosine)
    assert values["calibrated"]["angle_degrees"] == pytest.approx(np.degrees(np.arccos(mine.cosine)), abs=1e-4)
    text = (here / "run" / "thresholds.json").read_text()
    (here / "run" / "thresholds.json").write_text('{"kind": "theirs", "thresholds": []}')
    assert "holds no thresholds of arcwise" in arc(capsys, "calibrate run --on calibration --far 0.2", code=1)
    (here / "run" / "thresholds.json").write_text(text)


# ------------------------------------------------------------------------------------ pairs and evaluate


def test_pairs_are_drawn_evenly_apart_and_again_the_same(here, capsys):
    arc(capsys, "pairs make 'glyphs[300-359]' -n 400 --folds 5 --seed 3 --out a.csv")
    arc(capsys, "pairs make 'glyphs[300-359]' -n 400 --folds 5 --seed 3 --out b.csv")
    arc(capsys, "pairs make 'glyphs[300-359]' -n 400 --folds 5 --seed 4 --out c.csv")
    a, b, c = (Path(f"{name}.csv").read_text() for name in "abc")
    assert a == b != c
    from arcwise.pairs import PairTable

    table = PairTable.load("a.csv")
    assert len(table) == 400 and table.same.sum() == 200 and table.folds == 5
    assert all(
        (table.same[table.fold == fold]).sum() == 40 == (~table.same[table.fold == fold]).sum() for fold in range(5)
    )
    names = list(zip(table.columns["name_a"], table.columns["name_b"], strict=True))
    assert [one == two for one, two in names] == table.same.tolist()
    people = [{name for at, pair in enumerate(names) if table.fold[at] == fold for name in pair} for fold in range(5)]
    assert sum(map(len, people)) == len(set().union(*people))
    assert len({frozenset(pair) for pair in zip(table.a, table.b, strict=True)}) == 400
    assert "is there already" in arc(capsys, "pairs make 'glyphs[300-359]' -n 400 --folds 5 --out a.csv", code=1)


def test_images_that_no_pair_can_be_drawn_of_or_no_model_compared_on_are_named(here, capsys):
    shutil.copytree("known", "spoilt")
    Path("spoilt/8/0099.png").write_bytes(b"no image")
    for line in (
        "pairs make 'folder:spoilt[7-9]' -n 6 --folds 1 --out spoilt.csv",
        "export run spoilt.onnx --on 'folder:spoilt[7-9]'",
    ):
        capsys.readouterr()
        assert code_of(shlex.split(line)) == 0
        assert "skipped 8/0099.png: no image that Pillow can read" in capsys.readouterr().err


def test_evaluate_on_images_says_what_is_known_of_them(here, capsys):
    found = arc(capsys, "evaluate run --on asked")
    assert "pairs-eer" in found and "cmc-1" in found and "threshold of equal error" in found and "--all prints" in found
    assert re.search(r"†\s+pairs-tar-0.01", found) and "rests on" in found and "the mean of the others" in found
    values = json.loads(arc(capsys, "evaluate run --on asked --json"))
    arc(capsys, "embed run asked --out asked.safetensors")
    theirs = json.loads(arc(capsys, "evaluate asked.safetensors --json"))["asked.safetensors"]
    for name in theirs:
        assert values["numbers"][name] == pytest.approx(theirs[name], rel=1e-5, abs=1e-6), name
    told = arc(capsys, "evaluate asked.safetensors")
    assert [line for line in told.splitlines() if line.startswith("†")] == [
        line for line in found.splitlines() if re.match("† pairs-tar", line)
    ]
    assert "recall@1" in found
    assert set(theirs) <= set(values["numbers"])
    said = arc(capsys, "evaluate run --on asked --out tried")
    assert "hardest.png" in said
    for name in ("hardest", "verification", "ranks", "rejection"):
        with Image.open(f"tried/{name}.png") as picture:
            assert picture.size[0] > 600
    told = json.loads(Path("tried/evaluation.json").read_text())
    assert told["images"] == 24 and {pair["same"] for pair in told["hardest"]} == {False, True}
    for pair in told["hardest"]:
        assert (Path(pair["a"]).parent == Path(pair["b"]).parent) == pair["same"]
        found = arcwise.embed(arcwise.Embedder.load("run"), [pair["a"], pair["b"]]).x
        assert found[0] @ found[1] / np.prod(np.linalg.norm(found, axis=1)) == pytest.approx(pair["cosine"], abs=1e-5)


@pytest.mark.parametrize("name", ["a\nb", "tail ", "dog\udcff"])
def test_pairs_of_images_that_no_table_can_name_are_refused_before_one_is_written(name, tmp_path, monkeypatch, capsys):
    from PIL import Image

    monkeypatch.chdir(tmp_path)
    for at, label in enumerate((name, "cat", "fox")):
        Path("odd", label).mkdir(parents=True)
        for i in range(3):
            Image.new("L", (8, 8), 60 * at + i).save(Path("odd", label, f"{i}.png"))
    assert code_of(["pairs", "make", "odd", "-n", "6", "--folds", "1", "--out", "odd.csv"]) == 1
    said = capsys.readouterr().err
    assert "a table cannot hold the name" in said and "Rename" in said and not Path("odd.csv").exists()


def test_a_table_of_pairs_and_its_groups(here, capsys):
    arc(capsys, "pairs make 'glyphs[300-309]' -n 40 --folds 2 --out pairs.csv")
    said = arc(capsys, "evaluate run --pairs pairs.csv --by fold", code=1)
    assert "no column 'fold': there are name_a, name_b" in said
    rows = Path("pairs.csv").read_text().splitlines()
    group = ["group", *("dark" if i % 3 else "light" for i in range(40))]
    Path("pairs.csv").write_text("\n".join(f"{row},{value}" for row, value in zip(rows, group, strict=True)) + "\n")
    said = arc(capsys, "evaluate run --pairs pairs.csv --by group")
    assert "over 2 folds" in said and re.search(r"^dark +\d+ +\d+ .*%", said, flags=re.M) and "\nlight" in said
    assert "over 2 folds" in arc(capsys, "evaluate run --pairs pairs.csv --on 'glyphs[300-349]'")
    Path("pairs.csv").write_text("same,a,b\n1,known/7/0001.png,broken/a.png\n1,known/7/0001.png,known/7/0002.png\n"
                                 "0,known/7/0001.png,known/8/0002.png\n")  # fmt: skip
    assert code_of(["evaluate", "run", "--pairs", "pairs.csv"]) == 0
    assert "left out 1 pairs" in capsys.readouterr().err
    for text, says in (("a,b\n1,2\n", "names its columns"), ("same,a,b\nmaybe,x,y\n", "row 2: same is 1 or 0"),
                       ("same,a,b\n", "holds no pairs"), ("same,a,b\n1,,y\n", "names no image"),
                       ("same,a,b\n1,../../etc/passwd,y\n", "etc/passwd"),
                       ("same,a,b\n1,x\n", "has 2 cells")):  # fmt: skip
        Path("wrong.csv").write_text(text)
        assert says in arc(capsys, "evaluate run --pairs wrong.csv", code=1)


def test_pairs_that_contradict_each_other_or_lose_a_fold(here, capsys):
    rows = ["same,a,b,fold", "1,known/7/0001.png,known/7/0002.png,0", "0,known/7/0001.png,known/8/0002.png,0"]
    for more, says in (
        (["0,known/7/0002.png,known/7/0001.png,0"], "rows 2 and 4 call"),
        (["1,known/7/0001.png,known/7/0001.png,0"], "row 4 pairs known/7/0001.png with itself"),
        (["1,known/7/0001.png,./known//7/0001.png,0"], "row 4 pairs known/7/0001.png with itself"),
        (["0,known/7/0001.png,known/7/../7/0002.png,0"], "rows 2 and 4 call"),
        (["1,known/7/0002.png,./known/7/0001.png,0"], "rows 2 and 4 are one pair"),
        (["1,known/7/0002.png,known/7/0003.png,0", "0,known/7/0003.png,known/7/0001.png,0"], "by other rows"),
    ):
        Path("wrong.csv").write_text("\n".join([*rows, *more]) + "\n")
        assert says in arc(capsys, "evaluate run --pairs wrong.csv", code=1)
    Path("named.csv").write_text("same,a,b,name_a,name_b\n1,known/7/0001.png,known/7/0002.png,7,8\n")
    assert "are of 7 and 8: mend" in arc(capsys, "evaluate run --pairs named.csv", code=1)
    rows += ["1,broken/a.png,known/9/0002.png,1", "0,broken/a.png,known/8/0001.png,1"]
    Path("lost.csv").write_text("\n".join(rows) + "\n")
    assert "pairs-eer" in arc(capsys, "evaluate run --pairs lost.csv")


def test_mirrored_embeddings_are_the_runs_own_alone(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arcwise.train("digits-2d", "run", settings=["data.source=digits[0-4]", "train.epochs=1", "train.mirror=true"],
                  device="cpu", listener=lambda event: None)  # fmt: skip
    write_images(arcwise.load("digits[5-9]").train, tmp_path / "others", count=2)
    arc(capsys, "embed run others --out x.safetensors")
    found = Embeddings.load("x.safetensors")
    assert np.allclose(found.x, arcwise.load_encoder("run").embed(found.keys), rtol=1e-5, atol=1e-6)
    own, measured = Run.open("run").embeddings("test").x, arc(capsys, "evaluate run --json")
    arc(capsys, "embed run 'digits[0-4]' --part test --out run/embeddings/test.safetensors")
    assert Run.open("run").embeddings("test").model != found.model and "accuracy" in measured
    assert np.allclose(Run.open("run").embeddings("test").x, own, rtol=1e-5, atol=1e-6)


def test_rows_of_replaced_arrays_are_not_gone_on_with(tmp_path, monkeypatch):
    from arcwise.data.images import Images

    module = sys.modules["arcwise.embed"]
    monkeypatch.setattr(module, "SAVED_EVERY", 0.0)
    model = arcwise.Embedder(
        arcwise.ModelConfig(dim=2), preprocessing=arcwise.Preprocessing(side=8, channels=1, mean=(0.3,), std=(0.4,))
    )
    one, other = np.random.default_rng(0).integers(0, 256, (2, 30, 8, 8, 1), dtype=np.uint8)
    for wrap in (list, lambda pixels: Images(pixels=pixels, y=np.arange(30) % 2, names=("a", "b"))):

        def stop(done, total):
            if done == 20:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            module.embed_into(tmp_path / "x.safetensors", model, wrap(one), batch=10, tell=stop)
        module.embed_into(tmp_path / "x.safetensors", model, wrap(other), batch=10)
        wanted = arcwise.embed(model, wrap(other)).x
        assert np.allclose(Embeddings.load(tmp_path / "x.safetensors").x, wanted, rtol=1e-5, atol=1e-6)


def test_subgroups_of_a_folder_come_from_its_table(here, capsys):
    rows = ["file,label,light"]
    for name in "789":
        rows += [f"{name}/{i:04}.png,{name},{'day' if i < 10 else 'night'}" for i in range(6, 14)]
    (here / "asked" / "labels.csv").write_text("\n".join(rows) + "\n")
    try:
        said = arc(capsys, "evaluate run --on asked --by light")
    finally:
        (here / "asked" / "labels.csv").unlink()
    assert re.search(r"^day +18 +48", said, flags=re.M) and re.search(r"^night +18 +48", said, flags=re.M), said


# ------------------------------------------------------------------------------------ leaks


def test_images_that_were_trained_on_are_found_wherever_they_are(here, capsys, tmp_path):
    run = Run.open("run")
    assert run.trained_on is not None and run.trained_on.names == tuple("01234")
    write_images(arcwise.load("digits[0-4]").train, tmp_path / "others", count=3)  # other names, the same pixels
    for name in "01234":
        (tmp_path / "others" / name).rename(tmp_path / "others" / f"person {name}")
    for line in (
        f"evaluate run --on {tmp_path}/others",
        f"calibrate run --on {tmp_path}/others --far 0.3 --few-identities",
    ):
        said = arc(capsys, line, code=1)
        assert "15 images" in said and "trained on, pixel for pixel" in said and "--allow-overlap" in said
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        assert code_of(["evaluate", "run", "--on", f"{tmp_path}/others", "--allow-overlap"]) == 0
    assert re.search("note: 15 images of .* trained on, pixel for pixel", capsys.readouterr().err)
    arc(capsys, "embed run known --out first.safetensors")
    said = arc(capsys, "evaluate first.safetensors --unseen first.safetensors", code=1)
    assert "are also among those" in said and "--allow-overlap" in said


def test_images_that_are_there_twice_are_told(here, capsys, tmp_path):
    shutil.copytree("known", tmp_path / "twice")
    shutil.copyfile("known/7/0001.png", tmp_path / "twice/8/another.png")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        assert code_of(["evaluate", "run", "--on", str(tmp_path / "twice"), "--out", str(tmp_path / "tried")]) == 0
    assert re.search("note: 1 image of .* came before, pixel for pixel", capsys.readouterr().err)


def test_what_a_model_was_fine_tuned_from_has_seen_counts_too(place, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(place / "run", "first")
    write_images(arcwise.load("digits[0-4]").train, tmp_path / "before", count=2)
    arc(capsys, "train digits-2d --init first --data 'digits[5-9]' --set train.epochs=1 --out second")
    for model in ("second", "second/model.safetensors"):
        said = arc(capsys, f"evaluate {model} --on before", code=1)
        assert "10 images of before were trained on, pixel for pixel" in said
    shutil.rmtree("first")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        assert code_of(["evaluate", "second", "--on", "before"]) == 0
    assert "first, which does not tell what it was trained on" in capsys.readouterr().err


def test_a_model_whose_run_is_not_at_hand_still_names_its_classes(here, exported, capsys, tmp_path):
    write_images(arcwise.load("digits[0-4]").train, tmp_path / "others", count=3)
    shutil.copyfile("run/model.safetensors", tmp_path / "alone.safetensors")
    for model in (exported, tmp_path / "alone.safetensors"):
        for line in (f"evaluate {model} --on {tmp_path}/others", f"evaluate {model} --on known"):
            with warnings.catch_warnings():
                warnings.simplefilter("always")
                assert code_of(shlex.split(line)) == 0
            said = capsys.readouterr().err
            assert "does not tell what it was trained on" in said
            assert ("5 of the classes of" in said and "trained on (0, 1, 2, 3 and 1 more)" in said) == (
                "others" in line
            )


def test_unseen_classes_that_hold_images_of_the_others_are_refused(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_images(arcwise.load("digits[0-3]").train, tmp_path / "photos", count=12)
    for i in range(1, 5):
        data = (tmp_path / "photos" / "0" / f"{i:04}.png").read_bytes()
        (tmp_path / "photos" / "3" / f"{90 + i}.png").write_bytes(data)
    line = "train digits-2d --data folder:photos --unseen 3 --set train.epochs=1 --set train.batch=8 --out {}"
    said = arc(capsys, line.format("a"), code=1)
    assert re.search("[2-4] of the unseen images are trained on", said) and "data.allow_overlap" in said
    assert not Path("a").exists()
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        assert code_of(shlex.split(line.format("b") + " --set data.allow_overlap=true")) == 0
    assert re.search("[2-4] of the unseen images are trained on", capsys.readouterr().err)


# ------------------------------------------------------------------------------------ export


@pytest.fixture(scope="module")
def exported(place):
    if not (place / "model.onnx").exists():
        for need in ("onnx", "onnxruntime", "onnxscript"):
            pytest.importorskip(need)
        assert code_of(["export", str(place / "run"), str(place / "model.onnx"), "--on", str(place / "calibration"),
                        "--licence", "CC BY 4.0"]) == 0  # fmt: skip
    return place / "model.onnx"


def test_an_exported_model_is_its_twin(here, exported, capsys):
    model, twin = arcwise.load_encoder("run"), arcwise.load_encoder(exported)
    assert twin.fingerprint == model.fingerprint and twin.names == model.names and twin.licence == "CC BY 4.0"
    assert twin.preprocessing == model.preprocessing and twin.dim == model.dim and isinstance(twin, arcwise.Encoder)
    files = sorted(map(str, Path("asked").rglob("*.png")))
    for some in (files[:1], files, files[:7]):  # the batch is free
        a, b = model.embed(some).astype(np.float64), twin.embed(some).astype(np.float64)
        cos = (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
        assert np.degrees(np.arccos(np.minimum(cos, 1))).max() < 0.1
        assert np.allclose(np.linalg.norm(a, axis=1), np.linalg.norm(b, axis=1), rtol=1e-4)
    assert twin.embed(Image.open(files[0])).shape == (1, 8)
    with pytest.raises(arcwise.ArcwiseError, match="8 x 8"):
        twin.encode(np.zeros((1, 9, 9, 1), np.uint8))


def test_thresholds_of_the_model_alone_go_along(here, capsys, tmp_path):
    shutil.copytree("run", tmp_path / "run")
    (tmp_path / "run/thresholds.json").unlink(missing_ok=True)
    for model in (arcwise.Embedder.load("run").fingerprint, "another"):
        keep_threshold(tmp_path / "run/thresholds.json", threshold(model=model))
    for precision, told in (
        ("float32", "1 of 1 thresholds are in it\n"),
        ("fp16", "0 of 1 .* calibrate .* --on calibration"),
    ):
        line = f"export {tmp_path}/run {tmp_path}/{precision}.onnx --on calibration --precision {precision}"
        assert re.search(told, arc(capsys, line))
    assert [one.cosine for one in arcwise.load_encoder(tmp_path / "float32.onnx").thresholds] == [0.9]


def test_smaller_numbers_tell_their_cost(here, capsys):
    for precision in ("fp16", "int8"):
        said = arc(capsys, f"export run {precision}.onnx --on calibration --precision {precision}")
        assert re.search(rf"cost of {precision} on 120 images: equal error .* TAR at FAR 0.01", said)
        mine = arcwise.load_encoder(f"{precision}.onnx").fingerprint
        assert mine != arcwise.load_encoder("run").fingerprint
        if precision == "int8":  # whose ranges are looked for
            arc(capsys, f"export run again-{precision}.onnx --on calibration --precision {precision}")
            assert arcwise.load_encoder(f"again-{precision}.onnx").fingerprint == mine
    assert "is there already" in arc(capsys, "export run fp16.onnx --on calibration", code=1)
    assert "exported model already" in arc(capsys, "export fp16.onnx more.onnx --on calibration", code=1)


def test_a_damaged_or_strange_onnx_file_is_a_message(here, exported, capsys, tmp_path):
    content = exported.read_bytes()
    for at in range(0, len(content), max(1, len(content) // 40)):
        (tmp_path / "m.onnx").write_bytes(content[:at] + bytes([content[at] ^ 4]) + content[at + 1 :])
        assert "m.onnx" in arc(capsys, f"verify {tmp_path}/m.onnx known/7/0001.png known/7/0002.png", code=1)
    import onnx

    (tmp_path / "m.onnx").write_bytes(onnx.load(exported).graph.SerializeToString())
    assert "no model that arcwise exported" in arc(capsys, f"verify {tmp_path}/m.onnx a b", code=1)


@pytest.mark.filterwarnings("ignore:.*does not tell what it was trained on:arcwise.errors.Note")
@pytest.mark.parametrize("exported", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_checkpoint_of_insightface_goes_the_whole_way(exported, here, capsys, tmp_path):
    import torch

    torch.manual_seed(0)
    look = arcwise.Preprocessing(side=16, channels=3, mean=(0.5,) * 3, std=(0.5,) * 3)
    net = arcwise.Embedder(arcwise.ModelConfig(backbone="iresnet18", dim=16, norm=True), preprocessing=look)
    net.train()
    for _ in range(3):
        net(torch.rand(8, 3, 16, 16) * 2 - 1)  # batch norms that have seen something
    named = {name.removeprefix("backbone.").removeprefix("neck."): value for name, value in net.state_dict().items()}
    torch.save(named, tmp_path / "theirs.pth")
    model, images, some = tmp_path / "theirs.pth", "known/7/0001.png known/7/0002.png", tmp_path / "some"
    for name in ("7/0001.png", "7/0002.png", "8/0001.png", "8/0002.png"):
        (some / name).parent.mkdir(parents=True, exist_ok=True)
        (some / name).write_bytes(Path("known", name).read_bytes())
    assert "calibrate" in arc(capsys, f"verify {model} {images}")
    said = arc(capsys, f"calibrate {model} --on {some} --far 0.2 --few-identities")
    assert f"{tmp_path}/thresholds.json holds it" in said
    arc(capsys, f"gallery create {tmp_path}/people --model {model}")
    arc(capsys, f"gallery add {tmp_path}/people {some}")
    told = arc(capsys, f"gallery identify {tmp_path}/people known/8/0001.png")
    assert told.startswith("known/8/0001.png  8  cosine 1.0")
    if exported:  # which takes a minute
        onnx = tmp_path / "theirs.onnx"
        assert arc(capsys, f"verify {model} {images}").startswith(("same", "different"))
        assert "name some with --on" in arc(capsys, f"export {model} {onnx}", 1)
        assert "1 of 1 thresholds are in it" in arc(capsys, f"export {model} {onnx} --on {some}")
        assert arcwise.load_encoder(onnx).fingerprint == arcwise.load_encoder(model).fingerprint
        told = arc(capsys, f"gallery identify {tmp_path}/people known/8/0001.png --model {onnx}")
        assert told.startswith("known/8/0001.png  8  cosine 1.0")


# ------------------------------------------------------------------------------------ the whole path


def decisions(printed):
    """Who was recognised on which image, and the cosines."""
    found = json.loads(printed)
    return [(one["image"], one["name"], one["runner_up"]) for one in found], [one["cosine"] for one in found]


def whole_path(capsys, folder, model, calibration, far, few):
    """Calibrate, enroll, identify, export, and all again from ONNX without torch."""
    flag = " --few-identities" if few else ""
    if few:
        assert "few-identities" in arc(capsys, f"calibrate {model} --on {calibration} --far {far}", code=1)
    arc(capsys, f"calibrate {model} --on {calibration} --far {far}{flag}")
    arc(capsys, f"gallery create people --model {model}")
    said = arc(capsys, "gallery add people known")
    assert "safe:" in said
    assert "passed over that were there already" in arc(capsys, "gallery add people known")
    who, cosines = decisions(arc(capsys, "gallery identify people asked strange --json"))
    right = [name == Path(image).parent.name for image, name, _ in who if image.startswith("asked")]
    wrong = [name is not None for image, name, _ in who if image.startswith("strange")]
    stats = arc(capsys, "gallery stats people")
    assert "At the threshold for a false accept rate of " in stats and "strangers taken for somebody" in stats
    assert "<- now" in stats
    assert ("a guess, from so few" in stats) == few
    told = arc(capsys, "gallery identify people asked")
    assert ("so few identities cannot tell" in told) == few != ("may be taken for somebody" in told)
    known = sorted(path.name for path in Path("known").iterdir())
    listed = arc(capsys, "gallery list people --json")
    assert [one["name"] for one in json.loads(listed)] == known
    image = next(Path("asked", known[0]).iterdir())
    assert known[0] in arc(capsys, f"gallery verify people {image} --name {known[0]}")
    arc(capsys, f"export {model} model.onnx --on {calibration}")
    again, twins = decisions(without_torch("gallery identify people asked strange --json --model model.onnx", folder))
    assert again == who and np.allclose(twins, cosines, atol=1e-5)
    assert "threshold" in without_torch(f"verify model.onnx {image} {image}", folder)
    assert "pairs-eer" in without_torch("evaluate model.onnx --on asked", folder)
    without_torch("embed model.onnx asked --out asked.safetensors", folder)
    assert "erased" in without_torch(f"gallery remove people {known[0]}", folder)
    without_torch(f"gallery add people known/{known[0]} --name {known[0]} --model model.onnx", folder)
    Path("apart").mkdir()
    Path("model.onnx").rename("apart/model.onnx")
    moved = without_torch(f"calibrate apart/model.onnx --on {calibration} --far {far}{flag}", folder)
    theirs, mine = (read_thresholds(place / "thresholds.json")[0].cosine for place in (Path("apart"), Path(model)))
    assert "threshold" in moved and theirs == pytest.approx(mine, abs=1e-5)
    return np.mean(right), np.mean(wrong), json.loads(arc(capsys, "gallery stats people --json"))


def test_the_whole_path_on_digits(here, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("known", "asked", "calibration"):
        (tmp_path / name).symlink_to(here / name)
    strange = arcwise.load("digits[5-6]").test
    write_images(strange, tmp_path / "strange", count=4)
    shutil.copytree(here / "run", tmp_path / "run")
    (tmp_path / "run" / "thresholds.json").unlink(missing_ok=True)
    right, wrong, _ = whole_path(capsys, tmp_path, "run", "calibration", 0.2, few=True)
    assert right > 0.5 and wrong < 0.9


@pytest.mark.filterwarnings("ignore:.*differ in case:arcwise.errors.Note")  # two of the characters do
def test_the_whole_path_on_characters(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arc(capsys, "train mnist --data 'glyphs[0-89]' --set model.backbone=simple_cnn --set model.dim=32 "
                "--set train.epochs=4 --set train.batch=256 --set train.lr=0.1 --out run")  # fmt: skip
    images = arcwise.load("glyphs[220-279]").train
    some = images.take(np.flatnonzero(images.y < 40))
    write_images(some, tmp_path / "known", count=5)
    write_images(some, tmp_path / "asked", first=5, count=4)
    write_images(images.take(np.flatnonzero(images.y >= 40)), tmp_path / "strange", count=8)
    write_images(arcwise.load("glyphs[120-219]").train, tmp_path / "calibration", count=20)
    right, wrong, stats = whole_path(capsys, tmp_path, "run", "calibration", 0.005, few=False)
    assert right > 0.3 and wrong < stats["false_positive"]["200"]  # an estimate from above


@pytest.mark.slow
def test_the_whole_path_on_mnist(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arc(capsys, "train mnist --data 'mnist[0-4]' --set data.limit=6000 --set model.dim=16 --set train.epochs=6 "
                "--set train.batch=128 --set train.lr=0.1 --out run")  # fmt: skip
    write_images(arcwise.load("mnist[7-9]").train, tmp_path / "known", count=10)
    write_images(arcwise.load("mnist[7-9]").test, tmp_path / "asked", count=50)
    write_images(arcwise.load("mnist[5-6]").test, tmp_path / "strange", count=50)
    right, wrong, stats = whole_path(capsys, tmp_path, "run", "'mnist[5-6]'", 0.05, few=True)
    print(f"{right:.1%} of 7, 8 and 9 recognised, {wrong:.1%} of 5 and 6 taken for one of them")
    (rule,) = stats["thresholds"]
    assert right > 0.5  # how many strangers are taken for somebody, two identities cannot tell: the record says so
    assert rule["few_identities"] and (rule["far_low"], rule["far_high"]) == (0.0, 1.0)


# ------------------------------------------------------------------------------------ folders, however they are spelt


@pytest.fixture(scope="module")
def nested(tmp_path_factory):
    """A model of nested classes, and the same digits as classes in classes and as folders that are set apart."""
    folder = tmp_path_factory.mktemp("nested")
    images = arcwise.load("digits[5-9]").train
    for name, parent in zip("56789", "aabbb", strict=True):
        write_images(images.only([images.names.index(name)]), folder / "nested" / parent, count=6)
        write_images(images.only([images.names.index(name)]), folder / "apart" / "train", count=4)
        write_images(images.only([images.names.index(name)]), folder / "apart" / "test", first=4, count=3)
    settings = ["data.source=digits[0-4]", "data.depth=2", "train.epochs=1", "model.dim=8", "data.limit=100"]
    arcwise.train("digits-2d", folder / "deep", settings=settings, device="cpu", listener=lambda event: None)
    settings[1] = "data.depth=1"
    arcwise.train("digits-2d", folder / "flat", settings=settings, device="cpu", listener=lambda event: None)
    return folder


def embedded(capsys, model, what, *options):
    """The classes and the labels that embed finds in a folder, and what it tells."""
    Path("all.safetensors").unlink(missing_ok=True)
    capsys.readouterr()
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        assert code_of(["embed", str(model), what, *options, "--out", "all.safetensors"]) == 0
    found = Embeddings.load("all.safetensors")
    return found.names, found.labels.tolist(), capsys.readouterr().err


@pytest.mark.parametrize("spelt", ["nested", "nested/", "./nested", "folder:nested", "folder:nested/"])
def test_a_folders_classes_lie_as_deep_as_the_models_however_it_is_spelt(nested, monkeypatch, capsys, spelt):
    monkeypatch.chdir(nested)
    deep = ("a/5", "a/6", "b/7", "b/8", "b/9")
    assert embedded(capsys, "deep", spelt)[0] == embedded(capsys, "flat", spelt, "--depth", "2")[0] == deep
    names, _, told = embedded(capsys, "flat", spelt)
    assert names == ("a", "b") and "--depth 2" in told


@pytest.mark.parametrize("spelt", ["nested", "folder:nested"])
def test_pairs_of_nested_folders_say_that_there_are_folders_below(nested, tmp_path, monkeypatch, capsys, spelt):
    monkeypatch.chdir(nested)
    for depth, told in ((1, True), (2, False)):
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            line = f"pairs make {spelt} -n 20 --folds 1 --depth {depth} --out {tmp_path / str(depth)}.csv"
            assert code_of(shlex.split(line)) == 0
        assert ("2 classes; their folders hold 5 folders" in capsys.readouterr().err) == told


@pytest.mark.parametrize("spelt", ["apart", "folder:apart"])
def test_images_set_apart_are_of_the_same_classes(nested, monkeypatch, capsys, spelt):
    monkeypatch.chdir(nested)
    names, labels, _ = embedded(capsys, "flat", spelt)
    assert names == tuple("56789") and np.bincount(labels).tolist() == [7] * 5
    arc(capsys, "gallery create people --model flat") if not Path("people").exists() else None
    arc(capsys, f"gallery add people {spelt}")
    assert [one["name"] for one in json.loads(arc(capsys, "gallery list people --json"))] == list("56789")


def test_nested_classes_are_chosen_where_a_model_is_tried(nested, monkeypatch, capsys):
    monkeypatch.chdir(nested)
    of = {
        spelt: json.loads(arc(capsys, f"evaluate flat --on {spelt} --depth 2 --json"))
        for spelt in ("nested", "folder:nested", "'folder:nested[b/*]'")
    }
    assert [of[spelt]["images"] for spelt in of] == [30, 30, 18]
    assert of["nested"]["numbers"] == of["folder:nested"]["numbers"]
    told = json.loads(arc(capsys, "calibrate flat --on nested --far 0.2 --few-identities --depth 2 --json"))
    assert told["identities"] == 5
    assert "--depth" in arc(capsys, "evaluate all.safetensors --depth 2", code=1)


def test_images_beside_those_set_apart_are_told(nested, tmp_path):
    for name in ("train/1/a.png", "test/1/b.png", "val/1/c.png"):
        (tmp_path / name).parent.mkdir(parents=True)
        Image.new("L", (8, 8)).save(tmp_path / name)
    model = arcwise.load_encoder(nested / "flat")
    with pytest.warns(UserWarning, match="1 image beside train/ and test/ is left out: val/1/c.png"):
        assert len(arcwise.embed(model, tmp_path)) == 2


def test_a_folder_that_bears_the_name_of_a_source_is_told(nested, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_images(arcwise.load("digits[5-6]").train, tmp_path / "digits", count=2)
    assert "not the folder here: that is ./digits" in embedded(capsys, nested / "flat", "digits")[2]


def test_folds_that_share_people_are_told_and_few_people_mark_a_rate(tmp_path):
    from arcwise.pairs import PairTable
    from arcwise.trial import pair_numbers

    rows = ["same,a,b,fold", "1,a/1,a/2,0", "1,b/1,b/2,1", "0,a/1,b/1,0", "0,a/2,b/2,1", "0,a/3,c,1"]
    (tmp_path / "pairs.csv").write_text("\n".join(rows) + "\n")
    with pytest.warns(arcwise.errors.Note, match=r"2 of 4 identities of .*pairs.csv are in several folds"):
        table = PairTable.load(tmp_path / "pairs.csv")
    assert table.identities == 4  # a, b, c, and a/3, of whom nothing is said
    scores = score_pairs(np.linspace(0, 1, 4000), np.arange(4000) % 2 == 0)
    assert "4 classes" in pair_numbers(scores, None, table.identities)[2]["pairs-tar-0.1"]


@pytest.mark.parametrize(("factor", "says"), [
    (1e21, "the export in float32 .* not finite"), (0.0, "the model gives 4 that are not finite or of length 0"),
    (1e-25, "not finite or of length 0|longer or shorter"),
])  # fmt: skip
def test_an_export_that_points_nowhere_is_not_written(tmp_path, factor, says):
    from torch import nn

    from arcwise.export.onnx import export_model

    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.line = nn.Linear(64, 8)

        def forward(self, x):
            return self.line(x.flatten(1)) * factor

    look = arcwise.Preprocessing(side=8, channels=1, mean=(0.3,), std=(0.4,))
    model = arcwise.Embedder(arcwise.ModelConfig(dim=8), preprocessing=look, network=Scaled()).eval()
    with pytest.raises(arcwise.ArcwiseError, match=says):
        export_model(model, tmp_path / "model.onnx", arcwise.load("digits").test.pixels[:4])
    assert list(tmp_path.iterdir()) == []


def test_pairs_of_a_source_with_parameters_are_found_again(place, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arc(capsys, "pairs make synthetic:classes=20,per_class=6 -n 40 --folds 2 --out pairs.csv")
    assert "pairs-eer" in arc(capsys, f"evaluate {place / 'run'} --pairs pairs.csv --all")


def test_images_that_cannot_be_read_are_in_no_pair(here, capsys, tmp_path):
    shutil.copytree("known", tmp_path / "some")
    for name in "789":
        (tmp_path / "some" / name / "0001.png").write_bytes(b"no image")
    for source in (tmp_path / "some", f"folder:{tmp_path / 'some'}"):
        (tmp_path / "pairs.csv").unlink(missing_ok=True)
        assert code_of(shlex.split(f"pairs make {source} -n 30 --folds 1 --out {tmp_path / 'pairs.csv'}")) == 0
        said = capsys.readouterr()
        assert said.err.count("skipped") == 3 and "0001.png" not in (tmp_path / "pairs.csv").read_text()
        follow = said.out.split("Next: arcwise ")[1].replace("MODEL", "run")
        assert "pairs-eer" in arc(capsys, follow)


def test_groups_of_a_folders_table_are_those_of_its_pairs_too(here, capsys, tmp_path):
    shutil.copytree("known", tmp_path / "some")
    files = sorted(path.relative_to(tmp_path / "some") for path in (tmp_path / "some").rglob("*.png"))
    rows = [
        "file,label,light",
        *(f"{file},{file.parent},{'dark' if at % 2 else 'light'}" for at, file in enumerate(files)),
    ]
    (tmp_path / "some" / "labels.csv").write_text("\n".join(rows) + "\n")
    table = tmp_path / "pairs.csv"
    arc(capsys, f"pairs make folder:{tmp_path / 'some'} -n 60 --folds 1 --out {table}")
    said = arc(capsys, f"evaluate run --pairs {table} --on folder:{tmp_path / 'some'} --by light")
    found = {value: (int(a), int(b)) for value, a, b in re.findall(r"^(dark|light) +(\d+) +(\d+) ", said, flags=re.M)}
    assert set(found) == {"dark", "light"} and sum(map(sum, found.values())) < 60
    assert "--on folder:PATH" in arc(capsys, f"evaluate run --pairs {table}", code=1)
    assert "--on folder:PATH" in arc(capsys, f"evaluate run --pairs {table} --on {tmp_path / 'some'}", code=1)


def test_the_file_that_nobody_named_is_not_given_other_rows(here, capsys, tmp_path, monkeypatch):
    for name in ("run", "known", "asked"):
        (tmp_path / name).symlink_to(here / name)
    monkeypatch.chdir(tmp_path)
    arc(capsys, "embed run known")
    arc(capsys, "embed run known")  # again, as after a change
    kept = Path("embeddings.safetensors").read_bytes()
    assert "holds the embeddings of known: name another" in arc(capsys, "embed run asked", code=1)
    assert Path("embeddings.safetensors").read_bytes() == kept
    arc(capsys, "embed run asked --out embeddings2.safetensors")


def test_what_is_to_be_typed_next_works(here, capsys, tmp_path, monkeypatch):
    for name in ("run", "known", "asked", "calibration"):
        shutil.copytree(here / name, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    assert code_of(shlex.split("evaluate run --on asked --out tried")) == 0
    follow = re.search("Next: arcwise (calibrate .*)", capsys.readouterr().err)[1]
    assert "--far 0.1 --few-identities" in follow and "threshold" in arc(capsys, follow)
    said = arc(capsys, "export run small.onnx --on asked --precision int8")
    assert "0 of" in said and "arcwise calibrate small.onnx --on asked" in said
    assert "name another place" in arc(capsys, "gallery create run/new --model run", code=1)
    (tmp_path / "mine.npz").write_bytes(b"")
    assert "arcwise.Embeddings(x, y).save('mine.safetensors')" in arc(capsys, "evaluate mine.npz", code=1)


def test_one_name_from_several_folders_is_told_and_stats_say_which_threshold(here, capsys, tmp_path):
    people = tmp_path / "people"
    arc(capsys, f"gallery create {people} --model run")
    write_images(arcwise.load("digits[7-8]").train, tmp_path / "more", first=90, count=2)
    for line, told in (
        ("known asked", "these are in several of the folders: 7, 8, 9"), ("known", ""),  # as after it was stopped
        (str(tmp_path / "more"), "enrolled before, and added to: 7, 8"),
    ):  # fmt: skip
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            assert code_of(["gallery", "add", str(people), *line.split()]) == 0
        said = capsys.readouterr()
        assert (told in said.err) if told else ("note" not in said.err), said
    gallery = arcwise.Gallery.open(people, None)
    some = [
        threshold(far=far, model=gallery.card.model, date=date)
        for far, date in ((0.1, "2098-01-01"), (0.01, "2099-01-01"))
    ]
    gallery.take_thresholds(some)
    assert "At the threshold for a false accept rate of 1 %: --far takes another" in arc(
        capsys, f"gallery stats {people}"
    )
    assert "rate of 10 %" in arc(capsys, f"gallery stats {people} --far 0.1")
    assert "0.1, 0.01" in arc(capsys, f"gallery stats {people} --far 0.5", code=1)
