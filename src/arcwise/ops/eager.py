"""lse, own cosine and largest other cosine in plain torch: the definition, and the same in blocks.

`eager` is the equation as it is written. `chunked` is the same equation for many classes: it passes
over them twice, block by block, and keeps nothing of size b x c.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import get_args

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from arcwise.errors import ArcwiseError, unknown
from arcwise.ops.update import Mover, all_finite, move
from arcwise.sphere import EMPTY, Mode, Others, cosines, inverse_length, length, slices

ThreeOfEach = tuple[Float[Tensor, " b"], Float[Tensor, " b"], Float[Tensor, " b"]]


def eager(
    x: Float[Tensor, "b d"],
    w: Float[Tensor, "c k d"],
    y: Int[Tensor, " b"],
    s: float,
    others: Others | None,
    *,
    elsewhere: bool = False,
) -> ThreeOfEach:
    """lse_i = log sum_{j != y} exp(s f(cos_ij)), by autograd over the whole b x c matrix.

    With `elsewhere` a label of -1 says that the own class is not among these; its cosine is then 0.
    """
    cos = cosines(x, w.to(x.dtype))
    if elsewhere:  # one column more, which stands for every class that is held elsewhere
        cos = F.pad(cos, (0, 1), value=EMPTY)
        own = y.where(y >= 0, len(w)).unsqueeze(1)
        lse = torch.logsumexp(s * reshape_others(cos, others).scatter(1, own, EMPTY), dim=1)
        cos_y = cos.gather(1, own).squeeze(1).masked_fill(y < 0, 0.0)
        return lse, cos_y, cos.detach().scatter(1, own, EMPTY).amax(1)
    own = y.unsqueeze(1)
    lse = torch.logsumexp(s * reshape_others(cos, others).scatter(1, own, EMPTY), dim=1)
    return lse, cos.gather(1, own).squeeze(1), cos.detach().scatter(1, own, EMPTY).amax(1)


def reshape_others(cos: Float[Tensor, "b c"], others: Others | None) -> Float[Tensor, "b c"]:
    """f(cos): the cosine itself, or what `others.mode` makes of it above the sample's number."""
    if others is None:
        return cos
    hard = cos > others.above.unsqueeze(1)
    match others.mode:
        case "curricular":
            return torch.where(hard, cos * (others.t + cos), cos)
        case "mv":
            return torch.where(hard, others.t * cos + (others.t - 1.0), cos)
        case "mv-fixed":
            return torch.where(hard, cos + (others.t - 1.0), cos)
        case "filter":
            return cos.masked_fill(hard, EMPTY)
    raise unknown("mode", others.mode, get_args(Mode))


def reshape_slope(cos: Float[Tensor, "b c"], others: Others) -> Float[Tensor, "b c"]:
    """f'(cos), the derivative of `reshape_others`; the threshold itself carries no gradient."""
    easy = ~(cos > others.above.unsqueeze(1))
    match others.mode:
        case "curricular":
            return (others.t + 2.0 * cos).masked_fill(easy, 1.0)
        case "mv":
            return (torch.ones_like(cos) * others.t).masked_fill(easy, 1.0)
        case "mv-fixed":
            return torch.ones_like(cos)
        case "filter":
            return easy.to(cos.dtype)
    raise unknown("mode", others.mode, get_args(Mode))


def chunked(
    x: Float[Tensor, "b d"],
    w: Float[Tensor, "c k d"],
    y: Int[Tensor, " b"],
    s: float,
    others: Others | None,
    size: int,
    mover: Mover | None = None,
    outbound: Callable[[Tensor], None] | None = None,
) -> ThreeOfEach:
    """The same three as `eager`, over blocks of `size` classes; x must be normalised, w need not be.

    With a `mover` the backward pass moves w itself, block by block, and w gets no gradient. With `outbound` labels of
    -1 are classes held elsewhere, and the gradient of x goes there before the last block of w has its own.
    """
    return Chunked.apply(x, w, y, s, others, size, mover, outbound)  # type: ignore[return-value]


class Chunked(torch.autograd.Function):
    """lse by a running maximum and sum; gradients by a second pass that computes each block again.

    With p_ij = exp(s f(cos_ij) - lse_i) the gradient of cos_ij is g_ij = s f'(cos_ij) p_ij dlse_i for
    another class and dcos_i for the own one. Through the normalisation of w_j,
    dw_j = (sum_i g_ij x_i - (sum_i g_ij cos_ij) w_j/|w_j|) / |w_j|, so that no normalised w is stored.
    """

    @staticmethod
    def forward(ctx, x, w, y, s, others, size, mover, outbound):
        inverse = w.new_empty(w.shape[:2], dtype=x.dtype)  # 1/|w|, (c, k)
        cos_y = x.new_full((len(x),), torch.nan if outbound is None else 0.0)  # what a label out of range keeps
        best, total = x.new_full((len(x),), EMPTY), x.new_zeros(len(x))
        top = x.new_full((len(x),), -torch.inf)
        for block in slices(len(w), size):
            rows = w[block].to(x.dtype)
            inverse[block] = inverse_length(length(rows))
            cos, _ = block_cosines(x, rows, inverse[block])
            inside, column = place(y, block)
            own = cos.gather(1, column)
            cos_y = torch.where(inside, own, cos_y.unsqueeze(1)).squeeze(1)
            cos.scatter_(1, column, own.masked_fill(inside, EMPTY))
            best = torch.maximum(best, cos.amax(1))
            top, total = absorbed(top, total, reshape_others(cos, others).mul_(s))  # cos is used up here
        lse = top + total.log()
        ctx.save_for_backward(x, w, y, inverse, lse)
        ctx.s, ctx.others, ctx.size, ctx.mover = s, others, size, mover  # others carries no gradient
        ctx.outbound = outbound
        ctx.mark_non_differentiable(best)
        return lse, cos_y, best

    @staticmethod
    def backward(ctx, d_lse, d_cos, _):  # pyright: ignore[reportIncompatibleMethodOverride]
        if ctx.mover is not None:
            ctx.mover.ready()
        x, w, y, inverse, lse = ctx.saved_tensors
        d_x, d_w = ChunkedGradient.apply(x, w, d_lse, d_cos, (y, inverse, lse, ctx))  # type: ignore[misc]
        return d_x, d_w, None, None, None, None, None, None


class ChunkedGradient(torch.autograd.Function):
    """The second pass. A function of its own, so that a gradient of this gradient is refused, not silently wrong."""

    @staticmethod
    def forward(ctx, x, w, d_lse, d_cos, first_pass):
        y, inverse, lse, first = first_pass
        d_x = torch.zeros_like(x)
        update = None
        if first.mover is not None:
            update = first.mover.step_of(all_finite(lse, d_lse, d_cos))
        wanted = first.needs_input_grad[1] and update is None
        d_w = torch.empty_like(w, memory_format=torch.contiguous_format) if wanted else None
        weight = (first.s * d_lse).unsqueeze(1)
        with torch.autocast(x.device.type, enabled=False):
            for block in slices(len(w), first.size):
                rows, scale = w[block].to(x.dtype), inverse[block].reshape(-1)
                cos, centre = block_cosines(x, rows, inverse[block])
                g = (first.s * reshape_others(cos, first.others)).sub_(lse.unsqueeze(1)).exp_().mul_(weight)
                if first.others is not None:
                    g.mul_(reshape_slope(cos, first.others))
                inside, column = place(y, block)
                g.scatter_(1, column, torch.where(inside, d_cos.unsqueeze(1), g.gather(1, column)))
                radial = to_sub_centres(cos.mul_(g), centre, rows).sum(0) * scale.square()
                g = to_sub_centres(g, centre, rows).mul_(scale)
                d_x.addmm_(g, rows.flatten(0, 1))
                if first.outbound is not None and block.stop == len(w):
                    first.outbound(d_x)
                if d_w is not None:
                    write_gradient(d_w[block], x, rows, g, radial=radial)
                elif update is not None:
                    gradient = torch.empty_like(rows)
                    write_gradient(gradient, x, rows, g, radial=radial)
                    move(w[block], gradient, update, block)
            if first.mover is not None:
                first.mover.moved(w)
        return d_x, d_w

    @staticmethod
    def backward(ctx, *_):
        raise ArcwiseError('engine="chunked" can be differentiated once: take engine="eager" for second derivatives.')


def absorbed(
    top: Float[Tensor, " b"], total: Float[Tensor, " b"], z: Float[Tensor, "b n"]
) -> tuple[Float[Tensor, " b"], Float[Tensor, " b"]]:
    """The running maximum, and the running sum of exp(z - maximum), once z is among them; z is used up."""
    higher = torch.maximum(top, z.amax(1))
    return higher, total * (top - higher).exp_() + z.sub_(higher.unsqueeze(1)).exp_().sum(1)


def block_cosines(
    x: Float[Tensor, "b d"], rows: Float[Tensor, "n k d"], inverse: Float[Tensor, "n k"]
) -> tuple[Float[Tensor, "b n"], Int[Tensor, "b n"] | None]:
    """The cosines to the classes of one block, and which sub-centre gave each (None for k = 1)."""
    n, k, _ = rows.shape
    cos = (x @ rows.flatten(0, 1).T).mul_(inverse.reshape(-1))
    if k == 1:
        return cos, None
    nearest = cos.reshape(len(x), n, k).max(-1)
    return nearest.values, nearest.indices


def place(y: Int[Tensor, " b"], block: slice) -> tuple[Bool[Tensor, "b 1"], Int[Tensor, "b 1"]]:
    """Whether each sample's own class lies in the block, and its column there (any column if not)."""
    inside = (y >= block.start) & (y < block.stop)
    return inside.unsqueeze(1), (y - block.start).clamp(0, block.stop - block.start - 1).unsqueeze(1)


def to_sub_centres(
    values: Float[Tensor, "b n"], centre: Int[Tensor, "b n"] | None, rows: Float[Tensor, "n k d"]
) -> Float[Tensor, "b n*k"]:
    """The values of classes, each at the sub-centre that was nearest, 0 at the others."""
    if centre is None:
        return values
    n, k, _ = rows.shape
    spread = values.new_zeros(len(values), n, k).scatter_(2, centre.unsqueeze(2), values.unsqueeze(2))
    return spread.reshape(len(values), n * k)


def write_gradient(
    d_rows: Float[Tensor, "n k d"],
    x: Float[Tensor, "b d"],
    rows: Float[Tensor, "n k d"],
    g: Float[Tensor, "b n*k"],
    *,
    radial: Float[Tensor, " n*k"],
) -> None:
    """Writes sum_i g_ij x_i - radial_j w_j into d_rows, without a copy where the types agree."""
    flat, w = d_rows.view(-1, x.shape[1]), rows.flatten(0, 1)
    if flat.dtype == x.dtype:
        torch.mm(g.T, x, out=flat).addcmul_(w, radial.unsqueeze(1), value=-1.0)
    else:
        flat.copy_((g.T @ x).addcmul_(w, radial.unsqueeze(1), value=-1.0))
