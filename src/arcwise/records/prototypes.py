"""Prototypes: the centres that a head has learned, kept once per Run and epoch."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from jaxtyping import Float

from arcwise.errors import ArcwiseError
from arcwise.headspec import HeadSpec
from arcwise.records.files import FORMAT, Kind, errors_name, meta_json, read_tensors, refuse_arrays, write_tensors
from arcwise.schema import many, table, text


@dataclass(frozen=True, slots=True)
class Prototypes:
    """One centre per class, w (c, d), or w (c, k, d) with k sub-centres; the bias of a linear head that has one.

    `head` says which head they are of, `names` are the classes, `model` is the fingerprint of the encoder they were
    trained with.

    >>> Prototypes(np.eye(2), head=HeadSpec.parse("arcface:s=16")).head.s
    16.0
    """

    w: Float[np.ndarray, "c d"] | Float[np.ndarray, "c k d"]
    bias: Float[np.ndarray, " c"] | None = None
    head: HeadSpec = field(default_factory=lambda: HeadSpec(name=""))
    names: tuple[str, ...] = ()
    model: str = ""

    def __post_init__(self) -> None:
        if (
            self.w.ndim not in (2, 3)
            or 0 in self.w.shape
            or self.w.dtype.kind != "f"
            or (self.bias is not None and self.bias.shape != self.w.shape[:1])
        ):
            shape = None if self.bias is None else self.bias.shape
            raise ArcwiseError(
                f"prototypes are numbers of shape (c, d) or (c, k, d) with a bias of (c,), got {self.w.dtype} of "
                f"{self.w.shape} and {shape}."
            )

    def __len__(self) -> int:
        return len(self.w)

    @property
    def dim(self) -> int:
        """The dimension d."""
        return self.w.shape[-1]

    @property
    def linear(self) -> bool:
        """Whether lengths and biases count: the head is a plain softmax."""
        return self.bias is not None or self.head.linear

    @property
    def scale(self) -> float:
        """The s by which cosines become logits; 1 for a linear head."""
        return 1.0 if self.linear or self.head.s is None else self.head.s

    def save(self, path: str | Path) -> Path:
        """The path of the safetensors file that now holds them."""
        arrays = {"w": self.w} | ({} if self.bias is None else {"bias": self.bias})
        meta = {
            "arcwise": str(FORMAT), "names": json.dumps(self.names), "model": self.model,
            "head": json.dumps(self.head.as_values() if self.head.name else {}),
        }  # fmt: skip
        return write_tensors(path, arrays, meta)

    @classmethod
    def load(cls, path: str | Path) -> Prototypes:
        """The prototypes that `save` wrote, or those that older versions put into a file of embeddings."""
        arrays, meta = read_tensors(path, what="prototypes")
        w = arrays.get("w", arrays.get("prototypes"))
        if w is None:
            raise ArcwiseError(f"{path} holds no prototypes: take those that training wrote, in RUN/prototypes.")
        name, axes = "w" if "w" in arrays else "prototypes", ("c", "k", "d") if w.ndim == 3 else ("c", "d")
        with errors_name(path):
            refuse_arrays(arrays, {name: Kind("f", axes), "bias": Kind("f", ("c",), needed=False)})
            names = tuple(meta_json(meta, "names", many(text), without="[]"))
            if "w" not in arrays:
                told = meta_json(meta, "about", table(), without="{}")
                return cls(w, arrays.get("bias"), HeadSpec.parse(str(told.get("head", ""))).earlier(), names)
            told = meta_json(meta, "head", table(), without="{}")
            head = HeadSpec.from_values(told) if told else HeadSpec(name="")
            return cls(w, arrays.get("bias"), head, names, meta.get("model", ""))
