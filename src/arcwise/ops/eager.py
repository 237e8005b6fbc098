"""Returns lse, own cosine and largest other cosine in plain torch: the definition, and the same in blocks.

`eager` is the equation as it is written. `chunked` is the same equation for many classes: it passes
over them twice, block by block, and keeps nothing of size b x c.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from arcwise.sphere import EMPTY, Others, blocks, cosines, inverse_length, length

Triple = tuple[Float[Tensor, " b"], Float[Tensor, " b"], Float[Tensor, " b"]]


def eager(
    x: Float[Tensor, "b d"], w: Float[Tensor, "c k d"], y: Int[Tensor, " b"], s: float, others: Others | None
) -> Triple:
    """lse_i = log sum_{j != y} exp(s f(cos_ij)), by autograd over the whole b x c matrix."""
    cos = cosines(x, w.to(x.dtype))
    own = y.unsqueeze(1)
    lse = torch.logsumexp(s * reshaped(cos, others).scatter(1, own, EMPTY), dim=1)
    return lse, cos.gather(1, own).squeeze(1), cos.detach().scatter(1, own, EMPTY).amax(1)


def reshaped(cos: Float[Tensor, "b c"], others: Others | None) -> Float[Tensor, "b c"]:
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


def slope(cos: Float[Tensor, "b c"], others: Others) -> Float[Tensor, "b c"]:
    """f'(cos), the derivative of `reshaped`; the threshold itself carries no gradient."""
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


def chunked(
    x: Float[Tensor, "b d"],
    w: Float[Tensor, "c k d"],
    y: Int[Tensor, " b"],
    s: float,
    others: Others | None,
    size: int,
) -> Triple:
    """The same three as `eager`, over blocks of `size` classes; x must be normalised, w need not be."""
    return Chunked.apply(x, w, y, s, others, size)  # type: ignore[return-value]


class Chunked(torch.autograd.Function):
    """lse by a running maximum and sum; gradients by a second pass that computes each block again.

    With p_ij = exp(s f(cos_ij) - lse_i) the gradient of cos_ij is g_ij = s f'(cos_ij) p_ij dlse_i for
    another class and dcos_i for the own one. Through the normalisation of w_j,
    dw_j = (sum_i g_ij x_i - (sum_i g_ij cos_ij) w_j/|w_j|) / |w_j|, so that no normalised w is stored.
    """

    @staticmethod
    def forward(ctx, x, w, y, s, others, size):
        inverse = w.new_empty(w.shape[:2], dtype=x.dtype)  # 1/|w|, (c, k)
        best = x.new_full((len(x),), EMPTY)
        top = x.new_full((len(x),), -torch.inf)
        total = x.new_zeros(len(x))
        cos_y = x.new_full((len(x),), EMPTY)
        for block in blocks(len(w), size):
            rows = w[block].to(x.dtype)
            inverse[block] = inverse_length(length(rows))
            cos, _ = block_cosines(x, rows, inverse[block])
            inside, column = place(y, block)
            own = cos.gather(1, column)
            cos_y = torch.where(inside, own, cos_y.unsqueeze(1)).squeeze(1)
            cos.scatter_(1, column, own.masked_fill(inside, EMPTY))
            best = torch.maximum(best, cos.amax(1))
            z = reshaped(cos, others).mul_(s)
            higher = torch.maximum(top, z.amax(1))
            total = total * (top - higher).exp_() + z.sub_(higher.unsqueeze(1)).exp_().sum(1)
            top = higher
        lse = top + total.log()
        ctx.save_for_backward(x, w, y, inverse, lse)
        ctx.s, ctx.others, ctx.size = s, others, size  # others carries no gradient
        ctx.mark_non_differentiable(best)
        return lse, cos_y, best

    @staticmethod
    @once_differentiable
    def backward(ctx, d_lse, d_cos, _):  # pyright: ignore[reportIncompatibleMethodOverride]
        x, w, y, inverse, lse = ctx.saved_tensors
        d_x = torch.zeros_like(x)
        d_w = torch.empty_like(w, memory_format=torch.contiguous_format) if ctx.needs_input_grad[1] else None
        weight = (ctx.s * d_lse).unsqueeze(1)
        for block in blocks(len(w), ctx.size):
            rows = w[block].to(x.dtype)
            cos, centre = block_cosines(x, rows, inverse[block])
            g = (ctx.s * reshaped(cos, ctx.others)).sub_(lse.unsqueeze(1)).exp_().mul_(weight)
            if ctx.others is not None:
                g.mul_(slope(cos, ctx.others))
            inside, column = place(y, block)
            g.scatter_(1, column, torch.where(inside, d_cos.unsqueeze(1), g.gather(1, column)))
            block_gradient(x, rows, inverse[block], cos, g, centre, d_x, None if d_w is None else d_w[block])
        return d_x, d_w, None, None, None, None


def block_cosines(
    x: Float[Tensor, "b d"], rows: Float[Tensor, "n k d"], inverse: Float[Tensor, "n k"]
) -> tuple[Float[Tensor, "b n"], Int[Tensor, "b n"] | None]:
    """The cosines to the classes of one block, and which sub-centre gave each (None for k = 1)."""
    n, k, d = rows.shape
    cos = (x @ rows.reshape(n * k, d).T).mul_(inverse.reshape(-1))
    if k == 1:
        return cos, None
    return cos.reshape(len(x), n, k).max(-1)


def place(y: Int[Tensor, " b"], block: slice) -> tuple[Tensor, Int[Tensor, "b 1"]]:
    """Whether each sample's own class lies in the block, and its column there (any column if not)."""
    inside = (y >= block.start) & (y < block.stop)
    return inside.unsqueeze(1), (y - block.start).clamp(0, block.stop - block.start - 1).unsqueeze(1)


def block_gradient(
    x: Float[Tensor, "b d"],
    rows: Float[Tensor, "n k d"],
    inverse: Float[Tensor, "n k"],
    cos: Float[Tensor, "b n"],
    g: Float[Tensor, "b n"],
    centre: Int[Tensor, "b n"] | None,
    d_x: Float[Tensor, "b d"],
    d_rows: Float[Tensor, "n k d"] | None,
) -> None:
    """Adds the block's part to d_x and writes the gradient of its rows of w, from that of its cosines, g."""
    n, k, d = rows.shape
    along = cos.mul_(g)
    if centre is not None:
        g, along = (v.new_zeros(len(x), n, k).scatter_(2, centre.unsqueeze(2), v.unsqueeze(2)) for v in (g, along))
    g = g.reshape(len(x), n * k).mul_(inverse.reshape(-1))
    rows = rows.reshape(n * k, d)
    d_x.addmm_(g, rows)
    if d_rows is None:
        return
    radial = along.reshape(len(x), n * k).sum(0).mul_(inverse.reshape(-1).square()).unsqueeze(1)
    d_rows = d_rows.view(n * k, d)
    if d_rows.dtype == x.dtype:
        torch.mm(g.T, x, out=d_rows).addcmul_(rows, radial, value=-1.0)
    else:
        d_rows.copy_((g.T @ x).addcmul_(rows, radial, value=-1.0))
