"""Optimisers for prototypes that step in the backward pass: no gradient of all prototypes ever exists.

With ten million classes of 512 numbers a gradient is 19 GiB. These update each block of classes while its gradient is
at hand; the result is that of torch's own optimisers, to rounding.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from arcwise.errors import ArcwiseError, flag, number_in
from arcwise.heads import Head
from arcwise.ops import INSIDE_ENGINES
from arcwise.ops.update import Update


class Inside(torch.optim.Optimizer):
    """What the optimisers here share: they hold one head's prototypes, and move them while autograd goes backward.

    Nothing moves where a loss of the head, or what arrives as its gradient, is not finite: that is decided on the
    device, before the first block. `step()` ends a step as with any optimiser, and learning-rate schedules work on it;
    two backward passes before it are refused, for gradients cannot be summed up where there are none. Nor can they be
    clipped, or be scaled by a GradScaler: bf16 needs neither. A number `hold` on the device that is not 0 keeps
    everything still, too. Prototypes move in training mode alone, and only while they require a gradient.
    `head.mover = None` takes the optimiser off again; copies of a head are without.
    """

    moments = 1

    def __init__(self, head: nn.Module, defaults: dict[str, Any]):
        if not isinstance(head, Head):
            raise ArcwiseError(f"an optimiser in the backward pass takes an arcwise.Head, got {type(head).__name__}.")
        if head.engine == "eager":
            raise ArcwiseError(INSIDE_ENGINES)
        if head.mover is not None:
            raise ArcwiseError("this head has an optimiser already: set head.mover = None first.")
        super().__init__([head.weight], defaults)
        self.under_way = False
        self.hold: Tensor | None = None
        w = head.weight.detach()
        for name in ("first", "second")[: self.moments]:
            self.state[head.weight][name] = torch.zeros_like(w, dtype=torch.promote_types(w.dtype, torch.float32))
        self.state[head.weight]["t"] = torch.zeros((), device=w.device)
        self.numbers: Float[Tensor, " 9"] = torch.zeros(9, device=w.device)
        self.known: list[float] = []
        head.mover = self

    def hyper(self) -> list[float]:
        """lr, weight decay, beta1 (or momentum), beta2, eps, two places for 1 - beta^t, Nesterov's, and t."""
        raise NotImplementedError

    def refresh(self) -> None:
        """Brings the numbers on the device up to date, where a schedule has changed them."""
        wanted = self.hyper()
        if wanted != self.known:
            self.numbers.copy_(torch.tensor(wanted), non_blocking=True)
            self.known = wanted

    def ready(self) -> None:
        """Refuses a second backward pass before `step()`."""
        if self.under_way:
            raise ArcwiseError(
                "two backward passes before one step(): an optimiser that steps inside the backward pass cannot "
                "accumulate gradients, nor sum those of two losses. Call the head once and step() after it, or take "
                "torch.optim."
            )

    def step_of(self, finite: Bool[Tensor, ""]) -> Update:
        """The step that the backward pass takes now, if all that it depends on is finite."""
        self.ready()
        self.under_way = True
        self.refresh()
        if self.hold is not None:
            finite = finite & (self.hold == 0).all()
        (w,) = self.param_groups[0]["params"]
        state = self.state[w]
        t = state["t"].add_(finite)
        hyper = self.numbers.clone()
        hyper[5:7] = 1.0 - hyper[2:4] ** t
        hyper[8] = t
        shape = (len(w), -1, w.shape[-1])
        first, second = (state[name].view(shape) if name in state else None for name in ("first", "second"))
        assert first is not None
        return Update(first, second, hyper, finite)

    def moved(self, w: Float[Tensor, "c k d"]) -> None:
        """Nothing is left to do: the blocks that moved are the prototypes themselves."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Ends a step: the prototypes have moved already."""
        if closure is not None:
            raise ArcwiseError("step() takes no closure here: the prototypes move in the backward pass.")
        if self.param_groups[0]["params"][0].grad is not None:
            raise ArcwiseError(
                "the prototypes have a gradient of their own, from logits or a pass in evaluation mode, which an "
                "optimiser in the backward pass cannot apply. Call zero_grad() before, or take torch.optim."
            )
        self.under_way = False

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Ends a step that is not to be taken, and forgets gradients that came by other ways."""
        super().zero_grad(set_to_none=True)
        self.under_way = False
        self.refresh()

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Takes the prototypes, and nothing beside them."""
        if self.param_groups:
            raise ArcwiseError("an optimiser in the backward pass moves one head's prototypes and nothing else.")
        super().add_param_group(param_group)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes up a saved state as it was: in float32 also where the prototypes are bf16, as torch would not."""
        (w,) = self.param_groups[0]["params"]
        own, saved = self.state[w], state_dict.get("state", {}).get(0, {})
        shapes = {name: tuple(value.shape) for name, value in own.items()}
        if {name: tuple(getattr(value, "shape", ())) for name, value in saved.items()} != shapes:
            raise ArcwiseError(f"this is not the state of an arcwise.optim.{type(self).__name__} for {tuple(w.shape)}.")
        super().load_state_dict(state_dict)
        for name, value in own.items():
            self.state[w][name] = saved[name].to(value.device, value.dtype, copy=True)
        self.known = []

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "under_way": False, "hold": None, "numbers": self.numbers, "known": []}


class SGD(Inside):
    """u <- momentum u + g + weight_decay w;  w <- w - lr u  (with Nesterov's: lr (g + momentum u)).

    The momentum is 0.9 where none is given; torch's is 0.

    >>> head = Head(8, 10, engine="chunked")
    >>> optimiser = SGD(head, lr=0.1)
    >>> head(torch.randn(4, 8), torch.arange(4)).backward()
    >>> optimiser.step(), head.weight.grad
    (None, None)
    """

    def __init__(
        self, head: nn.Module, lr: float, *, momentum: float = 0.9, weight_decay: float = 0.0, nesterov: bool = False
    ):
        number_in("momentum", momentum, 0.0, 0.999999)
        if flag("nesterov", nesterov) and not momentum:
            raise ArcwiseError("nesterov=True needs a momentum above 0.")
        defaults = {
            "lr": number_in("lr", lr, 0.0, 1e6), "momentum": momentum, "nesterov": nesterov,
            "weight_decay": number_in("weight_decay", weight_decay, 0.0, 1e3),
        }  # fmt: skip
        super().__init__(head, defaults)

    def hyper(self) -> list[float]:
        group = self.param_groups[0]
        return [
            float(group["lr"]), float(group["weight_decay"]), float(group["momentum"]), 0.0, 0.0, 0.0, 0.0,
            float(group["nesterov"]), 0.0,
        ]  # fmt: skip


class AdamW(Inside):
    """m <- beta1 m + (1 - beta1) g;  v <- beta2 v + (1 - beta2) g^2;  w <- (1 - lr decay) w - lr m^ / (sqrt(v^) + eps).

    With m^ = m / (1 - beta1^t) and v^ = v / (1 - beta2^t)  (Loshchilov & Hutter 2019).
    """

    moments = 2

    def __init__(
        self,
        head: nn.Module,
        lr: float = 1e-3,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
    ):
        if not isinstance(betas, tuple | list) or len(betas) != 2:
            raise ArcwiseError(f"betas must be two numbers such as (0.9, 0.999), got {betas!r}.")
        for number, beta in enumerate(betas):
            number_in(f"betas[{number}]", beta, 0.0, 0.999999)
        defaults = {
            "lr": number_in("lr", lr, 0.0, 1e6), "betas": betas, "eps": number_in("eps", eps, 1e-30, 1.0),
            "weight_decay": number_in("weight_decay", weight_decay, 0.0, 1e3),
        }  # fmt: skip
        super().__init__(head, defaults)

    def hyper(self) -> list[float]:
        group = self.param_groups[0]
        beta, beta2 = group["betas"]
        return [float(v) for v in (group["lr"], group["weight_decay"], beta, beta2, group["eps"], 0, 0, 0, 0)]
