"""Class filters and splits: disjoint, stratified, the same every time."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arcwise.data.images import Images, limit_images, select_classes, split_by_class, split_filter
from arcwise.errors import ArcwiseError

NAMES = ("ant", "bee", "cat", "dog", "7")


@pytest.mark.parametrize(
    ("text", "classes"),
    [
        ("0-2", [0, 1, 2]),
        ("3-", [3, 4]),
        ("dog, ant", [3, 0]),
        ("7", [4]),
        ("4,0", [4, 0]),
        ("1 - 1", [1]),
        ("bee-dog", [1, 2, 3]),
    ],
)
def test_filters_name_classes_positions_and_ranges(text, classes):
    assert select_classes(text, NAMES) == classes


def test_a_range_of_names_that_are_numbers_is_of_names():
    assert select_classes("1-3", tuple(map(str, range(1, 11)))) == [0, 1, 2]


@pytest.mark.parametrize(
    ("text", "says"),
    [("cow", "no class 'cow'"), ("0-9", "within 0-4"), ("3-1", "within 0-4"), ("1,bee", "twice"), ("", "no class ''")],
)
def test_wrong_filters_say_so(text, says):
    with pytest.raises(ArcwiseError, match=says):
        select_classes(text, NAMES)


def test_brackets_hold_the_filter():
    assert split_filter("folder:/a[b]/c[0-4]") == ("folder:/a[b]/c", "0-4")
    assert split_filter("mnist [0-4]") == ("mnist", "0-4")
    assert split_filter("folder:/a/b") == ("folder:/a/b", "")


@given(st.lists(st.integers(0, 4), min_size=1, max_size=80), st.floats(0.01, 0.9), st.integers(0, 5))
def test_a_split_takes_the_same_share_of_every_class_and_never_all(labels, share, seed):
    y = np.array(labels)
    kept, taken = split_by_class(y, share, seed=seed)
    assert sorted([*kept, *taken]) == list(range(len(y)))
    for c in np.unique(y):
        n, out = int((y == c).sum()), int((y[taken] == c).sum())
        assert out < n and (out > 0 or n == 1)  # never all of a class, and one at least where there are two
        assert min(share * n - 0.5, n - 1) <= out <= max(share * n + 0.5, 1)  # else the share, to the nearest image
    again = split_by_class(y, share, seed=seed)
    assert np.array_equal(kept, again[0]) and np.array_equal(taken, again[1])


@pytest.mark.parametrize(
    ("sizes", "share", "taken"),
    [
        ((10, 20, 30), 0.2, [2, 4, 6]),
        ((1, 2, 3), 0.5, [0, 1, 2]),
        ((1, 2, 4), 0.01, [0, 1, 1]),
        ((2, 5), 0.9, [1, 4]),
        ((7,), 0.0, [0]),
    ],
)
def test_the_shares_of_classes_by_hand(sizes, share, taken):
    y = np.repeat(np.arange(len(sizes)), sizes)
    assert np.bincount(y[split_by_class(y, share, seed=0)[1]], minlength=len(sizes)).tolist() == taken


def test_another_seed_takes_other_images():
    y = np.repeat([0, 1], 50)
    one, two = (split_by_class(y, 0.2, seed=seed)[1] for seed in (0, 1))
    assert not np.array_equal(one, two)


def test_mean_and_spread_are_of_images_from_everywhere_in_the_set():
    # Sorted by brightness, as sets are that list class after class: half black, half white.
    pixels = np.repeat(np.array([0, 255], np.uint8), 10_000).reshape(-1, 1, 1, 1)
    images = Images(pixels=pixels, y=np.repeat([0, 1], 10_000), names=("dark", "bright"))
    assert images.mean_and_std() == ((0.5,), (0.5,))


def test_mean_and_spread_are_those_of_each_channel_by_hand():
    # 0, 51, 102 and 255 are 0, 0.2, 0.4 and 1: mean 0.4, squares about it 0.16 + 0.04 + 0 + 0.36 over 4.
    pixels = np.zeros((4, 1, 1, 2), np.uint8)
    pixels[:, 0, 0, 0] = [0, 51, 102, 255]
    images = Images(pixels=pixels, y=np.zeros(4, int), names=("a",))
    assert images.mean_and_std() == ((0.4, 0.0), (pytest.approx(0.14**0.5, abs=1e-4), 0.001))


def test_mean_and_spread_are_told_to_four_digits():
    # 0, 0 and 1: mean 1/3, squares about it 1/9 + 1/9 + 4/9 over 3, which is 2/9.
    images = Images(pixels=np.array([0, 0, 255], np.uint8).reshape(3, 1, 1, 1), y=np.zeros(3, int), names=("a",))
    assert images.mean_and_std() == ((0.3333,), (0.4714,))


def test_a_limit_is_spread_over_the_classes():
    y = np.repeat([0, 1], [900, 100])
    images = Images(pixels=np.zeros((1000, 2, 2, 1), np.uint8), y=y, names=("a", "b"))
    assert limit_images(images, 100, seed=0).counts.tolist() == [90, 10]
    assert limit_images(images, 0, seed=0) is images
    assert limit_images(images, 5, seed=0).counts.min() >= 1
    with pytest.raises(ArcwiseError, match="fewer images than the 2 classes"):
        limit_images(images, 1, seed=0)


def test_chosen_classes_are_labelled_anew():
    images = Images(
        pixels=np.arange(4, dtype=np.uint8).reshape(4, 1, 1, 1), y=np.array([0, 1, 2, 1]), names=("a", "b", "c")
    )
    some = images.only([2, 1])
    assert some.names == ("c", "b")
    assert some.y.tolist() == [1, 0, 1]
    assert some.pixels.ravel().tolist() == [1, 2, 3]
