"""The step of an optimiser that moves prototypes block by block, while their gradient is at hand."""

from __future__ import annotations

from typing import NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float
from torch import Tensor


class Update(NamedTuple):
    """One step: the optimiser's state, shaped like w (c, k, d), its numbers, and whether it may move anything.

    `second` is there for AdamW alone. `hyper` holds lr, weight decay, beta1 (or momentum), beta2, eps, 1 - beta1^t,
    1 - beta2^t, whether Nesterov's, and t: on the device, so that a recorded step reads them anew.
    """

    first: Float[Tensor, "c k d"]
    second: Float[Tensor, "c k d"] | None
    hyper: Float[Tensor, " 9"]
    gate: Bool[Tensor, ""]


@runtime_checkable
class Mover(Protocol):
    """What an engine asks for in its backward pass: whether it may begin, and the step to take.

    The step is told whether all that it depends on is finite. `moved` hears of it when the last block has moved.
    """

    def ready(self) -> None: ...

    def step_of(self, finite: Bool[Tensor, ""]) -> Update: ...

    def moved(self, w: Float[Tensor, "c k d"]) -> None: ...


def all_finite(*some: Float[Tensor, " b"]) -> Bool[Tensor, ""]:
    """Whether all numbers are finite, on the device."""
    return torch.stack(some).isfinite().all()


def move(rows: Float[Tensor, "n k d"], gradient: Float[Tensor, "n k d"], update: Update, block: slice) -> None:
    """Moves a block of prototypes and of the optimiser's state in place; nothing moves where the gate is shut."""
    lr, decay, beta, beta2, eps, bias, bias2, ahead, _ = update.hyper.to(gradient.dtype).unbind()
    w, first = rows.to(gradient.dtype), update.first[block].to(gradient.dtype)
    if update.second is None:
        gradient = gradient + decay * w
        first = beta * first + gradient
        w = w - lr * torch.where(ahead != 0, gradient + beta * first, first)
    else:
        second = update.second[block].to(gradient.dtype)
        first, second = beta * first + (1 - beta) * gradient, beta2 * second + (1 - beta2) * gradient * gradient
        w = w * (1 - lr * decay) - lr / bias * first / ((second / bias2).sqrt() + eps)
        keep(update.second[block], second, update.gate)
    keep(update.first[block], first, update.gate)
    keep(rows, w, update.gate)


def keep(place: Tensor, value: Tensor, gate: Tensor) -> None:
    """Writes the value into its place, where the gate is open."""
    narrow = by_chance(value) if place.dtype == torch.bfloat16 else value.to(place.dtype)
    place.copy_(torch.where(gate, narrow, place))


def by_chance(value: Float[Tensor, "*n"]) -> Float[Tensor, "*n"]:
    """Stochastic rounding to bf16: up or down by chance, so that steps smaller than its last digit count on average."""
    bits = value.float().view(torch.int32)
    noise = torch.randint_like(bits, 2**16)
    rounded = torch.where(value.isfinite(), bits + noise, bits) & -(2**16)
    return rounded.view(torch.float32).bfloat16()
