"""A user's folder: every layout, every kind of image, broken ones by name, and a cache that is never wrong."""

import io
import os
import shutil
import signal
import struct
import subprocess
import sys
import time
import zlib
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

import arcwise
from arcwise.config import DataConfig
from arcwise.data import folder, load
from arcwise.data.sources import looks, splits_from
from arcwise.embed import folder_work, joined
from arcwise.errors import ArcwiseError
from arcwise.records import Framing


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ARCWISE_DATA", str(tmp_path / "cache"))


def colour(red, side=20):
    return Image.fromarray(np.full((side, side, 3), (red, 40, 90), np.uint8))


@pytest.fixture
def images(tmp_path):
    """Three classes of eight images, red by class."""
    root = tmp_path / "images"
    for c, name in enumerate(("cat 2", "cat 10", "dog")):
        (root / name / "deeper").mkdir(parents=True)
        for i in range(8):
            colour(60 * c + i).save(root / name / ("deeper" if i % 2 else ".") / f"{i}.png")
    return root


def loaded(root, **options):
    return load(DataConfig(source=f"folder:{root}", size=16, **options))


def test_one_folder_per_class_however_deep_in_natural_order(images):
    (images / "cat 2" / "notes.txt").write_text("not an image")
    (images / "cat 2" / ".hidden.png").write_bytes(b"not one either")
    splits = loaded(images)
    assert splits.train.names == ("cat 2", "cat 10", "dog")
    assert splits.train.shape == (16, 16, 3)
    assert (splits.train.counts + splits.test.counts).tolist() == [8, 8, 8]
    for part in splits.parts.values():
        assert (np.asarray(part.pixels)[:, 0, 0, 0] // 60).tolist() == part.y.tolist()
        assert all(name.startswith(splits.train.names[c]) for name, c in zip(part.files, part.y, strict=True))


def test_folders_set_apart_for_testing_are_used(images, tmp_path):
    root = tmp_path / "apart"
    root.mkdir()
    images.rename(root / "train")
    (root / "val" / "dog").mkdir(parents=True)
    colour(121).save(root / "val" / "dog" / "1.jpg")
    splits = loaded(root)
    assert len(splits.train) == 24 and len(splits.test) == 1
    assert splits.test.names == splits.train.names and splits.test.y.tolist() == [2]
    (root / "val" / "cow").mkdir()
    colour(1).save(root / "val" / "cow" / "1.jpg")
    with pytest.raises(ArcwiseError, match="does not: cow"):
        loaded(root)


@pytest.mark.parametrize("heading", ["file,label\n", "identity;no\nlabel,file\n", ""])
def test_a_csv_names_the_labels(tmp_path, heading):
    rows = [(f"{i}.png", "odd" if i % 2 else "even") for i in range(10)]
    for i in range(10):
        colour(200 if i % 2 else 20).save(tmp_path / f"{i}.png")
    turned = heading.startswith("identity")
    lines = [f"{label},{name}" if turned else f"{name},{label}" for name, label in rows]
    (tmp_path / "labels.csv").write_text(heading.removeprefix("identity;no\n") + "\n".join(lines) + "\n\n")
    splits = loaded(tmp_path)
    assert splits.train.names == ("even", "odd")
    assert ((np.asarray(splits.train.pixels)[:, 0, 0, 0] > 100) == splits.train.y).all()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("file,label\n1.png\n", "row 2 needs a file and a label"),
        ("file,label\nnot.png,a\n", "row 2 names 'not.png'"),
        ("a,b,c\n1,2,3\n", "must begin with a row that names the columns"),
        ("file,label\n", "holds no rows"),
    ],
)
def test_a_wrong_csv_says_which_row(tmp_path, content, says):
    colour(1).save(tmp_path / "1.png")
    (tmp_path / "labels.csv").write_text(content)
    with pytest.raises(ArcwiseError, match=says):
        loaded(tmp_path)


def test_empty_folders_and_single_classes_say_what_to_do(tmp_path):
    with pytest.raises(ArcwiseError, match=r"holds no images.*cat/1\.jpg"):
        loaded(tmp_path)
    (tmp_path / "one").mkdir()
    colour(1).save(tmp_path / "one" / "1.png")
    with pytest.raises(ArcwiseError, match=r"at least two classes, folder:.* has 1"):
        loaded(tmp_path)


def bomb():
    """A PNG of 30,000 x 30,000 pixels in a few bytes."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 30_000, 30_000, 8, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b"")
    )


def broken(images):
    whole = io.BytesIO()
    colour(7, side=200).save(whole, "jpeg")
    (images / "dog" / "cut.jpg").write_bytes(whole.getvalue()[: len(whole.getvalue()) // 2])
    (images / "dog" / "text.png").write_text("no image")
    (images / "dog" / "empty.gif").write_bytes(b"")
    (images / "dog" / "bomb.png").write_bytes(bomb())


def test_broken_images_are_named_and_skipped(images):
    broken(images)
    splits = loaded(images)
    assert set(splits.broken) == {"dog/cut.jpg", "dog/text.png", "dog/empty.gif", "dog/bomb.png"}
    assert "bomb" in splits.broken["dog/bomb.png"] and "truncated" in splits.broken["dog/cut.jpg"]
    assert len(splits.train) + len(splits.test) == 24
    assert loaded(images).broken == splits.broken  # from the cache as well


def test_a_mended_image_is_used_again(images):
    path = images / "dog" / "0.png"
    whole, status = path.read_bytes(), path.stat()
    path.write_bytes(bytes(len(whole)))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert list(loaded(images).broken) == ["dog/0.png"]
    path.write_bytes(whole)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert loaded(images).broken == {}


def test_brackets_and_superscripts_in_names_are_names(tmp_path):
    for name in ("²", "a,b", "07", "7"):
        (tmp_path / "br[a-b]" / name).mkdir(parents=True)
        for i in range(3):
            colour(i).save(tmp_path / "br[a-b]" / name / f"{i}.png")
    splits = loaded(tmp_path / "br[a-b]")
    assert set(splits.train.names) == {"²", "a,b", "07", "7"}


def test_broken_images_are_refused_by_name_where_asked(images):
    broken(images)
    with pytest.raises(ArcwiseError, match=r"(?s)4 of 28 images.*dog/cut\.jpg.*data\.broken=skip"):
        loaded(images, broken="refuse")


@pytest.mark.parametrize(("count", "more"), [(20, ""), (21, "\n  and 1 more"), (24, "\n  and 4 more")])
def test_of_many_broken_images_twenty_are_named(images, count, more):
    for i in range(count):
        (images / "dog" / f"text-{i}.png").write_text("no image")
    with pytest.raises(ArcwiseError) as error:
        loaded(images, broken="refuse")
    assert str(error.value).count("dog/text-") == 20 and f"{more}\nMend or remove" in str(error.value)
    assert ("more" in str(error.value)) == bool(more)


def test_only_broken_images_is_an_error(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "1.png").write_text("no image")
    with pytest.raises(ArcwiseError, match="none of the 2 images"):
        loaded(tmp_path)


def test_every_kind_of_image_comes_out_upright_and_eight_bits(tmp_path):
    def side(path, shape):
        return Framing(side=shape[0], channels=shape[1]).pixels(path)

    wide = Image.new("RGB", (40, 20), (10, 20, 30))
    wide.paste((200, 0, 0), (0, 0, 40, 10))
    wide.save(tmp_path / "a.jpg", exif=Image.Exif(), quality=95)
    exif = Image.Exif()
    exif[0x0112] = 3  # turned by 180 degrees
    wide.save(tmp_path / "turned.jpg", exif=exif, quality=95)
    assert side(tmp_path / "a.jpg", (20, 3))[2, 10, 0] > 150 > side(tmp_path / "a.jpg", (20, 3))[17, 10, 0]
    assert side(tmp_path / "turned.jpg", (20, 3))[17, 10, 0] > 150
    Image.new("RGBA", (8, 8), (0, 0, 0, 0)).save(tmp_path / "clear.png")
    assert (side(tmp_path / "clear.png", (8, 3)) == 255).all()
    Image.fromarray(np.full((8, 8), 32768, np.uint16)).save(tmp_path / "deep.png")
    assert (side(tmp_path / "deep.png", (8, 1)) == 128).all()
    Image.fromarray(np.full((8, 8), 0.5, np.float32)).save(tmp_path / "float.tif")
    assert (side(tmp_path / "float.tif", (8, 1)) == 128).all()
    Image.fromarray(np.full((8, 8), np.nan, np.float32)).save(tmp_path / "nan.tif")
    with pytest.raises(ValueError, match="outside 0 to 1"):
        side(tmp_path / "nan.tif", (8, 1))
    Image.new("P", (8, 8), 3).save(tmp_path / "palette.gif")
    Image.new("CMYK", (8, 8), (0, 0, 0, 0)).save(tmp_path / "print.tif")
    Image.new("1", (8, 8), 1).save(tmp_path / "bits.bmp")
    Image.new("LA", (8, 8), (50, 255)).save(tmp_path / "grey.png")
    for name, value in (("print.tif", 255), ("bits.bmp", 255), ("grey.png", 50)):
        assert (side(tmp_path / name, (8, 3)) == value).all(), name
    assert side(tmp_path / "palette.gif", (4, 3)).shape == (4, 4, 3)


def test_the_cache_follows_the_files(images, monkeypatch):
    first = loaded(images)
    with monkeypatch.context() as patch:
        patch.setattr(Framing, "pixels", None)  # nothing is decoded a second time
        assert np.array_equal(loaded(images).train.pixels[:], first.train.pixels[:])
    path = images / "dog" / "0.png"
    colour(255).save(path)
    os.utime(path, (1, 1))
    changed = loaded(images)
    both = np.concatenate([changed.train.pixels, changed.test.pixels])
    assert (both[:, 0, 0, 0] == 255).sum() == 1


@pytest.mark.parametrize("other", [{"channels": 1}, {"size": 8}, {"fit": "pad"}, {"resample": "bilinear"}])
def test_the_cache_keeps_every_framing_apart(tmp_path, monkeypatch, other):
    random = np.random.default_rng(0)
    for c, i in np.ndindex(2, 3):
        (tmp_path / "wide" / f"{c}").mkdir(parents=True, exist_ok=True)
        picture = Image.fromarray(random.integers(1, 256, (20, 30, 3), dtype=np.uint8))
        picture.save(tmp_path / "wide" / f"{c}" / f"{i}.png")

    def mapped(**options):
        asked = DataConfig(**{"source": f"folder:{tmp_path / 'wide'}", "size": 16, "test": 0.4, **options})
        return load(asked).parts.values()

    def every(**options):
        return pictures(mapped(**options))

    def pictures(parts):
        return {name: image for part in parts for name, image in zip(part.files, np.asarray(part.pixels), strict=True)}

    earlier, first, second, third = mapped(), every(), every(**other), every()
    assert len(list((tmp_path / "cache" / "folders").iterdir())) == 2  # none was made anew in the place of the other
    assert all(np.array_equal(image, first[name]) for name, image in pictures(earlier).items())
    monkeypatch.setenv("ARCWISE_DATA", str(tmp_path / "fresh"))
    fresh = every(**other)
    assert len(first) == 6 and all(image.any() for image in second.values())
    assert all(np.array_equal(second[name], fresh[name]) for name in first)
    assert all(np.array_equal(third[name], first[name]) for name in first)


def test_decoding_goes_on_where_it_was_killed(images, tmp_path):
    code = f"""
import time
from arcwise.config import DataConfig
from arcwise.data import load
from arcwise.records import Framing
slow = Framing.pixels
def pixels(*args):
    time.sleep(0.1)
    return slow(*args)
Framing.pixels = pixels
load(DataConfig(source="folder:{images}", size=16))
"""
    child = subprocess.Popen([sys.executable, "-c", code])
    place = tmp_path / "cache" / "folders"
    for _ in range(400):
        state = next(iter(place.glob("*/state.u8")), None)
        if state is not None and 3 <= np.fromfile(state, np.uint8).sum() < 20:
            break
        time.sleep(0.02)
    child.send_signal(signal.SIGKILL)
    child.wait()
    done = int(np.fromfile(state, np.uint8).sum())
    assert 3 <= done < 24
    told = []
    splits = load(DataConfig(source=f"folder:{images}", size=16), tell=lambda *a: told.append(a))
    assert told[-1][1] == told[-1][2] <= 24 - done
    assert sorted((splits.train.counts + splits.test.counts).tolist()) == [8, 8, 8]
    for part in splits.parts.values():
        assert (np.asarray(part.pixels)[:, 0, 0, 0] // 60).tolist() == part.y.tolist()


def test_too_little_room_is_said_before_any_work(images, monkeypatch):
    from collections import namedtuple

    monkeypatch.setattr(folder.shutil, "disk_usage", lambda _: namedtuple("usage", "free")(1000))
    with pytest.raises(ArcwiseError, match=r"GiB are free\. Make room"):
        loaded(images)


def test_folders_stay_on_disk_until_they_are_trained_on(images):
    from arcwise.data import Loader
    from arcwise.data.images import MappedRows
    from arcwise.data.samplers import epoch_order

    splits = loaded(images, validation=0.2, limit=15)
    assert all(isinstance(part.pixels, MappedRows) for part in splits.parts.values())
    rows = epoch_order(splits.train.y, "shuffled", batch=4, seed=0)
    options = {"mean": (0.5,) * 3, "std": (0.2,) * 3, "config": DataConfig(flip=True)}
    whole, streamed = (Loader(splits.train, resident=r, **options).training(rows, seed=1) for r in (None, 0))
    for one, two in zip(whole, streamed, strict=True):
        assert (one.x == two.x).all() and (one.y == two.y).all()


# ---------------------------------------------------------------- what a folder says before it is trained on


def note_of(splits, words):
    return next((note for note in splits.notes if words in note), "")


@pytest.fixture
def alphabets(tmp_path):
    """Two alphabets of three characters of four grey drawings each, 20 x 30."""
    random = np.random.default_rng(0)
    root = tmp_path / "alphabets"
    for a, c, i in np.ndindex(2, 3, 4):
        (root / f"a{a}" / f"c{c}").mkdir(parents=True, exist_ok=True)
        Image.fromarray(random.integers(0, 255, (30, 20), np.uint8)).save(root / f"a{a}" / f"c{c}" / f"{i}.png")
    return root


def test_folders_in_folders_are_told_of_and_chosen_by_their_depth(alphabets):
    splits = loaded(alphabets)
    assert splits.train.names == ("a0", "a1")
    assert note_of(splits, "pass depth=2") == (
        "2 classes; their folders hold 6 folders: pass depth=2 (--set data.depth=2 to train, else --depth 2) for those."
    )
    deep = loaded(alphabets, depth=2)
    assert deep.train.names == ("a0/c0", "a0/c1", "a0/c2", "a1/c0", "a1/c1", "a1/c2")
    assert not any("depth" in words for words in deep.notes)
    with pytest.raises(ArcwiseError, match="no folders with images at depth 5"):
        loaded(alphabets, depth=5)


def test_classes_are_kept_unseen_by_pattern(alphabets):
    splits = loaded(alphabets, depth=2, unseen="a1/*")
    assert splits.unseen.names == ("a1/c0", "a1/c1", "a1/c2") and len(splits.train.names) == 3
    with pytest.raises(ArcwiseError, match="no class 'b\\*'"):
        loaded(alphabets, unseen="b*")


def test_grey_images_stay_grey_whole_and_unmirrored_and_colour_ones_do_not(alphabets, images):
    grey, colourful = loaded(alphabets), loaded(images)
    assert grey.train.shape[2] == 1 and grey.framing.fit == "pad"
    assert colourful.train.shape[2] == 3 and colourful.framing.fit == "crop"
    config = DataConfig(source=f"folder:{alphabets}", flip=None)
    assert looks(config, grey)["not mirrored"] == "data.flip=true"
    assert looks(replace(config, source=f"folder:{images}"), colourful)["mirrored at random"] == "data.flip=false"
    assert loaded(alphabets, channels=3).framing.fit == "crop"  # as it was asked for, and always was


def lone_image(root):
    (root / "one").mkdir()
    colour(200).save(root / "one" / "a.png")


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda root: colour(1).save(root / "loose.png"), "1 image beside the class folders is left out: loose.png."),
        (lambda root: (root / "empty").mkdir(), "1 folder without images, so no class: empty."),
        (lambda root: (root / "dog" / "x.png").symlink_to("/nowhere"), "1 link that leads nowhere is left out: dog/x"),
        (lambda root: shutil.copytree(root / "dog", root / "Dog"), "differ in case or spaces alone: 'Dog', 'dog'"),
        (lambda root: shutil.copytree(root / "dog", root / "other"), "8 images identical to one of another class, as"),
        (lone_image, "1 class without a test image"),
    ],
)
def test_what_may_not_be_meant_is_said_once(images, damage, said):
    damage(images)
    assert len([note for note in loaded(images).notes if said in note]) == 1


def test_gaps_in_the_labels_of_arrays_are_said():
    splits = splits_from((np.zeros((20, 8, 8), np.uint8), np.arange(20) % 2 * 63), DataConfig())
    assert "62 classes without a training image: 1, 2, 3, 4 and 58 more." in splits.notes


def test_names_that_differ_in_how_letters_are_coded_are_one_class(tmp_path):
    composed, apart = "\u00e9", "e\u0301"
    for name in (composed, apart, "dog"):
        (tmp_path / "all" / name).mkdir(parents=True)
        for i in range(4):
            colour(20 * i).save(tmp_path / "all" / name / f"{i}.png")
    splits = loaded(tmp_path / "all")
    assert splits.train.names == ("dog", composed)
    assert note_of(splits, "2 folders are one class") and not any("case or spaces" in words for words in splits.notes)
    model = arcwise.Embedder(
        arcwise.ModelConfig(dim=2),
        preprocessing=arcwise.Preprocessing(side=16, channels=3, mean=(0.5,) * 3, std=(0.5,) * 3),
    )
    (tmp_path / "other").mkdir()
    (tmp_path / "all" / apart).rename(tmp_path / "other" / apart)
    for root in ("other", "all"):
        works = [folder_work(model, tmp_path / name) for name in dict.fromkeys((root, "all", "other"))]
        assert sorted(joined(works).names) == ["dog", composed]


def test_what_is_broken_is_looked_at_again_without_a_word(tmp_path):
    for name in "ab":
        (tmp_path / "all" / name).mkdir(parents=True)
        for i in range(4):
            colour(20 * i).save(tmp_path / "all" / name / f"{i}.png")
    (tmp_path / "all" / "a" / "0.png").write_bytes(b"no image")
    told = []
    for _ in range(2):
        load(DataConfig(source=f"folder:{tmp_path / 'all'}", size=16), tell=lambda *words: told.append(words))
    assert len(told) == 1 and told[0][1:] == (8, 8)
