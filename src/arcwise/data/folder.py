"""Images from a user's own folder: listed, decoded once by many workers, and mapped from a cache on disk."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import re
import shutil
import unicodedata
import zlib
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
from jaxtyping import Int, UInt8, UInt64

from arcwise.data.images import Images, MappedRows, Tell, image_hashes, pixel_hash
from arcwise.errors import ArcwiseError, name_list
from arcwise.records import Framing, cannot_write, locked, write_json
from arcwise.records.preprocessing import known_formats, no_bombs, why_unusable

WINDOW = 4096  # images that wait for a worker at a time
GREY_TO = 12  # levels that the channels of a grey picture may differ by, as JPEG makes them
DECODER = 1  # raised when the same file would give other pixels
TODO, FINE, BROKEN = 0, 1, 2
FILE_COLUMNS, LABEL_COLUMNS = ("file", "filename", "name", "image", "path"), ("label", "class", "identity", "id", "y")


@dataclass(frozen=True, slots=True)
class Listing:
    """The image files under a root, by names relative to it, with the class each belongs to.

    `notes` say what a person should know of them before they train.
    """

    root: Path
    files: tuple[str, ...]
    labels: tuple[str, ...]
    notes: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The classes, numbers in their natural order."""
        return tuple(sorted(set(self.labels), key=lambda name: (natural(name), name)))


def natural(name: str) -> list:
    """A key that puts "class 10" after "class 9".

    >>> sorted(["b10", "b9", "a"], key=natural)
    ['a', 'b9', 'b10']
    """
    pieces = [piece for piece in re.split(r"([0-9]+)", name) if piece]
    return [(0, len(p.lstrip("0")), p.lstrip("0")) if p[0] in "0123456789" else (1, 0, p) for p in pieces]


def list_images(root: Path, *, depth: int = 1) -> Listing:
    """The images of a folder: one folder per class at that depth, with all below it, or a CSV of names and labels."""
    if root.suffix.lower() == ".csv":
        raise ArcwiseError(f"{root} is a table: name the folder that it lies in, folder:{root.parent}.")
    if not root.is_dir():
        raise ArcwiseError(
            f"there is no folder {root}. Name yours with --data folder:PATH: a folder of images per class."
        )
    tables = label_tables(root)
    if tables:
        return from_table(root, tables)
    every = [path.relative_to(root) for path in images_under(root)]
    found = [(str(path), "/".join(path.parts[:depth])) for path in every if len(path.parts) > depth]
    if not found and depth > 1 and any(len(path.parts) > 1 for path in every):
        raise ArcwiseError(
            f"{root} has no folders with images at depth {depth}: pass depth=1 (--set data.depth=1 to train, else "
            "--depth 1)."
        )
    notes = [] if not found else [*folder_notes(root, every, depth)]
    found = found or [(path.name, root.resolve().name) for path in every]
    if not found:
        raise ArcwiseError(
            f"{root} holds no images. Put each class's images into a folder of its own, as in "
            f"{root / 'cat' / '1.jpg'}, or add a CSV with the columns file,label."
        )
    files, labels = zip(*found, strict=True)
    return Listing(root, files, tuple(map(legible, labels)), tuple(notes))


def label_tables(root: Path) -> list[Path]:
    """The CSV files of a folder, but for tables of pairs, which may lie beside the images that they name."""
    return [path for path in sorted(root.glob("*.csv")) if visible(path.relative_to(root)) and not is_of_pairs(path)]


def is_of_pairs(path: Path) -> bool:
    """Whether a CSV names pairs in its first row, as arcwise pairs make writes them."""
    try:
        with path.open("rb") as file:
            first = file.readline(1000).decode("utf-8-sig", errors="replace")
    except OSError:
        return False
    return {"a", "b", "same"} <= {cell.strip().lower() for cell in first.split(",")}


def legible(name: str) -> str:
    r"""A name that can be printed, drawn and written anywhere: letters composed, bytes that are no UTF-8 spelt out.

    >>> legible("dog\udcff"), len(legible("e\u0301"))
    ('dog\\xff', 1)
    """
    return unicodedata.normalize("NFC", os.fsencode(name).decode(errors="backslashreplace"))


def folder_notes(root: Path, files: list[Path], depth: int) -> Iterator[str]:
    """What may not be meant: folders in folders, loose images, empty folders, links to nothing, names nearly alike."""
    classes = {path.parts[:depth] for path in files if len(path.parts) > depth}
    below = {path.parts[: depth + 1] for path in files if len(path.parts) > depth + 1}
    if len(below) > len(classes):
        yield (
            f"{counted(len(classes), 'class', 'classes')}; their folders hold {len(below)} folders: pass "
            f"depth={depth + 1} (--set data.depth={depth + 1} to train, else --depth {depth + 1}) for those."
        )
    loose = [str(path) for path in files if len(path.parts) <= depth]
    if loose:
        yield f"{counted(len(loose), 'image')} beside the class folders {left_out(loose)}."
    folders = [item for item in root.glob("/".join("*" * depth)) if item.is_dir()]
    empty = [str(name) for item in folders if (name := item.relative_to(root)).parts not in classes and visible(name)]
    if empty:
        yield f"{counted(len(empty), 'folder')} without images, so no class: {some_of(empty)}."
    dangling = [str(path.relative_to(root)) for path in walked(root) if path.is_symlink() and not path.exists()]
    if dangling:
        lead = "leads" if len(dangling) == 1 else "lead"
        yield f"{counted(len(dangling), 'link')} that {lead} nowhere {left_out(dangling)}."
    alike: dict[str, list[str]] = {}
    spelt = Counter(legible("/".join(parts)) for parts in classes)
    for name in sorted(name for name, times in spelt.items() if times > 1):
        yield f"{spelt[name]} folders are one class, {name!r}: their names differ in how letters are coded alone."
    for name in sorted(spelt):
        alike.setdefault("".join(name.split()).casefold(), []).append(name)
    for names in (names for names in alike.values() if len(names) > 1):
        yield f"classes that differ in case or spaces alone: {', '.join(map(repr, names))}."


def counted(n: int, word: str, many: str = "") -> str:
    """A number of things.

    >>> counted(1, "image"), counted(2, "class", "classes")
    ('1 image', '2 classes')
    """
    return f"{n:,} {word if n == 1 else many or word + 's'}"


def left_out(names: list[str]) -> str:
    """That these are left out, some of them by name."""
    return f"{'is' if len(names) == 1 else 'are'} left out: {some_of(names)}"


def some_of(names: list[str]) -> str:
    """The first few names."""
    return name_list(tuple(sorted(names)), most=4)


def visible(path: Path) -> bool:
    """Whether no part of a path begins with a dot."""
    return not any(part.startswith(".") for part in path.parts)


def repeated_notes(images: Images) -> Iterator[str]:
    """Images that stand, pixel for pixel, under two classes."""
    _, first, place = np.unique(image_hashes(images), return_index=True, return_inverse=True)
    twin = first[place]
    rows = np.flatnonzero(images.y[twin] != images.y)
    if len(rows) and images.files is not None:
        a, b = (images.files[i] for i in (twin[rows[0]], rows[0]))
        yield f"{counted(len(rows), 'image')} identical to one of another class, as {a} and {b} are."


def is_grey(listing: Listing) -> bool:
    """Whether the images, as far as a few dozen of them tell, have no colour."""
    some = [listing.files[i] for i in np.linspace(0, len(listing.files) - 1, 48).astype(int)]
    seen = [found for name in dict.fromkeys(some) if (found := colour_spread(listing.root / name)) is not None]
    return bool(seen) and max(seen) <= GREY_TO


def colour_spread(path: Path) -> int | None:
    """How far apart the channels of an image are at most; nothing where it cannot be read."""
    look = Framing(side=32, channels=3, fit="stretch")
    try:
        with no_bombs():
            pixels = look.pixels(path).astype(np.int16)
    except Exception:  # broken images are told when all are decoded
        return None
    return int((pixels.max(axis=2) - pixels.min(axis=2)).max())


def images_under(folder: Path) -> Iterator[Path]:
    """The files below a folder whose ending is that of an image; what is hidden, or in a hidden folder, is not."""
    from PIL import Image

    endings = {ending for ending, kind in Image.registered_extensions().items() if kind in known_formats()}
    for path in sorted(walked(folder)):
        if path.suffix.lower() in endings and path.is_file():
            yield path


def walked(folder: Path) -> Iterator[Path]:
    """What lies below a folder and is no folder; links to folders are followed, none of them twice on one way down."""
    ways: dict[Path, frozenset[Path]] = {folder: frozenset((folder.resolve(),))}
    for at, names, files in os.walk(folder, followlinks=True):
        above = ways.pop(Path(at), frozenset())
        below = {name: Path(at, name) for name in names}
        whole = {name: path.resolve() for name, path in below.items()}
        names[:] = [name for name in names if not name.startswith(".") and whole[name] not in above]
        ways |= {below[name]: above | {whole[name]} for name in names}
        yield from (Path(at, name) for name in files if not name.startswith("."))


def from_table(root: Path, tables: list[Path]) -> Listing:
    """The images that a CSV names, beside it or below."""
    if len(tables) > 1:
        raise ArcwiseError(f"{root} holds several CSV files ({', '.join(t.name for t in tables)}): leave one.")
    rows = table_rows(tables[0])
    at, skip = columns(rows, tables[0])
    found: dict[str, str] = {}
    twice = []
    for number, row in enumerate(rows[skip:], start=skip + 1):
        if len(row) <= max(at) or not row[at[0]] or not row[at[1]]:
            raise ArcwiseError(f"{tables[0]}, row {number} needs a file and a label, got {','.join(row)!r}.")
        file, label = table_file(root, row[at[0]], f"{tables[0]}, row {number}"), row[at[1]]
        if found.setdefault(file, label) != label:
            raise ArcwiseError(
                f"{tables[0]}, row {number} calls {file} {label!r}, and a row before it {found[file]!r}: an image has "
                "one label."
            )
        twice += [file] if len(found) + len(twice) < number - skip else []
    if not found:
        raise ArcwiseError(f"{tables[0]} holds no rows. Write one per image: file,label.")
    notes = [f"{counted(len(twice), 'row')} repeated, used once: {some_of(twice)}."] if twice else []
    return Listing(root, tuple(found), tuple(map(legible, found.values())), tuple(notes))


def table_rows(table: Path) -> list[list[str]]:
    """The cells of a CSV in UTF-8, without white space around them and without empty rows, or what is wrong with it."""
    try:
        text = table.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise ArcwiseError(f"{table} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError as error:
        row = error.object[: error.start].count(b"\n") + 1
        raise ArcwiseError(
            f"{table} is not in UTF-8 (row {row}): save it as UTF-8, which spreadsheets offer."
        ) from None
    try:
        read = csv.reader(io.StringIO(text, newline=""), strict=True)
        rows = [[cell.strip() for cell in row] for row in read if any(cell.strip() for cell in row)]
    except csv.Error as error:
        raise ArcwiseError(f"{table} cannot be read: {error}. Look for a quotation mark that is not closed.") from None
    for number, row in enumerate(rows, start=1):
        broken = next((cell for cell in row if "\n" in cell or "\r" in cell), None)
        if broken is not None:
            raise ArcwiseError(
                f"{table}, row {number} holds a line break in {broken[:40]!r}: put each row on one line."
            )
    return rows


def table_file(root: Path, name: str, where: str) -> str:
    """The file that a row names, relative to the table's folder and spelt in one way; it lies there or below."""
    file = os.path.normpath(name)
    inside = "\0" not in name and not Path(name).is_absolute() and Path(file).parts[:1] != (os.pardir,)
    if not inside or not (root / file).resolve().is_relative_to(root.resolve()):
        raise ArcwiseError(f"{where} names {name!r}, which is outside of {root}: images lie beside the table or below.")
    if not (root / file).is_file():
        raise ArcwiseError(f"{where} names {name!r}, which is not in {root}.")
    return file


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
        f"{table} must begin with a row that names the columns, such as file,label; got {','.join(head)!r}. Files "
        f"stand under {' or '.join(FILE_COLUMNS)}, classes under {' or '.join(LABEL_COLUMNS)}."
    )


def set_apart(root: Path) -> tuple[Path, Path | None]:
    """The folder to train on and the one to test on, where the user has set them apart."""
    for name in ("test", "val", "validation"):
        if (root / "train").is_dir() and (root / name).is_dir():
            return root / "train", root / name
    return root, None


def load_folder(
    listing: Listing,
    names: tuple[str, ...],
    *,
    framing: Framing,
    broken: str,
    cache: Path,
    tell: Tell | None = None,
) -> tuple[Images, dict[str, str]]:
    """Images framed as asked for, mapped from the cache, and the broken files with the reason.

    `broken="refuse"` makes broken files an error that lists them.
    """
    number = {name: at for at, name in enumerate(names)}
    decoded, reasons = decode_folder(listing, framing, cache, tell or (lambda *_: None))
    state = decoded.state
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
    return Images(pixels=MappedRows(decoded, fine), y=y[fine], names=names, files=files), bad


class Decoded:
    """All images of a folder, mapped from the cache, with the checksum and the state of each.

    A row is compared with its checksum when it is first read in this process. One that has changed is decoded again;
    where its file does not give the same any more, the cache is of no use.
    """

    def __init__(self, place: Path, listing: Listing, framing: Framing, *, mode: Literal["r+", "c"]):
        n = len(listing.files)
        self.place, self.listing, self.framing = place, listing, framing
        self.shape = (n, framing.side, framing.side, framing.channels)
        self.pixels = np.memmap(place / "pixels.u8", np.uint8, mode=mode, shape=self.shape)
        self.sums = np.memmap(place / "sums.u4", np.uint32, mode=mode, shape=(n,))
        self.hashes = np.memmap(place / "hashes.u8", np.uint64, mode=mode, shape=(n, 2))  # each beside its complement
        self.state = np.memmap(place / "state.u8", np.uint8, mode=mode, shape=(n,))
        self.read = np.zeros(n, bool)

    def __getitem__(self, rows: Int[np.ndarray, " m"] | int) -> UInt8[np.ndarray, ...]:
        some = np.atleast_1d(np.asarray(rows))
        for row in some[~self.read[some]].tolist():
            if zlib.crc32(self.pixels[row].data) != self.sums[row]:
                self.mend(row)
            self.read[row] = True
        return np.asarray(self.pixels[rows])

    def hashes_of(self, rows: Int[np.ndarray, " m"]) -> UInt64[np.ndarray, " m"]:
        """The `pixel_hash` of these images; one that has changed is taken of its pixels again."""
        kept = np.array(self.hashes[rows])
        for at in np.flatnonzero(kept[:, 0] != ~kept[:, 1]).tolist():
            self.forget(int(rows[at]))
            kept[at, 0] = pixel_hash(self[int(rows[at])])
        return kept[:, 0]

    def forget(self, row: int) -> None:
        """Has one image decoded again by the next process."""
        Decoded(self.place, self.listing, self.framing, mode="r+").state[row] = TODO

    def mend(self, row: int) -> None:
        """Decodes one image again, for this process and for the next."""
        self.forget(row)
        name = self.listing.files[row]
        try:
            with no_bombs():
                fresh = self.framing.pixels(self.listing.root / name)
        except Exception:  # a broken file makes Pillow raise nearly anything
            fresh = None
        if fresh is None or zlib.crc32(np.ascontiguousarray(fresh).data) != self.sums[row]:
            raise ArcwiseError(
                f"the decoded image of {name} in {self.place} is damaged, and decoding it again gave another. Say it "
                "once more, and it is decoded anew."
            )
        self.pixels[row] = fresh


def decode_folder(listing: Listing, framing: Framing, cache: Path, tell: Tell) -> tuple[Decoded, dict[int, str]]:
    """All images, mapped from disk, and why the broken ones are broken.

    What an interrupted call did is kept. A cache of which a file is missing or of another size is made anew.
    """
    place = cache / "folders" / cache_key(listing, framing)
    n, each = len(listing.files), framing.side**2 * framing.channels
    lengths = {"pixels.u8": n * each, "sums.u4": 4 * n, "hashes.u8": 16 * n, "state.u8": n}
    lengths = {place / name: length for name, length in lengths.items()}
    try:
        place.mkdir(parents=True, exist_ok=True)
        with locked(place, wait=True):
            if not all(path.is_file() and path.stat().st_size == length for path, length in lengths.items()):
                (place / "state.u8").unlink(missing_ok=True)  # the last to be there again, should this be cut short
                for path, length in lengths.items():
                    make_room(path, length)
            reasons: dict[int, str] = {}
            found = Decoded(place, listing, framing, mode="r+")
            if (found.state != FINE).any():
                reasons = fill_cache(listing, framing, found, tell=tell)
                write_json(place / "about.json", {"root": str(listing.root), "images": n, "side": framing.side})
    except OSError as error:
        raise ArcwiseError(cannot_write(place, error)) from error
    return Decoded(place, listing, framing, mode="c"), reasons


def make_room(path: Path, length: int) -> None:
    """A file of this length, or the operating system's refusal before any work is done."""
    free = shutil.disk_usage(path.parent).free
    if length > free:
        raise ArcwiseError(
            f"the decoded images need {length / 2**30:.1f} GiB in {path.parent}, and {free / 2**30:.1f} GiB are free. "
            "Make room, lower data.size, or move the cache with --data-dir or ARCWISE_DATA."
        )
    with path.open("wb") as file:
        if hasattr(os, "posix_fallocate"):  # macOS and Windows have none: there a full disk is noticed when it is full
            os.posix_fallocate(file.fileno(), 0, max(length, 1))
        file.truncate(length)


def cache_key(listing: Listing, framing: Framing) -> str:
    """A name for the decoded images that changes when a file, its content's size or time, or the framing does."""
    told: list = [DECODER, str(listing.root.resolve()), (framing.side, framing.channels)]
    if (framing.fit, framing.resample) != ("crop", "bicubic"):
        told += [framing.fit, framing.resample]
    sha = hashlib.sha256(json.dumps(told).encode())
    for name in listing.files:
        try:
            status = (listing.root / name).stat()
        except OSError:  # it went away since it was listed: decoding tells
            continue
        # The last number tells files apart that were swapped.
        numbers = f"{status.st_size} {status.st_mtime_ns} {status.st_ctime_ns}"
        sha.update(f"{name}\0{numbers}\n".encode(errors="surrogateescape"))
    return sha.hexdigest()[:24]


def fill_cache(listing: Listing, framing: Framing, cache: Decoded, *, tell: Tell) -> dict[int, str]:
    """Why each image that cannot be decoded cannot; all others are in place, their state set after their pixels."""
    reasons: dict[int, str] = {}

    def one(row: int) -> None:
        try:
            decoded = framing.pixels(listing.root / listing.files[row])
            cache.pixels[row], cache.sums[row] = decoded, zlib.crc32(np.ascontiguousarray(decoded).data)
            one_hash = np.uint64(pixel_hash(decoded))
            cache.hashes[row] = one_hash, ~one_hash
            cache.state[row] = FINE
        except Exception as error:  # a broken file makes Pillow raise nearly anything
            cache.state[row], reasons[row] = BROKEN, why_unusable(error)

    todo = np.flatnonzero(cache.state != FINE)  # what was broken may have been mended or made readable
    if (cache.state[todo] == BROKEN).all():
        tell = silent  # it is looked at each time, which is nothing to wait for
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


def silent(what: str, done: int, total: int | None) -> None:
    """Tells nothing."""


def list_parts(root: Path, *, depth: int = 1) -> tuple[Listing, Listing | None, tuple[str, ...]]:
    """What to train on, what to test on if the user set it apart, and the classes of both."""
    train_root, test_root = set_apart(root)
    train = list_images(train_root, depth=depth)
    test = list_images(test_root, depth=depth) if test_root else None
    if test is not None and (beside := images_beside(root, {train.root.name, test.root.name})):
        lost = f"{counted(len(beside), 'image')} beside {train.root.name}/ and {test.root.name}/ {left_out(beside)}."
        train = replace(train, notes=(*train.notes, lost))
    extra = tuple(sorted(set(test.names if test else ()) - set(train.names)))
    if extra:
        raise ArcwiseError(f"{test_root} holds classes that {train_root} does not: {name_list(extra)}.")
    return train, test, train.names


def images_beside(root: Path, folders: set[str]) -> list[str]:
    """The images below a folder that are in none of these of its folders."""
    names = (path.relative_to(root) for path in images_under(root))
    return [str(name) for name in names if name.parts[0] not in folders]


def list_whole(root: Path, *, depth: int = 1) -> Listing:
    """All images of a folder, those that are set apart for testing too, by names below the folder."""
    train, test, _ = list_parts(root, depth=depth)
    if test is None:
        return train
    both = [(part.root.name, part) for part in (train, test)]
    return Listing(
        root,
        tuple(f"{name}/{file}" for name, part in both for file in part.files),
        (*train.labels, *test.labels),
        (*train.notes, *test.notes),
    )


def sizes_of(root: Path, files: tuple[str, ...]) -> list[tuple[int, int]]:
    """Width and height of images as they lie on the disk; of those that can be read."""
    from PIL import Image

    found = []
    for file in files:
        try:
            with Image.open(root / file, formats=known_formats()) as picture:
                found.append(picture.size)
        except Exception:  # a broken file makes Pillow raise nearly anything
            continue
    return found


def table_column(root: Path, column: str) -> dict[str, str]:
    """What a folder's table says of each file in another column."""
    tables = [path for path in sorted(root.glob("*.csv")) if visible(path.relative_to(root))]
    if len(tables) != 1:
        raise ArcwiseError(f"{root} has {len(tables) or 'no'} tables: a column {column!r} is read from the one it has.")
    rows = table_rows(tables[0])
    (file, _), skip = columns(rows, tables[0])
    head = [cell.lower() for cell in rows[0]]
    if not skip or column.lower() not in head:
        raise ArcwiseError(f"{tables[0]} has no column {column!r}: it has {', '.join(rows[0])}.")
    at = head.index(column.lower())
    return {os.path.normpath(row[file]): row[at] for row in rows[1:] if len(row) > max(at, file)}
