"""HeadSpec: one noun for a head, read from text and written as text in one place."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arcwise.config import HeadConfig
from arcwise.errors import ArcwiseError
from arcwise.heads import Head, LinearHead, head_from
from arcwise.headspec import HeadSpec, refuse_twins, split_heads
from arcwise.margins import MARGINS, ArcFace, CosFace, NoiseFilter
from arcwise.records import Run

NUMBERS = st.floats(1e-3, 1e3).map(lambda v: float(f"{v:.6g}"))


@given(st.sampled_from([*MARGINS, "softmax"]), st.none() | NUMBERS, st.none() | NUMBERS, st.none() | st.integers(1, 9))
def test_what_is_written_is_read_again(name, s, m, k):
    spec = HeadSpec(name=name, s=s, m=m, k=k, parameters={"h": 0.25, "plus": True, "base": "arcface", "t": 3})
    assert HeadSpec.parse(str(spec)) == spec
    assert HeadSpec.from_values(json.loads(json.dumps(spec.as_values()))) == spec


@pytest.mark.parametrize("name", MARGINS)
def test_a_head_says_which_it_is_and_can_be_built_again(name):
    head = head_from(name, 4, 6)
    spec = head.spec
    assert (spec.name, spec.s) == (name, 64.0) and spec.title[0].isalpha()
    again = head_from(spec, 4, 6)
    assert again.spec == spec and str(again.margin) == str(head.margin)


def test_what_is_not_the_default_is_told():
    assert str(head_from("adaface:h=0.3,s=12", 4, 6).spec) == "adaface:h=0.3,m=0.4,s=12"
    assert str(head_from("cosface:k=3", 4, 6).spec) == "cosface:m=0.35,s=64,k=3"
    assert Head(4, 6, margin=ArcFace([0.1] * 6)).spec.m is None
    assert LinearHead(4, 6, bias=True).spec.label == "softmax + bias"


def test_a_margin_inside_of_another_is_told_with_what_is_not_its_default():
    told = [Head(4, 6, margin=NoiseFilter(inner)).spec.parameters.get("margin") for inner in (CosFace(0.2), CosFace())]
    assert told == ["cosface:m=0.2", "cosface"]


def test_a_margin_of_the_users_bears_its_class_name():
    class Mine(ArcFace):
        title = "my margin"

    assert Head(4, 6, margin=Mine(0.2), s=8.0).spec.label == "my margin m=0.2 s=8"


def test_earlier_titles_and_margins_are_those_of_the_catalogue():
    for name in MARGINS:
        now = head_from(name, 4, 6).spec
        then = HeadSpec(name=name).earlier()
        assert (then.title, then.m) == (now.title, now.m), name


def test_a_configuration_is_one_noun():
    assert str(HeadConfig(name="arcface", m=0.3, s=16.0).spec) == "arcface:m=0.3,s=16"
    assert str(HeadConfig(name=" ArcFace : m=0.3 ", k=2).spec) == "arcface:m=0.3,k=2"
    with pytest.raises(ArcwiseError, match="both set s"):
        _ = HeadConfig(name="arcface:s=8", s=16.0).spec


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("arcface:m", "cannot read 'm'"),
        ("arcface:m=0.1,m=0.2", "each key once"),
        ("arcface:m=big", "m must be a number"),
        ("arcface:k=1.5", "k must be a whole number"),
        ("arcface:s=true", "s must be a number"),
    ],
)
def test_text_that_is_no_head_is_refused(text, said):
    with pytest.raises(ArcwiseError, match=said):
        HeadSpec.parse(text)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({}, "the head has no name"),
        ({"name": 3}, "name=3 does not belong"),
        ({"name": "a", "s": "x"}, "s='x' does not belong"),
        ({"name": "a", "k": 1.5}, r"k=1\.5 does not belong"),
        ({"name": "a", "s": True}, "s=True does not belong"),
        ({"n": "a"}, "n='a' does not belong"),
    ],
)
def test_values_that_are_no_head_are_refused(values, said):
    with pytest.raises(ArcwiseError, match=said):
        HeadSpec.from_values(values)


def test_twins_are_found_in_whatever_order_their_parameters_stand():
    assert split_heads("softmax, ArcFace:m=0.3,s=16 ,normface") == ["softmax", "arcface:m=0.3,s=16", "normface"]
    with pytest.raises(ArcwiseError, match="named twice"):
        split_heads("arcface:m=0.3,s=16,arcface:s=16.0,m=0.3")
    refuse_twins(["arcface", "arcface:m=0.5"])  # the second says what is the default of the first


def test_a_run_tells_its_head(tmp_path):
    spec = head_from("cosface:m=0.2,s=7", 2, 5).spec
    run = Run.create(tmp_path / "run", {}, head=spec.as_values())
    assert run.head == spec and run.head.label == "CosFace m=0.2 s=7"
