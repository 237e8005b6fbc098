"""Laws swept over everything that is measured: what may not matter to a number, and between which bounds it lies."""

import math
from dataclasses import replace

import numpy as np
import pytest

from arcwise.metrics import METRICS, all_metrics, dunn_index
from arcwise.metrics.summary import MARGINS_KEPT, finite_or_null, in_unit, number_text, with_unit
from arcwise.records import Prototypes
from metrics.samples import blobs, blobs_and_centres, embeddings

SEEDS = range(4)


def known_and_unseen(seed):
    known, centres = blobs_and_centres([9, 14, 3, 1, 11], 4, seed=seed, apart=1.5)
    return known, blobs([6, 9, 5], 4, seed=seed + 100, apart=1.5), centres


def moved(centres, w):
    return replace(centres, w=w)


def assert_same(after, before, names=None):
    """Equal but for rounding: scores of pairs are float32, so that of very near ones the order may change."""
    assert after.keys() == before.keys()
    for name in names or before:
        loose = name.endswith("-auc")
        assert after[name] == pytest.approx(before[name], rel=1e-7, abs=1e-4 if loose else 1e-9), name


def rows(e, order):
    return replace(e, x=e.x[order], y=e.y[order])


def test_every_name_is_measured_where_there_is_something_to_measure():
    assert set(all_metrics(*known_and_unseen(0))) == set(METRICS)
    assert all(isinstance(value, float) for value in all_metrics(*known_and_unseen(0)).values())


@pytest.mark.parametrize("seed", SEEDS)
def test_the_order_of_rows_does_not_matter(seed):
    known, unseen, centres = known_and_unseen(seed)
    rng = np.random.default_rng(seed)
    shuffled = [rows(e, rng.permutation(len(e.x))) for e in (known, unseen)]
    assert_same(all_metrics(*shuffled, centres), all_metrics(known, unseen, centres))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_rotation_or_reflection_does_not_matter(seed):
    known, unseen, centres = known_and_unseen(seed)
    turn = np.linalg.qr(np.random.default_rng(seed).standard_normal((4, 4)))[0]
    turned = replace(known, x=known.x @ turn), replace(unseen, x=unseen.x @ turn)
    assert_same(all_metrics(*turned, moved(centres, centres.w @ turn)), all_metrics(known, unseen, centres))


@pytest.mark.parametrize("seed", SEEDS)
def test_the_numbers_of_the_classes_do_not_matter(seed):
    known, unseen, centres = known_and_unseen(seed)
    new = np.random.default_rng(seed).permutation(len(known.names))  # class i becomes new[i]
    renamed = replace(
        known, y=new[known.y], names=tuple(known.names[i] for i in np.argsort(new)),
    )  # fmt: skip
    other = moved(centres, centres.w[np.argsort(new)])
    assert_same(all_metrics(renamed, replace(unseen, y=2 - unseen.y), other), all_metrics(known, unseen, centres))


@pytest.mark.parametrize("seed", SEEDS)
def test_names_without_samples_do_not_matter_where_there_are_no_prototypes(seed):
    e = known_and_unseen(seed)[0]
    gaps = replace(e, y=3 * e.y + 2, names=tuple("abcdefghijklmnop"))
    assert_same(all_metrics(gaps), all_metrics(e))


@pytest.mark.parametrize("seed", SEEDS)
def test_the_lengths_of_rows_do_not_matter_where_only_directions_count(seed):
    known, unseen, centres = known_and_unseen(seed)
    rng = np.random.default_rng(seed)
    longer = [replace(e, x=e.x * np.exp(rng.uniform(-7, 7, (len(e.x), 1)))) for e in (known, unseen)]
    before = all_metrics(known, unseen, centres)
    assert_same(all_metrics(*longer, centres), before, [name for name in before if "euclidean" not in name])


@pytest.mark.parametrize("seed", SEEDS)
def test_the_lengths_of_prototypes_do_not_matter(seed):
    known, unseen, centres = known_and_unseen(seed)
    longer = moved(centres, centres.w * np.array([[0.1], [3.0], [40.0], [1e-5], [1e5]]))
    assert_same(all_metrics(known, unseen, longer), all_metrics(known, unseen, centres))


@pytest.mark.parametrize("factor", [1e-6, 0.1, 3.0, 1e6])
def test_one_scale_for_all_rows_does_not_matter(factor):
    known, unseen, centres = known_and_unseen(0)
    scaled = replace(known, x=known.x * factor), replace(unseen, x=unseen.x * factor)
    assert_same(all_metrics(*scaled, centres), all_metrics(known, unseen, centres))


@pytest.mark.parametrize("shift", [1.0, 100.0])
def test_a_shift_does_not_matter_to_euclidean_distances(shift):
    e = known_and_unseen(0)[0]  # without prototypes: which samples are anchors depends on the head
    before = all_metrics(e)
    assert_same(all_metrics(replace(e, x=e.x + shift)), before, [name for name in before if "euclidean" in name])


@pytest.mark.parametrize("seed", SEEDS)
def test_an_irrelevant_dimension_does_not_matter_but_for_the_packing(seed):
    known, unseen, centres = known_and_unseen(seed)
    wide = np.eye(4, 6)
    wider = replace(known, x=known.x @ wide), replace(unseen, x=unseen.x @ wide), moved(centres, centres.w @ wide)
    before = all_metrics(known, unseen, centres)
    assert_same(all_metrics(*wider), before, [name for name in before if name != "packing"])


@pytest.mark.parametrize("seed", SEEDS)
def test_a_copy_of_every_sample_does_not_matter_to_dunn_indices_without_trimming(seed):
    e = known_and_unseen(seed)[0]
    twice = replace(e, x=np.concatenate([e.x, e.x]), y=np.concatenate([e.y, e.y]))
    for distance in ("euclidean", "unit", "cosine", "angle"):
        for between in ("nearest", "centroid"):
            for inside in ("diameter", "radius", "mean"):
                one = dunn_index(e, between=between, inside=inside, distance=distance)
                assert dunn_index(twice, between=between, inside=inside, distance=distance) == pytest.approx(one)


@pytest.mark.parametrize("seed", SEEDS)
def test_every_number_lies_within_its_bounds(seed):
    found = all_metrics(*known_and_unseen(seed))
    for name, value in found.items():
        assert math.isfinite(value), name
        if METRICS[name].unit == "%":
            assert 0.0 <= value <= 1.0 + 1e-12, name
        elif name.startswith("silhouette"):
            assert -1.0 <= value <= 1.0, name
        else:
            assert value >= 0.0, name
    assert found[f"margin-kept-{MARGINS_KEPT[0]:g}"] >= found[f"margin-kept-{MARGINS_KEPT[1]:g}"]
    for where in ("pairs", "unseen"):
        assert found[f"{where}-tar-0.1"] >= found[f"{where}-tar-0.01"] >= found[f"{where}-tar-0.001"]
    for distance in ("euclidean", "cosine"):
        assert found[f"conflict-anchors-{distance}"] >= found[f"conflict-triples-{distance}"]
        assert found[f"conflict-anchors-{distance}"] >= found[f"conflict-nearest-{distance}"]
    assert found["unseen-r-precision"] >= found["unseen-map-r"]
    assert found["open-dir-0.1"] >= found["open-dir-0.01"] and found["open-dir-0.1"] <= found["accuracy"]


def test_perfect_classes_have_perfect_numbers():
    # Five classes around the axes of five dimensions, each within 0.01 of its own.
    rng = np.random.default_rng(0)
    y = np.repeat(range(5), 4)
    known = embeddings(10 * np.eye(5)[y] + 0.01 * rng.standard_normal((20, 5)), y)
    unseen = embeddings(-10 * np.eye(5)[y] + 0.01 * rng.standard_normal((20, 5)), y)
    found = all_metrics(known, unseen, Prototypes(np.eye(5)))
    for name, value in found.items():
        if METRICS[name].unit == "%" and name != "packing":
            assert value == (0.0 if METRICS[name].better == "lower" else 1.0), name
        elif "dunn" in name:
            assert value > 50.0, name
        elif name.startswith("silhouette"):
            assert value > 0.99, name
        elif name.startswith("davies"):
            assert value < 0.01, name
    # Axes are 90 degrees apart; five directions in five dimensions can be arccos(-1/4) apart.
    assert found["packing"] == pytest.approx((math.pi / 2) / math.acos(-1 / 4), rel=1e-2)


def test_what_cannot_be_measured_is_left_out():
    known, unseen, centres = known_and_unseen(0)
    assert not any(name.startswith(("unseen", "open")) for name in all_metrics(known, centres=centres))
    without = all_metrics(known, unseen)
    assert not {"accuracy", "open-auroc", "margin-kept-0.3"} & set(without) and "unseen-auc" in without
    one_class = all_metrics(known, replace(unseen, y=np.zeros_like(unseen.y)), centres)
    assert "open-auroc" in one_class and not any(name.startswith("unseen") for name in one_class)


def test_unseen_classes_of_one_sample_each_leave_out_what_needs_two():
    known, unseen, centres = known_and_unseen(0)
    lone = embeddings(unseen.x[:6], np.arange(6))
    found = all_metrics(known, lone, centres)
    assert "open-auroc" in found and not {"unseen-auc", "unseen-recall-1", "unseen-map-r"} & set(found)


def test_numbers_are_shown_in_their_units_and_saved_as_json_allows():
    assert (in_unit("accuracy", 0.5), in_unit("angle-own", math.pi), in_unit("silhouette-unit", 0.5)) == (
        50.0, pytest.approx(180.0), 0.5,
    )  # fmt: skip
    assert (
        number_text("pairs-eer", 0.0123) == "1.23 %" and number_text("dunn-nearest-diameter-unit-95", math.inf) == "∞"
    )
    assert number_text("dunn-nearest-diameter-unit-95", math.nan) == "-"
    assert finite_or_null({"a": math.inf, "b": 1.0, "c": math.nan}) == {"a": None, "b": 1.0, "c": None}


def test_a_unit_follows_its_label_in_brackets_and_what_has_none_stands_alone():
    for name, unit in {"accuracy": " (%)", "angle-own": " (°)", "silhouette-unit": ""}.items():
        assert with_unit(name) == METRICS[name].label + unit
