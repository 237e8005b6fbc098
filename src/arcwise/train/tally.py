"""The means of a group of steps for the journal, from sums that stay on the device."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch import Tensor

from arcwise.heads import Head, LinearHead
from arcwise.sphere import angle, clip

MEANS = ("loss", "angle_own", "angle_other", "accuracy")


class Tally:
    """Sums since the journal's last line: loss, angles to own and nearest other centre, correct answers, images.

    >>> tally = Tally([6.0, 2.0, 4.0, 3.0, 4.0], torch.device("cpu"))
    >>> tally.means()["loss"], tally.means()["accuracy"]
    (1.5, 0.75)
    """

    def __init__(self, start: list[float], device: torch.device):
        self.sums = torch.tensor(start, device=device)
        self.began = time.monotonic()

    @torch.no_grad()
    def add(self, head: Head | LinearHead, outcome: tuple[Tensor, Tensor, Tensor], x: Tensor, y: Tensor) -> None:
        """Adds a batch: what `head.losses` said of it, its embeddings and labels."""
        losses, own, other = outcome
        correct = own > other
        if isinstance(head, LinearHead):  # its own numbers are logits
            scores = head.score(x, y)
            own, other = scores.cos_y, scores.cos_other
        angles = (angle(clip(cos, -1.0, 1.0)).sum() for cos in (own, other))
        self.sums[:4] += torch.stack([losses.sum(), *angles, correct.sum()])
        self.sums[4] += len(y)

    def means(self, summed: Callable[[Tensor], Tensor] = Tensor.clone) -> dict[str, float]:
        """The means, and how many images a second went through; empty when there was none. Waits for the device.

        `summed` adds up the sums of several processes.
        """
        *sums, images = summed(self.sums.clone()).tolist()
        if not images:
            return {}
        found = dict(zip(MEANS, (value / images for value in sums), strict=True))
        return found | {"images_per_second": images / max(time.monotonic() - self.began, 1e-9)}

    def clear(self) -> None:
        """Begins anew."""
        self.sums.zero_()
        self.began = time.monotonic()

    def pause(self, seconds: float) -> None:
        """Leaves so many seconds out of the speed."""
        self.began += seconds
