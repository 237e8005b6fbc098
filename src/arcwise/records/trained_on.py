"""TrainedOn: which images a model was trained on, as one number each, so that it is never judged by them unawares."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Bool

from arcwise.records.files import FORMAT, Kind, errors_name, meta_json, read_tensors, write_tensors
from arcwise.schema import many, text


@dataclass(frozen=True, slots=True)
class TrainedOn:
    """Hashes of the images that were trained on, uint64 and rising, and the names of their classes.

    >>> TrainedOn(np.array([3, 1], np.uint64), ("a",)).holds(np.array([1, 2], np.uint64)).tolist()
    [True, False]
    """

    hashes: np.ndarray
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "hashes", np.unique(self.hashes))

    def holds(self, hashes: np.ndarray) -> Bool[np.ndarray, " n"]:
        """Which of these images were among them."""
        if not len(self.hashes):
            return np.zeros(len(hashes), bool)
        at = np.minimum(np.searchsorted(self.hashes, hashes), len(self.hashes) - 1)
        return self.hashes[at] == hashes

    def with_more(self, other: TrainedOn) -> TrainedOn:
        """Both together.

        >>> one, other = TrainedOn(np.array([1], np.uint64), ("a",)), TrainedOn(np.array([2], np.uint64), ("b", "a"))
        >>> one.with_more(other).names
        ('a', 'b')
        """
        return TrainedOn(np.concatenate([self.hashes, other.hashes]), tuple(dict.fromkeys((*self.names, *other.names))))

    def save(self, path: str | Path) -> Path:
        """The path of the safetensors file that now holds them."""
        return write_tensors(path, {"hashes": self.hashes}, {"arcwise": str(FORMAT), "names": json.dumps(self.names)})

    @classmethod
    def load(cls, path: str | Path) -> TrainedOn:
        """Those that `save` wrote."""
        arrays, meta = read_tensors(path, {"hashes": Kind("u", ("n",))}, what="hashes of training images")
        with errors_name(path):
            return cls(arrays["hashes"].astype(np.uint64), tuple(meta_json(meta, "names", many(text), without="[]")))
