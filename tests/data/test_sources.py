"""Sources give disjoint, repeatable splits with the classes asked for."""

import numpy as np
import pytest

from arcwise.config import DataConfig
from arcwise.data import load
from arcwise.data.fetch import ORIGINS
from arcwise.data.sources import splits_from
from arcwise.errors import ArcwiseError


def rows(images):
    return {(image.tobytes(), label) for image, label in zip(images.pixels, images.y, strict=True)}


@pytest.mark.parametrize("source", ["digits", "synthetic:classes=6,per_class=30", "glyphs[0-9]"])
def test_parts_are_disjoint_and_the_same_every_time(source):
    config = DataConfig(source=source, validation=0.2)
    first, second = load(config), load(config)
    assert set(first.parts) == {"train", "validation", "test"}
    for name, part in first.parts.items():
        assert np.array_equal(part.pixels, second.parts[name].pixels)
        assert part.counts.min() > 0
    sets = [rows(part) for part in first.parts.values()]
    assert not sets[0] & sets[1] and not sets[0] & sets[2] and not sets[1] & sets[2]
    other = load(DataConfig(source=source, validation=0.2, seed=1))
    assert not np.array_equal(first.train.pixels[:50], other.train.pixels[:50])


def handed(n=40):
    pixels = np.random.default_rng(1).integers(0, 256, (n, 4, 4), dtype=np.uint8)
    return pixels, np.arange(n) % 4


@pytest.mark.parametrize(
    ("settings", "changes"),
    [({"validation": 0.25}, ("train", "validation")), ({"limit": 20}, ("train",)), ({"imbalance": 4.0}, ("train",))],
)
def test_the_seed_of_the_data_draws_every_split(settings, changes):
    """With a test set of its own, so that nothing else that is drawn could tell two seeds apart."""

    def keys(seed):
        data = {"train": handed(), "test": handed(8)}
        return {name: part.keys for name, part in splits_from(data, DataConfig(seed=seed, **settings)).parts.items()}

    first, again, other = keys(0), keys(0), keys(1)
    assert first == again
    assert {name for name in first if first[name] != other[name]} == set(changes)


def test_the_seed_of_the_data_draws_the_test_images_where_none_are_set_apart():
    first, again, other = (splits_from(handed(), DataConfig(seed=seed, test=0.2)).test.keys for seed in (0, 0, 1))
    assert first == again and set(first) != set(other) and len(first) == len(other) == 8


def test_digits_are_those_of_scikit_learn():
    from sklearn.datasets import load_digits

    splits = load(DataConfig(source="digits"))
    ours = np.concatenate([splits.train.pixels, splits.test.pixels]).reshape(-1, 64) // 15
    theirs = load_digits()
    assert sorted(map(bytes, ours)) == sorted(map(bytes, theirs.data.astype(np.uint8)))
    assert np.bincount(theirs.target).tolist() == (splits.train.counts + splits.test.counts).tolist()


def test_unseen_classes_are_in_no_other_part():
    splits = load(DataConfig(source="digits[0-4]", unseen="5-9"))
    assert splits.train.names == splits.test.names == tuple("01234")
    assert splits.unseen.names == tuple("56789")
    assert len(splits.train) + len(splits.test) + len(splits.unseen) == 1797
    kept = load(DataConfig(source="digits", unseen="8,9"))
    assert kept.train.names == tuple("01234567")


def test_four_hundred_glyphs_all_look_different():
    splits = load(DataConfig(source="glyphs"))
    assert splits.train.classes == 400 and splits.train.counts.tolist() == [60] * 400
    assert len(set(splits.train.names)) == 400


def test_size_and_channels_are_as_asked():
    splits = load(DataConfig(source="digits", size=16, channels=3))
    assert splits.train.shape == splits.test.shape == (16, 16, 3)
    back = load(DataConfig(source="digits", channels=1))
    assert back.train.shape == (8, 8, 1)


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"source": "mnits"}, "did you mean 'mnist'"),
        ({"source": "./cats"}, "no such folder; one of yours is folder:PATH"),
        ({"source": "folder:"}, "say which folder"),
        ({"source": "folder:/nowhere"}, "there is no folder /nowhere"),
        ({"source": "digits:5"}, "classes are chosen as in digits"),
        ({"source": "digits[3]"}, "at least two classes"),
        ({"source": "digits[0-4]", "unseen": "4-6"}, "trained on: 4"),
        ({"source": "digits", "test": 0.0}, "data.test must be a share"),
        ({"source": "synthetic:klasses=3"}, "did you mean 'classes'"),
        ({"source": "synthetic:classes=many"}, "must be a number"),
        ({"source": "synthetic:classes=3,per_class=1"}, "at least two to a class"),
    ],
)
def test_wrong_sources_say_what_to_type(config, says):
    with pytest.raises(ArcwiseError, match=says):
        load(DataConfig(**config))


def test_cifar_100_has_its_hundred_names():
    names = ORIGINS["cifar100"].names
    assert len(set(names)) == 100 and list(names) == sorted(names)


@pytest.mark.parametrize("shape", [(4, 8, 9), (4, 9, 8), (4, 8, 9, 3), (4, 8), (4, 8, 8, 3, 1)])
def test_arrays_that_hold_no_square_images_are_refused(shape):
    with pytest.raises(ArcwiseError, match="square images"):
        splits_from((np.zeros(shape, np.uint8), np.arange(4)), DataConfig())
