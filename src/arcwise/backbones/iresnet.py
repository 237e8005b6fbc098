"""The improved residual networks of the ArcFace paper, named as insightface names its weights."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from arcwise.errors import ArcwiseError


def norm(width: int) -> nn.BatchNorm2d:
    """Batch norm with insightface's epsilon."""
    return nn.BatchNorm2d(width, eps=1e-5)


class IBasicBlock(nn.Module):
    """x + BN conv BN PReLU conv BN (x); the second convolution may halve the image  (Deng et al. 2019)."""

    def __init__(self, inputs: int, outputs: int, stride: int):
        super().__init__()
        self.bn1 = norm(inputs)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
        self.bn2 = norm(outputs)
        self.prelu = nn.PReLU(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, stride=stride, padding=1, bias=False)
        self.bn3 = norm(outputs)
        self.downsample = (
            nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False), norm(outputs))
            if stride > 1
            else None
        )

    def forward(self, x: Tensor) -> Tensor:
        y = self.bn3(self.conv2(self.prelu(self.bn2(self.conv1(self.bn1(x))))))
        return y + (x if self.downsample is None else self.downsample(x))


class IResNet(nn.Module):
    """512 channels at a sixteenth of the side, as one long vector: 25,088 features of 112 x 112 images."""

    def __init__(self, depths: tuple[int, int, int, int], *, channels: int, side: int, dropout: float = 0.0):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 64, 3, padding=1, bias=False)
        self.bn1 = norm(64)
        self.prelu = nn.PReLU(64)
        self.layer1 = stage(64, 64, depths[0])
        self.layer2 = stage(64, 128, depths[1])
        self.layer3 = stage(128, 256, depths[2])
        self.layer4 = stage(256, 512, depths[3])
        self.bn2 = norm(512)
        self.dropout = nn.Dropout(dropout)
        self.features = 512 * (-(-side // 16)) ** 2
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.normal_(module.weight, 0.0, 0.1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.prelu(self.bn1(self.conv1(x)))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.dropout(self.bn2(x).flatten(1))


def stage(inputs: int, outputs: int, depth: int) -> nn.Sequential:
    """Blocks of one width, the first of which halves the image."""
    return nn.Sequential(IBasicBlock(inputs, outputs, 2), *(IBasicBlock(outputs, outputs, 1) for _ in range(depth - 1)))


DEPTHS = {
    "iresnet18": (2, 2, 2, 2),
    "iresnet34": (3, 4, 6, 3),
    "iresnet50": (3, 4, 14, 3),
    "iresnet100": (3, 13, 30, 3),
}
IRESNETS = {name: partial(IResNet, depths) for name, depths in DEPTHS.items()}


class Checkpoint(NamedTuple):
    """What a checkpoint of insightface's code holds: which network, for which images, and its weights by our names."""

    name: str
    dim: int
    side: int
    channels: int
    weights: dict[str, Tensor]


def read_insightface(path: Path) -> Checkpoint:
    """The backbone in a checkpoint of insightface; which iresnet it is follows from its layers.

    Its layers bear the names they have here, below `backbone.` and, for the last two, `neck.`. Nothing is unpickled but
    tensors.
    """
    if not path.is_file():
        raise ArcwiseError(f"there is no checkpoint {path}.")
    try:
        weights = torch.load(path, map_location="cpu", weights_only=True)
        blocks = tuple(len({n.split(".")[1] for n in weights if n.startswith(f"layer{i}.")}) for i in range(1, 5))
        dim, features = weights["fc.weight"].shape
        channels = weights["conv1.weight"].shape[1]
    except Exception as error:  # pickle raises nearly anything
        raise ArcwiseError(f"{path} is no checkpoint of an insightface backbone ({error!r}).") from None
    strange = [name for name, value in weights.items() if not isinstance(value, Tensor)]
    if strange:
        raise ArcwiseError(f"{path}: {strange[0]} is no tensor. A backbone's checkpoint holds nothing else.")
    name = next((name for name, depths in DEPTHS.items() if depths == blocks), None)
    if name is None:
        raise ArcwiseError(f"{path} has {blocks} blocks in its stages, which is none of {', '.join(DEPTHS)}.")
    named = {("neck." if n.startswith(("fc.", "features.")) else "backbone.") + n: v for n, v in weights.items()}
    return Checkpoint(name, dim, round((features / 512) ** 0.5) * 16, channels, named)
