"""The optimiser with its groups, and keeps the averaged copy of the weights."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from arcwise.config import TrainConfig
from arcwise.model import Embedder
from arcwise.optim import SGD, AdamW, Inside
from arcwise.train.pieces import own_rows


def build_optimiser(
    model: Embedder, head: nn.Module, config: TrainConfig, rows_of: Callable[[nn.Parameter], nn.Parameter] = lambda p: p
) -> torch.optim.Optimizer:
    """SGD with Nesterov's momentum, or AdamW; in one pass over memory where torch has that.

    `rows_of` says what is moved in the place of a parameter, where processes keep a part of it each.
    """
    device = next(head.parameters()).device
    fused = True if device.type in ("cuda", "cpu") else None
    groups = parameter_groups(model, head, config)
    groups = [{**group, "params": [rows_of(p) for p in group["params"]]} for group in groups]
    if config.optimiser == "adamw":
        return torch.optim.AdamW(groups, lr=config.lr, fused=fused)
    nesterov = config.momentum > 0
    return torch.optim.SGD(groups, lr=config.lr, momentum=config.momentum, nesterov=nesterov, fused=fused)


def prototypes_inside(head: nn.Module, config: TrainConfig) -> Inside:
    """The same optimiser for the prototypes alone, which then step in the backward pass."""
    lr, decay = config.lr * config.head_lr, config.weight_decay
    if config.optimiser == "adamw":
        return AdamW(head, lr, weight_decay=decay)
    return SGD(head, lr, momentum=config.momentum, weight_decay=decay, nesterov=config.momentum > 0)


def parameter_groups(model: Embedder, head: nn.Module, config: TrainConfig) -> list[dict]:
    """Parameters by owner (backbone, neck, head) and by decay; `share` is each owner's part of the learning rate.

    Weight decay acts on matrices and convolutions, not on biases and the parameters of norms and activations.
    """
    owners = ((model.backbone, config.backbone_lr), (model.neck, 1.0), (head, config.head_lr))
    made = []
    for owner, share in owners:
        for decays in (True, False):
            params = [p for p in owner.parameters() if (p.ndim > 1) == decays and not steps_inside(owner, p)]
            if params:
                made.append({"params": params, "weight_decay": config.weight_decay * decays, "share": share})
    return made


def steps_inside(owner: nn.Module, parameter: nn.Parameter) -> bool:
    """Whether these are prototypes that step in the backward pass."""
    return getattr(owner, "mover", None) is not None and parameter is owner.weight


class Average:
    """The exponential moving average of all weights and statistics: a <- decay a + (1 - decay) w after each step.

    In the first steps the decay is smaller, (1 + t) / (10 + t), so that the start is soon forgotten. `module` is a copy
    of what is averaged, and becomes the average.
    """

    def __init__(self, module: nn.Module, decay: float):
        self.module, self.decay = module.eval().requires_grad_(False), decay
        self.ours, self.ours_whole = averaged_and_copied(self.module)

    @torch.no_grad()
    def update(self, module: nn.Module, step: int) -> None:
        """Moves the average towards the weights."""
        theirs, whole = averaged_and_copied(module)
        decay = min(self.decay, (1 + step) / (10 + step))
        torch._foreach_lerp_(self.ours, theirs, 1.0 - decay)  # pyright: ignore[reportPrivateImportUsage]
        if whole:
            torch._foreach_copy_(self.ours_whole, whole)  # pyright: ignore[reportPrivateImportUsage]


def averaged_and_copied(module: nn.Module) -> tuple[list[Tensor], list[Tensor]]:
    """A module's tensors: those that can be averaged, and the whole numbers."""
    tensors = [own_rows(t.detach()) for t in (*module.parameters(), *module.buffers())]
    return [t for t in tensors if t.is_floating_point()], [t for t in tensors if not t.is_floating_point()]
