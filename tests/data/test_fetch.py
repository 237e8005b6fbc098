"""Getting data: every way a mirror can fail, on a loopback server; nothing half-written is ever left."""

import dataclasses
import gzip
import http.server
import io
import struct
import tarfile
import threading
import time

import numpy as np
import pytest

from arcwise.data import fetch, formats
from arcwise.errors import ArcwiseError
from arcwise.records import write_tensors

ARRAYS = {
    "train_x": np.arange(5 * 16, dtype=np.uint8).reshape(5, 4, 4, 1),
    "train_y": np.arange(5, dtype=np.uint8),
    "test_x": np.arange(3 * 16, dtype=np.uint8)[::-1].reshape(3, 4, 4, 1).copy(),
    "test_y": np.arange(3, dtype=np.uint8),
}


def idx(array):
    array = array.squeeze(-1) if array.ndim == 4 else array
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


FILES = {formats.IDX_FILES[key] + ".gz": gzip.compress(idx(value)) for key, value in ARRAYS.items()}


class Server(http.server.BaseHTTPRequestHandler):
    """Serves the files as its `behaviour` says."""

    behaviour = "right"
    asked: list

    def do_GET(self):
        self.asked.append(self.path)
        content = FILES[self.path.rsplit("/", 1)[1]]
        if self.behaviour == "refuses":
            self.send_error(503, "try later")
            return
        self.send_response(200)
        if self.behaviour == "wrong":
            content = gzip.compress(idx(np.zeros_like(ARRAYS["train_x"])))
        if self.behaviour == "corrupt":
            content = content[:-12] + bytes(12)
        if self.behaviour == "page":
            content = b"<html>sign in to the hotel's network</html>"
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.behaviour == "cut off":
            self.wfile.write(content[: len(content) // 2])
            return
        if self.behaviour == "slow":
            for byte in content:
                self.wfile.write(bytes([byte]))
                self.wfile.flush()
                time.sleep(0.05)
            return
        if self.behaviour == "silent":
            time.sleep(2)
        self.wfile.write(content)

    def log_message(self, *_):
        pass


@pytest.fixture
def server(monkeypatch):
    handler = type("Handler", (Server,), {"asked": []})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as listening:
        threading.Thread(target=listening.serve_forever, daemon=True).start()
        handler.url = f"http://127.0.0.1:{listening.server_address[1]}/data/"
        yield handler
        listening.shutdown()


@pytest.fixture(autouse=True)
def tiny(monkeypatch):
    """A set of eight images in the place of MNIST; no npm, no public mirrors."""
    origin = fetch.Origin(
        files=tuple(FILES), mirrors=(), decode=formats.mnist_arrays, sha256=fetch.digest(ARRAYS), names=tuple("01234")
    )
    monkeypatch.setitem(fetch.ORIGINS, "mnist", origin)
    monkeypatch.setattr(fetch, "TIMEOUT", 0.5)
    monkeypatch.delenv("ARCWISE_MIRROR", raising=False)
    return origin


def same(arrays):
    return all(np.array_equal(arrays[key], value) for key, value in ARRAYS.items())


def test_a_right_mirror_gives_the_set_and_the_cache_gives_it_again(server, tmp_path):
    told = []
    assert same(fetch.fetch_arrays("mnist", data_dir=tmp_path, mirror=server.url, tell=lambda *a: told.append(a)))
    assert len(server.asked) == 4 and told[-1][1] == told[-1][2]
    assert same(fetch.fetch_arrays("mnist", data_dir=tmp_path, mirror=server.url))
    assert len(server.asked) == 4
    assert [path.name for path in tmp_path.iterdir()] == ["mnist.safetensors"]


@pytest.mark.parametrize(
    ("behaviour", "says"),
    [
        ("refuses", "503 try later"),
        ("wrong", "SHA-256"),
        ("corrupt", "no readable gzip"),
        ("page", "no readable gzip"),
        ("cut off", "broke off|IncompleteRead"),
        ("slow", "too slow|timed out"),
        ("silent", "timed out"),
    ],
)
def test_a_bad_mirror_is_passed_over_and_leaves_nothing(server, tmp_path, behaviour, says):
    server.behaviour = behaviour
    with pytest.raises(ArcwiseError, match=says) as caught:
        fetch.fetch_arrays("mnist", data_dir=tmp_path, mirror=server.url)
    for way in ("put train-images", "--mirror https", "arcwise train digits-2d"):
        assert way in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_the_next_mirror_is_asked_after_a_bad_one(server, tmp_path, monkeypatch, tiny):
    bad = type("Bad", (Server,), {"asked": [], "behaviour": "cut off"})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), bad) as listening:
        threading.Thread(target=listening.serve_forever, daemon=True).start()
        monkeypatch.setenv("ARCWISE_MIRROR", f"http://127.0.0.1:{listening.server_address[1]}/")
        monkeypatch.setitem(fetch.ORIGINS, "mnist", dataclasses.replace(tiny, mirrors=(server.url,)))
        assert same(fetch.fetch_arrays("mnist", data_dir=tmp_path))
        listening.shutdown()
    assert bad.asked and server.asked


def test_a_damaged_cache_is_noticed_and_fetched_again(server, tmp_path):
    fetch.fetch_arrays("mnist", data_dir=tmp_path, mirror=server.url)
    path = tmp_path / "mnist.safetensors"
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)
    assert same(fetch.fetch_arrays("mnist", data_dir=tmp_path, mirror=server.url))
    path.write_bytes(b"no safetensors")
    assert same(fetch.fetch_arrays("mnist", data_dir=tmp_path, mirror=server.url))
    path.write_bytes(b"no safetensors")
    with pytest.raises(ArcwiseError, match="the cached file"):
        fetch.fetch_arrays("mnist", data_dir=tmp_path)


WRONG = {
    "other keys": {"x": ARRAYS["train_x"], "train_y": ARRAYS["train_y"]},
    "a key more, two less": {**{key: ARRAYS[key] for key in ("train_x", "train_y")}, "more": ARRAYS["test_x"]},
    "negative labels": {**ARRAYS, "train_y": ARRAYS["train_y"].astype(np.int64) - 1},
    "labels beyond the names": {**ARRAYS, "test_y": ARRAYS["test_y"] + np.uint8(3)},
    "labels on two axes": {**ARRAYS, "train_y": ARRAYS["train_y"][:, None]},
    "labels that are no whole numbers": {**ARRAYS, "train_y": ARRAYS["train_y"].astype(np.float32)},
    "more labels than images": {**ARRAYS, "train_y": np.zeros(6, np.uint8)},
    "images without channels": {**ARRAYS, "test_x": ARRAYS["test_x"][..., 0]},
    "images of wider numbers": {**ARRAYS, "test_x": ARRAYS["test_x"].astype(np.uint16)},
    "no images": {**ARRAYS, "test_x": ARRAYS["test_x"][:0], "test_y": ARRAYS["test_y"][:0]},
}


@pytest.mark.parametrize("arrays", WRONG.values(), ids=WRONG)
def test_a_cached_set_that_is_none_is_named(tmp_path, monkeypatch, tiny, arrays):
    """Its checksum is right, and nobody knows the set's own: only its content tells."""
    monkeypatch.setitem(fetch.ORIGINS, "mnist", dataclasses.replace(tiny, sha256=""))
    write_tensors(tmp_path / "mnist.safetensors", arrays, {"sha256": ""})
    with pytest.raises(ArcwiseError, match=r"the cached file .*mnist\.safetensors"):
        fetch.fetch_arrays("mnist", data_dir=tmp_path)
    fetch.store(ARRAYS, tmp_path / "mnist.safetensors")
    assert same(fetch.fetch_arrays("mnist", data_dir=tmp_path))


def test_files_put_into_the_cache_are_used(tmp_path):
    (tmp_path / "mnist").mkdir()
    for name, content in FILES.items():
        (tmp_path / "mnist" / name).write_bytes(content)
    assert same(fetch.fetch_arrays("mnist", data_dir=tmp_path))


def test_archives_are_read_without_trusting_their_paths(tmp_path):
    folder = tmp_path / "data" / "mnist"
    folder.mkdir(parents=True)
    with tarfile.open(folder / "all.tgz", "w:gz") as tar:
        for name, content in FILES.items():
            member = tarfile.TarInfo(f"../../../escaped/{name}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
        link = tarfile.TarInfo("train-images-idx3-ubyte")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
    before = sorted(tmp_path.rglob("*"))
    assert same(formats.mnist_arrays(folder))
    assert sorted(tmp_path.rglob("*")) == before


def test_a_gzip_bomb_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(formats, "LARGEST", 10_000)
    (tmp_path / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(bytes(20_000)))
    with pytest.raises(ArcwiseError, match="too large to be right"):
        formats.mnist_arrays(tmp_path)


def test_offline_says_the_three_ways_out(tmp_path):
    with pytest.raises(ArcwiseError, match=r"(?s)1\. put .*2\. name a mirror.*3\. use a set that is always here"):
        fetch.fetch_arrays("mnist", data_dir=tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_cache_that_cannot_be_written_says_so(server, tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ArcwiseError, match="cannot write"):
        fetch.fetch_arrays("mnist", data_dir=tmp_path / "file", mirror=server.url)


def test_the_environment_moves_the_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("ARCWISE_DATA", str(tmp_path / "here"))
    assert fetch.cache_folder() == tmp_path / "here"
    assert fetch.cache_folder(tmp_path / "there") == tmp_path / "there"


def test_cifar_records_hold_label_and_planes():
    rows = np.zeros((2, 3073), np.uint8)
    rows[:, 0], rows[1, 1 + 1024] = (3, 8), 200  # the first green pixel of the second image
    x, y = formats.records(rows.tobytes(), skip=0)
    assert y.tolist() == [3, 8] and x[1, 0, 0].tolist() == [0, 200, 0]
    with pytest.raises(ArcwiseError, match="not whole records"):
        formats.records(rows.tobytes()[:-1], skip=0)


def test_cifar_comes_from_png_rows_as_from_binary_batches(tmp_path):
    from PIL import Image

    random = np.random.default_rng(0)
    pixels = random.integers(0, 256, (6, 2, 32, 32, 3), dtype=np.uint8)
    labels = random.integers(0, 10, (6, 2), dtype=np.uint8)
    stems = [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]
    (tmp_path / "png").mkdir()
    (tmp_path / "bin").mkdir()
    for stem, x, y in zip(stems, pixels, labels, strict=True):
        Image.fromarray(x.reshape(2, 1024, 3)).save(tmp_path / "png" / f"{stem}.png")
        planes = x.transpose(0, 3, 1, 2).reshape(2, -1)
        (tmp_path / "bin" / f"{stem}.bin").write_bytes(np.concatenate([y[:, None], planes], 1).tobytes())
    for name, some in (("train", labels[:5]), ("test", labels[5:])):
        (tmp_path / "png" / f"{name}_lables.json").write_text(str(some.ravel().tolist()))
    one, two = formats.cifar10_arrays(tmp_path / "png"), formats.cifar10_arrays(tmp_path / "bin")
    assert all(np.array_equal(one[key], two[key]) for key in fetch.KEYS)
    assert np.array_equal(one["test_x"], pixels[5])


def test_a_wrong_archive_checksum_is_refused(tmp_path):
    path = tmp_path / "cifar-100-binary.tar.gz"
    path.write_bytes(b"not it")
    with pytest.raises(ArcwiseError, match="published checksum"):
        fetch.check_archive(path)
