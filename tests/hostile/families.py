"""Kinds of files, and how each is damaged: a function that draws an edit, and one that applies it."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import NamedTuple

from hostile.damage import RAW, Edit, draw_bytes, draw_json, edit_bytes, edit_json
from hostile.tensors import draw_tensors, edit_tensors

# What an edit raises that does not fit the file any more, or the tensor, or was drawn for another.
UNFIT = (
    LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RuntimeError, AssertionError, MemoryError,
    csv.Error,
)  # fmt: skip
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


# ---------------------------------------------------------------------------------------------- exported models


def draw_exported(random: Random, content: bytes) -> Edit:
    """Another text, or another value of the JSON, in what an exported model says of itself."""
    at = random.randrange(len(exported_words(content)))
    try:
        return ("word", at, draw_json(random, json.loads(list(exported_words(content).values())[at])))
    except ValueError:
        return ("text", at, random.choice(list(CELLS)))


def exported_words(content: bytes) -> dict[str, str]:
    """What an exported model says of itself."""
    import onnx

    return {prop.key: prop.value for prop in onnx.load_from_string(content).metadata_props if prop.key != "crc32"}


def edit_exported(content: bytes, edit: Edit, beside: Path) -> bytes:
    """The model after one edit, with a checksum that fits."""
    import onnx

    from arcwise.export.onnx import with_meta

    told = exported_words(content)
    name = list(told)[edit[1]]
    told[name] = CELLS[edit[2]] if edit[0] == "text" else edit_json(told[name].encode(), edit[2]).decode()
    return with_meta(onnx.load_from_string(content), told)


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
    "onnx": Family(draw_exported, edit_exported, 0.0),
    "bytes": Family(no_draw, no_edit, 1.0),
}
