"""Encoder: what turns images into embeddings, whatever runs it."""

from __future__ import annotations

from os import PathLike
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, UInt8

from arcwise.errors import ArcwiseError
from arcwise.records.preprocessing import Preprocessing


@runtime_checkable
class Encoder(Protocol):
    """Anything that gives embeddings of pixels: an `Embedder` is one.

    `encode` may be called from several threads at once, and gives the same rows whatever training does elsewhere.
    """

    @property
    def dim(self) -> int:
        """The dimension d of the embedding."""
        ...

    @property
    def preprocessing(self) -> Preprocessing:
        """What is done to an image before it is encoded."""
        ...

    @property
    def fingerprint(self) -> str:
        """The SHA-256 of weights, network and preprocessing: equal for equal encoders, wherever they are stored."""
        ...

    def encode(self, pixels: UInt8[np.ndarray, "n h w channels"]) -> Float[np.ndarray, "n d"]:
        """The raw float32 embeddings of images that are of the side and channels of `preprocessing`."""
        ...


def refuse_no_encoder(model: Any) -> None:
    """Raises where a model's path, or whatever else, was passed for the model.

    >>> refuse_no_encoder("runs/x")
    Traceback (most recent call last):
    arcwise.errors.ArcwiseError: a model is needed, got the path 'runs/x': pass arcwise.load_encoder('runs/x').
    """
    if isinstance(model, str | PathLike):
        path = str(model)
        raise ArcwiseError(f"a model is needed, got the path {path!r}: pass arcwise.load_encoder({path!r}).")
    if not isinstance(model, Encoder):
        raise ArcwiseError(
            f"a model is needed, with dim, preprocessing, fingerprint and encode, got {type(model).__name__}: pass an "
            "Embedder, or what arcwise.load_encoder gives."
        )
