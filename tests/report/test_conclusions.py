"""Sentences computed from a table: better, worse and open by the metric's own direction, and what most means."""

import math

import pytest

from arcwise.report import conclusions
from arcwise.study.table import Table

LOW, HIGH, WIDE = [0.1, 0.11, 0.12], [0.3, 0.31, 0.33], [0.1, 0.9, 0.3]  # LOW and HIGH differ clearly, WIDE from none


def table(**values):
    """values[metric] is one list per head, of arcface, softmax, normface and cosface as far as they go."""
    heads = ["arcface", "softmax", "normface", "cosface"][: len(next(iter(values.values())))]
    named = {name.replace("_", "-"): dict(zip(heads, many, strict=True)) for name, many in values.items()}
    return Table(heads=heads, seeds={h: [0, 1, 2] for h in heads}, seconds={h: [1.0] * 3 for h in heads}, values=named)


@pytest.mark.parametrize(
    ("metric", "arcface", "softmax", "said"),
    [
        ("accuracy", HIGH, LOW, "better"),
        ("accuracy", LOW, HIGH, "worse"),
        ("angle_own", LOW, HIGH, "better"),
        ("angle_own", HIGH, LOW, "worse"),
        ("conflict_triples_cosine", LOW, HIGH, "better"),
        ("accuracy", WIDE, LOW, "open"),
        ("angle_own", WIDE, LOW, "open"),
    ],
)
def test_a_verdict_goes_by_the_direction_that_the_metric_names(metric, arcface, softmax, said):
    found = table(**{metric: (arcface, softmax)})
    assert conclusions.verdict(found, metric.replace("_", "-"), "arcface", "softmax") == said


def test_the_best_means_are_the_small_ones_where_smaller_is_better():
    found = table(accuracy=(LOW, HIGH), angle_own=(LOW, HIGH))
    said = conclusions.best_sentence(found, ["accuracy", "angle-own"])
    assert "Softmax in accuracy, by the head without margin (31.33 %)" in said
    assert "Arcface in mean angle to the own class mean (6.30°)" in said


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"accuracy": (HIGH, LOW), "angle_own": (HIGH, LOW)}, "did not win most of them"),  # one of two is half
        ({"accuracy": (HIGH, LOW), "angle_own": (WIDE, LOW)}, "did not win most of them"),  # what is open is not won
        ({"accuracy": (HIGH, LOW), "angle_own": (LOW, HIGH), "unseen_auc": (LOW, HIGH)}, "won most of them"),
        ({"accuracy": (HIGH, LOW), "angle_own": (HIGH, LOW), "unseen_auc": (WIDE, HIGH)}, "did not win most of them"),
        ({"accuracy": (HIGH, LOW)}, "won most of them"),
    ],
)
def test_most_is_more_than_half_of_all_comparisons(values, words):
    found = conclusions.sentences(table(**values), "arcface")
    counted = next(sentence for sentence in found if sentence.startswith("Of "))
    assert f"it {words}." in counted
    assert counted.startswith(f"Of the {len(values)} differences in [[paired]], arcface was clearly better in ")


def test_verdicts_are_counted_over_all_rivals():
    found = conclusions.sentences(table(accuracy=(HIGH, LOW, WIDE), angle_own=(HIGH, LOW, WIDE)), "arcface")
    counted = next(sentence for sentence in found if sentence.startswith("Of "))
    assert counted.startswith(
        "Of the 4 differences in [[paired]], arcface was clearly better in 1, clearly worse in 1, and in 2 the 95 % "
        "interval"
    )


def test_a_head_is_clearly_better_only_where_it_beats_every_rival():
    found = table(accuracy=(HIGH, LOW, LOW), angle_own=(LOW, HIGH, LOW), unseen_auc=(HIGH, LOW, WIDE))
    first, second = conclusions.answer(found, "arcface", ["accuracy", "angle-own", "unseen-auc"])
    assert (
        first
        == "Arcface is clearly better than softmax and normface in accuracy (31.33 % against 11.00 % and 11.00 %)."
    )
    assert second.count("it is better than softmax") == 2 and "than normface" not in second
    assert second.count("no more is shown") == 2


@pytest.mark.parametrize("strange", [math.inf, math.nan])
def test_a_number_that_is_not_finite_in_one_run_is_not_judged(strange):
    found = table(accuracy=(HIGH, LOW), unseen_auc=(HIGH, [0.1, strange, 0.1]), angle_own=(LOW, HIGH))
    assert conclusions.judged_metrics(found) == ["accuracy", "angle-own"]
    assert conclusions.finite_metrics(found, ["unseen-auc", "packing", "angle-own"]) == ["angle-own"]
    said = " ".join(conclusions.sentences(found, "arcface"))
    assert "Of the 2 differences" in said and "nan" not in said and "unseen" not in said


def test_two_rivals_are_named_and_three_are_counted():
    three = conclusions.answer(table(accuracy=(HIGH, LOW, LOW)), "arcface", ["accuracy"])
    four = conclusions.answer(table(accuracy=(HIGH, LOW, LOW, LOW)), "arcface", ["accuracy"])
    assert three[0].startswith("Arcface is clearly better than softmax and normface in ")
    assert four[0].startswith("Arcface is clearly better than all 3 others in ")


def test_a_head_alone_is_compared_with_nobody():
    said = conclusions.answer(table(accuracy=(HIGH,)), "arcface", ["accuracy"])
    assert "31.33 %" in said[0] and said[1] == "Means over 3 seeds."


def test_heads_that_share_one_seed_are_not_judged():
    values = {"accuracy": {"arcface": HIGH, "softmax": LOW, "normface": LOW}}
    seeds = {"arcface": [0, 1, 2], "softmax": [2, 3, 4], "normface": [1, 2, 3]}
    found = Table(heads=list(seeds), seeds=seeds, seconds={h: [1.0] * 3 for h in seeds}, values=values)
    assert conclusions.rivals_of(found, "arcface") == ["normface"]
    assert "softmax shares fewer than two seeds with arcface and is not judged." in conclusions.sentences(
        found, "arcface"
    )


def test_a_paragraph_names_both_heads_and_the_gap_in_its_unit():
    # 0.3 - 0.1 and 0.31 - 0.11 are 20 points, 0.33 - 0.12 is 21: 20.33 with t 4.303 times 0.58 / sqrt(3).
    better = conclusions.sentences(table(accuracy=(HIGH, LOW)), "arcface")[0]
    worse = conclusions.sentences(table(accuracy=(LOW, HIGH)), "arcface")[0]
    assert better.startswith("Arcface is better than softmax in ") and "(+20.33 points [+18.90, +21.77])" in better
    assert worse.startswith("arcface against softmax: it is worse in ") and "(-20.33 points [-21.77, -18.90])" in worse


def test_gaps_that_are_all_equal_are_no_spread_and_not_clear():
    found = table(accuracy=([0.3, 0.31, 0.32], LOW))
    assert conclusions.verdict(found, "accuracy", "arcface", "softmax") == "open"
    text = conclusions.gap_text(found, "accuracy", "arcface", "softmax")
    assert text == "+20.00 points (the same for all 3 seeds, no interval)"


def test_numbers_beside_a_verdict_are_of_the_seeds_it_rests_on():
    values = {"accuracy": {"arcface": [0.950, 0.951, 0.40], "softmax": [0.900, 0.902]}}
    seeds = {"arcface": [0, 1, 2], "softmax": [0, 1]}
    found = Table(heads=list(seeds), seeds=seeds, seconds={"arcface": [1.0] * 3, "softmax": [1.0] * 2}, values=values)
    assert conclusions.answer(found, "arcface", ["accuracy"])[0] == (
        "Arcface is clearly better than softmax in accuracy (95.05 % against 90.10 %)."
    )
    assert "softmax" not in conclusions.best_sentence(found, ["accuracy"])


def test_a_champion_that_shares_no_two_seeds_is_told_apart_from_one_seed_in_all():
    values = {"accuracy": {"arcface": LOW, "softmax": HIGH}}
    apart = Table(heads=["arcface", "softmax"], seeds={"arcface": [0, 1, 2], "softmax": [2, 3, 4]},
                  seconds={"arcface": [1.0] * 3, "softmax": [1.0] * 3}, values=values)  # fmt: skip
    assert "shares fewer than two seeds with any other head" in conclusions.answer(apart, "arcface", ["accuracy"])[0]
    one = Table(heads=["arcface", "softmax"], seeds={"arcface": [0], "softmax": [0]},
                seconds={"arcface": [1.0], "softmax": [1.0]},
                values={"accuracy": {"arcface": [0.5], "softmax": [0.4]}})  # fmt: skip
    assert conclusions.answer(one, "arcface", ["accuracy"])[0].startswith("With one seed nothing can be judged")


def test_what_page_one_shows_is_judged_like_the_headline_numbers():
    found = table(accuracy=(HIGH, LOW), pairs_eer=(HIGH, LOW))
    assert conclusions.judged_metrics(found) == ["accuracy", "pairs-eer"] == conclusions.first_metrics(found)
    counted = next(s for s in conclusions.sentences(found, "arcface") if s.startswith("Of the "))
    assert counted.startswith("Of the 2 differences in [[paired]], arcface was clearly better in 1, clearly worse in 1")


def test_clear_losses_in_rows_that_no_difference_stands_for_are_counted_and_named():
    found = table(accuracy=(HIGH, LOW), conflict_triples_euclidean=(HIGH, LOW), packing=(HIGH, LOW))
    [said] = [s for s in conclusions.sentences(found, "arcface") if "other rows" in s]
    assert said == (
        "Of the 2 differences in the other rows of [[closed]] it was clearly better in 1 and clearly worse in 1: "
        "triples in conflict, euclidean."
    )


def test_an_interval_that_leaves_0_out_does_not_end_in_a_rounded_0():
    # gaps of -0.01, -0.012 and -0.014 points: mean -0.012, half 4.303 * 0.002 / sqrt(3) = 0.005
    base = [0.9, 0.91, 0.92]
    found = table(accuracy=([a - b for a, b in zip(base, [1e-4, 1.2e-4, 1.4e-4], strict=True)], base))
    assert conclusions.gap_text(found, "accuracy", "arcface", "softmax") == "-0.01 points [-0.02, -0.01]"
    found = table(accuracy=([a - b for a, b in zip(base, [3e-5, 5e-5, 6.2e-5], strict=True)], base))
    text = conclusions.gap_text(found, "accuracy", "arcface", "softmax")
    assert text == "-0.005 points [-0.009, -0.001]"
    assert conclusions.verdict(found, "accuracy", "arcface", "softmax") == "worse"


def test_numbers_of_many_others_are_tied_to_a_head_and_labels_have_no_colon_in_a_sentence():
    found = table(unseen_auc=(HIGH, LOW, [0.2, 0.21, 0.22], LOW), open_auroc=(WIDE, LOW, LOW, LOW))
    said = " ".join(conclusions.answer(found, "arcface", ["unseen-auc", "open-auroc"]))
    assert "AUC of pairs of unseen classes (31.33 % against 21.00 % of normface, the best other)" in said
    assert "no difference is shown in AUROC of known against unseen." in said.lower().replace("auroc", "AUROC")
    assert ":" not in said
