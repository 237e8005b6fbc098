"""Templates in a folder: one LanceDB table, committed whole, read by many while one writes, and rewritten to forget."""

from __future__ import annotations

import contextlib
import datetime
import errno
import json
import os
import re
import shutil
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from arcwise.errors import ArcwiseError
from arcwise.records import cannot_write, locked, read_json, write_json
from arcwise.records.gallery import CARD, GalleryCard, Templates, as_unicode, new_table_name

CARD_FILE = "gallery.json"
COMPACTED_EVERY = 64  # commits
TABLE_FOLDER = re.compile(r"templates-[0-9a-f]{12}\.lance")
TRIES = 20  # of a reader whose table is rewritten under it


class Version(NamedTuple):
    """Which state of a gallery: its table, the table's own count of changes, and the model that it is for."""

    table: str
    number: int
    model: str


class LanceStore:
    """The templates in a folder; each table in it is one state's, and gallery.json says which counts.

    An addition is one commit of LanceDB. Removing writes a table without somebody beside the old one, turns
    gallery.json to it, which is one rename, and deletes the old one's folder: then nothing of them is on the disk.
    """

    exact = True

    def __init__(self, folder: Path):
        self.folder, self.place = folder, str(folder.resolve())

    # -------------------------------------------------------------------------------- what it is

    def exists(self) -> bool:
        """Whether a gallery was made here."""
        return (self.folder / CARD_FILE).is_file()

    @property
    def card(self) -> GalleryCard:
        """gallery.json."""
        cure = "Put the file back: without it nobody knows whose embeddings these are."
        values = read_json(self.folder / CARD_FILE, CARD, cure=cure)
        return GalleryCard.from_values(values)

    def create(self, card: GalleryCard) -> None:
        """A new gallery without anybody."""
        with locked(self.folder):
            if self.exists():
                raise ArcwiseError(f"{self.folder} is a gallery already: arcwise gallery add {self.folder} FOLDER")
            self.new_table(card.table, schema_of(card.dim).empty_table())
            write_json(self.folder / CARD_FILE, card.as_values())

    def forget_unfinished(self) -> None:
        """Removes what a creation left that was killed before its gallery.json: tables with nobody in them."""
        if self.unfinished():
            with locked(self.folder):
                for place in self.unfinished():
                    shutil.rmtree(place)

    def unfinished(self) -> list[Path]:
        """The tables of a folder that holds nothing but tables with nobody in them."""
        seen = [place for place in self.folder.glob("*") if not place.name.startswith(".")]
        empty = [place for place in seen if TABLE_FOLDER.fullmatch(place.name) and not any(place.glob("data/*"))]
        return empty if len(empty) == len(seen) else []

    def change(self, card: GalleryCard) -> None:
        """The same templates under another card."""
        write_json(self.folder / CARD_FILE, card.as_values())

    @contextlib.contextmanager
    def holding(self) -> Iterator[None]:
        """Holds the gallery against other writers, for whom it waits; what a killed one has left is swept."""
        with locked(self.folder, wait=True):
            self.sweep()
            yield

    def sweep(self) -> None:
        """Removes tables that a killed process has left, or could not let go of."""
        current = f"{self.card.table}.lance"
        for place in self.folder.glob("*.lance"):
            if place.name != current:
                shutil.rmtree(place, ignore_errors=True)

    # -------------------------------------------------------------------------------- reading

    @property
    def version(self) -> Version:
        """Which state this is: another after every change."""
        for attempt in range(TRIES):
            card = self.card
            try:
                return Version(card.table, int(self.open(card.table).version), card.model)
            except ArcwiseError:
                if attempt == TRIES - 1 or self.card.table == card.table:
                    raise
        raise AssertionError

    def read(self, *, since: Version | None = None, first: int = 0, images: bool = False) -> tuple[Version, Templates]:
        """A state and its templates; of the table of `since` only those from enrolment `first` on."""
        for attempt in range(TRIES):
            card = self.card
            try:
                opened = self.open(card.table)
                version = Version(card.table, int(opened.version), card.model)
                same = since is not None and since.table == card.table
                with lance_errors(self.folder):
                    return version, rows_of_table(opened, card.dim, first if same else 0, images)
            except ArcwiseError:
                if attempt == TRIES - 1 or self.card.table == card.table:
                    raise
        raise AssertionError

    @property
    def size(self) -> int:
        """Bytes on the disk."""
        return sum(path.stat().st_size for path in self.folder.rglob("*") if path.is_file())

    # -------------------------------------------------------------------------------- writing, under `holding`

    def append(self, some: Templates) -> None:
        """All of these templates, or none of them."""
        opened = self.open(self.card.table)
        with lance_errors(self.folder):
            opened.add(arrow_of(some))
            if int(opened.version) % COMPACTED_EVERY == 0:
                opened.optimize(cleanup_older_than=datetime.timedelta(minutes=10))

    def rewrite(self, some: Templates, card: GalleryCard) -> GalleryCard:
        """These templates and no others, under a card; of all that was there before nothing is left on the disk."""
        fresh = GalleryCard.from_values({**card.as_values(), "table": new_table_name()})
        self.new_table(fresh.table, arrow_of(some) if len(some) else schema_of(card.dim).empty_table())
        write_json(self.folder / CARD_FILE, fresh.as_values())
        old = self.folder / f"{card.table}.lance"
        with lance_errors(self.folder):
            shutil.rmtree(old)
        return fresh

    def new_table(self, name: str, content: Any) -> None:
        """A table with this content."""
        with lance_errors(self.folder):
            database_at(self.folder).create_table(name, data=content, schema=content.schema)

    def open(self, name: str) -> Any:
        """A table at its latest state."""
        if not (self.folder / f"{name}.lance").is_dir():
            raise ArcwiseError(f"{self.folder} has lost its templates: there is no {name}.lance in it.")
        with lance_errors(self.folder):
            return database_at(self.folder).open_table(name)


DISK_REFUSES = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)  # what no copy of a folder mends


def database_at(folder: Path) -> Any:
    """LanceDB at a folder."""
    try:
        import lancedb
    except ImportError:
        raise ArcwiseError('a gallery is kept by LanceDB: pip install "arcwise[gallery]"') from None
    return lancedb.connect(str(folder))


@contextlib.contextmanager
def lance_errors(folder: Path) -> Iterator[None]:
    """Tells in words what LanceDB, or the disk, has against it."""
    try:
        yield
    except OSError as error:
        raise ArcwiseError(cannot_write(folder, error) if error.strerror else damage_text(folder, error)) from None
    except ArcwiseError:
        raise
    except Exception as error:  # its errors share no class
        raise ArcwiseError(damage_text(folder, error)) from None


def damage_text(folder: Path, error: Exception) -> str:
    """What to say of a table that cannot be read or written; LanceDB tells the system's errors by their numbers."""
    told = re.search(r"\(os error (\d+)\)", str(error))
    if told and int(told[1]) in DISK_REFUSES:
        return cannot_write(folder, OSError(int(told[1]), os.strerror(int(told[1]))))
    first = " ".join(str(error).split()[:30])
    return f"{folder}: its templates cannot be read or written ({first}). Put the folder back from a copy."


def schema_of(dim: int) -> Any:
    """The columns of a table."""
    import pyarrow as pa

    return pa.schema([
        ("at", pa.int64()), ("identity", pa.string()), ("name", pa.string()), ("tags", pa.list_(pa.string())),
        ("key", pa.string()), ("digest", pa.uint64()), ("length", pa.float32()), ("x", pa.list_(pa.float32(), dim)),
        ("origin", pa.uint64()),
        ("crc", pa.uint32()), ("image", pa.binary()), ("image_crc", pa.uint32()),
    ])  # fmt: skip


def arrow_of(some: Templates) -> Any:
    """Templates as LanceDB takes them."""
    import pyarrow as pa

    dim = some.x.shape[1]
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(np.ascontiguousarray(some.x).ravel()), dim)
    tags = pa.array([list(tags) for tags in some.tags], pa.list_(pa.string()))
    images = pa.array(list(some.images) if some.images else [None] * len(some), pa.binary())
    some = replace(some, key=tuple(map(as_unicode, some.key)))
    image_sums = [zlib.crc32(image or b"") for image in some.images] if some.images else [0] * len(some)
    columns = [
        pa.array(some.at), pa.array(list(some.identity)), pa.array(list(some.name)), tags, pa.array(list(some.key)),
        pa.array(some.digest), pa.array(some.length.astype(np.float32)), vectors, pa.array(some.origin),
        pa.array(checksums(some)), images,
        pa.array(image_sums, pa.uint32()),
    ]  # fmt: skip
    return pa.table(columns, schema=schema_of(dim))


def checksums(some: Templates) -> np.ndarray:
    """A CRC-32 of each template: its numbers, and its words one after the other; images have their own."""
    whole = [column.astype("<u8").view(np.uint8).reshape(-1, 8) for column in (some.at, some.digest, some.origin)]
    lengths = some.length.astype("<f4").view(np.uint8).reshape(-1, 4)
    vectors = np.ascontiguousarray(some.x, "<f4").view(np.uint8)
    numbers = np.concatenate([*whole, lengths, vectors], axis=1)
    words = zip(some.identity, some.name, some.key, some.tags, strict=True)
    told = (json.dumps(one).encode() for one in words)
    return np.array([zlib.crc32(word, zlib.crc32(row)) for word, row in zip(told, numbers, strict=True)], np.uint32)


def rows_of_table(opened: Any, dim: int, first: int, images: bool) -> Templates:
    """Templates of a table from an enrolment on, in the order of enrolment."""
    wanted = [name for name in schema_of(dim).names if images or not name.startswith("image")]
    asked = opened.search().select(wanted).limit(2**31 - 1)
    found = (asked.where(f"at >= {first}") if first else asked).to_arrow().combine_chunks()
    if found.schema.field("x").type != schema_of(dim).field("x").type:
        raise ValueError("they are of another dimension than gallery.json says")
    if any(found.column(name).null_count for name in wanted if name != "image"):
        raise ValueError("some of its templates are not whole")

    def words(name: str) -> tuple[Any, ...]:
        return tuple(found.column(name).to_pylist())

    def numbers(name: str, kind: type) -> np.ndarray:
        return found.column(name).to_numpy().astype(kind, copy=False)

    vectors = found.column("x").combine_chunks()
    x = np.asarray(vectors.flatten(), np.float32).reshape(found.num_rows, dim)
    made = Templates(
        numbers("at", np.int64), words("identity"), words("name"), tuple(tuple(tags or ()) for tags in words("tags")),
        words("key"), numbers("digest", np.uint64), numbers("length", np.float32), x,
        numbers("origin", np.uint64), words("image") if images else (),
    )  # fmt: skip
    wrong = checksums(made) != numbers("crc", np.uint32)
    if images:
        wrong |= np.array([zlib.crc32(image or b"") for image in made.images]) != numbers("image_crc", np.uint32)
    if wrong.any():
        raise ValueError(f"{int(wrong.sum()):,} of {len(made):,} templates have changed since they were written")
    order = np.argsort(made.at, kind="stable")
    return made if (order[1:] > order[:-1]).all() else made.take(order)
