"""The two small networks of the introductory experiments: SimpleCNN for the plane, VGG8 for the sphere."""

from __future__ import annotations

from torch import Tensor, nn

from arcwise.errors import ArcwiseError


def plain_block(inputs: int, outputs: int, *, pool: bool = False) -> list[nn.Module]:
    """Convolution 3 x 3, batch norm, ReLU, and 2 x 2 max pooling if asked for; no bias before a batch norm.

    The pooling comes before the ReLU: the two commute, and the ReLU then has a quarter of the work.
    """
    first = [nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs)]
    return [*first, *([nn.MaxPool2d(2)] if pool else []), nn.ReLU(inplace=True)]


def halved(side: int, times: int, name: str) -> int:
    """The side after so many 2 x 2 poolings, or an error when nothing is left."""
    if side >> times < 1:
        raise ArcwiseError(f"{name} halves the image {times} times: its side must be at least {2**times}, got {side}.")
    return side >> times


class SimpleCNN(nn.Module):
    """128 features from two convolutions (32, 64 channels), each with a 2 x 2 pool, and one linear layer."""

    features = 128

    def __init__(self, *, channels: int, side: int, dropout: float = 0.0):
        super().__init__()
        flat = 64 * halved(side, 2, "simple_cnn") ** 2
        self.body = nn.Sequential(
            *plain_block(channels, 32, pool=True), *plain_block(32, 64, pool=True), nn.Flatten(),
            nn.Linear(flat, 128, bias=False), nn.BatchNorm1d(128), nn.ReLU(inplace=True), nn.Dropout(dropout),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x)


class VGG8(nn.Module):
    """576 features (of 28 x 28 images) from three blocks of two convolutions (16, 32, 64 channels) and a batch norm."""

    def __init__(self, *, channels: int, side: int, dropout: float = 0.0):
        super().__init__()
        left = halved(side, 3, "vgg8")
        layers: list[nn.Module] = []
        for inputs, outputs in ((channels, 16), (16, 32), (32, 64)):
            layers += [*plain_block(inputs, outputs), *plain_block(outputs, outputs, pool=True)]
        self.body = nn.Sequential(*layers, nn.BatchNorm2d(64), nn.Dropout(dropout), nn.Flatten())
        self.features = 64 * left**2

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x)
