"""Backbones: any size, any number of channels, and the shapes and names the papers and their code give them."""

import itertools

import pytest
import torch

from arcwise.backbones import BACKBONES, build_backbone
from arcwise.backbones.iresnet import DEPTHS
from arcwise.errors import ArcwiseError


@pytest.mark.parametrize("name", BACKBONES)
@pytest.mark.parametrize(("channels", "side"), [(1, 28), (3, 35)])
def test_every_backbone_takes_any_side_and_channels(name, channels, side):
    if name in ("iresnet50", "iresnet100") and side == 35:
        pytest.skip("the same code as iresnet18, and slower")
    net = build_backbone(name, channels=channels, side=side)
    assert net(torch.randn(2, channels, side, side)).shape == (2, net.features)


def count(module):
    return sum(p.numel() for p in module.parameters())


def test_the_small_networks_are_those_of_the_protocols():
    simple = build_backbone("simple_cnn", channels=1, side=28)
    # 3x3 convolutions 1 -> 32 -> 64 and linear 3136 -> 128 without bias, three batch norms
    assert count(simple) == 9 * 32 + 9 * 32 * 64 + 3136 * 128 + 2 * (32 + 64 + 128)
    vgg = build_backbone("vgg8", channels=1, side=28)
    assert vgg.features == 576
    widths = [1, 16, 16, 32, 32, 64, 64]
    convolutions = sum(9 * a * b for a, b in itertools.pairwise(widths))
    assert count(vgg) == convolutions + 2 * sum(widths[1:]) + 2 * 64


def test_pooling_before_the_relu_is_the_same_function():
    net = build_backbone("simple_cnn", channels=1, side=28).eval()
    x = torch.randn(4, 1, 28, 28)
    usual = x
    layers = list(net.body)
    for layer in [layers[0], layers[1], layers[3], layers[2], layers[4], layers[5], layers[7], layers[6], *layers[8:]]:
        usual = layer(usual)
    assert torch.allclose(net(x), usual)


def test_iresnets_have_the_sizes_and_names_of_insightface():
    # insightface gives 43.59 M parameters for its r50, the last two layers (fc 25088 -> 512, batch norm) among them.
    net = build_backbone("iresnet50", channels=3, side=112)
    assert net.features == 25_088
    assert round((count(net) + 25_088 * 512 + 512 + 2 * 512) / 1e6, 2) == 43.59
    names = set(net.state_dict())
    for name in (
        "conv1.weight", "bn1.running_mean", "prelu.weight", "layer1.0.downsample.0.weight",
        "layer1.0.downsample.1.bias", "layer3.13.bn3.weight", "layer4.2.conv2.weight", "bn2.num_batches_tracked",
    ):  # fmt: skip
        assert name in names, name
    assert {name: sum(depths) * 2 + 2 for name, depths in DEPTHS.items()} == {
        "iresnet18": 18, "iresnet34": 34, "iresnet50": 50, "iresnet100": 100,
    }  # fmt: skip


def test_timm_models_are_backbones():
    net = build_backbone("timm:resnet10t", channels=1, side=40)
    assert net(torch.randn(2, 1, 40, 40)).shape == (2, net.features) == (2, 512)
    tiny = build_backbone("timm:vit_tiny_patch16_224", channels=3, side=32)
    assert tiny(torch.randn(2, 3, 32, 32)).shape == (2, 192)


@pytest.mark.parametrize(
    ("name", "options", "says"),
    [
        ("vgg", {}, "did you mean 'vgg8'"),
        ("timm:resnet10x", {}, "unknown timm model 'resnet10x': did you mean"),
        ("vgg8", {"side": 4}, "side must be at least 8, got 4"),
        ("vgg8", {"side": 0}, "side must be a whole number of at least 1"),
        ("vgg8", {"pretrained": True}, "start from a saved model with --init"),
    ],
)
def test_wrong_backbones_say_what_is_wrong(name, options, says):
    with pytest.raises(ArcwiseError, match=says):
        build_backbone(name, **{"channels": 1, "side": 28, **options})
