"""What a head says over the plane: which class wins where, and how sure it is."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from arcwise.errors import ArcwiseError
from arcwise.metrics.identification import centre_logits
from arcwise.records import Prototypes


class Grid(NamedTuple):
    """Over a square around the origin: the winning class and the softmax probability it has."""

    axis: Float[np.ndarray, " k"]
    winner: Int[np.ndarray, "k k"]
    confidence: Float[np.ndarray, "k k"]


def decision_grid(centres: Prototypes, *, extent: float, points: int = 400) -> Grid:
    """The head's answer over [-extent, extent]^2, without margin; a normalised head sees only the direction."""
    if centres.dim != 2:
        raise ArcwiseError(f"a picture of the plane needs centres of 2 dimensions, these have {centres.dim}.")
    axis = np.linspace(-extent, extent, points - points % 2)  # even: the origin, which has no direction, is left out
    there = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    logits = centre_logits(there, centres) * centres.scale
    top = logits.max(axis=1, keepdims=True)
    sure = 1.0 / np.exp(logits - top).sum(axis=1)
    shape = (len(axis), len(axis))
    return Grid(axis, logits.argmax(axis=1).reshape(shape), sure.reshape(shape))
