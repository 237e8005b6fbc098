"""A network whose weights are spread over the processes (FSDP2): each keeps rows of them, and borrows the rest.

Gradients, averages and what the optimiser keeps are spread alike. The whole network exists in a block's forward and
backward pass, while it is evaluated, and when it is saved at the end.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from arcwise.model import Embedder
from arcwise.ops.sharded import Shard
from arcwise.train.together import Together

GATHERED_APART = 2**20  # numbers from which on a part of the network is gathered by itself


class Pieces:
    """Spreads networks of one kind over the processes, and gives them back whole.

    Optimisers move plain tensors, which are this process's rows: not all of torch's know what a DTensor is.
    """

    def __init__(self, model: Embedder, together: Together):
        self.template = copy.deepcopy(model).cpu()
        self.together = together
        self.rows: list[tuple[Any, nn.Parameter]] = []

    def rows_of(self, parameter: nn.Parameter) -> nn.Parameter:
        """What an optimiser moves in the place of a parameter."""
        if not is_spread(parameter):
            return parameter
        rows = nn.Parameter(own_rows(parameter.detach()), requires_grad=parameter.requires_grad)
        rows.of = parameter  # type: ignore[attr-defined]
        self.rows.append((parameter, rows))
        return rows

    def hand_over(self) -> None:
        """Gives the gradients of this process's rows to what optimisers move."""
        for parameter, rows in self.rows:
            rows.data = own_rows(parameter.detach())
            rows.grad = None if parameter.grad is None else own_rows(parameter.grad)

    def spread(self, model: nn.Module) -> None:
        """Leaves this process its rows of every weight."""
        from torch.distributed.device_mesh import DeviceMesh
        from torch.distributed.fsdp import fully_shard

        assert self.together.group is not None, "one process holds its network whole"
        model.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
        kind = next(model.parameters()).device.type
        mesh = DeviceMesh.from_group(self.together.group, kind)
        for block in blocks(model):
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)

    def whole(self, both: nn.Module) -> nn.Module:
        """A network with all weights, beside the same head; all processes ask together."""
        parts: Any = both
        model = copy.deepcopy(self.template).to(next(both.parameters()).device)
        model.load_state_dict({name: full(value) for name, value in parts["embedder"].state_dict().items()})
        return nn.ModuleDict({"embedder": model.eval(), "head": parts["head"]})


def blocks(module: nn.Module) -> Iterator[nn.Module]:
    """The parts of a network that are gathered one after the other: the large ones, not those that only hold others."""
    for child in module.children():
        if isinstance(child, nn.Sequential | nn.ModuleList):
            yield from blocks(child)
        elif sum(p.numel() for p in child.parameters()) >= GATHERED_APART:
            yield child


def is_spread(value: Tensor) -> bool:
    """Whether this is a DTensor, of which every process keeps some rows; its module is slow to import."""
    return hasattr(value, "to_local")


def full(value: Tensor) -> Tensor:
    """A tensor with the rows of all processes."""
    return value.full_tensor() if is_spread(value) else value  # type: ignore[attr-defined]


def own_rows(value: Tensor) -> Tensor:
    """The rows of a tensor that this process keeps: all of one that is not spread."""
    return value.to_local() if is_spread(value) else value  # type: ignore[attr-defined]


def shard_of(value: Tensor) -> Shard | None:
    """Which rows of a tensor this process keeps, or of what an optimiser moves; None of one that is not spread."""
    value = getattr(value, "of", value)
    if not is_spread(value):
        return None
    mesh = value.device_mesh  # type: ignore[attr-defined]
    return Shard(mesh.get_group(), value.shape[0], mesh.get_local_rank(), mesh.size())


def spread_as(values: Mapping[str, Tensor], like: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """This process's rows as the tensors of those names are: spread where these are."""
    return {name: as_spread(value, like.get(name)) for name, value in values.items()}


def as_spread(rows: Tensor, like: Any) -> Tensor:
    """This process's rows as another tensor is: spread where that is, and of its shape."""
    if like is None or not is_spread(like) or rows.ndim != like.ndim:
        return rows
    from torch.distributed.tensor import DTensor

    place = {"device_mesh": like.device_mesh, "placements": like.placements, "shape": like.shape}
    return DTensor.from_local(rows.to(like.device), run_check=False, stride=like.stride(), **place)


@contextlib.contextmanager
def gradients_meet(model: Any, *, now: bool) -> Iterator[None]:
    """Whether gradients are shared out in this backward pass, or a later part of the batch is waited for."""
    model.set_requires_gradient_sync(now)
    yield
