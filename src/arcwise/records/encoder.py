"""Encoder: what turns images into embeddings, whatever runs it."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, UInt8

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
