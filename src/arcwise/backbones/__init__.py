"""Networks from images to features by their names; each family is one file."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from arcwise.backbones.iresnet import IRESNETS
from arcwise.backbones.plain import VGG8, SimpleCNN
from arcwise.backbones.resnet9 import ResNet9
from arcwise.errors import ArcwiseError, count_at_least, unknown

# Each is called with channels, the side of the image, and dropout; its `features` is the length of its output.
BACKBONES: dict[str, Callable[..., nn.Module]] = {
    "simple_cnn": SimpleCNN,
    "vgg8": VGG8,
    "resnet9": ResNet9,
    **IRESNETS,
}


def build_backbone(name: str, *, channels: int, side: int, dropout: float = 0.0, pretrained: bool = False) -> nn.Module:
    """The network of this name for square images: (b, channels, side, side) -> (b, features).

    "timm:NAME" is any model of timm, which is an extra.

    >>> build_backbone("simple_cnn", channels=1, side=28).features
    128
    """
    channels, side = count_at_least("channels", channels, 1), count_at_least("side", side, 1)
    if name.startswith("timm:"):
        from arcwise.backbones.from_timm import TimmBackbone

        return TimmBackbone(name[5:], channels=channels, side=side, dropout=dropout, pretrained=pretrained)
    if name not in BACKBONES:
        raise unknown("backbone", name, [*BACKBONES, "timm:NAME"])
    if pretrained:
        raise ArcwiseError(f"{name} has no pretrained weights here: start from a saved model with --init instead.")
    return BACKBONES[name](channels=channels, side=side, dropout=dropout)


__all__ = ["BACKBONES", "build_backbone"]
