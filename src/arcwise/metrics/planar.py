"""Returns what a head says over the plane: which class wins where, and how sure it is."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from arcwise.errors import ArcwiseError
from arcwise.metrics.identification import centre_logits, has_linear_head
from arcwise.records import Embeddings


class Grid(NamedTuple):
    """Over a square around the origin: the winning class and the softmax probability it has."""

    axis: Float[np.ndarray, " k"]
    winner: Int[np.ndarray, "k k"]
    confidence: Float[np.ndarray, "k k"]


def decision_grid(embeddings: Embeddings, *, extent: float, points: int = 400) -> Grid:
    """The head's answer over [-extent, extent]^2, without margin; a normalised head sees only the direction."""
    if embeddings.dim != 2:
        raise ArcwiseError(f"a picture of the plane needs embeddings of 2 dimensions, these have {embeddings.dim}.")
    axis = np.linspace(-extent, extent, points - points % 2)  # even: the origin, which has no direction, is left out
    there = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    dummy = np.zeros(len(there), np.int64)
    logits = centre_logits(replace(embeddings, x=there, y=dummy, index=None)) * scale(embeddings)
    top = logits.max(axis=1, keepdims=True)
    sure = 1.0 / np.exp(logits - top).sum(axis=1)
    shape = (len(axis), len(axis))
    return Grid(axis, logits.argmax(axis=1).reshape(shape), sure.reshape(shape))


def scale(embeddings: Embeddings) -> float:
    """The s of the head that made the embeddings; 1 for a linear one."""
    return 1.0 if has_linear_head(embeddings) else head_number(embeddings, "s", 1.0)


def head_number(embeddings: Embeddings, name: str, default: float) -> float:
    """A parameter out of the head's text, as in "arcface:m=0.5,s=16".

    >>> e = Embeddings(x=np.zeros((1, 2)), y=np.zeros(1, int), names=("a",), about={"head": "arcface:m=0.5,s=16"})
    >>> head_number(e, "s", 1.0)
    16.0
    """
    head = str((embeddings.about or {}).get("head", ""))
    given = dict(part.split("=", 1) for part in head.partition(":")[2].split(",") if "=" in part)
    try:
        return float(given.get(name, default))
    except ValueError:
        return default
