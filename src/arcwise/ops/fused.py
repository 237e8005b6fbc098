"""lse, own cosine and largest other cosine on a GPU: every class, any margin, nothing of size b x c.

Two passes over large blocks of classes, by the kernels of `ops/triton.py`. What the first pass has computed and the
memory allows to keep, the second need not compute again; the results are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from arcwise.errors import ArcwiseError
from arcwise.ops import triton as kernels
from arcwise.ops.plan import PIECE, TILE, Plan, allowance, parts, planned, up
from arcwise.ops.triton import MODES, ClassBlock, Reshaping, Running, Settings, Slopes, resident
from arcwise.ops.update import Mover, all_finite
from arcwise.sphere import Others, slices

PRODUCTS = (torch.float32, torch.bfloat16, torch.float16)


@lru_cache(maxsize=32)
def allowed(device: torch.device, *, moving: bool = False) -> int:
    """The memory that `auto` allows on a device."""
    total = torch.cuda.get_device_properties(device).total_memory if device.type == "cuda" else 0
    return allowance(total, moving=moving)


@torch.compiler.disable
def fused(
    x: Float[Tensor, "b d"],
    w: Float[Tensor, "c k d"],
    y: Int[Tensor, " b"],
    s: float,
    others: Others | None,
    *,
    products: torch.dtype = torch.float32,
    memory: int | None = None,
    mover: Mover | None = None,
    skip: float = 0.0,
    outbound: Callable[[Tensor], None] | None = None,
):
    """The same three as `eager`, of x and w as they are. `products` is the type that is multiplied.

    With a `mover` the backward pass moves w itself, and w gets no gradient. With `skip` it leaves out tiles of samples
    and classes in which every |dL/dcos_ij| is below s skip / b: for a mean over the batch, where every class has less
    than `skip` of a sample's softmax. No slope is then off by more than that. With `outbound` labels of -1 are classes
    held elsewhere, and the gradient of x goes there before the last block of w has its own.
    """
    if products not in PRODUCTS or x.dtype != torch.float32:
        raise ArcwiseError(f'engine="triton" multiplies float32, bfloat16 or float16, not {products}: take "chunked".')
    spare = up(w.shape[-1], PIECE) - w.shape[-1]
    x, w = (F.pad(v, (0, spare)) if spare else v for v in (x, w))
    if w.data_ptr() % 16 or not w.is_contiguous():
        if mover is not None:
            raise ArcwiseError(
                "an optimiser in the backward pass needs prototypes that are contiguous and start at a multiple of 16 "
                "bytes: head.weight.data = head.weight.data.clone(memory_format=torch.contiguous_format)"
            )
        w = w.clone(memory_format=torch.contiguous_format)
    b, (c, k, d) = len(x), w.shape
    memory = allowed(x.device, moving=mover is not None) if memory is None else memory
    gradient = w.element_size() if w.requires_grad and mover is None else 0
    size, programs = products.itemsize, resident(2, x.device)
    plan = planned(b, c, k, d, size=size, memory=memory, gradient=gradient, programs=programs, s=s)
    if not (torch.is_grad_enabled() and (x.requires_grad or w.requires_grad)):
        plan = plan._replace(keep_units=False, kept=0)  # there will be no second pass
    one = Settings(k, d, up(d, 64), MODES[None if others is None else others.mode], s, products, skip)
    with torch.cuda.device_of(x):  # kernels start on the current device, whatever tensors they are given
        return Fused.apply(x, w, y, others, one, plan, mover, outbound)


class Fused(torch.autograd.Function):
    """lse in one pass over the classes; gradients in a second, which computes the cosines again or has kept them."""

    @staticmethod
    def forward(ctx, x, w, y, others, one, plan, mover, outbound):
        given, x, y = (x, w), x.contiguous(), y.contiguous()
        operand, cos_y, nearest = kernels.prepare(x, w, y if outbound is None else y.clamp(min=0), one)
        if outbound is not None:
            cos_y.masked_fill_(y < 0, 0.0)
        running, reshaping = Running.over(x), reshaping_of(others, x)
        d_w = torch.empty_like(w) if plan.room == "gradient" and plan.kept else None
        inverse, units = x.new_empty(w.shape[:2]), room_for_units(operand, len(w), one, plan)
        kept = room_for_cosines(operand, d_w, len(w), plan)
        every = blocks_of(w, inverse, units, kept, plan)
        for block in with_units(every, one, at_once=plan.keep_units):
            kernels.take_in(block, operand, y, reshaping, running, one)
        lse, other = kernels.combine(running, one)
        ctx.save_for_backward(
            *given, operand, y, lse, cos_y, nearest, inverse, *units, *([] if d_w is not None else kept)
        )
        ctx.first, ctx.d_w, ctx.units = (others, one, plan, mover, outbound), d_w, len(units)
        ctx.mark_non_differentiable(other)
        return lse, cos_y, other

    @staticmethod
    def backward(ctx, d_lse, d_cos, _):  # pyright: ignore[reportIncompatibleMethodOverride]
        mover = ctx.first[3]
        if mover is not None:
            mover.ready()
        x, w, *saved = ctx.saved_tensors  # once: checkpoints hand them out a single time
        with torch.cuda.device_of(x):
            d_x, d_w = FusedGradient.apply(x, w, d_lse, d_cos, ctx, saved)  # type: ignore[misc]
        return d_x, d_w, None, None, None, None, None, None


class FusedGradient(torch.autograd.Function):
    """The second pass. A function of its own, so that a gradient of this gradient is refused, not silently wrong."""

    @staticmethod
    def forward(ctx, x, w, d_lse, d_cos, first, saved):
        x = x.contiguous()
        operand, y, lse, cos_y, nearest, inverse, *room = saved
        others, one, plan, mover, outbound = first.first
        wanted = first.needs_input_grad[1] and mover is None
        d_w, first.d_w = first.d_w, None  # the cosines in it last for one backward pass
        kept = room[first.units :] if plan.room == "own" else room_for_cosines(operand, d_w, len(w), plan)
        d_w = torch.empty_like(w) if wanted and d_w is None else d_w
        d_lse, d_cos = d_lse.contiguous(), d_cos.contiguous()
        update = None if mover is None else mover.step_of(all_finite(lse, cos_y, d_lse, d_cos))
        unscale, reshaping = unity(w.device), reshaping_of(others, lse)
        if one.products == torch.float16:
            fit = headroom(d_lse, d_cos, one)
            d_lse, d_cos, unscale = d_lse * fit, d_cos * fit, fit.reciprocal()
        every = blocks_of(w, inverse, room[: first.units], kept, plan)
        shares = lse.new_empty(plan.shares, len(y), one.deep)
        g = operand.new_empty(len(every[0].unit), up(len(y), 16))
        radial = lse.new_empty(parts(len(y), TILE) * len(g))
        counted = y.new_empty(parts(len(y), TILE) * parts(plan.block, TILE), dtype=torch.int32) if one.skip else lse
        for block in every:
            if not plan.keep_units:
                kernels.write_units(block.rows, block.unit, block.inverse, one)
            slopes = Slopes(g[: len(block.unit)], radial, counted)
            kernels.write_slopes(block, operand, y, reshaping, lse, d_lse, slopes, unscale, one)
            kernels.add_own(block, y, nearest, cos_y, d_cos, slopes)
            kernels.add_to_x(block, slopes, shares, one)
            if block is every[-1]:
                d_x = kernels.finish_gradient(shares, x, unscale, one)
                if outbound is not None:
                    outbound(d_x)
            if wanted or update is not None:
                d_rows = None if d_w is None else d_w[block.start : block.start + block.n]
                kernels.write_to_w(block, operand, slopes, d_rows, unscale, update, one)
        if mover is not None:
            torch.autograd.graph.increment_version(w)  # what other passes have saved of w is out of date
            mover.moved(w)
        return d_x, d_w  # pyright: ignore[reportPossiblyUnboundVariable]

    @staticmethod
    def backward(ctx, *_):
        raise ArcwiseError('engine="triton" can be differentiated once: take engine="eager" for second derivatives.')


def room_for_units(operand: Tensor, c: int, one: Settings, plan: Plan) -> list[Tensor]:
    """Memory for the units of every block where they are kept, else of one block for all."""
    sizes = [up(some.stop - some.start, TILE) for some in slices(c, plan.block)]
    return [operand.new_empty(one.k * size, one.deep) for size in (sizes if plan.keep_units else sizes[:1])]


def room_for_cosines(operand: Tensor, d_w: Tensor | None, c: int, plan: Plan) -> list[Tensor]:
    """Memory for the cosines of the blocks that keep them, in the place of their gradient where that is the plan."""
    wide, every = up(len(operand), 16), [(some.start, some.stop - some.start) for some in slices(c, plan.block)]
    if plan.room == "own":
        return [operand.new_empty(n, wide, dtype=torch.int16) for _, n in every[: plan.kept]]
    if d_w is None:
        return []
    place = d_w.view(torch.int16)
    each = place.stride(0)
    return [place.as_strided((n, wide), (wide, 1), start * each) for start, n in every]


def blocks_of(w: Tensor, inverse: Tensor, units: list[Tensor], kept: list[Tensor], plan: Plan) -> list[ClassBlock]:
    """The blocks of w with their room."""
    found = []
    for number, some in enumerate(slices(len(w), plan.block)):
        unit = units[number if plan.keep_units else 0][: w.shape[1] * up(some.stop - some.start, TILE)]
        found.append(ClassBlock(some.start, w[some], inverse[some], unit, kept[number] if number < len(kept) else None))
    return found


def with_units(every: list[ClassBlock], one: Settings, *, at_once: bool) -> Iterator[ClassBlock]:
    """Each block once its units are there.

    Where all blocks keep theirs, a second stream writes those of the next while the last one's products run: the one is
    a matter of memory, the other is not.
    """
    if not at_once or len(every) == 1 or every[0].unit.device.type != "cuda":
        for block in every:
            kernels.write_units(block.rows, block.unit, block.inverse, one)
            yield block
        return
    here, ahead = torch.cuda.current_stream(), side_stream(every[0].unit.device)
    ahead.wait_stream(here)
    for block in every:
        with torch.cuda.stream(ahead):
            kernels.write_units(block.rows, block.unit, block.inverse, one)
            done = ahead.record_event()
        here.wait_event(done)
        yield block


@lru_cache(maxsize=16)
def side_stream(device: torch.device) -> torch.cuda.Stream:
    """The second stream of a device."""
    return torch.cuda.Stream(device)


def reshaping_of(others: Others | None, like: Tensor) -> Reshaping:
    """What a mode needs, as tensors."""
    if others is None:
        return Reshaping(like, like)
    t = others.t if isinstance(others.t, Tensor) else torch.full((), others.t, device=like.device)
    return Reshaping(others.above.float().contiguous(), t.float())


def unity(device: torch.device) -> Tensor:
    """The number 1 on a device; one that is made while a graph is recorded has its value in the graph alone."""
    if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
        return torch.ones((), device=device)
    return lasting_unity(device)


@lru_cache(maxsize=16)
def lasting_unity(device: torch.device) -> Tensor:
    """The same, made once."""
    return torch.ones((), device=device)


def headroom(d_lse: Tensor, d_cos: Tensor, one: Settings) -> Tensor:
    """A power of two that lifts the slopes well inside the range of fp16."""
    largest = torch.maximum(one.s * d_lse.abs().amax(), d_cos.abs().amax())
    usable = (largest > 0) & (largest < torch.inf)
    return torch.where(usable, torch.exp2((12.0 - largest.log2().ceil()).clamp(max=100.0)), 1.0)
