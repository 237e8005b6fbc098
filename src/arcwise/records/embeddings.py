"""Embeddings: the rows that an encoder gave, which images they are of, and whose rows they are."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from arcwise.errors import ArcwiseError
from arcwise.records.files import FORMAT, Kind, errors_name, meta_json, read_tensors, write_tensors
from arcwise.schema import many, table, text, whole

# What a file of embeddings holds; older ones tell by a number which image of its part a row is of.
ARRAYS = {
    "x": Kind("f", ("n", "d")), "y": Kind("iu", ("n",), needed=False), "keys": Kind("u", ("letters",), needed=False),
    "key_ends": Kind("iu", ("n",), needed=False), "index": Kind("iu", ("n",), needed=False),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Embeddings:
    """Embeddings x (n, d), raw; labels y and the classes' names where they are known.

    All that comes after training speaks only this. `keys` say for every row which file or id it came from, `model` is
    the fingerprint of the encoder, so that rows of two models are not taken for one, and `about` tells where the
    numbers are from: source, part, epoch.

    >>> Embeddings(np.eye(2, dtype=np.float32), np.arange(2), names=("a", "b")).dim
    2
    """

    x: Float[np.ndarray, "n d"]
    y: Int[np.ndarray, " n"] | None = None
    names: tuple[str, ...] = ()
    keys: tuple[str, ...] | None = None
    model: str = ""
    about: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        y, keys = self.y, self.keys
        for name, value in (("x", self.x), ("y", self.y)):
            if not isinstance(value, np.ndarray) and not (name == "y" and value is None):
                cure = f"{name}.detach().cpu().numpy()" if hasattr(value, "detach") else f"np.asarray({name})"
                raise ArcwiseError(f"{name} of embeddings is a NumPy array, got {type(value).__name__}: pass {cure}.")
        if self.x.ndim != 2 or not self.x.shape[1] or (y is not None and y.shape != self.x.shape[:1]):
            shape = None if y is None else y.shape
            raise ArcwiseError(
                f"embeddings need x of shape (n, d), d at least 1, and y of shape (n,), got {self.x.shape} and {shape}."
            )
        if y is not None and y.dtype.kind not in "iu":
            raise ArcwiseError(f"labels of embeddings are whole numbers, got {y.dtype}.")
        if keys is not None and len(keys) != len(self.x):
            raise ArcwiseError(f"{len(self.x)} embeddings need as many keys, got {len(keys)}.")
        if y is not None and not self.names:
            object.__setattr__(self, "names", tuple(map(str, range(int(y.max(initial=-1)) + 1))))
        if y is not None and len(y) and not 0 <= y.min() <= y.max() < len(self.names):
            raise ArcwiseError(f"labels of embeddings must lie in [0, {len(self.names)}), the number of names.")

    def __len__(self) -> int:
        return len(self.x)

    @property
    def dim(self) -> int:
        """The dimension d."""
        return self.x.shape[1]

    @property
    def labels(self) -> Int[np.ndarray, " n"]:
        """y, or an error where there is none."""
        if self.y is None:
            raise ArcwiseError(
                "these embeddings have no labels, and this measure compares classes: embed a folder with one folder "
                "per class, or pass y."
            )
        return self.y

    def take(self, rows: Int[np.ndarray, " m"]) -> Embeddings:
        """Some rows, in this order."""
        keys = None if self.keys is None else tuple(self.keys[i] for i in rows)
        return replace(self, x=self.x[rows], y=None if self.y is None else self.y[rows], keys=keys)

    def save(self, path: str | Path, *, half: bool = False) -> Path:
        """The path of the one safetensors file that now holds everything; `half` keeps x in float16.

        It is then multiplied by a power of two, so that the largest number is near the end of float16's range.
        """
        power = fitting_power(self.x) if half else 0
        arrays = {"x": np.ldexp(self.x, power).astype(np.float16) if half else self.x}
        if self.y is not None:
            arrays["y"] = self.y.astype(np.int32)
        if self.keys is not None:
            arrays |= packed_keys(self.keys)
        meta = {
            "arcwise": str(FORMAT), "names": json.dumps(self.names), "model": self.model,
            "about": json.dumps(dict(self.about or {})), **({"power": str(power)} if power else {}),
        }  # fmt: skip
        return write_tensors(path, arrays, meta)

    @classmethod
    def load(cls, path: str | Path) -> Embeddings:
        """The embeddings that `save` wrote; float16 comes back as float32."""
        arrays, meta = read_tensors(path, ARRAYS, what="embeddings")
        if "names" not in meta:
            raise ArcwiseError(f"{path} holds no embeddings. Write some with: arcwise embed MODEL DATA --out FILE")
        y = arrays.get("y")
        with errors_name(path):
            power = meta_json(meta, "power", whole(-200, 200), without="0")
            x = arrays["x"].astype(np.float32, copy=False)
            return cls(
                x=np.ldexp(x, -power) if power else x, y=None if y is None else y.astype(np.int64),
                names=tuple(meta_json(meta, "names", many(text), without="[]")), keys=unpacked_keys(arrays),
                model=meta.get("model", ""), about=meta_json(meta, "about", table(), without="{}"),
            )  # fmt: skip


def fitting_power(x: Float[np.ndarray, "n d"]) -> int:
    """The power of two by which the largest number comes to lie from 2^14 to 2^15.

    >>> fitting_power(np.array([[1e6, 0.0]])), fitting_power(np.zeros((1, 2)))
    (-5, 0)
    """
    largest = float(np.abs(x[np.isfinite(x)]).max(initial=0.0))
    return 15 - math.frexp(largest)[1] if largest else 0


def packed_keys(keys: tuple[str, ...]) -> dict[str, np.ndarray]:
    """All keys as one row of bytes, and where each of them ends."""
    encoded = [key.encode(errors="surrogateescape") for key in keys]
    ends = np.cumsum([len(key) for key in encoded], dtype=np.int64)
    return {"keys": np.frombuffer(b"".join(encoded), np.uint8), "key_ends": ends}


def unpacked_keys(arrays: Mapping[str, np.ndarray]) -> tuple[str, ...] | None:
    """The keys of a file; older files say by a number which image of its part a row is of, which becomes "#174"."""
    if "keys" not in arrays:
        return tuple(f"#{i}" for i in arrays["index"].tolist()) if "index" in arrays else None
    letters, ends = arrays["keys"].tobytes(), arrays.get("key_ends", np.zeros(0, np.int64)).tolist()
    bounds = list(pairwise([0, *ends]))
    if len(ends) != len(arrays["x"]) or (ends and ends[-1] != len(letters)) or any(a > b for a, b in bounds):
        raise ArcwiseError("its keys are damaged: write the file again.")
    return tuple(letters[a:b].decode(errors="surrogateescape") for a, b in bounds)


MIRROR = "mirror:"


def function_of(fingerprint: str, *, mirror: bool) -> str:
    """The fingerprint of what gave some rows: the model's own, or, with mirror images added, that of another function.

    >>> function_of("0123", mirror=False), function_of("0123", mirror=True)
    ('0123', 'mirror:0123')
    """
    return f"{MIRROR}{fingerprint}" if mirror else fingerprint


def refuse_other_models(*records: Any) -> None:
    """Raises when records come from different encoders: their angles mean nothing to each other.

    A head's centres are those of its model's rows, with mirror images or without.
    """
    there = [record for record in records if record is not None and record.model]
    models = {record.model for record in there if isinstance(record, Embeddings)}
    if len(models) < 2:
        models = {record.model.removeprefix(MIRROR) for record in there}
    if len(models) > 1:
        first, second = sorted(models)[:2]
        raise ArcwiseError(
            f"these rows come from two models ({first[:12]} and {second[:12]}): embed all images with one of them."
        )
