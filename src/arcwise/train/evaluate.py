"""What a model and its head are worth on the parts of a set, from images that are brought to the device once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Float

from arcwise.data import Images, Loader, Splits
from arcwise.data.images import spread_rows
from arcwise.embed import BATCH
from arcwise.heads import Head, LinearHead
from arcwise.model import Embedder
from arcwise.records import Prototypes
from arcwise.sphere import angle, slices
from arcwise.train.together import ALONE, Together

BLOCK = 4096
SNAPSHOT, OF_TRAINING = 5_000, 2_000  # images of a part that are kept of each epoch


class Evaluation:
    """The parts of a set as they are judged again and again: each has one loader, made when it is first needed."""

    def __init__(self, splits: Splits, device: torch.device, together: Together = ALONE):
        self.splits, self.device, self.together = splits, device, together
        self.loaders: dict[str, Loader] = {}
        self.samples: dict[str, Images] = {}

    def images(self, part: str) -> Images:
        """A part by its name; "some of" it are as many images as a snapshot keeps, taken once and with their keys."""
        name = part.removeprefix("some of ")
        if name == part:
            return self.splits.part(name)
        if name not in self.samples:
            some = self.splits.part(name).take(snapshot_rows(name, len(self.splits.part(name))))
            self.samples[name] = replace(some, ids=some.keys)
        return self.samples[name]

    def rows(self, model: Embedder, part: str, *, mirror: bool = False, amp: bool = False) -> Float[np.ndarray, "n d"]:
        """The embeddings of a part, in its order; several processes share the images out, and each has all of them."""
        if part not in self.loaders:
            look, images = model.preprocessing, self.images(part)
            mine = images if self.together.alone else images.take(own_places(self.together, len(images)))
            self.loaders[part] = Loader(mine, mean=look.mean, std=look.std, device=self.device)
        found = [
            model.encode_batch(batch.x, mirror=mirror, amp=amp).cpu() for batch in self.loaders[part].in_order(BATCH)
        ]
        return self.together.gathered(torch.cat(found).numpy() if found else np.zeros((0, model.dim), np.float32))


def own_places(together: Together, n: int) -> np.ndarray:
    """Which of n images this process looks at."""
    return np.arange(n)[together.share_of(n)]


def snapshot_rows(part: str, n: int) -> np.ndarray:
    """Which images of a part a snapshot keeps."""
    return spread_rows(n, OF_TRAINING if part == "train" else SNAPSHOT)


@torch.no_grad()
def judge(
    head: Head | LinearHead, x: Float[np.ndarray, "n d"], y: np.ndarray, together: Together = ALONE
) -> dict[str, float]:
    """Accuracy, loss, mean angles (radians) to the own and the nearest other centre; no margin but in the loss."""
    sums = torch.zeros(4, dtype=torch.float64)
    device, count = head.weight.device, len(y)
    for some in slices(len(y), BLOCK * together.count):  # where classes are spread out, all ask together
        mine = own_places(together, some.stop - some.start) + some.start
        rows, labels = torch.from_numpy(x[mine]), torch.from_numpy(y[mine])
        scores = head.score(rows.to(device), labels.to(device))
        parts = (scores.correct, scores.loss, angle(scores.cos_y), angle(scores.cos_other))
        sums += torch.stack([part.double().sum() for part in parts]).cpu()
    means = (together.added(sums) / max(count, 1)).tolist()
    return dict(zip(("accuracy", "loss", "angle_own", "angle_other"), means, strict=True))


def prototypes_of(head: Head | LinearHead, names: tuple[str, ...], model: str) -> Prototypes:
    """The head's centres as a record."""
    bias = getattr(head, "bias", None)
    weight = head.whole_weight() if isinstance(head, Head) else head.weight.detach()
    return Prototypes(
        weight.float().cpu().numpy(), None if bias is None else bias.detach().float().cpu().numpy(),
        head.spec, names, model,
    )  # fmt: skip
