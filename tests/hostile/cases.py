"""One hostile case at a time: a reader, edits of its file, and the verdict."""

from __future__ import annotations

import dataclasses
import fnmatch
import hashlib
import os
import random as standard_random
import shutil
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import TypeCheckError

from arcwise.errors import ArcwiseError
from hostile.damage import Edit, is_raw
from hostile.families import UNFIT, damaged, draw_edits
from hostile.limits import TooLong, memory_limit, time_limit, unchecked
from hostile.readers import READERS, Reader

Signature = dict[str, tuple[int, int, int]]  # size, time and inode of each file, by its name


class Finding(NamedTuple):
    """A case that did not pass: what to paste into FOUND, what is wrong with it, and the group of its likes."""

    case: tuple[str, tuple[Edit, ...]]
    kind: str
    words: str

    @property
    def group(self) -> tuple[str, str]:
        """Findings of one cause, mostly: the exception and the line of ours that it came through last."""
        return self.kind, self.words.splitlines()[0][:160]


class Bench:
    """A reader at work: a copy of its templates, whose file is damaged again and again."""

    def __init__(self, name: str, templates: Path, scratch: Path):
        self.name, self.reader, self.templates = name, READERS[name], templates
        self.folder = Path(tempfile.mkdtemp(dir=scratch))
        for need in self.reader.needs:
            shutil.copytree(templates / need, self.folder / need)
        self.path = max(self.folder.glob(self.reader.file))  # of several checkpoints the newest
        self.content = self.path.read_bytes()
        self.others = likes(self.reader, templates, self.path.name)
        self.beside = self.folder.parent / f"{self.folder.name}.beside"
        self.kit = self.reader.prepare(self.folder)
        self.before = signature(self.folder)
        self.pristine = told(self.reader.read(self.folder, self.kit)) if self.reader.exact else None
        self.restore()

    def draw(self, seed: int) -> tuple[Edit, ...]:
        """The edits of a seed; those that would change nothing are drawn again."""
        random = Random(f"{self.name} {seed}")
        while True:
            edits = draw_edits(random, self.reader.family, self.content, self.others)
            try:
                if self.damaged(edits) != self.content:
                    return edits
            except UNFIT:
                continue  # this value does not fit this tensor

    def damaged(self, edits: tuple[Edit, ...]) -> bytes:
        """The file's bytes after the edits."""
        return damaged(self.reader.family, self.content, edits, others=self.others, beside=self.beside)

    def attempt(self, edits: tuple[Edit, ...]) -> tuple[str, Finding | None]:
        """How one case ended (returned or refused), and what is wrong with that, if anything."""
        put_bytes(self.path, self.damaged(edits))
        damaged_file = state(self.path)
        end, wrong = self.read(edits)
        changed = self.changes(damaged_file)
        if wrong is None and changed:
            wrong = ("changed", f"{', '.join(changed)} of {self.reader.file}'s folder after it was {end}")
        self.restore()
        return end, None if wrong is None else Finding((self.name, edits), *wrong)

    def read(self, edits: tuple[Edit, ...]) -> tuple[str, tuple[str, str] | None]:
        """How the reader ended, and what is wrong with that.

        It reads without the type checker, as a user's does; what comes back is then held against its annotations.
        """
        standard_random.seed(0)  # the type checker looks at members of long lists at random
        try:
            with warnings.catch_warnings(), time_limit(self.reader.seconds), memory_limit():
                warnings.simplefilter("ignore")
                with unchecked():
                    found = self.reader.read(self.folder, self.kit)
                if not self.reader.may_write and self.path.exists():
                    self.reader.read(self.folder, self.kit)
        except TypeCheckError as error:
            return "returned", ("types", f"of another type than declared, in {where(error)}\n{error}"[:2000])
        except ArcwiseError:
            return "refused", None
        except TooLong as error:
            return "cut short", ("hang", f"{error}, in {where(error)}")
        except Exception as error:
            return "failed", ("exception", f"{type(error).__name__} in {where(error)}\n{error}"[:2000])
        if self.reader.exact and is_raw(edits) and self.path.exists() and told(found) != self.pristine:
            return "returned", ("unnoticed", f"{self.name} comes back different, and nobody is told")
        return "returned", None

    def changes(self, damaged_file: tuple[int, int, int] | None) -> list[str]:
        """What the reader did to files that are not its own to write; a checkpoint may be set aside as .damaged."""
        after, file = signature(self.folder), str(self.path.relative_to(self.folder))
        before = self.before | {file: damaged_file}
        names = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
        for aside in [str(where.with_suffix(".damaged")) for where in (Path(file), Path(file).parent)]:
            if "checkpoints/step-" in aside and any(name == aside or name.startswith(f"{aside}/") for name in after):
                own = aside.removesuffix(".damaged")
                names = {name for name in names if not name.startswith((own + ".", own + "/"))}
        return sorted(name for name in names if not any(fnmatch.fnmatch(name, own) for own in self.reader.may_write))

    def restore(self) -> None:
        """Puts everything back as it is in the templates."""
        put_bytes(self.path, self.content)
        after, file = signature(self.folder), str(self.path.relative_to(self.folder))
        for name in after.keys() - self.before.keys():
            (self.folder / name).unlink()
        for name in self.before.keys() - {file}:
            if after.get(name) != self.before[name]:
                (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(self.templates / name, self.folder / name)
                self.before[name] = state(self.folder / name)
        self.before[file] = state(self.path)


def likes(reader: Reader, templates: Path, own: str) -> dict[str, bytes]:
    """Other files of the same kind, whose ends are put onto this one."""
    some = {
        "json": ("run/result.json", "run/metrics.json", "run/config.json", "comparison/comparison.json"),
        "lines": ("comparison/softmax-bias-seed0/journal.jsonl", "run/config.json"),
        "tensors": tuple(f"run/{name}.safetensors" for name in ("embeddings/test", "prototypes/final")),
        "cells": ("run/config.json",), "onnx": (), "pickle": ("insight/named.pth", "insight/short.pth"),
        "bytes": tuple(f"images/{name}" for name in ("colour.jpg", "clear.png", "film.gif", "colour.tiff")),
    }[reader.family]  # fmt: skip
    return {name: (templates / name).read_bytes() for name in some if not name.endswith(own)}


def put_bytes(path: Path, content: bytes) -> None:
    """Writes over a file without emptying it first, for which some file systems wait for the disk."""
    path.parent.mkdir(exist_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT), "wb") as file:
        file.write(content)
        file.truncate()


def state(path: Path) -> tuple[int, int, int] | None:
    """What changes when somebody writes a file, or puts another in its place."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_size, found.st_mtime_ns, found.st_ino


def signature(folder: Path, *, locks: bool = False) -> Signature:
    """The state of every file under a folder; locks hold nothing, and count only if asked for."""
    found, waiting = {}, [str(folder)]
    start = len(str(folder)) + 1
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
                elif locks or not entry.name.endswith(".lock"):
                    told_of = entry.stat(follow_symlinks=False)
                    found[entry.path[start:]] = (told_of.st_size, told_of.st_mtime_ns, told_of.st_ino)
    return found


def where(error: BaseException) -> str:
    """The last line of arcwise that an error came through."""
    ours = [frame for frame in traceback.extract_tb(error.__traceback__) if "/arcwise/" in frame.filename]
    if not ours:
        return "no line of arcwise"
    return f"{ours[-1].filename.split('/arcwise/')[-1]}:{ours[-1].name}: {ours[-1].line}"


def told(value: object) -> str:
    """A checksum of a value and of all that is in it."""
    sha = hashlib.blake2b(digest_size=16)
    for piece in pieces(value):
        sha.update(piece)
    return sha.hexdigest()


def pieces(value: Any) -> Iterable[bytes]:
    """The bytes that a value consists of."""
    if hasattr(value, "detach"):
        value = value.detach().numpy()
    if isinstance(value, np.ndarray):
        yield f"{value.dtype}{value.shape}".encode()
        yield np.ascontiguousarray(value).tobytes()
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield field.name.encode()
            yield from pieces(getattr(value, field.name))
    elif isinstance(value, dict):
        for key, one in value.items():
            yield repr(key).encode()
            yield from pieces(one)
    elif isinstance(value, list | tuple):
        yield f"[{len(value)}".encode()
        for one in value:
            yield from pieces(one)
    else:
        yield repr(value).encode(errors="replace")


def summary(findings: list[Finding], *, most: int = 3) -> str:
    """The findings by their groups, each with some cases to paste."""
    groups: dict[tuple[str, str], list[Finding]] = {}
    for finding in findings:
        groups.setdefault(finding.group, []).append(finding)
    lines = [f"{len(findings)} findings in {len(groups)} groups; a case may be pasted into tests/hostile/found.py"]
    for (kind, words), many in sorted(groups.items(), key=lambda group: -len(group[1])):
        readers = Counter(finding.case[0] for finding in many)
        lines += ["", f"{len(many)} x {kind}: {words}", f"    {dict(readers.most_common(5))}"]
        shortest = sorted(many, key=lambda finding: len(repr(finding.case)))[:most]
        lines += [
            f"    {finding.case!r},\n        # {' '.join(finding.words.splitlines()[1:])[:200]}" for finding in shortest
        ]
    return "\n".join(lines)
