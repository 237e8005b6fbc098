"""Damages as data: an edit is drawn from a seed, applied to a file's bytes, and printed as it may be pasted.

("flip", 17, 3)                                    bit 3 of byte 17 is turned
("put", ("config", "train", "epochs"), "null")     the value there becomes null
("drop", ("heads", 0))                             it is gone
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from random import Random
from typing import Any

Edit = tuple  # a kind, then what it needs: numbers, text and tuples of these

# What a value may become, as JSON text; `its_values` adds what is made of the value itself.
VALUES: dict[str, str] = {
    "null": "null", "true": "true", "false": "false", "zero": "0", "one": "1", "minus five": "-5", "half": "0.5",
    "two point zero": "2.0", "1e9": "1000000000", "1e9 as a float": "1e9", "10**23": str(10**23), "2**63": str(2**63),
    "-2**64": str(-(2**64)), "nan": "NaN", "infinity": "Infinity", "-infinity": "-Infinity", "1e308": "1e308",
    "1e400": "1e400", "5e-324": "5e-324", "5000 digits": "9" * 5000, "empty text": '""', "text": '"abc"',
    "space": '" "', "a number as text": '"7"', "long text": json.dumps("x" * 100_000), "a lone surrogate": '"\\ud800"',
    "a zero byte": '"a\\u0000b"', "an escape": '"\\u001b[2J\\u0007"', "a path upwards": '"../../../x"',
    "a long path": json.dumps("y" * 5000 + "/z"), "lines": '"a\\nb\\r\\nc"', "markup": '"<b>$x$ #let \\\\\\\\ *"',
    "empty list": "[]", "empty table": "{}", "numbers": "[1, 2, 3]", "texts": '["a", "b"]', "nulls": "[null, null]",
    "twice the same": '["a", "a"]', "lists in lists": "[[[[1]]]]", "tables in tables": '{"a": {"a": {"a": 1}}}',
    "ragged": "[[1, 2], [3]]", "900 deep": "[" * 900 + "]" * 900, "100000 deep": "[" * 100_000 + "]" * 100_000,
    "many": json.dumps(list(range(20_000))), "unicode": '"ſ\\u202e漢字\\ud83d\\ude00"',
}  # fmt: skip

ITS: dict[str, Callable[[Any], Any]] = {
    "its text": str, "its list": lambda v: [v], "its table": lambda v: {"value": v}, "its double": lambda v: [v, v],
    "itself negative": lambda v: -v, "itself times a million": lambda v: v * 1_000_000, "itself as a float": float,
    "itself and a half": lambda v: v + 0.5, "itself upwards": lambda v: v + 1, "itself reversed": lambda v: v[::-1],
    "itself shorter": lambda v: v[:-1], "itself in capitals": lambda v: v.upper(), "itself not": lambda v: not v,
}  # fmt: skip

PLACE = "\x01place\x01"


def its_values(value: Any) -> list[str]:
    """The names of what can be made of this very value."""
    found = []
    for name, make in ITS.items():
        if isinstance(value, str | list) and name == "itself times a million":
            continue
        try:
            json.dumps(make(value))
        except (TypeError, ValueError, AttributeError, OverflowError):
            continue
        found.append(name)
    return found


# ---------------------------------------------------------------------------------------------- JSON


def places_in(values: Any, path: tuple = ()) -> list[tuple]:
    """The path of every value in a JSON document, the whole of it first; of long lists the first three and the last."""
    found = [path]
    if isinstance(values, dict):
        for key, value in values.items():
            found += places_in(value, (*path, key))
    elif isinstance(values, list):
        for at in sorted({*range(min(3, len(values))), len(values) - 1} - {-1}):
            found += places_in(values[at], (*path, at))
    return found


def value_at(values: Any, path: tuple) -> Any:
    """The value at a path."""
    for key in path:
        values = values[key]
    return values


def draw_json(random: Random, values: Any) -> Edit:
    """An edit of one value of a JSON document; places near the top come as often as deep ones."""
    every = places_in(values)
    deep = random.randint(0, max(map(len, every)))
    path = random.choice([path for path in every if len(path) <= deep])
    kind = random.choices(("put", "drop", "extra", "rename"), (12, 3, 1, 1))[0]
    if kind == "put" or not path:
        own = its_values(value_at(values, path)) if random.random() < 0.4 else []
        return ("put", path, random.choice(own or list(VALUES)))
    return (kind, path, random.choice(list(VALUES))) if kind == "extra" else (kind, path)


def edit_json(content: bytes, edit: Edit) -> bytes:
    """The document with one of its values changed, as bytes."""
    kind, path, *name = edit
    values = json.loads(content)
    if kind == "put":
        whole = {"": values}
        old = value_at(whole, ("", *path))
        value_at(whole, ("", *path[:-1]) if path else ())[path[-1] if path else ""] = new_value(old, name[0])
        values = whole[""]
    elif kind == "extra":
        there = value_at(values, path)
        if isinstance(there, dict):
            there["unheard of"] = new_value(None, name[0])
        elif isinstance(there, list):
            there.append(new_value(None, name[0]))
    elif kind in ("drop", "rename"):
        owner = value_at(values, path[:-1])
        gone = owner.pop(path[-1])
        if kind == "rename" and isinstance(owner, dict):
            owner[str(path[-1]).upper() + "_"] = gone
    else:
        raise AssertionError(f"no edit of JSON: {edit}")
    return re.sub(rb'"\\u0001place\\u0001([^"]*)"', lambda found: VALUES[found[1].decode()].encode(),
                  json.dumps(values).encode())  # fmt: skip


def new_value(old: Any, name: str) -> Any:
    """The value of that name, or a mark in its place that stands for its text."""
    return ITS[name](old) if name in ITS else PLACE + name


# ---------------------------------------------------------------------------------------------- bytes


def draw_bytes(random: Random, content: bytes, *, others: tuple[str, ...] = ()) -> Edit:
    """An edit of raw bytes: flips, cuts, zeros, more at the end, or the end of another file."""
    n = len(content)
    at = random.randrange(n) if n else 0
    if random.random() < 0.25:  # beginnings and ends hold the lengths
        at = min(random.choice((random.randrange(64), max(0, n - 1 - random.randrange(64)))), max(0, n - 1))
    kind = random.choices(
        ("flip", "byte", "cut", "zero", "append", "remove", "splice", "all"), (8, 4, 4, 3, 2, 2, 2, 1)
    )[0]
    if kind == "flip" and n:
        return ("flip", at, random.randrange(8))
    if kind == "byte" and n:
        return ("byte", at, random.choice((0, 1, 0x7F, 0x80, 0xC3, 0xFF, *b'"\\{}[],:0-eE\n')))
    if kind in ("zero", "remove") and n:
        return (kind, at, min(n, at + random.choice((1, 2, 8, 64, 512, 1 << 20))))
    if kind == "append":
        return ("append", random.choice(("00", "ff" * 9, "7d", "0a7b", "20" * 100, "00" * 5000)))
    if kind == "splice" and others and n:
        return ("splice", at, random.choice(others), random.randrange(n))
    if kind == "all":
        return (
            "all",
            random.choice(("", "00", "ff", "fffe00", "efbbbf", "0a", "7b", "5b", "22", "6e616e", "1f8b08", "00" * 64)),
        )
    return ("cut", at)


def edit_bytes(content: bytes, edit: Edit, others: dict[str, bytes]) -> bytes:
    """The bytes after one edit; places beyond the end are its end."""
    kind, *how = edit
    if kind == "all":
        return bytes.fromhex(how[0])
    if kind == "append":
        return content + bytes.fromhex(how[0])
    at = min(how[0], len(content))
    if kind == "cut":
        return content[:at]
    if kind == "flip":
        return content[:at] + bytes(byte ^ (1 << how[1]) for byte in content[at : at + 1]) + content[at + 1 :]
    if kind == "byte":
        return content[:at] + bytes([how[1]]) + content[at + 1 :]
    if kind == "zero":
        return content[:at] + bytes(len(content[at : how[1]])) + content[how[1] :]
    if kind == "remove":
        return content[:at] + content[how[1] :]
    if kind == "splice":
        return content[:at] + others[how[1]][how[2] :]
    raise AssertionError(f"no edit of bytes: {edit}")


RAW = ("flip", "byte", "cut", "zero", "append", "remove", "splice", "all")


def is_raw(edits: tuple[Edit, ...]) -> bool:
    """Whether these are damages of bytes, which nobody who writes files means."""
    return all(edit[0] in RAW for edit in edits)
