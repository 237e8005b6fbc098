"""Returns Embeddings: an Embedder applied to images, in batches, without gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from arcwise.data import Images, Loader
from arcwise.errors import ArcwiseError
from arcwise.model import Embedder
from arcwise.records import Embeddings

BATCH = 512


def embed(
    model: Embedder,
    images: Images,
    *,
    batch: int = BATCH,
    mirror: bool = False,
    amp: bool = False,
    about: Mapping[str, Any] | None = None,
    tell: Callable[[int, int], None] | None = None,
) -> Embeddings:
    """The embeddings of all images, in their order; `mirror` adds those of the mirror images to them.

    `amp` computes in bf16 on a GPU that has it: faster, and angles move by a tenth of a degree or so.

    The model stays on its device and comes back in the mode it was in.

    >>> import arcwise.data
    >>> from arcwise.config import DataConfig, ModelConfig
    >>> from arcwise.model import Preprocessing
    >>> model = Embedder(ModelConfig(dim=2), preprocessing=Preprocessing(side=8, channels=1, mean=(0.3,), std=(0.4,)))
    >>> embed(model, arcwise.data.load(DataConfig(source="digits")).test).x.shape
    (359, 2)
    """
    check_shape(model, images)
    device = next(model.parameters()).device
    loader = Loader(images, mean=model.preprocessing.mean, std=model.preprocessing.std, device=device)
    was_training, rows, done = model.training, [], 0
    model.eval()
    try:
        for part in loader.in_order(batch):
            rows.append(embedded(model, part.x, mirror=mirror, amp=amp).cpu())
            done += len(part.y)
            if tell is not None:
                tell(done, len(images))
    finally:
        model.train(was_training)
    x = torch.cat(rows).numpy() if rows else np.zeros((0, model.dim), np.float32)
    return Embeddings(x=x, y=images.y, names=images.names, index=np.arange(len(images)), about=about)


@torch.inference_mode()
def embedded(
    model: Embedder, x: Float[Tensor, "b channels h w"], *, mirror: bool = False, amp: bool = False
) -> Float[Tensor, "b d"]:
    """The float32 embeddings of one normalised batch."""
    with torch.autocast(x.device.type, dtype=torch.bfloat16, enabled=amp and has_bf16(x.device)):
        out = model(x).float()
        return out + model(x.flip(3)).float() if mirror else out


def has_bf16(device: torch.device) -> bool:
    """Whether the device computes bf16 in hardware at full speed."""
    return device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)


def check_shape(model: Embedder, images: Images) -> None:
    """Refuses images of another shape than the model was made for."""
    wanted = (model.preprocessing.side, model.preprocessing.side, model.preprocessing.channels)
    if images.shape != wanted:
        raise ArcwiseError(
            f"the model takes images of {wanted[0]} x {wanted[1]} x {wanted[2]}, these are {images.shape[0]} x "
            f"{images.shape[1]} x {images.shape[2]}: load them with size={wanted[0]} and channels={wanted[2]}."
        )
