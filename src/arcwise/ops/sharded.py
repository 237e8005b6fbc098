"""Classes spread over processes: each holds some of them, and what they find of a sample is joined.

    lse_i = log sum_r exp(lse_i^r),   d lse_i / d lse_i^r = exp(lse_i^r - lse_i)

Every process sees the whole batch: units x/|x| (B d), lengths and labels (B) are gathered; each runs the engine over
its own classes; three numbers per sample are joined; the gradient of the units, summed over the processes, returns to
where the samples live. What crosses the network in a step is of size B d + B, whatever the number of classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from jaxtyping import Float, Int
from torch import Tensor

from arcwise.errors import ArcwiseError
from arcwise.sphere import inverse_length, length, slices

PIECE_NUMBERS = (
    2**22
)  # prototypes are drawn in pieces of so many numbers: what is drawn does not depend on who keeps it


FEW_PROCESSES = (
    8  # processes that send each other three numbers of each sample; more of them sum theirs up in two messages
)


@dataclass(frozen=True)
class Shard:
    """Which of all classes this process holds, and the processes that hold the others.

    Classes are divided as `torch.chunk` and DTensor's `Shard(0)` divide rows: ceil(c / P) each, fewer at the end.
    """

    group: dist.ProcessGroup
    classes: int
    rank: int
    processes: int
    even: bool = False

    @property
    def each(self) -> int:
        """How many classes a process holds that is not among the last."""
        return -(-self.classes // self.processes)

    @property
    def start(self) -> int:
        """The first class of this process."""
        return min(self.rank * self.each, self.classes)

    @property
    def stop(self) -> int:
        """The class after its last."""
        return min(self.start + self.each, self.classes)

    def __deepcopy__(self, memo: dict) -> Shard:
        return self

    # -------------------------------------------------------------------------------- what crosses the network

    def summed(self, value: Tensor) -> Tensor:
        """The sum over the processes, in place: the same bits for all."""
        dist.all_reduce(value, group=self.group)
        return value

    def largest(self, value: Tensor) -> Tensor:
        """The largest of the processes' values, in place. NaN may be passed over: a sum has to notice it."""
        dist.all_reduce(value, dist.ReduceOp.MAX, group=self.group)
        return value

    def gathered(self, value: Tensor, shares: Shares) -> Tensor:
        """The rows of all processes, in the order of their ranks."""
        widest = max(shares.sizes)
        if len(value) < widest:
            value = torch.cat([value, value.new_zeros(widest - len(value), *value.shape[1:])])
        found = value.new_empty(self.processes * widest, *value.shape[1:])
        all_gather(found, value.contiguous(), group=self.group)
        if shares.even:
            return found
        return torch.cat([part[:size] for part, size in zip(found.split(widest), shares.sizes, strict=True)])

    def returned(self, value: Float[Tensor, "B d"], shares: Shares) -> Returning:
        """The sum over the processes of the rows of this one, on its way."""
        widest = max(shares.sizes)
        if not shares.even:
            parts = value.split(list(shares.sizes))
            value = torch.cat(
                [torch.cat([part, part.new_zeros(widest - len(part), *part.shape[1:])]) for part in parts]
            )
        found = value.new_empty(widest, *value.shape[1:])
        work = reduce_scatter(found, value.contiguous(), group=self.group, async_op=True)
        return Returning(work, found[: shares.sizes[self.rank]], value)

    def shares(self, x: Tensor) -> Shares:
        """How many samples each process has brought, and whether anybody wants a gradient; waits for the device.

        Where every process brings equally many (`even`), nobody needs to ask.
        """
        if self.even:
            return Shares((len(x),) * self.processes, self.rank, x.requires_grad)
        told = torch.tensor([len(x), x.requires_grad and torch.is_grad_enabled()], device=x.device)
        every = told.new_empty(2 * self.processes)
        all_gather(every, told, group=self.group)
        sizes, wanted = every.view(-1, 2).T.tolist()
        return Shares(tuple(sizes), self.rank, any(wanted))


@dataclass(frozen=True)
class Shares:
    """Whose the rows of a gathered batch are."""

    sizes: tuple[int, ...]
    rank: int
    differentiable: bool

    @property
    def even(self) -> bool:
        """Whether every process has equally many."""
        return len(set(self.sizes)) == 1

    @property
    def total(self) -> int:
        """The rows of all."""
        return sum(self.sizes)

    @property
    def own(self) -> slice:
        """The rows of this process."""
        before = sum(self.sizes[: self.rank])
        return slice(before, before + self.sizes[self.rank])


@dataclass
class Returning:
    """Rows that are on their way back; what they are made of is kept until they have arrived."""

    work: Any
    rows: Tensor
    of: Tensor

    def wait(self) -> Tensor:
        """The rows, once they are here; on a GPU its stream waits, not the host."""
        self.work.wait()
        return self.rows


# torch 2.13 renamed both.
all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
reduce_scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


def shard_over(where: Any, classes: int, *, even: bool) -> Shard | None:
    """The part of `classes` that this process holds: `where` is True, a process group or a one-dimensional mesh.

    None where it is False or None: all classes are here.
    """
    if where is None or where is False:
        return None
    if where is not True and hasattr(where, "get_group"):
        if where.ndim != 1:
            raise ArcwiseError(f"shard takes a mesh of one dimension, such as mesh['classes']; this has {where.ndim}.")
        where = where.get_group()
    if not dist.is_available() or not dist.is_initialized():
        raise ArcwiseError(
            "shard=True spreads the classes over processes, and there is no process group here: start with torchrun, "
            "and call torch.distributed.init_process_group() first."
        )
    group = dist.group.WORLD if where is True else where
    if not isinstance(group, dist.ProcessGroup):
        raise ArcwiseError(f"shard must be True, a process group or a device mesh, got {where!r}.")
    return Shard(group, classes, dist.get_rank(group), dist.get_world_size(group), even)


def agreed_number(shard: Shard) -> int:
    """A random number from torch's own generator of the first process, the same for all."""
    told: list[Any] = [int(torch.randint(2**62, ())) if shard.rank == 0 else None]
    dist.broadcast_object_list(told, group=shard.group, group_src=0)
    return told[0]


def draw_prototypes(weight: Tensor, shard: Shard, seed: int) -> None:
    """Fills this process's rows with their part of one sequence of normal numbers, which does not depend on P."""
    draw = torch.Generator(device=weight.device).manual_seed(seed)
    width = weight[:1].numel() if len(weight) else int(torch.tensor(weight.shape[1:]).prod())
    for piece in slices(shard.classes, max(16, PIECE_NUMBERS // width // 16 * 16)):
        if piece.start >= shard.stop:
            return
        rows = torch.empty(piece.stop - piece.start, *weight.shape[1:], device=weight.device, dtype=weight.dtype)
        rows.normal_(generator=draw)
        first, last = max(piece.start, shard.start), min(piece.stop, shard.stop)
        if first < last:
            weight[first - shard.start : last - shard.start] = rows[first - piece.start : last - piece.start]


# ------------------------------------------------------------------------------------------ a step


@dataclass(frozen=True)
class Gathered:
    """The batch of all processes: units (B, d), lengths and labels (B), of which -1 is none; and whose they are."""

    unit: Float[Tensor, "B d"]
    norm: Float[Tensor, " B"]
    y: Int[Tensor, " B"]
    shares: Shares
    sender: Sender

    def own(self, value: Tensor) -> Tensor:
        """The entries of this process's samples; their gradients are gathered on the way back."""
        return OwnRows.apply(value, self.shares, self.sender.shard)  # type: ignore[return-value]


def gather_batch(shard: Shard, x: Float[Tensor, "b d"], y: Int[Tensor, " b"]) -> Gathered:
    """The whole batch, at every process alike; the gradient of x is that of its own samples, times P.

    Times P, because DDP takes the mean over the processes where the gradient of the batch's mean is the sum.
    """
    shares = shard.shares(x)
    if shares.differentiable and torch.is_grad_enabled() and not x.requires_grad:
        x = x.detach().requires_grad_()  # whoever has no samples still answers in the backward pass
    sender = Sender(shard, shares)
    norm = length(x)
    unit = x * inverse_length(norm).unsqueeze(-1)
    return Gathered(*GatherBatch.apply(unit, norm, y, sender), shares, sender)  # type: ignore[misc]


class Sender:
    """Sends the gradient of the units home as soon as it is whole, beside the gradient of w."""

    def __init__(self, shard: Shard, shares: Shares):
        self.shard, self.shares = shard, shares
        self.sent: tuple[Tensor, Returning] | None = None

    def __call__(self, d_unit: Tensor) -> None:
        if d_unit.shape == (self.shares.total, d_unit.shape[1]):
            self.sent = (d_unit, self.shard.returned(d_unit, self.shares))

    def rows_of(self, d_unit: Tensor) -> Tensor:
        """The sum over the processes of this one's rows, sent now where it was not before."""
        sent, self.sent = self.sent, None
        if sent is not None and sent[0].data_ptr() == d_unit.data_ptr() and sent[0].shape == d_unit.shape:
            return sent[1].wait()
        if sent is not None:  # it was not the whole: what is on its way is taken in, so that all stay in step
            sent[1].wait()
        return self.shard.returned(d_unit, self.shares).wait()


class GatherBatch(torch.autograd.Function):
    """Units, lengths and labels of all processes, in one message; the labels' bits travel as numbers.

    Of a unit's gradient each process knows a part, and the parts are summed where the row lives; a length's it knows
    whole.
    """

    @staticmethod
    def forward(ctx, unit, norm, y, sender):
        ctx.sender, d = sender, unit.shape[1]
        sent = torch.cat([unit, norm[:, None], y[:, None].contiguous().view(unit.dtype)], 1)
        every = sender.shard.gathered(sent, sender.shares)
        labels = every[:, d + 1 :].clone(memory_format=torch.contiguous_format).view(y.dtype).squeeze(1)
        return every[:, :d].contiguous(), every[:, d].contiguous(), labels

    @staticmethod
    def backward(ctx, d_unit, d_norm, _):  # pyright: ignore[reportIncompatibleMethodOverride]
        refuse_second_derivative()
        shard, own = ctx.sender.shard, ctx.sender.shares.own
        return ctx.sender.rows_of(d_unit) * shard.processes, d_norm[own] * shard.processes, None, None


class OwnRows(torch.autograd.Function):
    """This process's rows of what all have; the gradients of the others' rows come from the others."""

    @staticmethod
    def forward(ctx, x, shares, shard):
        ctx.shares, ctx.shard = shares, shard
        return x[shares.own].clone()

    @staticmethod
    def backward(ctx, d):  # pyright: ignore[reportIncompatibleMethodOverride]
        refuse_second_derivative()
        return ctx.shard.gathered(d, ctx.shares), None, None


class Joined(torch.autograd.Function):
    """lse, own and largest other cosine over all classes, from those over each process's; no network on the way back.

    The largest is subtracted before the exponentials are summed; NaN, which a maximum may pass over, stays in the sum.
    Few processes send each other what they found, in one message; many would send too much so.
    """

    @staticmethod
    def forward(ctx, lse, cos_y, other, shard):
        if shard.processes <= FEW_PROCESSES:
            every = lse.new_empty(shard.processes * 3, len(lse))
            all_gather(every, torch.stack([lse, cos_y, other]), group=shard.group)
            each, owns, others = every.view(shard.processes, 3, len(lse)).unbind(1)
            whole, own, best = each.logsumexp(0), owns.sum(0), others.amax(0)
        else:
            top, best = shard.largest(torch.stack([lse, other]))
            total, own = shard.summed(torch.stack([(lse - top).exp(), cos_y]))
            whole, own, best = top + total.log(), own.clone(), best.clone()
        ctx.save_for_backward((lse - whole).exp())
        ctx.mark_non_differentiable(best)
        return whole, own, best

    @staticmethod
    def backward(ctx, d_lse, d_cos, _):  # pyright: ignore[reportIncompatibleMethodOverride]
        refuse_second_derivative()
        (share,) = ctx.saved_tensors
        return d_lse * share, d_cos, None, None


def refuse_second_derivative() -> None:
    """Raises where somebody wants to differentiate a gradient that has crossed the network."""
    if torch.is_grad_enabled():
        raise ArcwiseError("classes that are spread over processes can be differentiated once: leave create_graph out.")


def local_labels(y: Int[Tensor, " B"], shard: Shard) -> Int[Tensor, " B"]:
    """The labels counted from this process's first class; -1 where the class is elsewhere."""
    return torch.where((y >= shard.start) & (y < shard.stop), y - shard.start, -1)


# ------------------------------------------------------------------------------------------ on request


def whole_rows(rows: Tensor, shard: Shard) -> Tensor:
    """The rows of all processes, at each: c of them."""
    sizes = tuple(max(0, min(shard.each, shard.classes - r * shard.each)) for r in range(shard.processes))
    return shard.gathered(rows.detach(), Shares(sizes, shard.rank, False))


def columns_home(values: Float[Tensor, "B n"], shares: Shares, shard: Shard) -> Float[Tensor, "b c"]:
    """What every process found of this one's samples, side by side in the order of the classes."""
    widest, each = max(shares.sizes), shard.each
    sent = values.new_zeros(shard.processes, widest, each)
    for rank, part in enumerate(values.split(list(shares.sizes))):
        sent[rank, : len(part), : values.shape[1]] = part
    found = torch.empty_like(sent)
    dist.all_to_all_single(found, sent, group=shard.group)
    return found[:, : shares.sizes[shard.rank]].permute(1, 0, 2).reshape(-1, shard.processes * each)[:, : shard.classes]
