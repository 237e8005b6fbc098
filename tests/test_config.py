"""Configurations: strict, typed, and the same after a journey through JSON."""

import dataclasses
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arcwise.config import Config, HeadConfig, TrainConfig, override, setting_names
from arcwise.errors import ArcwiseError
from arcwise.recipes import RECIPES, recipe


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_survives_json(name):
    assert Config.from_json(recipe(name).to_json()) == recipe(name)


@given(st.integers(1, 10**6), st.floats(0, 1e3), st.booleans())
def test_overrides_have_the_type_of_their_field(epochs, lr, flip):
    config = override(Config(), [f"train.epochs={epochs}", f"train.lr={lr!r}", f"data.flip={flip}"])
    assert (config.train.epochs, config.train.lr, config.data.flip) == (epochs, lr, flip)


def test_every_setting_can_be_written_as_it_is_shown():
    def flat(values, prefix=""):
        for key, value in values.items():
            yield from flat(value, f"{prefix}{key}.") if isinstance(value, dict) else [(prefix + key, value)]

    shown = dict(flat(dataclasses.asdict(Config())))
    assert list(shown) == setting_names(Config)
    assert override(Config(), [f"{key}={value}" for key, value in shown.items() if key != "head.name"]) == Config()


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("train.epoch=5", r"unknown setting 'train.epoch': did you mean 'train.epochs'"),
        ("epochs=5", r"unknown setting 'epochs'"),
        ("train=5", r"unknown setting 'train'"),
        ("train.epochs.x=5", r"unknown setting"),
        ("train.epochs", r"key=value, as in train.epochs=5"),
        ("=5", r"key=value"),
        ("train.epochs=2.5", r"train.epochs must be a whole number, got '2.5'"),
        ("train.epochs=0", r"train.epochs must be a whole number of at least 1"),
        ("train.lr=fast", r"train.lr must be a number, got 'fast'"),
        ("train.lr=nan", r"train.lr must be a number"),
        ("data.flip=perhaps", r"data.flip must be true or false"),
        ("train.optimiser=adam", r"unknown train.optimiser 'adam': did you mean 'adamw'"),
        ("train.schedule=cos", r"Choose from constant, cosine, one-cycle, polynomial"),
        ("data.channels=2", r"data.channels must be 1 \(grey\), 3 \(colour\)"),
        ("train.accumulate=7", r"cannot be split into train.accumulate=7"),
        ("data.validation=1.5", r"data.validation must be a number from 0 to 0.9"),
        (f"train.epochs={10**23}", r"train.epochs must be at most 10,000,000, got 1000"),
        (f"train.batch={10**23}", r"train.batch must be at most 10,000,000"),
        (f"data.seed={10**23}", r"data.seed must be at most"),
        ("data.seed=-1", r"data.seed must be a whole number of at least 0, got -1"),
        (f"seed=-{10**23}", r"seed must be a whole number of at least 0"),
    ],
)
def test_wrong_settings_say_what_is_wrong(setting, says):
    with pytest.raises(ArcwiseError, match=says):
        override(Config(), [setting])


def test_another_head_brings_its_own_margin_and_keeps_the_scale():
    base = Config(head=HeadConfig(name="arcface", m=0.5, s=16.0))
    assert override(base, ["head.name=cosface"]).head == HeadConfig(name="cosface", s=16.0)
    assert override(base, ["head.name=softmax"]).head == HeadConfig(name="softmax")
    assert override(base, ["head.m=0.2", "head.name=cosface"]).head == HeadConfig(name="cosface", s=16.0, m=0.2)
    assert override(base, ["head.name=cosface:s=8"]).head.s is None


def test_settings_that_belong_together_may_come_in_any_order():
    for settings in (["train.warmup=20", "train.epochs=40"], ["train.epochs=40", "train.warmup=20"]):
        assert override(Config(), settings).train.warmup == 20
    with pytest.raises(ArcwiseError, match=r"train\.warmup=20 is longer than train\.epochs=10"):
        override(Config(), ["train.warmup=20"])


def test_json_from_elsewhere_is_checked():
    values = json.loads(Config().to_json())
    for change, says in (
        ({"sead": 1}, "did you mean 'seed'"),
        ({"train": 3}, "must be a table"),
        ({"train": {"epochs": "many"}}, "whole number"),
        ({"train": {"epochs": 1.5}}, "whole number"),
        ({"data": {"source": 5}}, "data.source must be text"),
    ):
        with pytest.raises(ArcwiseError, match=says):
            Config.from_json(json.dumps(values | change))
    with pytest.raises(ArcwiseError, match="no JSON"):
        Config.from_json("{")


def test_a_configuration_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        TrainConfig().epochs = 3
