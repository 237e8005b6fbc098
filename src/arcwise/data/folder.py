"""Returns Images from a user's own folder: listed, decoded once by many workers, and mapped from a cache on disk."""

from __future__ import annotations

import contextlib
import csv
import hashlib
import json
import os
import re
import shutil
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import UInt8

from arcwise.data.images import Images, MappedRows, Tell, shown
from arcwise.errors import ArcwiseError
from arcwise.records import cannot_write, write

WINDOW = 4096  # images that wait for a worker at a time
DECODER = 1  # raised when the same file would give other pixels
TODO, FINE, BROKEN = 0, 1, 2
LARGEST_IMAGE = 256_000_000  # pixels; today's largest telephones take 200 million
FILE_COLUMNS, LABEL_COLUMNS = ("file", "filename", "name", "image", "path"), ("label", "class", "identity", "id", "y")


@dataclass(frozen=True, slots=True)
class Listing:
    """The image files under a root, by names relative to it, with the class each belongs to."""

    root: Path
    files: tuple[str, ...]
    labels: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The classes, numbers in their natural order."""
        return tuple(sorted(set(self.labels), key=natural))


def natural(name: str) -> list:
    """A key that puts "class 10" after "class 9".

    >>> sorted(["b10", "b9", "a"], key=natural)
    ['a', 'b9', 'b10']
    """
    pieces = [piece for piece in re.split(r"([0-9]+)", name) if piece]
    return [(0, len(p.lstrip("0")), p.lstrip("0")) if p[0] in "0123456789" else (1, 0, p) for p in pieces]


def listed(root: Path) -> Listing:
    """The images of a folder: one folder per class, however deep below it, or a CSV of names and labels."""
    if not root.is_dir():
        raise ArcwiseError(
            f"there is no folder {root}. Name yours with --data folder:PATH: a folder of images per class."
        )
    folders = [item for item in sorted(root.iterdir()) if item.is_dir() and not item.name.startswith(".")]
    tables = sorted(root.glob("*.csv"))
    if tables:
        return from_table(root, tables)
    found = [(str(path.relative_to(root)), folder.name) for folder in folders for path in images_under(folder)]
    found = found or [(path.name, root.resolve().name) for path in images_under(root)]
    if not found:
        raise ArcwiseError(
            f"{root} holds no images. Put each class's images into a folder of its own, as in "
            f"{root / 'cat' / '1.jpg'}, or add a CSV with the columns file,label."
        )
    return Listing(root, *zip(*found, strict=True))


def images_under(folder: Path) -> Iterator[Path]:
    """The files below a folder whose ending Pillow knows."""
    from PIL import Image

    endings = {ending for ending, kind in Image.registered_extensions().items() if kind in Image.OPEN}
    for path in sorted(folder.rglob("*")):
        if path.suffix.lower() in endings and path.is_file() and not path.name.startswith("."):
            yield path


def from_table(root: Path, tables: list[Path]) -> Listing:
    """The images that a CSV names, beside it or below."""
    if len(tables) > 1:
        raise ArcwiseError(f"{root} holds several CSV files ({', '.join(t.name for t in tables)}): leave one.")
    try:
        with tables[0].open(newline="", encoding="utf-8-sig", errors="replace") as file:
            rows = [[cell.strip() for cell in row] for row in csv.reader(file) if any(cell.strip() for cell in row)]
    except csv.Error as error:
        raise ArcwiseError(f"{tables[0]} cannot be read: {error}.") from None
    at, skip = columns(rows, tables[0])
    found = []
    for number, row in enumerate(rows[skip:], start=skip + 1):
        if len(row) <= max(at) or not row[at[0]] or not row[at[1]]:
            raise ArcwiseError(f"{tables[0]}, row {number} needs a file and a label, got {','.join(row)!r}.")
        if not (root / row[at[0]]).is_file():
            raise ArcwiseError(f"{tables[0]}, row {number} names {row[at[0]]!r}, which is not in {root}.")
        found.append((row[at[0]], row[at[1]]))
    if not found:
        raise ArcwiseError(f"{tables[0]} holds no rows. Write one per image: file,label.")
    return Listing(root, *zip(*found, strict=True))


def columns(rows: list[list[str]], table: Path) -> tuple[tuple[int, int], int]:
    """Where the file's name and the label stand in a row, and how many rows of heading there are."""
    head = [cell.lower() for cell in rows[0]] if rows else []
    file = next((head.index(name) for name in FILE_COLUMNS if name in head), None)
    label = next((head.index(name) for name in LABEL_COLUMNS if name in head), None)
    if file is not None and label is not None:
        return (file, label), 1
    if rows and len(rows[0]) == 2:
        return (0, 1), 0
    raise ArcwiseError(
        f"{table} must begin with a row that names the columns, such as file,label; got {','.join(head)!r}."
    )


def parts(root: Path) -> tuple[Path, Path | None]:
    """The folder to train on and the one to test on, where the user has set them apart."""
    for name in ("test", "val", "validation"):
        if (root / "train").is_dir() and (root / name).is_dir():
            return root / "train", root / name
    return root, None


def loaded(
    listing: Listing,
    names: tuple[str, ...],
    *,
    shape: tuple[int, int],
    broken: str,
    cache: Path,
    tell: Tell | None = None,
) -> tuple[Images, dict[str, str]]:
    """Images of side and channels `shape`, mapped from the cache, and the broken files with the reason.

    `broken="refuse"` makes broken files an error that lists them.
    """
    number = {name: at for at, name in enumerate(names)}
    pixels, state, reasons = decoded(listing, shape, cache, tell or (lambda *_: None))
    bad = {listing.files[row]: reasons[row] for row in sorted(reasons)}
    if bad and broken == "refuse":
        some = "\n".join(f"  {name}: {reason}" for name, reason in list(bad.items())[:20])
        more = f"\n  and {len(bad) - 20} more" if len(bad) > 20 else ""
        raise ArcwiseError(
            f"{len(bad)} of {len(state)} images in {listing.root} cannot be used:\n{some}{more}\n"
            "Mend or remove them, or pass --set data.broken=skip."
        )
    fine = np.flatnonzero(state == FINE)
    if not len(fine):
        raise ArcwiseError(
            f"none of the {len(state)} images in {listing.root} can be read; the first: {next(iter(bad.items()))}."
        )
    y = np.array([number[label] for label in listing.labels], dtype=np.int64)
    files = tuple(listing.files[i] for i in fine)
    return Images(pixels=MappedRows(pixels, fine), y=y[fine], names=names, files=files), bad


def decoded(
    listing: Listing, shape: tuple[int, int], cache: Path, tell: Tell
) -> tuple[np.ndarray, np.ndarray, dict[int, str]]:
    """All images as one array mapped from disk, each one's state, and why the broken ones are.

    What an interrupted call did is kept.
    """
    place = cache / "folders" / key(listing, shape)
    pixels, state = place / "pixels.u8", place / "state.u8"
    side, channels = shape
    size = (len(listing.files), side, side, channels)
    try:
        place.mkdir(parents=True, exist_ok=True)
        with only_one(place):
            for path, length in ((pixels, int(np.prod(size, dtype=np.int64))), (state, size[0])):
                if not path.exists() or path.stat().st_size != length:
                    make_room(path, length)
            done = np.memmap(state, np.uint8, mode="r+", shape=size[:1])
            reasons: dict[int, str] = {}
            if (done != FINE).any():
                reasons = fill(listing, shape, np.memmap(pixels, np.uint8, mode="r+", shape=size), done, tell=tell)
                write(place / "about.json", json.dumps({"root": str(listing.root), "images": size[0], "side": side}))
    except OSError as error:
        raise ArcwiseError(cannot_write(place, error)) from error
    return np.memmap(pixels, np.uint8, mode="c", shape=size), np.array(done), reasons


def make_room(path: Path, length: int) -> None:
    """A file of this length, or the operating system's refusal before any work is done."""
    free = shutil.disk_usage(path.parent).free
    if length > free:
        raise ArcwiseError(
            f"the decoded images need {length / 2**30:.1f} GiB in {path.parent}, and {free / 2**30:.1f} GiB are free. "
            "Make room, lower data.size, or move the cache with --data-dir or ARCWISE_DATA."
        )
    with path.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, max(length, 1))
        file.truncate(length)


@contextlib.contextmanager
def only_one(place: Path) -> Iterator[None]:
    """Waits until no other process decodes into this place."""
    import fcntl

    with (place / ".lock").open("a") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def key(listing: Listing, shape: tuple[int, int]) -> str:
    """A name for the decoded images that changes when a file, its content's size or time, or the shape does."""
    sha = hashlib.sha256(json.dumps([DECODER, str(listing.root.resolve()), shape]).encode())
    for name in listing.files:
        status = (listing.root / name).stat()
        sha.update(f"{name}\0{status.st_size}\0{status.st_mtime_ns}\n".encode(errors="surrogateescape"))
    return sha.hexdigest()[:24]


def fill(
    listing: Listing, shape: tuple[int, int], pixels: np.ndarray, state: np.ndarray, *, tell: Tell
) -> dict[int, str]:
    """Why each image that cannot be decoded cannot; all others are in place, their state set after their pixels."""
    reasons: dict[int, str] = {}

    def one(row: int) -> None:
        try:
            pixels[row] = image_pixels(listing.root / listing.files[row], shape)
            state[row] = FINE
        except Exception as error:  # a broken file makes Pillow raise nearly anything
            state[row], reasons[row] = BROKEN, reason(error)

    todo = np.flatnonzero(state != FINE)  # what was broken may have been mended or made readable
    with no_bombs(), ThreadPoolExecutor(os.cpu_count() or 1) as workers:
        try:
            for start in range(0, len(todo), WINDOW):
                some = todo[start : start + WINDOW].tolist()
                for count, _ in enumerate(workers.map(one, some), start=start + 1):
                    if count % 64 == 0 or count == len(todo):
                        tell(f"decoding {listing.root.name}", count, len(todo))
        except BaseException:
            workers.shutdown(cancel_futures=True)
            raise
    return reasons


@contextlib.contextmanager
def no_bombs() -> Iterator[None]:
    """Makes Pillow refuse images of more than 256 million pixels, and keeps its other warnings quiet."""
    from PIL import Image

    before = Image.MAX_IMAGE_PIXELS
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        Image.MAX_IMAGE_PIXELS = LARGEST_IMAGE
        try:
            yield
        finally:
            Image.MAX_IMAGE_PIXELS = before


def image_pixels(path: Path, shape: tuple[int, int]) -> UInt8[np.ndarray, "side side channels"]:
    """One image upright, cut to its middle square, resized; transparency on white; 16 bits brought to 8."""
    from PIL import Image, ImageOps

    side, channels = shape
    mode = "RGB" if channels == 3 else "L"
    with Image.open(path) as image:
        image.draft(mode, (2 * side, 2 * side))
        image = ImageOps.exif_transpose(image)
        if image.mode.startswith(("I", "F")):
            image = Image.fromarray(eight_bits(np.asarray(image)))  # 16 bits: 65535 is white; floats: 1 is
        if "A" in image.mode or "transparency" in image.info:
            image = image.convert("RGBA")
            image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
        image = ImageOps.fit(image.convert(mode), (side, side), Image.Resampling.BICUBIC)
        return np.asarray(image).reshape(side, side, channels)


def eight_bits(values: np.ndarray) -> UInt8[np.ndarray, "h w"]:
    """Grey values of 16 bits (65535 is white) or floats (1 is white) as 0 to 255; the same scale for every image."""
    top = 1.0 if values.dtype.kind == "f" else 65535.0
    if not (values.min(initial=0) >= 0 and values.max(initial=0) <= top):  # not a number is neither
        raise ValueError(f"grey values outside 0 to {top:g}")
    return np.round(values.astype(np.float64) * (255.0 / top)).astype(np.uint8)


def reason(error: Exception) -> str:
    """Why an image cannot be used, in few words."""
    from PIL import Image, UnidentifiedImageError

    if isinstance(error, (Image.DecompressionBombWarning, Image.DecompressionBombError)):
        return "larger than any photograph (a decompression bomb)"
    if isinstance(error, UnidentifiedImageError):
        return "no image that Pillow can read"
    return f"{type(error).__name__}: {error}"


def splits(root: Path) -> tuple[Listing, Listing | None, tuple[str, ...]]:
    """What to train on, what to test on if the user set it apart, and the classes of both."""
    train_root, test_root = parts(root)
    train = listed(train_root)
    test = listed(test_root) if test_root else None
    extra = tuple(sorted(set(test.names if test else ()) - set(train.names)))
    if extra:
        raise ArcwiseError(f"{test_root} holds classes that {train_root} does not: {shown(extra)}.")
    return train, test, train.names
