"""ResNet9, a fast residual network for small images: four stages, two of them with a residual pair."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn


def pooled_block(inputs: int, outputs: int, *, pool: bool = False, stride: int = 1) -> nn.Sequential:
    """Convolution 3 x 3, pooling where the image halves, batch norm, ReLU."""
    layers: list[nn.Module] = [nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)]
    if pool:
        layers.append(nn.MaxPool2d(2, ceil_mode=True))
    return nn.Sequential(*layers, nn.BatchNorm2d(outputs), nn.ReLU(inplace=True))


class Residual(nn.Module):
    """x + two blocks of x."""

    def __init__(self, width: int):
        super().__init__()
        self.body = nn.Sequential(pooled_block(width, width), pooled_block(width, width))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x)


class ResNet9(nn.Module):
    """512 features of small images in ten convolutions  (after Page 2018, How to train your ResNet).

    It is made for sides near 32; from 48 on the first layer halves the image, from 96 on twice, so that the work of an
    image stays about the same.
    """

    features = 512

    def __init__(self, *, channels: int, side: int, dropout: float = 0.0):
        super().__init__()
        self.body = nn.Sequential(
            pooled_block(channels, 64, stride=1 if side < 48 else 2, pool=side >= 96),
            pooled_block(64, 128, pool=True), Residual(128),
            pooled_block(128, 256, pool=True), Residual(256),
            pooled_block(256, 512, pool=True), Residual(512),
        )  # fmt: skip
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        return self.dropout(F.adaptive_max_pool2d(self.body(x), 1).flatten(1))
