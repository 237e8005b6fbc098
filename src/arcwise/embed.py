"""Embeddings of images: an Encoder applied batch by batch, whatever runs it, into memory or into a file."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int, UInt8

from arcwise.data.folder import Listing, label_tables, legible, list_whole
from arcwise.data.images import Images, image_hashes, read_ahead
from arcwise.errors import ArcwiseError, Busy, NotFinite, count_at_least, note
from arcwise.records import (
    Embeddings,
    Encoder,
    Unusable,
    cannot_write,
    function_of,
    image_key,
    image_list,
    read_json,
    ready_pixels,
    refuse_no_encoder,
    write_json,
)
from arcwise.records.files import PIECE_BYTES
from arcwise.records.lock import take
from arcwise.records.preprocessing import array_of, no_bombs
from arcwise.schema import table, text, whole

BATCH = 512
SAVED_EVERY = 2.0  # seconds between two savings of what is embedded into a file
Counting = Callable[[int, int], None]
Ready = tuple[np.ndarray, np.ndarray, dict[int, str]]  # pixels, which rows they are of, why others are of no use


@dataclass(frozen=True)
class ToEmbed:
    """What is to be embedded: a key for every image, labels and names where they are known, and how rows are read.

    `files` are the images that are files, for their sizes and times; `content` stands for what else the images are.
    `original` gives a row's image as it was handed over, where that was a file or the bytes of one.
    """

    keys: tuple[str, ...]
    y: Int[np.ndarray, " n"] | None
    names: tuple[str, ...]
    read: Callable[[Int[np.ndarray, " b"]], Ready]
    files: tuple[Path, ...] = ()
    content: Callable[[], bytes] = bytes
    original: Callable[[int], bytes | None] = lambda row: None

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def digest(self) -> str:
        """A checksum of which images these are: keys, labels, and of files their sizes and times."""
        sha = hashlib.sha256(json.dumps([self.keys, self.names]).encode())
        sha.update(b"" if self.y is None else self.y.astype(np.int64).tobytes())
        for file in self.files:
            with contextlib.suppress(OSError):
                found = file.stat()  # a time of writing may be copied along, the time of change is the system's
                sha.update(f"{found.st_size} {found.st_mtime_ns} {found.st_ctime_ns}\n".encode())
        sha.update(self.content())
        return sha.hexdigest()


def embed(
    encoder: Encoder,
    images: Any,
    *,
    batch: int = BATCH,
    mirror: bool = False,
    about: Mapping[str, Any] | None = None,
    tell: Counting | None = None,
    broken: dict[str, str] | None = None,
) -> Embeddings:
    """The embeddings of all images, in their order, each with its key; `mirror` adds those of the mirror images.

    Images are those of a source (`arcwise.load`), a folder, labelled by its folders, or paths, bytes, Pillow's images
    or arrays, which the encoder's own preprocessing makes ready. One that cannot be read is an error; with a
    dictionary as `broken` it is left out, and its key and the reason are put there.

    >>> import arcwise
    >>> grey = arcwise.Preprocessing(side=8, channels=1, mean=(0.3,), std=(0.4,))
    >>> model = arcwise.Embedder(arcwise.ModelConfig(dim=2), preprocessing=grey)
    >>> found = embed(model, arcwise.load("digits").test)
    >>> found.x.shape, found.keys[0].startswith("digits#")
    ((359, 2), True)
    """
    refuse_no_encoder(encoder)
    work = work_of(encoder, images)
    x, bad = np.empty((len(work), encoder.dim), np.float32), {}
    for rows, some in encoded(encoder, work, batch=batch, mirror=mirror, tell=tell, bad=bad):
        x[rows] = some
        refuse_broken(work, bad, broken)
    return gathered(x, work, bad, function_of(encoder.fingerprint, mirror=mirror), about)


def refuse_broken(work: ToEmbed, bad: Mapping[int, str], broken: dict[str, str] | None) -> None:
    """Raises at the first image that is of no use, or puts all of them where they are wanted."""
    if bad and broken is None:
        row = min(bad)
        raise Unusable(work.keys[row], bad[row], " Leave it out, or mend it.")
    if broken is not None:
        broken |= {work.keys[row]: reason for row, reason in bad.items()}


def gathered(
    x: Float[np.ndarray, "n d"],
    work: ToEmbed,
    bad: Mapping[int, str],
    model: str,
    about: Mapping[str, Any] | None,
) -> Embeddings:
    """The record of all rows but those that could not be read."""
    if not bad:
        return Embeddings(x, work.y, work.names, work.keys, model, about)
    fine = np.setdiff1d(np.arange(len(work)), sorted(bad))
    y = None if work.y is None else work.y[fine]
    return Embeddings(x[fine], y, work.names, tuple(work.keys[i] for i in fine), model, about)


def encoded(
    encoder: Encoder,
    work: ToEmbed,
    *,
    batch: int,
    mirror: bool,
    tell: Counting | None,
    bad: dict[int, str],
    first: int = 0,
) -> Iterator[tuple[Int[np.ndarray, " b"], Float[np.ndarray, "b d"]]]:
    """Batch by batch the rows that could be read and their embeddings, from `first` on; `bad` takes the others."""
    count_at_least("batch", batch, 1)
    starts = range(first, len(work), batch)
    with no_bombs():
        for row, (pixels, rows, unusable) in read_ahead(
            work.read, (np.arange(start, min(start + batch, len(work))) for start in starts)
        ):
            bad |= unusable
            x = encode_rows(encoder, pixels, mirror=mirror) if len(rows) else np.zeros((0, encoder.dim), np.float32)
            infinite = ~np.isfinite(x).all(axis=1)
            if infinite.any():
                name = work.keys[rows[infinite.argmax()]]
                raise NotFinite(
                    f"the embedding of image {name} is not finite: the model overflows on it. Train it again."
                )
            yield rows, x
            if tell is not None:
                tell(int(row[-1]) + 1, len(work))


def encode_rows(
    encoder: Encoder, pixels: UInt8[np.ndarray, "n h w channels"], *, mirror: bool
) -> Float[np.ndarray, "n d"]:
    """The rows of one batch."""
    out = encoder.encode(pixels)
    if np.shape(out) != (len(pixels), encoder.dim):
        raise ArcwiseError(
            f"the encoder gives rows of shape {np.shape(out)} for {len(pixels)} images, and says that its dim is "
            f"{encoder.dim}: it must be ({len(pixels)}, {encoder.dim})."
        )
    return out + encoder.encode(pixels[:, :, ::-1]) if mirror else out


# ------------------------------------------------------------------------------------ what is to be embedded


def work_of(encoder: Encoder, images: Any) -> ToEmbed:
    """Images of a source, or one or many as they come."""
    if isinstance(images, ToEmbed):
        return images
    if isinstance(images, Images):
        encoder.preprocessing.refuse_other_shapes(images.shape)
        return ToEmbed(
            images.keys, images.y, images.names, lambda rows: (np.asarray(images.pixels[rows]), rows, {}),
            content=lambda: image_hashes(images).tobytes(),
        )  # fmt: skip
    if isinstance(images, str | os.PathLike) and Path(images).is_dir():
        return folder_work(encoder, Path(images), depth=depth_of(encoder))
    many = image_list(images)
    return listed_work(encoder, many, tuple(image_key(image, at) for at, image in enumerate(many)))


def listed_work(
    encoder: Encoder, many: Sequence[Any], keys: tuple[str, ...], y: np.ndarray | None = None,
    names: tuple[str, ...] = (),
) -> ToEmbed:  # fmt: skip
    """Images one by one, each made ready when its turn comes."""

    def read(rows: np.ndarray) -> Ready:
        pixels, fine, bad = [], [], {}
        for at in rows.tolist():
            try:
                pixels.append(ready_pixels(encoder.preprocessing, many[at], keys[at]))
                fine.append(at)
            except Unusable as error:
                bad[at] = error.reason
        side, channels = encoder.preprocessing.side, encoder.preprocessing.channels
        shape = (0, side, side, channels)
        return np.stack(pixels) if pixels else np.zeros(shape, np.uint8), np.array(fine, np.int64), bad

    def original(row: int) -> bytes | None:
        one = many[row]
        return Path(one).read_bytes() if isinstance(one, str | os.PathLike) else one if isinstance(one, bytes) else None

    def content() -> bytes:
        """What the images hold that are no files."""
        there = (one for one in many if not isinstance(one, str | os.PathLike))
        return b"".join(hashlib.sha256(bytes_in(one)).digest() for one in there)

    files = tuple(Path(one) for one in many if isinstance(one, str | os.PathLike))
    return ToEmbed(keys, y, names, read, files, content, original)


def bytes_in(image: Any) -> bytes:
    """What an image that is no file holds."""
    return image if isinstance(image, bytes) else np.ascontiguousarray(array_of(image)).tobytes()


def depth_of(encoder: Encoder) -> int:
    """How far below a folder its classes are folders: as the model was trained, where it tells, else 1."""
    trained = getattr(encoder, "about", {}).get("config", {}).get("data", {})
    return int(trained.get("depth", 1))


def folder_work(encoder: Encoder, folder: Path, *, depth: int = 1) -> ToEmbed:
    """The images of a folder: labelled where it has a folder per class or a table, else not."""
    found = told_listing(folder, depth=depth)
    many = [folder / file for file in found.files]
    keys, y, names = folder_keys(folder, found, whole=True)
    return listed_work(encoder, many, keys) if is_loose(found) else listed_work(encoder, many, keys, y, names)


def told_listing(folder: Path, *, depth: int = 1) -> Listing:
    """The images of a folder, those set apart too; what a person should know of the folder is told."""
    found = list_whole(folder, depth=depth)
    for words in found.notes:
        note(f"{folder}: {words}")
    return found


def folder_keys(
    folder: Path, found: Listing, *, whole: bool
) -> tuple[tuple[str, ...], Int[np.ndarray, " n"], tuple[str, ...]]:
    """The keys of a folder's images, `whole` paths or below the folder; their labels, and the classes' names."""
    number = {name: at for at, name in enumerate(found.names)}
    keys = tuple(str(folder / file) for file in found.files) if whole else found.files
    return keys, np.array([number[label] for label in found.labels]), found.names


def watched(work: ToEmbed, see: Callable[[Int[np.ndarray, " b"], np.ndarray], None]) -> ToEmbed:
    """The same, with somebody who is shown all images that are read: their rows and pixels."""

    def read(rows: np.ndarray) -> Ready:
        pixels, fine, bad = work.read(rows)
        see(fine, pixels)
        return pixels, fine, bad

    return replace(work, read=read)


def is_loose(found: Listing) -> bool:
    """Whether images just lie in a folder, in no folder of a class and in no table."""
    return not label_tables(found.root) and all(Path(file).parent == Path() for file in found.files)


def joined(works: Sequence[ToEmbed]) -> ToEmbed:
    """Several as one, classes of one name as one class; without labels where one of them has none."""
    if len(works) == 1:
        return works[0]
    starts = np.cumsum([0, *map(len, works)])
    works = [replace(work, names=tuple(map(legible, work.names))) for work in works]  # spelt in one way
    names = tuple(dict.fromkeys(name for work in works for name in work.names))
    y = None
    if all(work.y is not None for work in works):
        place = {name: at for at, name in enumerate(names)}
        y = np.concatenate([np.array([place[n] for n in work.names], np.int64)[work.y] for work in works])

    def read(rows: np.ndarray) -> Ready:
        pixels, fine, bad = [], [], {}
        for at, work in enumerate(works):
            mine = rows[(rows >= starts[at]) & (rows < starts[at + 1])] - starts[at]
            if len(mine):
                some, kept, unusable = work.read(mine)
                pixels.append(some)
                fine.append(kept + starts[at])
                bad |= {row + int(starts[at]): reason for row, reason in unusable.items()}
        return np.concatenate(pixels), np.concatenate(fine), bad

    def original(row: int) -> bytes | None:
        at = int(np.searchsorted(starts, row, "right")) - 1
        return works[at].original(row - int(starts[at]))

    keys = tuple(key for work in works for key in work.keys)
    files = tuple(file for work in works for file in work.files)
    return ToEmbed(keys, y, names if y is not None else (), read, files,
                   lambda: b"".join(work.content() for work in works), original)  # fmt: skip


# ------------------------------------------------------------------------------------ into a file


class Written(NamedTuple):
    """What went into a file: rows, their dimension, the classes' names, and what was left out, with the reason."""

    rows: int
    dim: int
    names: tuple[str, ...]
    broken: dict[str, str]


@dataclass
class RowsDone:
    """How many rows are done, a checksum of them, and the images among them that are of no use, with the reason."""

    done: int = 0
    crc32: int = 0
    bad: dict[int, str] = field(default_factory=dict)

    def add(self, file: IO[bytes], x: Float[np.ndarray, "b d"]) -> None:
        """Puts rows into the file."""
        file.write(x.data)
        self.done, self.crc32 = self.done + len(x), zlib.crc32(x.data, self.crc32)

    def told(self) -> dict[str, Any]:
        """All of it as plain values; the checksum is then of them, too."""
        broken = {str(row): why for row, why in self.bad.items() if row < self.done}
        crc32 = zlib.crc32(json.dumps([self.done, broken]).encode(), self.crc32)
        return {"done": self.done, "broken": broken, "crc32": crc32}


STATE = table({"work": text, "model": text, "done": whole(0), "crc32": whole(0), "broken": table(rest=text)}, rest=text)


def embed_into(
    out: str | Path,
    encoder: Encoder,
    images: Any,
    *,
    batch: int = BATCH,
    mirror: bool = False,
    about: Mapping[str, Any] | None = None,
    tell: Counting | None = None,
) -> Written:
    """What is in the file `out` once the embeddings of all images are; images that cannot be read are left out.

    What is done is kept beside the file while it lasts: the same call goes on where it was stopped or killed.
    """
    refuse_no_encoder(encoder)
    out, work = Path(out), work_of(encoder, images)
    told = {"work": work.digest, "model": encoder.fingerprint, "mirror": str(mirror)}
    with kept_rows(out) as (file, state):
        progress = known_state(file, state, told, encoder.dim)
        bad, saved = progress.bad, time.monotonic()
        file.seek(progress.done * encoder.dim * 4)
        for rows, x in encoded(encoder, work, batch=batch, mirror=mirror, tell=tell, bad=bad, first=progress.done):
            here = min(progress.done + batch, len(work)) - progress.done
            whole_batch = np.zeros((here, encoder.dim), np.float32)
            whole_batch[rows - progress.done] = x
            progress.add(file, whole_batch)
            if time.monotonic() - saved > SAVED_EVERY:
                keep_state(file, state, told, progress)
                saved = time.monotonic()
        if bad and len(bad) == len(work):
            raise Unusable(work.keys[0], bad[0], f" None of the {len(work):,} can: nothing was written.")
        file.flush()
        x = np.memmap(file, np.float32, "r", shape=(len(work), encoder.dim)) if len(work) else np.zeros(
            (0, encoder.dim), np.float32)  # fmt: skip
        gathered(x, work, bad, function_of(encoder.fingerprint, mirror=mirror), about).save(out)
    broken = {work.keys[row]: reason for row, reason in sorted(bad.items())}
    return Written(len(work) - len(bad), encoder.dim, work.names, broken)


@contextlib.contextmanager
def kept_rows(out: Path) -> Iterator[tuple[IO[bytes], Path]]:
    """The file that rows are put into, held against other processes, and where its state is told; gone in the end."""
    rows, state = out.with_name(f".{out.name}.rows"), out.with_name(f".{out.name}.json")
    try:
        with rows.open("r+b" if rows.exists() else "w+b") as file:
            if not take(file, False):
                raise Busy(f"{out} is being written by another process. Wait for it, or choose another --out.")
            with contextlib.ExitStack() as gone:
                gone.callback(state.unlink, missing_ok=True)
                gone.callback(rows.unlink, missing_ok=True)
                try:
                    yield file, state
                except Unusable:  # there is nothing to go on with
                    raise
                except BaseException:
                    gone.pop_all()
                    raise
    except OSError as error:
        raise ArcwiseError(cannot_write(out, error)) from error


def known_state(file: IO[bytes], state: Path, told: dict[str, str], dim: int) -> RowsDone:
    """What is done already, of these images by this model; nothing where the rows or what is told of them changed."""
    try:
        known = read_json(state, STATE)
        found = RowsDone(known["done"], 0, {int(row): reason for row, reason in known["broken"].items()})
    except (ArcwiseError, ValueError):
        return RowsDone()
    end = found.done * dim * 4
    fits = all(known.get(name) == value for name, value in told.items()) and end <= file.seek(0, os.SEEK_END)
    if not fits:
        return RowsDone()
    file.seek(0)
    for begin in range(0, end, PIECE_BYTES):
        found.crc32 = zlib.crc32(file.read(min(PIECE_BYTES, end - begin)), found.crc32)
    return found if found.told() == {name: known[name] for name in ("done", "broken", "crc32")} else RowsDone()


def keep_state(file: IO[bytes], state: Path, told: dict[str, str], progress: RowsDone) -> None:
    """Says how many rows are done, once they are on the disk."""
    file.flush()
    os.fsync(file.fileno())
    write_json(state, {**told, **progress.told()})
