"""The decoded cache of a folder is whole or made anew; tables name each image once, beside them or below."""

import os

import numpy as np
import pytest
from PIL import Image

from arcwise.config import DataConfig
from arcwise.data import folder, load
from arcwise.data.images import image_hashes, pixel_hash
from arcwise.errors import ArcwiseError


@pytest.fixture
def images(tmp_path, monkeypatch):
    """Two classes of six images, told apart by their red."""
    monkeypatch.setenv("ARCWISE_DATA", str(tmp_path / "cache"))
    for c, name in enumerate(("cat", "dog")):
        (tmp_path / "images" / name).mkdir(parents=True)
        for i in range(6):
            colour = np.full((20, 20, 3), (100 * c + 10 * i + 5, 40, 90), np.uint8)
            Image.fromarray(colour).save(tmp_path / "images" / name / f"{i}.png")
    return tmp_path / "images"


def loaded(root):
    return load(DataConfig(source=f"folder:{root}", size=16))


def reds(splits):
    """Each image's red, by its file."""
    return {
        file: int(red)
        for part in splits.parts.values()
        for file, red in zip(part.files, np.asarray(part.pixels)[:, 0, 0, 0], strict=True)
    }


def cached(root, name):
    return next((root.parent / "cache" / "folders").glob(f"*/{name}"))


EXPECTED = {f"{name}/{i}.png": 100 * c + 10 * i + 5 for c, name in enumerate(("cat", "dog")) for i in range(6)}


@pytest.mark.parametrize("name", ["pixels.u8", "sums.u4", "hashes.u8", "state.u8"])
@pytest.mark.parametrize("damage", ["gone", "short", "long", "empty"])
def test_a_cache_that_is_not_whole_is_made_anew(images, name, damage):
    before = loaded(images)
    assert reds(before) == EXPECTED
    path = cached(images, name)
    content = path.read_bytes()
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes({"short": content[:-1], "long": content + b"\0", "empty": b""}[damage])
    after = loaded(images)
    assert reds(after) == EXPECTED and after.fingerprint == before.fingerprint


@pytest.mark.parametrize("name", ["pixels.u8", "sums.u4", "hashes.u8", "state.u8"])
def test_a_flipped_bit_anywhere_in_the_cache_changes_nothing(images, name):
    whole = loaded(images)
    before = whole.fingerprint, [pixel_hash(pixels) for pixels in np.asarray(whole.train.pixels)]
    path, random = cached(images, name), np.random.default_rng(0)
    for at in random.integers(0, path.stat().st_size, 12).tolist():
        content = bytearray(path.read_bytes())
        content[at] ^= 1 << int(random.integers(8))
        path.write_bytes(content)
        if name == "sums.u4":  # the image is as it was, its sum is not: it is decoded once more, the next time
            with pytest.raises(ArcwiseError, match=r"decoding it again gave another\. Say it once more"):
                reds(loaded(images))
        after = loaded(images)
        assert (after.fingerprint, image_hashes(after.train).tolist()) == before and reds(after) == EXPECTED


def test_black_images_never_stand_for_a_cache_that_was_zeroed(images):
    loaded(images)
    path = cached(images, "pixels.u8")
    path.write_bytes(b"\0" * path.stat().st_size)
    assert reds(loaded(images)) == EXPECTED


def test_a_row_is_checked_once_in_a_process(images, monkeypatch):
    splits = loaded(images)
    before = reds(splits)
    monkeypatch.setattr(folder.zlib, "crc32", lambda *_: 0)  # whatever is read from now on would be called damaged
    assert reds(splits) == before


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ("../secret.png,a\ncat/1.png,b", "outside of"),
        ("cat/../../secret.png,a\ncat/1.png,b", "outside of"),
        ("{root}/cat/0.png,a\ncat/1.png,b", "outside of"),
        ("cat/0.png,a\ncat/1.png,b\ncat/0.png,b", "calls cat/0.png 'b', and a row before it 'a'"),
        ("cat/0.png,a\ncat/1.png,b\n./cat/../cat/0.png,b", "calls cat/0.png 'b'"),
    ],
)
def test_tables_name_images_beside_them_once_and_by_one_label(images, rows, said):
    (images.parent / "secret.png").write_bytes((images / "cat" / "0.png").read_bytes())
    (images / "labels.csv").write_text("file,label\n" + rows.format(root=images))
    with pytest.raises(ArcwiseError, match=said):
        loaded(images)


def test_repeated_rows_of_a_table_are_used_once_and_told(images):
    rows = [f"{name}/{i}.png,{name}" for name in ("cat", "dog") for i in range(6)]
    (images / "labels.csv").write_text("\n".join(["file,label", *rows, rows[0], f"./{rows[3]}"]))
    splits = loaded(images)
    files = [file for part in splits.parts.values() for file in part.files]
    assert len(files) == len(set(files)) == 12
    assert any(note.startswith("2 rows repeated, used once: cat/0.png, cat/3.png") for note in splits.notes)


def test_what_is_hidden_is_not_there(images):
    (images / "cat" / ".trash").mkdir()
    (images / "cat" / "0.png").rename(images / "cat" / ".trash" / "0.png")
    (images / "._labels.csv").write_bytes(b"\0\5\x16\7")
    (images / ".hidden").mkdir()
    (images / ".hidden" / "1.png").write_bytes((images / "cat" / "1.png").read_bytes())
    splits = loaded(images)
    assert splits.train.names == ("cat", "dog") and len(splits.train) + len(splits.test) == 11


def test_names_that_are_no_utf8_are_spelt_out_and_stay_apart(images):
    for name, byte in (("cat", b"\xff"), ("dog", b"\xfe")):
        (images / name).rename(os.fsdecode(os.fsencode(images / "bird") + byte))
    splits = loaded(images)
    assert splits.train.names == ("bird\\xfe", "bird\\xff")
    assert len(splits.train) + len(splits.test) == 12


def test_an_image_that_is_postscript_starts_no_program(images, monkeypatch):
    import subprocess

    def refuse(*words, **_):
        raise AssertionError(f"started {words}")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    monkeypatch.setattr(os, "system", refuse)
    page = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 20 20\n%%EndComments\nshowpage\n%%EOF\n"
    for name in ("photo.jpg", "photo.png", "photo.eps"):
        (images / "cat" / name).write_bytes(page)
    splits = loaded(images)
    assert set(splits.broken) == {"cat/photo.jpg", "cat/photo.png"}  # .eps is no ending of an image
    assert set(splits.broken.values()) == {"no image that Pillow can read"}


def test_synthetic_images_are_made_in_blocks_and_are_what_they_were():
    """The sizes that are let through need little more than they take; small ones are drawn as before."""
    with pytest.raises(ArcwiseError, match="synthetic's bytes must be at most"):
        load(DataConfig(source="synthetic:classes=1000000,per_class=1,side=17"))
    found = load(DataConfig(source="synthetic:classes=3,per_class=700,side=64", test=0.2, seed=5))
    random = np.random.default_rng(5)
    y = np.repeat(np.arange(3), 700)
    x = random.standard_normal((3, 4096))[y] + 0.5 * random.standard_normal((2100, 4096))
    whole = np.clip(128 + 40 * x, 0, 255).astype(np.uint8)
    rows = found.train.rows
    assert np.array_equal(found.train.pixels.reshape(len(rows), -1), whole[rows])


@pytest.mark.parametrize("damage", ["zeros", "gone", "about"])
def test_hashes_that_decide_what_was_trained_on_are_never_taken_from_a_damaged_file(images, damage):
    true = image_hashes(loaded(images).train)
    path = cached(images, "hashes.u8")
    if damage == "gone":
        path.unlink()
    elif damage == "zeros":
        path.write_bytes(bytes(path.stat().st_size))
    else:
        cached(images, "about.json").write_text("{}")
    assert image_hashes(loaded(images).train).tolist() == true.tolist()
