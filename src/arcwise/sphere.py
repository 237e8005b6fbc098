"""Directions, cosines and angles on the unit sphere; every clamp of the package is here.

Nothing in this file leans on the gradient of `torch.clamp` at its bound, which changed between
versions of torch: each guard is a `masked_fill`, before and after the operation it guards, so that
value and gradient are both finite (and, unlike `where` with a number, it never waits for the GPU).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

# A vector shorter than this has no direction: its cosines and its gradient are 0, never 1/eps.
TINY = 1e-12

# Stands for "no class here" among cosines: finite, so that no inf - inf can arise, and so low that
# exp(s * (EMPTY - anything)) is exactly 0.
EMPTY = -1e30


Mode = Literal["curricular", "mv", "mv-fixed", "filter"]


class Others(NamedTuple):
    """How cosines to the other classes count, where they exceed a number per sample.

    f(cos) = cos below `above`; beyond it, by mode:
    "curricular" cos (t + cos), "mv" t cos + t - 1, "mv-fixed" cos + t - 1, "filter" not at all.
    """

    mode: Mode
    above: Float[Tensor, " b"]
    t: float | Float[Tensor, ""] = 1.0


def length(x: Float[Tensor, "*n d"]) -> Float[Tensor, "*n"]:
    """|x|, along the last dimension.

    >>> length(torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
    tensor([5., 0.])
    """
    return torch.linalg.vector_norm(x, dim=-1)


def inverse_length(norm: Float[Tensor, "*n"]) -> Float[Tensor, "*n"]:
    """1/|x|; 0 where |x| < TINY, NaN where |x| overflowed, so that no wrong number passes silently.

    >>> inverse_length(torch.tensor([5.0, 0.0, float("inf")]))
    tensor([0.2000, 0.0000,    nan])
    """
    short = norm < TINY  # False for NaN, which must stay NaN
    inverse = norm.masked_fill(short, 1.0).reciprocal().masked_fill(short, 0.0)
    return inverse.masked_fill(norm == torch.inf, torch.nan)


def normalise(x: Float[Tensor, "*n d"]) -> Float[Tensor, "*n d"]:
    """x / |x|, a copy; the zero vector where |x| < TINY, with zero gradient there.

    >>> normalise(torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
    tensor([[0.6000, 0.8000],
            [0.0000, 0.0000]])
    """
    return x * inverse_length(length(x)).unsqueeze(-1)


def sine(cos: Float[Tensor, "*n"]) -> Float[Tensor, "*n"]:
    """sin(theta) = sqrt((1 - cos)(1 + cos)), never by way of arccos; 0 with zero gradient at the poles.

    The gradient -cos/sin grows without bound towards a pole, but the cosine's own gradient is
    tangential and of size sin(theta), so that their product, the gradient of x, stays bounded.

    >>> sine(torch.tensor([0.6, 1.0, 1.0000001]))
    tensor([0.8000, 0.0000, 0.0000])
    """
    square = (1.0 - cos) * (1.0 + cos)
    pole = square <= 0.0
    return square.masked_fill(pole, 1.0).sqrt().masked_fill(pole, 0.0)


def angle(cos: Float[Tensor, "*n"]) -> Float[Tensor, "*n"]:
    """theta in [0, pi], with the zero subgradient where sin(theta) = 0.

    >>> angle(torch.tensor([1.0, 0.0, -1.0]))
    tensor([0.0000, 1.5708, 3.1416])
    """
    return torch.atan2(sine(cos), cos)


def clip(x: Float[Tensor, "*n"], low: float, high: float) -> Float[Tensor, "*n"]:
    """x held inside [low, high]; the gradient is 1 up to and on the bounds, 0 beyond; NaN stays NaN.

    >>> clip(torch.tensor([-2.0, 0.5, 2.0]), -1.0, 1.0)
    tensor([-1.0000,  0.5000,  1.0000])
    """
    return x.masked_fill(x < low, low).masked_fill(x > high, high)


def nearest_centre(cos: Float[Tensor, "*b c k"]) -> Float[Tensor, "*b c"]:
    """The largest cosine over the k sub-centres of each class; the gradient goes to the first of equals."""
    if cos.shape[-1] == 1:
        return cos.squeeze(-1)
    best = cos.detach().argmax(-1, keepdim=True)
    return cos.gather(-1, best).squeeze(-1)


def cosines(x: Float[Tensor, "b d"], w: Float[Tensor, "c k d"]) -> Float[Tensor, "b c"]:
    """cos(x_i, w_j), the largest over the k sub-centres of class j  (Deng et al. 2020 for k > 1).

    >>> cosines(torch.tensor([[2.0, 0.0]]), torch.tensor([[[0.0, 3.0]], [[5.0, 0.0]]]))
    tensor([[0., 1.]])
    """
    c, k, d = w.shape
    cos = normalise(x) @ normalise(w).reshape(c * k, d).T
    return nearest_centre(cos.reshape(len(x), c, k))


def slices(total: int, size: int) -> Iterator[slice]:
    """Slices that cover 0..total in steps of `size`, the last one shorter.

    >>> [(b.start, b.stop) for b in slices(5, 2)]
    [(0, 2), (2, 4), (4, 5)]
    """
    for start in range(0, total, size):
        yield slice(start, min(start + size, total))
