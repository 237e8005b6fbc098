"""The table of runs: seeds are paired by their number, and the better of two heads is the one the metric says."""

import json
import math

import numpy as np
import pytest

from arcwise.metrics import METRICS, all_metrics
from arcwise.records import Embeddings, Prototypes
from arcwise.report.blocks import TableRows
from arcwise.report.conclusions import answer, gap_text
from arcwise.report.content import first_numbers, number_table, results
from arcwise.study.table import Table, table_values


def table(values, seeds=None):
    """A table of values[metric][head], the seeds 0, 1, ... where none are given."""
    first = next(iter(values.values()))
    seeds = seeds or {head: list(range(len(many))) for head, many in first.items()}
    return Table(
        heads=list(first), seeds=seeds, values=values, seconds={head: [1.0] * len(many) for head, many in first.items()}
    )


def test_differences_are_taken_seed_by_seed_whatever_their_order():
    # Seed 7: 0.5 - 0.25, seed 8: 0.75 - 0.375, seed 9: 0.875 - 0.75; the seed 3 of one and 5 of the other stand alone.
    seeds = {"a": [7, 8, 9, 3], "b": [5, 9, 7, 8]}
    values = {"accuracy": {"a": [0.5, 0.75, 0.875, 0.0], "b": [1.0, 0.75, 0.25, 0.375]}}
    gaps = [0.25, 0.375, 0.125]
    found = table(values, seeds).difference("accuracy", "a", "b")
    assert found.n == 3 and found.mean == pytest.approx(0.25)
    half = 4.303 * np.std(gaps, ddof=1) / math.sqrt(3)  # Student's t for two degrees of freedom
    assert (found.low, found.high) == (pytest.approx(0.25 - half), pytest.approx(0.25 + half))
    back = table(values, seeds).difference("accuracy", "b", "a")
    assert back.mean == pytest.approx(-0.25) and back.low == pytest.approx(-found.high)


def test_heads_without_a_seed_in_common_have_no_difference():
    found = table({"accuracy": {"a": [0.5], "b": [0.75]}}, {"a": [0], "b": [1]}).difference("accuracy", "a", "b")
    assert found.n == 0 and math.isnan(found.mean) and not found.clear


def test_the_best_head_has_the_smallest_mean_where_smaller_is_better():
    values = {"accuracy": {"a": [0.9, 0.8], "b": [0.7, 0.9]}, "angle-own": {"a": [0.5, 0.4], "b": [0.2, 0.6]}}
    found = table(values)
    assert found.best("accuracy") == "a" and found.best("angle-own") == "b"
    assert found.shared(["b", "a"]).heads == ["b", "a"]
    assert number_table(found, list(values), "", "t").strong == {(0, 1), (1, 2)}


def test_a_cell_has_two_digits_below_a_hundred_and_one_from_there():
    # 1.25 and 1.75 spread by sqrt(2)/4, 0.354; 100 and 100.5 by the same.
    found = table({"silhouette-unit": {"a": [1.25, 1.75], "b": [100.0, 100.5], "c": [99.994], "d": [-250.0]}})
    cells = [found.cell("silhouette-unit", head) for head in "abcd"]
    assert cells == ["1.50 ± 0.35", "100.2 ± 0.4", "99.99", "-250.0"]


def test_a_small_number_keeps_its_first_two_digits_and_a_share_its_two():
    dunn = "dunn-nearest-diameter-cosine-95"
    found = table({dunn: {"a": [0.0041, 0.0043], "b": [0.0004]}, "accuracy": {"a": [1.0, 1.0], "b": [0.0004]}})
    assert [found.cell(dunn, head) for head in "ab"] == ["0.0042 ± 0.0001", "0.0004"]
    assert [found.cell("accuracy", head) for head in "ab"] == ["100.00 ± 0.00", "0.04"]
    assert gap_text(table({dunn: {"a": [0.005, 0.006], "b": [0.004, 0.005]}}), dunn, "a", "b").startswith("+0.0010 ")


def test_many_heads_are_told_in_tables_that_have_room_and_in_an_answer_of_few_numbers():
    heads = ["softmax", *(f"ArcFace m=0.5 s={2**s}" for s in range(9))]
    values = {name: {head: [0.5 + 0.01 * i, 0.501 + 0.011 * i] for i, head in enumerate(heads)}
              for name in ("accuracy", "angle-own", "dunn-nearest-diameter-unit-95")}  # fmt: skip
    found = table(values)
    told = [block for block in results(found, heads[1], {}) if isinstance(block, TableRows)]
    assert all(len(block.header) <= 5 for block in told)
    assert {column for block in told if block.name == "closed" for column in block.header[1:]} == set(heads)
    assert [block.strong for block in told if block.name == "closed"][-1] >= {(0, 2)}  # the best of all ten heads
    first = first_numbers(found, heads[1], list(values), heads[:4])
    assert first.header == ["", *heads[:4]] and "Shown are 4 of 10 heads" in first.caption
    said = " ".join(answer(found, heads[1], list(values)))
    value = "(51.10 % against 59.50 % of ArcFace m=0.5 s=256, the best other)"
    assert f"{value} it is better than softmax and it is worse than 8 others" in said


def test_the_file_for_machines_says_which_way_is_better_and_pairs_by_seed():
    values = {"accuracy": {"a": [0.5, 1.0], "b": [0.75, 0.25]}, "pairs-eer": {"a": [0.5, 0.25], "b": [0.0, math.inf]}}
    written = table_values(table(values, {"a": [0, 1], "b": [1, 0]}), "own")
    assert json.loads(json.dumps(written, allow_nan=False)) == written
    found = written["metrics"]
    assert (found["accuracy"]["better"], found["pairs-eer"]["better"]) == ("higher", "lower")
    gap = found["accuracy"]["differences"]["b - a"]  # seed 0: 0.25 - 0.5, seed 1: 0.75 - 1
    assert (gap["mean"], gap["low"], gap["high"], gap["n"]) == (-0.25, -0.25, -0.25, 2)
    assert found["pairs-eer"]["heads"]["b"]["values"] == [0.0, None] and written["seeds"] == {"a": [0, 1], "b": [1, 0]}


def test_every_metric_gets_worse_in_the_direction_it_names():
    """Classes that are tight and far apart beside classes that are neither."""
    random, y = np.random.default_rng(0), np.repeat(np.arange(4), 12)
    near = np.ones(6) + 0.25 * np.eye(6)  # directions ten degrees apart

    def measured(centres, spread):
        def drawn(rows):
            x = rows[y] + spread * random.standard_normal((len(y), 6))
            return Embeddings(x, y, names=tuple("abcd"))

        return all_metrics(drawn(centres[:4]), drawn(centres[[4, 5, 4, 5]] + centres[[0, 1, 2, 3]]),
                           Prototypes(centres[:4]))  # fmt: skip

    good, bad = measured(np.eye(6), 0.1), measured(near, 1.0)
    assert set(good) == set(METRICS) == set(bad)
    for name, metric in METRICS.items():
        better = good[name] > bad[name] if metric.better == "higher" else good[name] < bad[name]
        assert better, (name, good[name], bad[name])
