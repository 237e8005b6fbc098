"""The one expensive thing a head needs: the log-sum-exp over all other classes.

No margin appears here. A sample's loss needs three numbers from its pass over the classes:

    lse_i = log sum_{j != y} exp(s f(cos_ij)),   cos_iy,   max_{j != y} cos_ij

with f the identity, or one of the few reshapings in `sphere.Others`. Which engine computes them is
a matter of size, never of result.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import lru_cache
from importlib.util import find_spec
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from arcwise.admit import admit_labels
from arcwise.errors import ArcwiseError, count_at_least, number_in, one_of
from arcwise.ops.eager import chunked, eager
from arcwise.ops.plan import PIECE
from arcwise.ops.update import Mover
from arcwise.sphere import Others, nearest_centre, normalise

ENGINES = ("auto", "eager", "chunked", "triton")
INSIDE_ENGINES = 'an optimiser that steps inside needs engine="chunked", "triton" or "auto", not "eager".'

# From this many cosines on, `auto` takes blocks: on the CPU they are faster, on a GPU the plain definition
# would keep 20 bytes for each (2.5 GiB here) and blocks cost about a third more time (measured on an H200).
CHUNKED_FROM_CPU = 2**22
CHUNKED_FROM_GPU = 2**27
FUSED_FROM = 2**20  # on a GPU; below, the plain definition is as quick and can be differentiated twice

# Working memory of `chunked`. On the CPU blocks of some 3,600 classes at b = 256 stay near the caches;
# a GPU wants blocks large enough to fill it.
MEMORY_CPU = 32 * 2**20
MEMORY_GPU = 512 * 2**20


Outbound = Callable[[Tensor], None]  # what the gradient of x is handed to, beside the rest of the backward pass


class SplitLSE(NamedTuple):
    """What one pass over the classes gives: `lse` and `cos_y` carry gradients, `cos_other` does not.

    Where there is no other class, lse is about EMPTY * s and cos_other is EMPTY.
    """

    lse: Float[Tensor, " b"]
    cos_y: Float[Tensor, " b"]
    cos_other: Float[Tensor, " b"]


def split_lse(
    x: Float[Tensor, "b d"],
    w: Float[Tensor, "c *k d"],
    y: Int[Tensor, " b"],
    s: float,
    *,
    others: Others | None = None,
    engine: str = "auto",
    memory: int | None = None,
    products: torch.dtype = torch.float32,
    mover: Mover | None = None,
    skip: float = 0.0,
    outbound: Outbound | None = None,
) -> SplitLSE:
    """log sum_{j != y} exp(s f(cos_ij)), the own cosine, and the largest other cosine.

    x (b, d) and w, (c, d) or (c, k, d) with sub-centres, are taken as they are and normalised here.
    The arithmetic is x's, float32 or float64; w may be narrower. Labels must lie in [0, c): heads see to that.
    `memory` bounds, in bytes, what an engine uses beyond its inputs, its outputs and their gradients; `eager` cannot
    be bounded, and a block holds one class at least. `products` is the type in which `triton` multiplies, with sums in
    float32. With a `mover` the backward pass of `chunked` and `triton` moves w itself, and w gets no gradient.
    `skip` lets `triton` leave tiles out of the gradients in which every |dL/dcos_ij| is below s skip / b; engines that
    are asked for by name and leave nothing out refuse it, `auto` heeds it where it picks `triton`.
    With `outbound` w is a part of all classes and x of unit length: a label of -1 says that a sample's own class is
    elsewhere (its cos_y here is 0), and the gradient of x is handed to `outbound` as soon as it is whole.

    >>> import torch
    >>> out = split_lse(torch.tensor([[2.0, 0.0]]), torch.eye(2), torch.tensor([0]), s=4.0)
    >>> out.lse, out.cos_y, out.cos_other
    (tensor([0.]), tensor([1.]), tensor([0.]))
    """
    one_of("engine", engine, ENGINES)
    s = number_in("s", s, 1e-6, 1e6)
    if x.dtype not in (torch.float32, torch.float64) or x.ndim != 2:
        raise ArcwiseError(f"x must be float32 or float64 of shape (b, d), got {x.dtype} {tuple(x.shape)}.")
    if w.ndim not in (2, 3) or w.shape[-1] != x.shape[1] or w.numel() == 0:
        raise ArcwiseError(f"w must have shape (c, {x.shape[1]}) or (c, k, {x.shape[1]}), got {tuple(w.shape)}.")
    admit_labels(x, y)
    y = y.long()
    b, c, k = len(x), len(w), w.shape[1] if w.ndim == 3 else 1
    memory = None if memory is None else count_at_least("memory", memory, 1)
    skip = usable_skip(skip, engine)
    engine = engine if engine != "auto" else engine_for(x, b * c * k, moving=mover is not None)
    engine = engine if b or engine != "triton" else "chunked"  # of nothing there is nothing to fuse
    w = w.reshape(c, k, x.shape[1])
    if (problem := why_not(engine, x, moving=mover is not None)) is not None:
        raise ArcwiseError(problem)
    if engine == "eager":
        where = {} if outbound is None else {"elsewhere": True}
        return SplitLSE(*eager(x, w, y, s, others, **where))
    if engine == "triton":
        from arcwise.ops.fused import fused

        given = {"products": products, "memory": memory, "mover": mover, "skip": skip, "outbound": outbound}
        return SplitLSE(*fused(x, w, y, s, others, **given))  # pyright: ignore[reportCallIssue]
    if memory is None:
        memory = MEMORY_CPU if x.device.type == "cpu" else MEMORY_GPU
    size = max(1, memory // bytes_per_class(x, k, moving=mover is not None))
    unit = x if outbound is not None else normalise(x)
    return SplitLSE(*chunked(unit, w, y, s, others, size, mover, outbound))


def usable_skip(skip: float, engine: str) -> float:
    """The softmax mass below which classes may be left out, checked; only one engine leaves any out."""
    skip = number_in("skip", skip, 0.0, 0.1, why="It is the softmax mass below which classes are left out.")
    if skip and engine in ("eager", "chunked"):
        raise ArcwiseError(f'engine="{engine}" leaves no class out: pass skip=0, or take engine="triton" or "auto".')
    return skip


def engine_for(x: Float[Tensor, "b d"], cosines: int, *, moving: bool) -> str:
    """The engine that `auto` picks: what is quickest for this device and this many cosines."""
    on_gpu = x.device.type == "cuda"
    if on_gpu and (moving or cosines >= FUSED_FROM) and why_not("triton", x, moving=moving) is None:
        return "triton"
    return "chunked" if moving or cosines >= (CHUNKED_FROM_GPU if on_gpu else CHUNKED_FROM_CPU) else "eager"


def why_not(engine: str, x: Float[Tensor, "b d"], *, moving: bool) -> str | None:
    """Why an engine that is asked for by name cannot take such a batch, and what to do; None where it can."""
    if engine == "eager" and moving:
        return INSIDE_ENGINES
    if engine != "triton":
        return None
    problem = fused_problem(x)
    if problem is None and moving and x.shape[1] % PIECE:
        problem = f"an optimiser in the backward pass needs a dimension that {PIECE} divides, and this is {x.shape[1]}."
    return problem and f'engine="triton" cannot run here: {problem} Take engine="auto".'


def fused_problem(x: Float[Tensor, "b d"]) -> str | None:
    """Why the fused engine cannot take this batch; None where it can."""
    if x.dtype != torch.float32:
        return f"it works in float32, and x is {x.dtype}."
    if (missing := triton_missing()) is not None:
        return missing
    if x.device.type != "cuda" and os.environ.get("TRITON_INTERPRET") != "1":
        return f"it needs a GPU, and x is on {x.device}."
    if x.device.type == "cuda" and torch.cuda.get_device_capability(x.device) < (8, 0):
        return "the GPU is older than its kernels are written for (compute capability 8.0)."
    return None


@lru_cache(maxsize=1)
def triton_missing() -> str | None:
    """What is to be installed for the fused engine; None where all is there."""
    if find_spec("triton") is None or find_spec("triton.tools.tensor_descriptor") is None:
        return "triton 3.4 or newer is not installed; it comes with torch 2.8 and newer for Linux."
    return None


def bytes_per_class(x: Float[Tensor, "b d"], k: int, *, moving: bool = False) -> int:
    """What one class of a block costs: alive at once are at most five arrays of b x k and two of k x d for it.

    Moving the prototypes takes seven more of k x d, for the gradient, the state and what they become.

    >>> import torch
    >>> MEMORY_CPU // bytes_per_class(torch.zeros(256, 512), k=1)
    3640
    """
    b, d = x.shape
    return x.element_size() * k * (5 * b + (9 if moving else 2) * d)


def own_cosine(x: Float[Tensor, "b d"], w: Float[Tensor, "c *k d"], y: Int[Tensor, " b"]) -> Float[Tensor, " b"]:
    """cos(x_i, w_y), b dot products: what a margin must know before the pass over the classes.

    >>> import torch
    >>> own_cosine(torch.tensor([[2.0, 0.0]]), torch.eye(2), torch.tensor([1]))
    tensor([0.])
    """
    b, d = x.shape
    own = w.index_select(0, y).to(x.dtype).reshape(b, w[0].numel() // d, d)
    return nearest_centre((normalise(own) @ normalise(x).unsqueeze(-1)).mT).squeeze(-1)
