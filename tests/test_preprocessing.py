"""Preprocessing: the same pixels from a file, bytes, Pillow or an array, and those of the versions before."""

import io

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageOps

from arcwise.data.transforms import normalise_pixels
from arcwise.errors import ArcwiseError
from arcwise.records import Framing, Preprocessing
from arcwise.records.preprocessing import bilinear, eight_bits, with_channels


def random_image(height, width, channels=3, seed=0):
    shape = (height, width, channels) if channels > 1 else (height, width)
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


@pytest.mark.parametrize("fit", ["crop", "pad", "stretch"])
@pytest.mark.parametrize("resample", ["bicubic", "bilinear"])
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size", [(20, 33), (33, 20), (16, 16), (7, 7), (1, 40)])
def test_a_picture_is_the_same_however_it_comes(tmp_path, fit, resample, channels, size):
    look, array = Framing(side=16, channels=channels, fit=fit, resample=resample), random_image(*size)
    picture, path, buffer = Image.fromarray(array), tmp_path / "a.png", io.BytesIO()
    picture.save(path)
    picture.save(buffer, "PNG")
    found = look.pixels(array)
    assert found.shape == (16, 16, channels) and found.dtype == np.uint8
    for other in (path, str(path), buffer.getvalue(), picture):
        assert np.array_equal(look.pixels(other), found), type(other)


@pytest.mark.parametrize("size", [(20, 33), (33, 20), (50, 50), (5, 9)])
@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_cropping_is_pillows_fit(size, mode):
    picture = Image.fromarray(random_image(*size))
    wanted = np.asarray(ImageOps.fit(picture.convert(mode), (16, 16), Image.Resampling.BICUBIC))
    found = Framing(side=16, channels=len(mode)).pixels(picture)
    assert np.array_equal(found.squeeze(), wanted)


@settings(max_examples=40)
@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 48), st.integers(0, 2**32 - 1))
def test_stretching_is_torchs_interpolation_to_the_bit(height, width, side, seed):
    pixels = np.random.default_rng(seed).integers(0, 256, (2, height, width, 3), dtype=np.uint8)
    block = torch.from_numpy(pixels).permute(0, 3, 1, 2).float()
    block = F.interpolate(block, size=(side, side), mode="bilinear", antialias=True)
    wanted = block.round().clamp(0, 255).to(torch.uint8).permute(0, 2, 3, 1).numpy()
    assert np.array_equal(bilinear(pixels, side), wanted)


def test_padding_keeps_all_of_a_picture_and_draws_its_border_out():
    wide = np.zeros((4, 8, 1), np.uint8)
    wide[0], wide[-1] = 100, 200
    found = Framing(side=8, channels=1, fit="pad", resample="bilinear").pixels(wide)
    assert (found[:3] == 100).all() and (found[-3:] == 200).all()
    assert np.array_equal(found[2:6], wide)


@pytest.mark.parametrize("channels", [1, 3])
def test_a_batch_is_what_training_feeds_the_network(channels):
    mean, std = (0.4914, 0.4822, 0.4465)[:channels], (0.247, 0.2435, 0.2616)[:channels]
    look = Preprocessing(side=9, channels=channels, mean=mean, std=std)
    pixels = np.random.default_rng(0).integers(0, 256, (5, 9, 9, channels), dtype=np.uint8)
    assert np.array_equal(look.batch(pixels), normalise_pixels(torch.from_numpy(pixels), mean, std).numpy())


def test_grey_is_pillows_grey_for_every_colour():
    colours = np.stack(np.meshgrid(*[np.arange(0, 256, 5, dtype=np.uint8)] * 3), -1).reshape(1, -1, 3)
    assert np.array_equal(with_channels(colours, 1)[..., 0], np.asarray(Image.fromarray(colours).convert("L")))


def test_grey_by_hand():
    # ITU-R 601: 0.299 red + 0.587 green + 0.114 blue, each times 255.
    colours = np.array([[[255, 0, 0], [0, 255, 0], [0, 0, 255], [100, 200, 50]]], np.uint8)
    assert with_channels(colours, 1).ravel().tolist() == [76, 150, 29, 153]


def test_an_array_of_many_is_framed_as_each_of_them():
    many = np.random.default_rng(0).integers(0, 256, (3, 12, 12, 3), dtype=np.uint8)
    for fit, resample in (("stretch", "bilinear"), ("crop", "bicubic"), ("stretch", "bicubic")):
        look = Framing(side=8, channels=1, fit=fit, resample=resample)
        assert np.array_equal(look.framed_all(many), np.stack([look.pixels(image) for image in many]))


def test_transparency_is_white_and_sixteen_bits_become_eight():
    look = Framing(side=2, channels=1)
    assert (look.pixels(np.zeros((2, 2, 4), np.uint8)) == 255).all()
    assert (look.pixels(np.full((2, 2), 32768, np.uint16)) == 128).all()


@pytest.mark.parametrize("values", [[-0.1, 0.5], [0.5, 1.1], [0.5, np.nan], [-3.0, -2.0]])
def test_grey_values_beyond_black_and_white_are_refused(values):
    with pytest.raises(ValueError, match="outside 0 to 1"):
        eight_bits(np.array(values))
    assert eight_bits(np.array([0.0, 0.2, 1.0])).tolist() == [0, 51, 255]


@pytest.mark.parametrize(("shape", "hint"), [((3, 8, 8), True), ((1, 8, 8), True), ((5, 8, 8), False),
                                             ((3, 8, 8, 3), False)])  # fmt: skip
def test_channels_that_come_first_are_asked_to_move(shape, hint):
    with pytest.raises(ArcwiseError, match="height, width") as error:
        Framing(side=8, channels=3).pixels(np.zeros(shape, np.uint8))
    assert ("Move the channels last" in str(error.value)) == hint


@pytest.mark.parametrize(
    ("image", "said"),
    [
        (np.zeros((4, 4), np.float32), r"array of bytes, 0 to 255, got float32\. If it was divided by 255"),
        (np.zeros((3, 8, 8), np.uint8), r"got \(3, 8, 8\)\. Move the channels last"),
        (np.zeros((4, 4, 2), np.uint8), r"got \(4, 4, 2\)"),
        (np.zeros((0, 4, 3), np.uint8), r"got \(0, 4, 3\)"),
        (np.zeros(4, np.uint8), r"got \(4,\)"),
    ],
)
def test_what_is_no_image_is_named(image, said):
    with pytest.raises(ArcwiseError, match=said):
        Framing(side=4, channels=3).pixels(image)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"std": (0.0,)}, "std must be a number from 1e-06"),
        ({"std": (float("nan"),)}, "std must be a number .* got nan"),
        ({"mean": (float("inf"),)}, "mean must be a number .* got inf"),
        ({"mean": (0.1, 0.2)}, "mean and std need 1 numbers each"),
        ({"fit": "cover"}, "unknown fit 'cover'"),
        ({"resample": "nearest"}, "unknown resample 'nearest'"),
        ({"side": 0}, "side must be a whole number of at least 1"),
    ],
)
def test_wrong_preprocessing_is_refused(wrong, said):
    with pytest.raises(ArcwiseError, match=said):
        Preprocessing(**{"side": 4, "channels": 1, "mean": (0.5,), "std": (0.5,), **wrong})
