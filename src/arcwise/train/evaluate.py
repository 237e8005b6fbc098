"""Returns what a model and its head are worth on a set: embeddings, and margin-free accuracy, loss and angles."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

from arcwise.heads import Head, LinearHead
from arcwise.records import Embeddings
from arcwise.sphere import angle

BLOCK = 4096


@torch.no_grad()
def judged(head: Head | LinearHead, embeddings: Embeddings) -> dict[str, float]:
    """Accuracy, loss, mean angles (radians) to the own and the nearest other centre; no margin but in the loss."""
    sums = torch.zeros(4, dtype=torch.float64)
    device = head.weight.device
    x, y = torch.from_numpy(embeddings.x), torch.from_numpy(embeddings.y)
    for rows, labels in zip(x.split(BLOCK), y.split(BLOCK), strict=True):
        scores = head.score(rows.to(device), labels.to(device))
        parts = (scores.correct, scores.loss, angle(scores.cos_y), angle(scores.cos_other))
        sums += torch.stack([part.double().sum() for part in parts]).cpu()
    means = (sums / max(len(y), 1)).tolist()
    return dict(zip(("accuracy", "loss", "angle_own", "angle_other"), means, strict=True))


def with_prototypes(embeddings: Embeddings, head: Head | LinearHead, about: dict[str, Any]) -> Embeddings:
    """The embeddings together with the head's centres, for all that is drawn and measured later."""
    bias = getattr(head, "bias", None)
    return dataclasses.replace(
        embeddings,
        prototypes=head.weight.detach().float().cpu().numpy(),
        bias=None if bias is None else bias.detach().float().cpu().numpy(),
        about=about,
    )
