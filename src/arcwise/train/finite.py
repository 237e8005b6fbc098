"""Whether a step may be taken: loss and gradients are checked on the device before the optimiser moves."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from arcwise.errors import ArcwiseError
from arcwise.optim import Inside
from arcwise.train.pieces import own_rows

NOTHING_FOUND = ("nothing in a repetition of the step", "the step was not finite once and is when repeated")


class Guard:
    """Holds the optimisers back from the first step on whose loss or gradient is not finite.

    On a GPU the answer stays there, in `bad`, and nobody waits for it: torch's fused optimisers read it as their
    `found_inf` and leave every weight as it is, an optimiser inside the backward pass as its `hold`, and the loop asks
    for it once per group of steps. Elsewhere the question is asked at once.
    """

    def __init__(self, optimiser: torch.optim.Optimizer, inside: Inside | None, device: torch.device):
        self.bad = torch.zeros((), device=device)
        self.first = torch.zeros((), device=device, dtype=torch.int64)
        self.on_device = device.type == "cuda"
        if self.on_device:
            optimiser.found_inf = self.bad  # type: ignore[attr-defined]
        if inside is not None:
            inside.hold = self.bad

    def admit(self, loss: Tensor, norm: Tensor, step: int) -> bool:
        """Whether the caller may step; on a GPU always, because there the optimiser itself is held back."""
        wrong = ~(loss.isfinite() & norm.isfinite())
        if not self.on_device:
            if wrong:
                self.bad.fill_(1.0)
                self.first.fill_(step)
            return not wrong
        newly = wrong & (self.bad == 0)
        self.first += newly * (step - self.first)
        self.bad.copy_(torch.maximum(self.bad, wrong.float()))
        return True

    def failed_at(self) -> int | None:
        """The first step that was not finite, or None. Waits for the device."""
        return int(self.first) if bool(self.bad) else None


def gradients_of(parameters: list[nn.Parameter]) -> list[Tensor]:
    """The gradients that there are."""
    return [p.grad for p in parameters if p.grad is not None]


def gradient_norm(parameters: list[nn.Parameter]) -> Tensor:
    """The length of the whole gradient, without waiting for the device."""
    gradients = gradients_of(parameters)
    return torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))  # type: ignore[arg-type]


def clip_gradients(parameters: list[nn.Parameter], norm: Tensor, most: float) -> None:
    """Shortens the whole gradient to `most` where it is longer."""
    torch._foreach_mul_(gradients_of(parameters), (most / (norm + 1e-12)).clamp(max=1.0))  # pyright: ignore[reportPrivateImportUsage]


def diagnosis(x: Tensor, loss: Tensor, named: list[tuple[str, nn.Parameter]]) -> tuple[str, str]:
    """The name of the first tensor that is not finite, on the way from weights to gradients, and the likely cause."""
    for name, parameter in named:
        if not own_rows(parameter.detach()).isfinite().all():
            return (
                f"the weight {name}",
                "the weights were not finite before this step; the model it started from is damaged",
            )
    if not x.square().sum(1).isfinite().all():
        return "the embeddings", "the network overflows: the learning rate is too high, or the weights have grown"
    if not loss.isfinite().all():
        return "the loss", "the head or its margin is not finite for finite embeddings"
    for name, parameter in named:
        if parameter.grad is not None and not own_rows(parameter.grad).isfinite().all():
            return (
                f"the gradient of {name}",
                "a gradient overflows: the learning rate is too high, or a layer saturates",
            )
    return NOTHING_FOUND


def stop_message(step: int, found: tuple[str, str], lr: float, checkpoint: str, *, inside: bool) -> ArcwiseError:
    """The error that ends a training that went out of bounds; prototypes that step inside may have moved before."""
    name, cause = found
    still = "No weight of the network has" if inside else "No weight has"
    tries = (
        "a lower train.lr or a longer train.warmup"
        if inside
        else "a lower train.lr, a longer train.warmup, or train.clip=1"
    )
    return ArcwiseError(
        f"training stopped at step {step}: {name} holds numbers that are not finite. Likely cause: {cause} "
        f"(the learning rate there was {lr:.3g}). {still} moved since the step before. {checkpoint} Try {tries}."
    )
