"""What processes do together in test_sharded.py; apart, so that a process that is spawned imports nothing else."""

from __future__ import annotations

import torch
import torch.distributed as dist

import arcwise
from arcwise import optim
from arcwise.ops import sharded

B, D = 11, 6
CLASSES, SIZES = 13, {1: (11,), 2: (3, 8), 3: (7, 0, 4), 4: (2, 5, 0, 4)}


def whole_batch(dtype=torch.float64, step=0):
    """The batch of all, the same wherever it is made: lengths around 20, as AdaFace wants them."""
    draw = torch.Generator().manual_seed(5 + step)
    x = 8.0 * torch.randn(B, D, generator=draw, dtype=dtype)
    return x, torch.randint(CLASSES, (B,), generator=draw)


def prototypes(k, classes=CLASSES, dtype=torch.float64):
    shape = (classes, D) if k == 1 else (classes, k, D)
    return torch.randn(shape, generator=torch.Generator().manual_seed(3), dtype=dtype)


def spread_head(margin, k, classes=CLASSES, dtype=torch.float64, shard=True, **given):
    head = arcwise.Head(D, classes, margin=margin, s=12.0, k=k, shard=shard, dtype=dtype, **given)
    head.put_whole_weight(prototypes(k, classes, dtype))
    head.draw_by(77)
    return head


def own_rows(processes, rank):
    before = sum(SIZES[processes][:rank])
    return slice(before, before + SIZES[processes][rank])


def one_step(group, margin, k, given, classes=CLASSES, dtype=torch.float64):
    """Loss, gradients, statistics and scores of one step, as each process sees them."""
    rank, processes = dist.get_rank(group), dist.get_world_size(group)
    head = spread_head(margin, k, classes, dtype, shard=group, **given)
    x, y = whole_batch(dtype)
    mine = own_rows(processes, rank)
    x, y = x[mine].clone().requires_grad_(len(x[mine]) > 0), y[mine] % classes
    loss = head(x, y)
    loss.backward()
    with torch.no_grad():
        each = head.eval()(x, y, reduction="none")
        scores = head.score(x, y)
    buffers = {name: value.clone() for name, value in head.margin.named_buffers()}
    d_x = torch.zeros(0, D, dtype=dtype) if x.grad is None else x.grad / processes  # as DDP's mean
    d_w = sharded.whole_rows(
        head.weight.grad if head.weight.grad is not None else torch.zeros_like(head.weight), head.shard
    )
    return {
        "loss": loss.detach(), "each": each, "d_x": d_x, "d_w": d_w, "buffers": buffers, "cos_other": scores.cos_other,
        "correct": scores.correct, "logits": head.logits(x.detach()), "whole": head.whole_weight(),
    }  # fmt: skip


def one_step_of_many(group, *given):
    """The same by the messages that more processes send than are started here."""
    before, sharded.FEW_PROCESSES = sharded.FEW_PROCESSES, 0
    try:
        return one_step(group, *given)
    finally:
        sharded.FEW_PROCESSES = before


def thirty_steps(group, margin, k, given, inside, sample=1.0, dtype=torch.float64):
    """The prototypes and a linear backbone after thirty steps of SGD with momentum, backbone averaged as DDP does."""
    rank, processes = dist.get_rank(group), dist.get_world_size(group)
    head = spread_head(margin, k, dtype=dtype, shard=group, sample=sample, **given)
    net = torch.nn.Linear(D, D, dtype=dtype)
    with torch.no_grad():
        net.weight.copy_(torch.eye(D, dtype=dtype))
        net.bias.zero_()
    mover = optim.SGD(head, 0.05, momentum=0.9, weight_decay=1e-3) if inside else None
    outside = [*net.parameters(), *([] if inside else head.parameters())]
    optimiser = torch.optim.SGD(outside, 0.05, momentum=0.9, weight_decay=1e-3)
    losses = []
    for step in range(30):
        x, y = whole_batch(dtype, step)
        mine = own_rows(processes, rank)
        optimiser.zero_grad()
        loss = head(net(x[mine]), y[mine])
        loss.backward()
        for parameter in net.parameters():
            dist.all_reduce(parameter.grad, group=group)
            parameter.grad /= processes
        optimiser.step()
        if mover is not None:
            mover.step()
        losses.append(float(loss))
    return {"losses": losses, "net": net.weight.detach().clone(), "whole": head.whole_weight()}


def fresh_in_pieces(group, classes, seed):
    """The same, drawn sixteen at a time."""
    before, sharded.PIECE_NUMBERS = sharded.PIECE_NUMBERS, 16 * D
    try:
        return fresh_prototypes(group, classes, seed)
    finally:
        sharded.PIECE_NUMBERS = before


def fresh_prototypes(group, classes, seed):
    torch.manual_seed(seed)
    return arcwise.Head(D, classes, shard=group).whole_weight()


def bytes_of_a_step(group, classes, margin="arcface"):
    """How many bytes this process hands to the network in one step, forward and backward."""
    counted = []

    def counting(call):
        def counted_call(*args, **options):
            counted.append(sum(v.numel() * v.element_size() for v in args[:2] if isinstance(v, torch.Tensor)))
            return call(*args, **options)

        return counted_call

    head = spread_head(margin, 1, classes, torch.float32, shard=group)
    names = {
        "all_gather": sharded,
        "reduce_scatter": sharded,
        "all_reduce": dist,
        "all_to_all_single": dist,
        "broadcast": dist,
    }
    before = {name: getattr(owner, name) for name, owner in names.items()}
    for name, owner in names.items():
        setattr(owner, name, counting(before[name]))
    try:
        x, y = whole_batch(torch.float32)
        mine = own_rows(dist.get_world_size(group), dist.get_rank(group))
        head(x[mine].clone().requires_grad_(), y[mine]).backward()
    finally:
        for name, owner in names.items():
            setattr(owner, name, before[name])
    return sum(counted)


def through_a_network(group, kind):
    """The gradient of a network in DDP or FSDP, of the loss over all samples."""
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import fully_shard
    from torch.nn.parallel import DistributedDataParallel

    rank, processes = dist.get_rank(group), dist.get_world_size(group)
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(D, D), torch.nn.Tanh(), torch.nn.Linear(D, D)).double()
    if kind == "ddp":
        model = DistributedDataParallel(net, process_group=group)
    else:
        model = fully_shard(net, mesh=DeviceMesh.from_group(group, "cpu"))
    head = spread_head("arcface", 1, shard=group)
    x, y = whole_batch()
    mine = own_rows(processes, rank)
    head(model(x[mine]), y[mine]).backward()
    return [p.grad.clone() if kind == "ddp" else p.grad.full_tensor() for p in net.parameters()]


def raises(group, what):
    """The words of the error that something ends in."""
    head = spread_head("arcface", 1, shard=group)
    x, y = whole_batch()
    mine = own_rows(dist.get_world_size(group), dist.get_rank(group))
    x = x[mine].clone().requires_grad_()
    try:
        if what == "second derivative":
            torch.autograd.grad(head(x, y[mine]), x, create_graph=True)
        elif what == "second derivative of each":
            torch.autograd.grad(head(x, y[mine], reduction="none").sum(), x, create_graph=True)
        elif what == "second derivative by prototypes":
            torch.autograd.grad(head(x.detach(), y[mine]), head.weight, create_graph=True)
        elif what == "nobody has samples, each":
            return f"empty: {tuple(head(x[:0], y[mine][:0], reduction='none').shape)}"
        elif what == "nobody has samples":
            head(x[:0], y[mine][:0])
    except arcwise.errors.ArcwiseError as error:
        return str(error)
    return None


def state_and_back(group):
    """A head's state, and a head that took it up."""
    head = spread_head("elastic-arcface", 1, shard=group)
    head.passes = 5
    other = spread_head("elastic-arcface", 1, shard=group)
    other.load_state_dict(head.state_dict())
    return other.key, other.passes
