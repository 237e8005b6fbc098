"""Images: pixels, labels and names of one part of a set, and the ways to choose classes and to split."""

from __future__ import annotations

import fnmatch
import hashlib
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np
from jaxtyping import Int, UInt8

from arcwise.errors import ArcwiseError, name_list, number_in

AHEAD = 4  # batches that are read before they are needed
Read = TypeVar("Read")
Tell = Callable[[str, int, int | None], None]  # what is on its way, how much of it is there, how much in all if known


@runtime_checkable
class Rows(Protocol):
    """Pixels by their rows: an array, or what reads like one."""

    shape: tuple[int, ...]

    def __getitem__(self, rows: Any, /) -> Any: ...


class MappedRows:
    """Some rows of pixels that stay on disk until they are asked for; reads like an array.

    >>> MappedRows(np.arange(10, dtype=np.uint8).reshape(10, 1, 1, 1), np.array([7, 3]))[1:].ravel()
    array([3], dtype=uint8)
    """

    def __init__(self, pixels: Rows, rows: Int[np.ndarray, " n"]):
        self.pixels, self.rows = pixels, rows
        self.shape = (len(rows), *pixels.shape[1:])
        self.nbytes = int(np.prod(self.shape, dtype=np.int64))

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index) -> UInt8[np.ndarray, ...]:
        return np.asarray(self.pixels[self.rows[index]])

    def __array__(self, dtype: object = None, copy: object = None) -> UInt8[np.ndarray, "n h w channels"]:
        return self[:]

    def take(self, index: Int[np.ndarray, " m"]) -> MappedRows:
        """Some of these rows."""
        return MappedRows(self.pixels, self.rows[index])

    @property
    def hashes(self) -> np.ndarray | None:
        """The `pixel_hash` of each row, where they are kept beside the pixels."""
        known = getattr(self.pixels, "hashes_of", None)
        return None if known is None else known(self.rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class Images:
    """Images of one split: pixels (n, height, width, channels) of 0 to 255, labels, and the classes' names.

    `pixels` may stay in a file on disk (`MappedRows`). `files` names where each image came from, if it was a file;
    else `rows` are their places in `source`. `ids` are keys of its own, where parts of several origins are joined.

    >>> Images(pixels=np.zeros((2, 8, 8, 1), np.uint8), y=np.array([0, 1]), names=("a", "b")).counts
    array([1, 1])
    """

    pixels: UInt8[np.ndarray, "n h w channels"] | MappedRows
    y: Int[np.ndarray, " n"]
    names: tuple[str, ...]
    files: tuple[str, ...] | None = None
    rows: Int[np.ndarray, " n"] | None = None
    source: str = ""
    ids: tuple[str, ...] | None = None

    def __len__(self) -> int:
        return len(self.y)

    @property
    def classes(self) -> int:
        """How many classes there are names for."""
        return len(self.names)

    @property
    def counts(self) -> Int[np.ndarray, " c"]:
        """How many images each class has."""
        return np.bincount(self.y, minlength=self.classes)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Height, width and channels of an image."""
        height, width, channels = self.pixels.shape[1:]
        return height, width, channels

    @property
    def keys(self) -> tuple[str, ...]:
        """For every image where it came from: its file, or its place in its source, as in mnist:test#174.

        >>> Images(pixels=np.zeros((2, 8, 8, 1), np.uint8), y=np.array([0, 1]), names=("a", "b"), source="own").keys
        ('own#0', 'own#1')
        """
        if self.ids is not None:
            return self.ids
        if self.files is not None:
            return tuple(self.source + name for name in self.files) if self.source else self.files
        rows = range(len(self)) if self.rows is None else self.rows.tolist()
        return tuple(f"{self.source}#{row}" for row in rows)

    def positions(self, keys: tuple[str, ...] | None) -> Int[np.ndarray, " m"] | None:
        """Where the images of these keys are; None where one is not here. "#3" is the fourth, as in older files."""
        if keys is None:
            return None
        place = {key: at for at, key in enumerate(self.keys)}
        found = [place.get(key, int(key[1:]) if re.fullmatch(r"#\d{1,15}", key) else -1) for key in keys]
        return None if any(not 0 <= at < len(self) for at in found) else np.array(found, np.int64)

    def take(self, index: Int[np.ndarray, " m"]) -> Images:
        """The images of these rows, in this order."""
        files, ids = (None if many is None else tuple(many[i] for i in index) for many in (self.files, self.ids))
        rows = index if self.rows is None else self.rows[index]
        lazily = isinstance(self.pixels, MappedRows)
        pixels = self.pixels.take(index) if lazily else self.pixels[index]
        return replace(self, pixels=pixels, y=self.y[index], files=files, ids=ids, rows=rows)

    def only(self, classes: list[int]) -> Images:
        """The images of these classes, labelled 0, 1, ... in the order given.

        >>> Images(pixels=np.zeros((2, 8, 8, 1), np.uint8), y=np.array([0, 1]), names=("a", "b")).only([1]).names
        ('b',)
        """
        if classes == list(range(self.classes)):
            return self
        label = np.full(self.classes, -1, dtype=np.int64)
        label[classes] = np.arange(len(classes))
        rows = np.flatnonzero(label[self.y] >= 0)
        return replace(self.take(rows), y=label[self.y[rows]], names=tuple(self.names[c] for c in classes))

    def mean_and_std(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Mean and standard deviation of each channel on the scale of 0 to 1, from some 5,000 images."""
        some = self.pixels[:: max(1, len(self) // 5_000)].reshape(-1, self.shape[2])
        value, mean, std = np.arange(256) / 255.0, [], []
        for channel in some.T:
            share = np.bincount(channel, minlength=256) / max(len(channel), 1)
            mean.append(round(float(share @ value), 4))
            std.append(round(max(float(share @ (value - share @ value) ** 2) ** 0.5, 1e-3), 4))
        return tuple(mean), tuple(std)


def pixel_hash(pixels: UInt8[np.ndarray, "h w channels"]) -> int:
    """A number that two images share when they are equal to the last pixel, and hardly ever otherwise: 64 bits."""
    sha = hashlib.blake2b(repr(pixels.shape).encode(), digest_size=8)
    sha.update(np.ascontiguousarray(pixels).data)
    return int.from_bytes(sha.digest(), "little")


def image_hashes(images: Images) -> np.ndarray:
    """The `pixel_hash` of every image, uint64.

    >>> image_hashes(Images(pixels=np.zeros((2, 8, 8, 1), np.uint8), y=np.array([0, 1]), names=("a", "b"))).tolist()
    [16290228298974295814, 16290228298974295814]
    """
    known = images.pixels.hashes if isinstance(images.pixels, MappedRows) else None
    if known is not None:
        return known
    return np.array([pixel_hash(np.asarray(images.pixels[at])) for at in range(len(images))], np.uint64)


def split_filter(text: str) -> tuple[str, str]:
    """The source and its class filter.

    >>> split_filter("mnist[0-4]"), split_filter("mnist")
    (('mnist', '0-4'), ('mnist', ''))
    """
    found = re.fullmatch(r"(.*?)(?:\[([^\[\]]*)\])?", text.strip(), flags=re.DOTALL)
    assert found is not None
    return found[1].strip(), (found[2] or "").strip()


def select_classes(text: str, names: tuple[str, ...]) -> list[int]:
    """The classes that a filter names: names, positions counted from 0, ranges of either, and patterns; names first.

    >>> select_classes("0-2, dog", ("ant", "bee", "cat", "dog")), select_classes("2-", ("ant", "bee", "cat", "dog"))
    ([0, 1, 2, 3], [2, 3])
    >>> select_classes("s2-*", ("s1-a", "s2-a", "s2-b"))
    [1, 2]
    """
    position = {name: at for at, name in enumerate(names)}
    found: list[int] = []
    for part in [text.strip()] if text.strip() in position else [part.strip() for part in text.split(",")]:
        span = re.fullmatch(r"([0-9]{1,9})(?:\s*(-)\s*([0-9]{0,9}))?", part)
        first_name, dash, last_name = (piece.strip() for piece in part.partition("-"))
        if part in position:
            found.append(position[part])
        elif dash and first_name in position and (last_name in position or not last_name):
            found += range(position[first_name], position[last_name] + 1 if last_name else len(names))
        elif any(sign in part for sign in "*?[") and (
            like := [name for name in names if fnmatch.fnmatchcase(name, part)]
        ):
            found += [position[name] for name in like]
        elif span is None:
            raise ArcwiseError(
                f"there is no class {part!r}. The classes are {name_list(names)}; ranges are written 0-4, patterns a*."
                + (" Folders in folders are classes with data.depth=2." if "/" in part else "")
            )
        else:
            first = int(span[1])
            last = first if span[2] is None else int(span[3]) if span[3] else len(names) - 1
            if not first <= last < len(names):
                raise ArcwiseError(f"the class filter {part!r} must lie within 0-{len(names) - 1}.")
            found += range(first, last + 1)
    if len(set(found)) < len(found):
        raise ArcwiseError(f"the class filter {text!r} names a class twice.")
    return found


def split_by_class(
    y: Int[np.ndarray, " n"], share: float, *, seed: int
) -> tuple[Int[np.ndarray, " kept"], Int[np.ndarray, " taken"]]:
    """Rows that stay and rows that are taken out: the same share of every class, never a class as a whole.

    A class of one image stays; one of two or more gives at least one.

    >>> kept, taken = split_by_class(np.repeat([0, 1], [8, 4]), 0.25, seed=0)
    >>> len(kept), len(taken)
    (9, 3)
    """
    number_in("share", share, 0.0, 0.999)
    out = np.zeros(len(y), dtype=bool)
    random = np.random.default_rng(seed)
    order = random.permutation(len(y))
    by_class = order[np.argsort(y[order], kind="stable")]
    for rows in np.split(by_class, np.cumsum(np.bincount(y))[:-1]):
        take = min(max(round(share * len(rows)), 1), len(rows) - 1) if share > 0 and len(rows) else 0
        out[rows[:take]] = True
    return np.flatnonzero(~out), np.flatnonzero(out)


def limit_images(images: Images, limit: int, *, seed: int) -> Images:
    """At most `limit` images, the same share of every class."""
    if limit <= 0 or limit >= len(images):
        return images
    if limit < images.classes:
        raise ArcwiseError(f"data.limit={limit} leaves fewer images than the {images.classes} classes. Raise it.")
    random = np.random.default_rng(seed)
    order = random.permutation(len(images))
    place = np.empty(len(images), dtype=np.float64)  # an image's place within its class, as a share of the class
    for c in range(images.classes):
        rows = order[images.y[order] == c]
        place[rows] = (np.arange(len(rows)) + 0.5) / max(len(rows), 1)
        place[rows[:1]] = 0.0  # every class keeps one
    return images.take(np.sort(np.argsort(place, kind="stable")[:limit]))


def imbalance_classes(images: Images, ratio: float, *, seed: int) -> Images:
    """Class by class fewer images, in equal steps, until the last has one for `ratio` of the first.

    >>> even = Images(pixels=np.zeros((200, 1, 1, 1), np.uint8), y=np.repeat([0, 1], 100), names=("a", "b"))
    >>> np.bincount(imbalance_classes(even, 4.0, seed=0).y).tolist()
    [100, 25]
    """
    if ratio <= 1.0 or images.classes < 2:
        return images
    random, counts = np.random.default_rng(seed), np.bincount(images.y, minlength=images.classes)
    keep = []
    for c in range(images.classes):
        share = ratio ** (-c / (images.classes - 1))
        rows = random.permutation(np.flatnonzero(images.y == c))
        keep.append(rows[: max(1, round(min(counts[c], share * counts.max())))] if len(rows) else rows)
    return images.take(np.sort(np.concatenate(keep)))


def spread_rows(n: int, most: int) -> Int[np.ndarray, " m"]:
    """At most so many rows of n, spread evenly, always the same.

    >>> spread_rows(10, 4)
    array([0, 3, 6, 9])
    """
    return np.unique(np.linspace(0, n - 1, min(n, most)).round().astype(np.int64))


def read_ahead(read: Callable[[np.ndarray], Read], rows: Iterable[np.ndarray]) -> Iterator[tuple[np.ndarray, Read]]:
    """Each batch of rows with what `read` makes of it, by workers, while the ones before are in use."""
    waiting: deque[tuple[np.ndarray, Future[Read]]] = deque()
    with ThreadPoolExecutor(AHEAD) as workers:
        try:
            for row in rows:
                waiting.append((row, workers.submit(read, row)))
                if len(waiting) > AHEAD:
                    first, future = waiting.popleft()
                    yield first, future.result()
            while waiting:
                first, future = waiting.popleft()
                yield first, future.result()
        finally:
            workers.shutdown(wait=False, cancel_futures=True)
