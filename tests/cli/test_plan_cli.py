"""`arcwise plan`: numbers that add up, advice that follows from them, mistakes that end in a message."""

import json

import pytest

from arcwise.cli import code_of
from arcwise.ops.plan import allowance, cost, planned

H200 = (989e12, 4.8e12)
# b, classes, sub-centres, optimiser's states inside, memory; milliseconds and GiB of a step, H200 (docs/results.md).
MEASURED = [
    ((1024, 100_000, 1, 0, None), 0.86, 0.31),
    ((1024, 1_000_000, 1, 0, None), 8.28, 1.23),
    ((1024, 1_000_000, 1, 0, 2**29), 9.08, 0.40),
    ((1024, 1_000_000, 1, 1, None), 9.65, 2.73),
    ((4096, 1_000_000, 1, 0, None), 28.37, 8.87),
    ((1024, 10_000_000, 1, 0, None), 83.07, 9.85),
    ((1024, 10_000_000, 1, 1, None), 111.50, 2.93),
    ((1024, 1_000_000, 3, 0, None), 33.37, 3.15),
]


@pytest.mark.parametrize(("setting", "ms", "gib"), MEASURED)
def test_the_estimate_is_near_what_was_measured(setting, ms, gib):
    b, classes, k, states, memory = setting
    budget = memory or allowance(int(139.8 * 2**30), moving=states > 0)
    plan = planned(b, classes, k, 512, size=2, memory=budget, gradient=0 if states else 4)
    found = cost(b, classes, k, 512, plan, state=states)
    assert 1e3 * found.seconds(*H200) == pytest.approx(ms, rel=0.06)
    assert found.working / 2**30 == pytest.approx(gib, rel=0.05)


def test_bytes_add_up_and_the_optimiser_inside_saves_the_gradient(capsys):
    found = {}
    for optimiser in ("sgd", "sgd-inside"):
        assert code_of(["plan", "--classes", "10_000_000", "--optimiser", optimiser, "--json"]) == 0
        found[optimiser] = json.loads(capsys.readouterr().out)
        assert sum(found[optimiser]["bytes"].values()) == found[optimiser]["total"]
    assert found["sgd-inside"]["total"] < 48 * 2**30 < found["sgd"]["total"]


def test_what_does_not_fit_is_told_what_to_try(capsys):
    assert code_of(["plan", "--classes", "20_000_000", "--gpu", "a100"]) == 0
    said = capsys.readouterr().out
    assert "too much" in said and "--optimiser sgd-inside" in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--classes", "100_000_000", "--optimiser", "sgd-inside"], "--dim 128"),
        (["--classes", "30_000_000", "--k", "3", "--memory", "1_000_000_000"], "--k 3 --optimiser sgd-inside --memory"),
        (["--classes", "5_000_000", "--gpu", "rtx4090", "--optimiser", "adamw"], "--optimiser sgd-inside"),
        (["--classes", "1_000_000_000", "--gpu", "rtx4090"], "--processes 256"),
        (["--classes", "1_000_000", "--optimiser", "adamw-inside"], "arcwise.optim.AdamW(head, lr=1e-3)"),
        (["--classes", "1_000_000", "--memory", "500_000_000"], "memory=500000000)"),
        (["--classes", "1_000_000", "--memory", "1"], "not enough for the smallest block"),
        (["--classes", "100", "--optimiser", "sgd-inside"], "engine triton"),
        (["--classes", "1_000_000", "--dim", "513", "--optimiser", "sgd-inside"], "engine chunked"),
        (["--classes", "1_000_000", "--dim", "513"], "copies of both"),
        (
            ["--classes", "40_000_000", "--optimiser", "sgd-inside", "--weights", "bf16"],
            "dtype=torch.bfloat16)",
        ),
        (["--classes", "40_000_000", "--optimiser", "sgd-inside"], "too much"),
        (["--classes", "400_000_000", "--weights", "bf16", "--processes", "8"], "--weights bf16"),
    ],
)
def test_advice_that_can_be_followed(capsys, words, said):
    assert code_of(["plan", *words]) == 0
    assert said in capsys.readouterr().out


def test_few_classes_take_the_plain_engine(capsys):
    assert code_of(["plan", "--classes", "100"]) == 0
    assert "engine eager" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--classes", "0"], "at least 1"),
        (["--classes", "10", "--gpu", "h300"], "did you mean 'h200'"),
        (["--classes", "10", "--optimiser", "adam"], "unknown optimiser"),
    ],
)
def test_wrong_input_ends_in_a_message(capsys, words, said):
    assert code_of(["plan", *words]) == 1
    assert said in capsys.readouterr().err
