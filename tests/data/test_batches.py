"""Orders, changes and batches: what happens to an image depends on the seed, the epoch and the step alone."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from arcwise.config import DataConfig
from arcwise.data import Images, Loader
from arcwise.data.samplers import epoch_order
from arcwise.data.transforms import (
    change_batch,
    cover_squares,
    normalise_pixels,
    pick_rows,
    shift_positions,
    turn_images,
)
from arcwise.errors import ArcwiseError


def random_images(n=64, side=12, channels=3, classes=4):
    random = np.random.default_rng(0)
    pixels = random.integers(0, 256, (n, side, side, channels), dtype=np.uint8)
    return Images(pixels=pixels, y=np.arange(n) % classes, names=tuple(map(str, range(classes))))


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


# ------------------------------------------------------------------------------------------- orders


@given(st.integers(1, 60), st.integers(1, 20), st.integers(0, 3))
def test_a_shuffled_epoch_visits_no_image_twice(n, batch, seed):
    rows = epoch_order(np.zeros(n, int), "shuffled", batch=batch, seed=seed)
    assert len(set(rows.ravel().tolist())) == rows.size
    assert rows.shape == (n // min(batch, n), min(batch, n))
    assert np.array_equal(rows, epoch_order(np.zeros(n, int), "shuffled", batch=batch, seed=seed))


@given(st.lists(st.integers(1, 40), min_size=2, max_size=6), st.integers(0, 3))
def test_a_balanced_epoch_visits_all_classes_equally_often(counts, seed):
    y = np.repeat(np.arange(len(counts)), counts)
    rows = epoch_order(y, "balanced", batch=4, seed=seed).ravel()
    visits = np.bincount(y[rows], minlength=len(counts))
    assert visits.max() - visits.min() <= 1


def test_m_per_class_fills_a_batch_with_whole_groups():
    y = np.repeat(np.arange(10), np.arange(6, 16))
    for rows in epoch_order(y, "m-per-class", batch=12, per_class=4, seed=0):
        counts = np.unique(y[rows], return_counts=True)[1]
        assert counts.tolist() == [4, 4, 4]
        assert len(set(rows.tolist())) == 12  # classes are large enough: nothing comes twice
    with pytest.raises(ArcwiseError, match="at most 40"):
        epoch_order(y, "m-per-class", batch=44, per_class=4, seed=0)
    with pytest.raises(ArcwiseError, match=r"multiple of train\.per_class"):
        epoch_order(y, "m-per-class", batch=13, per_class=4, seed=0)


# ------------------------------------------------------------------------------------------ changes


def test_normalising_is_the_textbook_formula():
    pixels = torch.from_numpy(random_images().pixels)
    mean, std = (0.1, 0.5, 0.9), (0.2, 0.3, 0.4)
    x = normalise_pixels(pixels, mean, std)
    textbook = (pixels.double() / 255 - torch.tensor(mean)) / torch.tensor(std)
    assert torch.allclose(x.double(), textbook.permute(0, 3, 1, 2), atol=1e-5)
    assert x.is_contiguous(memory_format=torch.channels_last)


def test_shift_and_flip_are_those_of_each_image_alone():
    pixels = torch.from_numpy(random_images().pixels)
    index = torch.tensor([3, 60, 3, 17])
    config = DataConfig(flip=True, shift=2)
    out = pick_rows(pixels, index, config, seeded(5))
    padded = np.pad(pixels.numpy(), ((0, 0), (2, 2), (2, 2), (0, 0)), mode="reflect")
    for row, image in zip(index.tolist(), out.numpy(), strict=True):
        windows = [padded[row, i : i + 12, j : j + 12] for i in range(5) for j in range(5)]
        windows += [padded[row, i : i + 12, j : j + 12][:, ::-1] for i in range(5) for j in range(5)]
        assert any(np.array_equal(image, window) for window in windows)
    assert torch.equal(out, pick_rows(pixels, index, config, seeded(5)))


def test_all_shifts_and_both_flips_occur():
    moves = {tuple(row.tolist()) for row in shift_positions(500, 8, 2, seeded())}
    assert len(moves) == 5
    pixels = torch.arange(8, dtype=torch.uint8).view(1, 1, 8, 1).expand(1, 8, 8, 1).contiguous()
    out = pick_rows(pixels, torch.zeros(200, dtype=torch.long), DataConfig(flip=True), seeded())
    mirrored = (out[:, 0, 0, 0] == 7).float().mean()
    assert 0.35 < mirrored < 0.65


def test_turning_by_a_right_angle_is_exact(monkeypatch):
    x = torch.rand(1, 1, 9, 9)
    monkeypatch.setattr(torch, "rand", lambda *_, **__: torch.ones(1))  # the largest turn there is
    out = turn_images(x, 90.0, seeded())
    assert any(torch.allclose(out, torch.rot90(x, k, (2, 3)), atol=1e-4) for k in (1, 3))


def test_turns_go_to_either_side_as_often_and_as_far():
    # A bright mark above the middle: turned by an angle a, its light moves across by sin(a) of its height, 8 pixels.
    x = torch.zeros(600, 1, 21, 21)
    x[:, :, 1:4, 9:12] = 1.0
    columns = torch.arange(21.0) - 10
    light = turn_images(x, 30.0, seeded()).sum((1, 2))
    across = (light * columns).sum(1) / light.sum(1) / 8
    angles = torch.rad2deg(torch.asin(across.clamp(-1, 1)))
    assert angles.max() == pytest.approx(30, abs=2) and angles.min() == pytest.approx(-30, abs=2)
    assert 0.4 < float((angles > 0).float().mean()) < 0.6
    assert float((angles.abs() < 15).float().mean()) == pytest.approx(0.5, abs=0.08)  # all angles are as likely


def test_small_turns_keep_the_middle_and_zero_turns_change_nothing():
    x = torch.rand(4, 3, 11, 11)
    assert torch.allclose(turn_images(x, 1e-6, seeded()), x, atol=1e-4)
    assert torch.allclose(turn_images(x, 20.0, seeded())[:, :, 5, 5], x[:, :, 5, 5], atol=1e-5)


def test_cutout_covers_one_square():
    out = cover_squares(torch.ones(300, 2, 12, 12), 4, seeded())
    holes = (out == 0)[:, 0].sum((1, 2))
    assert (out[:, 0] == out[:, 1]).all()
    assert holes.max() == 16 and holes.min() >= 4


def test_an_unchanged_configuration_changes_nothing():
    x = torch.rand(4, 3, 8, 8)
    assert change_batch(x, DataConfig(), seeded()) is x


# ------------------------------------------------------------------------------------------ batches


def loader(images, **options):
    return Loader(images, mean=(0.5,) * images.shape[2], std=(0.25,) * images.shape[2], **options)


def test_batches_in_order_hold_every_image_once():
    images = random_images(50)
    batches = list(loader(images).in_order(16))
    assert [len(batch.y) for batch in batches] == [16, 16, 16, 2]
    assert torch.cat([batch.rows for batch in batches]).tolist() == list(range(50))
    assert torch.cat([batch.y for batch in batches]).tolist() == images.y.tolist()


@pytest.mark.parametrize("resident", [None, 0])
def test_streamed_batches_equal_resident_ones(resident):
    images = random_images(50)
    config = DataConfig(flip=True, shift=2, rotate=5.0, cutout=3)
    rows = epoch_order(images.y, "shuffled", batch=8, seed=0)
    ours = list(loader(images, config=config, resident=resident).training(rows, seed=3))
    usual = list(loader(images, config=config).training(rows, seed=3))
    assert len(ours) == len(rows)
    for one, two in zip(ours, usual, strict=True):
        assert torch.equal(one.x, two.x) and torch.equal(one.y, two.y)


def test_an_epoch_taken_up_in_the_middle_goes_on_the_same():
    images = random_images(64)
    config = DataConfig(flip=True, shift=2, cutout=3)
    rows = epoch_order(images.y, "shuffled", batch=8, seed=0)
    whole = list(loader(images, config=config).training(rows, seed=3))
    rest = list(loader(images, config=config).training(rows, seed=3, first=5))
    assert all(torch.equal(one.x, two.x) for one, two in zip(whole[5:], rest, strict=True))
    assert not torch.equal(whole[0].x, next(iter(loader(images, config=config).training(rows, seed=4))).x)


def test_streaming_can_be_left_in_the_middle():
    images = random_images(512)
    for batch in loader(images, resident=0).training(epoch_order(images.y, "shuffled", batch=8, seed=0), seed=0):
        assert math.isfinite(float(batch.x.sum()))
        break
