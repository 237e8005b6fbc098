"""Networks as they are handed over: what they give."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from arcwise.config import ModelConfig
from arcwise.errors import ArcwiseError
from arcwise.records import Preprocessing
from arcwise.views import in_evaluation

OWN = "own:"  # before the class's name, where the backbone is a network of the user's


def own_config(network: nn.Module, look: Preprocessing) -> ModelConfig:
    """The configuration of a network that was handed over: its class's name, and the dimension that it gives."""
    one = next(iter(network.parameters()), torch.zeros(0))
    probe = torch.zeros(2, look.channels, look.side, look.side, device=one.device)
    try:
        with torch.no_grad():
            out = in_evaluation(network)(probe)
    except RuntimeError as error:
        first = str(error).splitlines()[0]
        raise ArcwiseError(
            f"{type(network).__name__} cannot take images of {look.channels} x {look.side} x {look.side} (channels, "
            f"height, width): {first}"
        ) from None
    if not isinstance(out, Tensor) or out.ndim != 2 or len(out) != 2:
        raise ArcwiseError(
            f"a network gives one embedding a row, (b, d); {type(network).__name__} made "
            f"{tuple(out.shape) if isinstance(out, Tensor) else type(out).__name__} of {tuple(probe.shape)}."
        )
    return ModelConfig(backbone=OWN + type(network).__name__, dim=out.shape[1])


def refuse_own(backbone: str) -> None:
    """Raises where a network of the user's is needed and was not handed over."""
    if backbone.startswith(OWN):
        name = backbone.removeprefix(OWN)
        raise ArcwiseError(
            f"this model's network is {name}, which is not arcwise's: pass it, as in "
            f"arcwise.Embedder.load(path, network={name}(...)), or arcwise.train(..., model={name}(...))."
        )
