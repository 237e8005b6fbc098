"""Hostile tensor files: other tensors, other metadata, other headers, most of them with a checksum that is right."""

from __future__ import annotations

import json
import re
import warnings
import zlib
from collections.abc import Callable
from pathlib import Path
from random import Random

import numpy as np

from arcwise.records import Entry, write_tensors
from hostile.damage import VALUES, Edit, draw_json, edit_json, its_values, value_at

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
        "U64": "u8",
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
        return (random.choice(("header", "summed header")), draw_value(random, header, path))
    key = random.choice(list(meta))
    if kind == "text" or not is_json(meta[key]):
        return random.choice([("no meta", key), ("meta text", key, random.choice(list(VALUES)))])
    return ("meta", key, draw_json(random, json.loads(meta[key])))


def draw_value(random: Random, values: dict, path: tuple) -> Edit:
    """Another value at this very path."""
    return ("put", path, random.choice([*VALUES, *its_values(value_at(values, path))]))


def is_json(text: str) -> bool:
    """Whether a text is JSON of more than one number."""
    try:
        return isinstance(json.loads(text), dict | list)
    except ValueError:
        return False


def edit_tensors(content: bytes, edit: Edit, beside: Path) -> bytes:
    """The file after one edit, written by the library itself: its checksum is right; headers are written by hand."""
    header, arrays, meta = parse_tensors(content)
    if edit[0] in ("header", "summed header"):
        data = content[8 + int.from_bytes(content[:8], "little") :]
        head = edit_json(json.dumps(header).encode(), edit[1])
        head = summed(head, data) if edit[0] == "summed header" else head
        return len(head).to_bytes(8, "little") + head + data
    meta.pop(CHECKSUM, None)
    kind, key, *how = edit
    tensors: dict[str, np.ndarray | Entry] = dict(arrays)
    if kind == "tensor":
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # numbers that another type cannot hold
            edit_tensor(tensors, key, how[0])
    elif kind == "no meta":
        del meta[key]
    elif kind == "meta text":
        meta[key] = VALUES[how[0]].removeprefix('"').removesuffix('"')
    else:
        meta[key] = edit_json(meta[key].encode(), how[0]).decode()
    return write_tensors(beside, tensors, meta).read_bytes()


def summed(head: bytes, data: bytes) -> bytes:
    """A header with the checksum that the library would give it; what bears none stays without."""
    plain = re.sub(rb'"crc32": ?"[0-9a-f]{8}"', b'"crc32":"00000000"', head)
    plain += b"\t" * (8 - len(plain) % 8)
    return plain.replace(b'"crc32":"00000000"', b'"crc32":"%08x"' % zlib.crc32(data, zlib.crc32(plain)))


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
