"""Kinds of files, and how each is damaged: a function that draws an edit, and one that applies it."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import NamedTuple

import numpy as np

from arcwise.records import Entry, write_tensors
from hostile.damage import RAW, VALUES, Edit, draw_bytes, draw_json, edit_bytes, edit_json, its_values

# What an edit raises that does not fit the file any more, or the tensor, or was drawn for another.
UNFIT = (
    KeyError,
    IndexError,
    TypeError,
    ValueError,
    AttributeError,
    OverflowError,
    RecursionError,
    AssertionError,
    csv.Error,
)
Others = dict[str, bytes]  # files of the same kind, for splices


class Family(NamedTuple):
    """How files of one kind are damaged; `raw` is the share of edits that care for no format."""

    draw: Callable[[Random, bytes], Edit]
    edit: Callable[[bytes, Edit, Path], bytes]
    raw: float


def draw_edits(random: Random, family: str, content: bytes, others: Others) -> tuple[Edit, ...]:
    """One edit, at times two or three; either all of them are raw or none."""
    kind = FAMILIES[family]
    count = random.choices((1, 2, 3), (8, 1, 1))[0]
    if random.random() < kind.raw:
        return tuple(draw_bytes(random, content, others=tuple(others)) for _ in range(count))
    return tuple(kind.draw(random, content) for _ in range(count))


def damaged(family: str, content: bytes, edits: tuple[Edit, ...], *, others: Others, beside: Path) -> bytes:
    """The bytes after all edits; one that no longer finds its place does nothing. `beside` is a path to write to."""
    for edit in edits:
        try:
            if edit[0] in RAW:
                content = edit_bytes(content, edit, others)
            else:
                content = FAMILIES[family].edit(content, edit, beside)
        except UNFIT:
            if len(edits) == 1:
                raise
    return content


# ---------------------------------------------------------------------------------------------- JSON and its lines


def draw_table(random: Random, content: bytes) -> Edit:
    """An edit of a value."""
    return draw_json(random, json.loads(content))


def draw_line(random: Random, content: bytes) -> Edit:
    """An edit of one line's value, a line twice, a line gone, or two that have changed places."""
    lines = content.splitlines()
    at, kind = random.randrange(len(lines)), random.choices(("line", "again", "gone", "swap"), (8, 1, 1, 1))[0]
    if kind == "line":
        return ("line", at, draw_json(random, json.loads(lines[at])))
    return (kind, at, random.randrange(len(lines)))


def edit_line(content: bytes, edit: Edit, beside: Path) -> bytes:
    """The lines after one edit."""
    kind, at, how = edit
    lines = content.splitlines(keepends=True)
    if kind == "line":
        lines[at] = edit_json(lines[at], how) + b"\n"
    elif kind == "again":
        lines.insert(how, lines[at])
    elif kind == "gone":
        del lines[at]
    else:
        lines[at], lines[how] = lines[how], lines[at]
    return b"".join(lines)


# ---------------------------------------------------------------------------------------------- tensors

CHECKSUM = "crc32"  # the writer's own: it is made anew
WIDER: dict[str, int] = {"BF16": 16, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F4": 4, "C64": 64, "X7": 8}  # bits

SHAPED: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "float64": lambda a: a.astype(np.float64), "float16": lambda a: a.astype(np.float16),
    "int32": lambda a: a.astype(np.int32), "int64": lambda a: a.astype(np.int64), "uint8": lambda a: a.astype(np.uint8),
    "uint64": lambda a: a.astype(np.uint64), "bool": lambda a: a.astype(bool), "scalar": lambda a: a.ravel()[0],
    "flat": lambda a: a.reshape(-1), "one axis more": lambda a: a[None], "an axis at the end": lambda a: a[..., None],
    "turned": lambda a: a.T, "empty": lambda a: a[:0], "no columns": lambda a: a[..., :0], "one row": lambda a: a[:1],
    "a row less": lambda a: a[:-1], "a column less": lambda a: a[..., :-1], "backwards": lambda a: a[::-1],
    "twice the rows": lambda a: np.concatenate([a, a]),
    "zeros": np.zeros_like, "largest": lambda a: np.full_like(a, top_of(a)),
    "one nan": lambda a: with_one(a, np.nan), "one infinity": lambda a: with_one(a, np.inf),
    "one minus one": lambda a: with_one(a, -1), "one large": lambda a: with_one(a, top_of(a)),
    "all nan": lambda a: np.full_like(a, np.nan, dtype=np.float32), "all one": np.ones_like, "negative": lambda a: -a,
    "sixty axes": lambda a: a.reshape((1,) * 60 + a.shape),
}  # fmt: skip


def top_of(array: np.ndarray) -> float:
    """The largest number of its type."""
    return np.finfo(array.dtype).max if array.dtype.kind == "f" else np.iinfo(array.dtype).max


def with_one(array: np.ndarray, value: float) -> np.ndarray:
    """The array with another number in its middle; its own middle where it cannot hold it."""
    array = array.copy()
    if array.size and (
        array.dtype.kind == "f" or value == int(value) if np.isfinite(value) else array.dtype.kind == "f"
    ):
        array.reshape(-1)[array.size // 2] = value
    return array


def parse_tensors(content: bytes) -> tuple[dict, dict[str, np.ndarray], dict[str, str]]:
    """Header, arrays and metadata of a whole safetensors file."""
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    kinds = {
        "F64": "f8",
        "F32": "f4",
        "F16": "f2",
        "I64": "i8",
        "I32": "i4",
        "I16": "i2",
        "I8": "i1",
        "U8": "u1",
        "BOOL": "?",
    }
    arrays = {}
    for name, told in header.items():
        if name != "__metadata__":
            a, b = (8 + length + at for at in told["data_offsets"])
            arrays[name] = np.frombuffer(content[a:b], "<" + kinds[told["dtype"]]).reshape(told["shape"])
    return header, arrays, dict(header.get("__metadata__", {}))


def draw_tensors(random: Random, content: bytes) -> Edit:
    """An edit of a tensor, of the metadata, or of the header's own words."""
    header, arrays, meta = parse_tensors(content)
    meta.pop(CHECKSUM, None)
    kind = random.choices(("tensor", "meta", "text", "header"), (5, 8 if meta else 0, 2 if meta else 0, 2))[0]
    if kind == "tensor":
        how = random.choice((*SHAPED, *WIDER, "vast", "lying", "gone", "renamed", "beside"))
        return ("tensor", random.choice(list(arrays)), how)
    if kind == "header":
        name = random.choice(list(arrays))
        path = random.choice(
            [(name,), (name, "dtype"), (name, "shape"), (name, "data_offsets"), (name, "data_offsets", 1)]
        )
        return ("header", draw_value(random, header, path))
    key = random.choice(list(meta))
    if kind == "text" or not is_json(meta[key]):
        return random.choice([("no meta", key), ("meta text", key, random.choice(list(VALUES)))])
    return ("meta", key, draw_json(random, json.loads(meta[key])))


def draw_value(random: Random, values: dict, path: tuple) -> Edit:
    """Another value at this very path."""
    from hostile.damage import value_at

    return ("put", path, random.choice([*VALUES, *its_values(value_at(values, path))]))


def is_json(text: str) -> bool:
    """Whether a text is JSON of more than one number."""
    try:
        return isinstance(json.loads(text), dict | list)
    except ValueError:
        return False


def edit_tensors(content: bytes, edit: Edit, beside: Path) -> bytes:
    """The file after one edit, written by the library itself: its checksum is right; headers are written raw."""
    header, arrays, meta = parse_tensors(content)
    if edit[0] == "header":
        head = edit_json(json.dumps(header).encode(), edit[1])
        return len(head).to_bytes(8, "little") + head + content[8 + int.from_bytes(content[:8], "little") :]
    meta.pop(CHECKSUM, None)
    kind, key, *how = edit
    tensors: dict[str, np.ndarray | Entry] = dict(arrays)
    if kind == "tensor":
        edit_tensor(tensors, key, how[0])
    elif kind == "no meta":
        del meta[key]
    elif kind == "meta text":
        meta[key] = VALUES[how[0]].removeprefix('"').removesuffix('"')
    else:
        meta[key] = edit_json(meta[key].encode(), how[0]).decode()
    return write_tensors(beside, tensors, meta).read_bytes()


def edit_tensor(tensors: dict[str, np.ndarray | Entry], name: str, how: str) -> None:
    """Changes one tensor of several."""
    array = tensors[name]
    assert isinstance(array, np.ndarray)
    if how in WIDER:
        size = -(-array.size * WIDER[how] // 8)
        tensors[name] = Entry(how, array.shape, size, lambda: [bytes(size)])
    elif how == "vast":
        tensors[name] = Entry("F32", (2**40, 0, 2**20), 0, lambda: [])
    elif how == "lying":
        tensors[name] = Entry("F32", (*array.shape, 3), array.nbytes, lambda: [array.tobytes()])
    elif how in ("gone", "renamed"):
        del tensors[name]
        if how == "renamed":
            tensors[name + "_"] = array
    elif how == "beside":
        tensors["0.unheard.of"] = np.arange(3, dtype=np.int64)
    else:
        tensors[name] = np.asarray(SHAPED[how](array))


# ---------------------------------------------------------------------------------------------- tables of a folder

CELLS = {
    "empty": "", "space": " ", "quote": '"', "comma": "a,b", "line": "a\nb", "zero byte": "a\0b", "long": "n" * 200_000,
    "upwards": "../../../etc/passwd", "root": "/", "itself": ".", "folder": "a", "surrogate": "\udcff",
    "right to left": "\u202e", "home": "~", "number": "7", "glob": "*", "percent": "%s", "markup": "<b>&#</b>",
}  # fmt: skip


def draw_cells(random: Random, content: bytes) -> Edit:
    """Another text in a cell, a row twice or gone, a column more or less."""
    rows = list(csv.reader(io.StringIO(content.decode())))
    at = random.randrange(len(rows))
    kind = random.choices(("cell", "again", "gone", "longer", "shorter"), (10, 1, 1, 1, 1))[0]
    if kind == "cell":
        return ("cell", at, random.randrange(len(rows[at])), random.choice(list(CELLS)))
    return (kind, at)


def edit_cells(content: bytes, edit: Edit, beside: Path) -> bytes:
    """The table after one edit."""
    rows = list(csv.reader(io.StringIO(content.decode())))
    kind, at, *how = edit
    if kind == "cell":
        rows[at][how[0]] = CELLS[how[1]]
    elif kind == "again":
        rows.append(rows[at])
    elif kind == "gone":
        del rows[at]
    elif kind == "longer":
        rows[at].append("more")
    else:
        rows[at].pop()
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(rows)
    return out.getvalue().encode(errors="surrogateescape")


# ---------------------------------------------------------------------------------------------- torch's own files

ENTRIES = (
    "gone",
    "renamed",
    "a text",
    "nothing",
    "a list",
    "scalar",
    "flat",
    "empty",
    "int64",
    "expanded",
    "bfloat16",
    "a table",
)


def draw_pickle(random: Random, content: bytes) -> Edit:
    """An edit of one entry, or of the whole: a list, a module's table inside a table, keys that are numbers."""
    import torch

    names = list(torch.load(io.BytesIO(content), weights_only=True))
    if random.random() < 0.1:
        return ("whole", random.choice(("list", "nested", "numbers", "text", "tensor", "empty")))
    return ("entry", random.choice(names), random.choice(ENTRIES))


def edit_pickle(content: bytes, edit: Edit, beside: Path) -> bytes:
    """The checkpoint after one edit."""
    import torch

    weights = dict(torch.load(io.BytesIO(content), weights_only=True))
    if edit[0] == "whole":
        kept = {"list": list(weights), "nested": {"state_dict": weights}, "text": "weights", "empty": {},
                "numbers": dict(enumerate(weights.values())), "tensor": torch.zeros(3)}[edit[1]]  # fmt: skip
    else:
        _, name, how = edit
        value = weights.pop(name)
        made = {
            "renamed": lambda: value, "a text": lambda: "text", "nothing": lambda: None, "a list": lambda: [1, 2],
            "scalar": lambda: value.reshape(-1)[0].clone(), "flat": lambda: value.reshape(-1),
            "a table": lambda: {"a": value},
            "empty": lambda: value[:0], "int64": lambda: value.long(), "bfloat16": lambda: value.bfloat16(),
            "expanded": lambda: value.reshape(-1)[:1].expand(2**20, 2**20),
        }  # fmt: skip
        kept = weights if how == "gone" else {**weights, name + "_" * (how == "renamed"): made[how]()}
    out = io.BytesIO()
    torch.save(kept, out)
    return out.getvalue()


def no_draw(random: Random, content: bytes) -> Edit:
    """Bytes alone."""
    return draw_bytes(random, content)


def no_edit(content: bytes, edit: Edit, beside: Path) -> bytes:
    """Bytes alone."""
    raise AssertionError(f"no edit of bytes: {edit}")


FAMILIES: dict[str, Family] = {
    "json": Family(draw_table, lambda content, edit, beside: edit_json(content, edit), 0.25),
    "lines": Family(draw_line, edit_line, 0.3),
    "tensors": Family(draw_tensors, edit_tensors, 0.45),
    "cells": Family(draw_cells, edit_cells, 0.3),
    "pickle": Family(draw_pickle, edit_pickle, 0.5),
    "bytes": Family(no_draw, no_edit, 1.0),
}
