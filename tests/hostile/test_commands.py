"""Hostile command lines: exit code 0, 1, 2 or 130, words and no traceback, and nobody else's files touched."""

import time
from random import Random

import pytest

from hostile.commands import draw_command, verbs
from hostile.counts import Counts, first_seed, wanted
from hostile.found import COMMANDS
from hostile.running import fault_report, judge, run_apart, run_here
from hostile.sandbox import Sandbox

AT_ONCE, PROCESSES = 120, 2


@pytest.fixture(scope="module")
def sandbox(templates, tmp_path_factory):
    return Sandbox(tmp_path_factory.mktemp("commands").resolve(), templates)


def test_every_verb_and_every_option_is_drawn():
    drawn = [draw_command(seed) for seed in range(3_000)]
    words = {token.split("=")[0] for tokens in drawn for token in tokens}
    for verb, options in verbs().items():
        assert any(tuple(tokens[: len(verb)]) == verb for tokens in drawn), verb
        assert {option.flag for option in options if option.flag} <= words, verb


def test_good_commands_do_what_they_say(sandbox):
    """The generator's own words are good: these pass, write where they may, and are put back."""
    for line in (
        "train digits-2d --data folder:pictures --set data.size=8 --set train.batch=6 --out new",
        "compare digits-2d --heads softmax,arcface --seeds 1 --data folder:pictures --set train.batch=6 --out new",
        "evaluate run --again", "figures run --only circle", "report comparison --html", "margins", "recipes digits-2d",
        "embed run folder:pictures --out new.safetensors", "data show folder:pictures", "advise --classes 10 --dim 2",
    ):  # fmt: skip
        assert judge(line.split(), sandbox) == ("exit 0", None), line


@pytest.mark.parametrize("block", range(3))
def test_a_hostile_command_ends_in_words(block, sandbox):
    faults = [
        fault for seed in range(block, AT_ONCE, 3) if (fault := judge(draw_command(seed), sandbox)[1]) is not None
    ]
    assert not faults, fault_report(faults, sandbox)


def test_some_of_them_as_processes(sandbox):
    faults = [judge(tokens, sandbox, run_apart)[1] for tokens in short_commands(sandbox, 0, PROCESSES)]
    faults = [fault for fault in faults if fault is not None]
    assert not faults, fault_report(faults, sandbox)


@pytest.mark.parametrize("tokens", COMMANDS, ids=lambda tokens: " ".join(tokens)[:60])
def test_what_was_found_in_commands_stays_mended(tokens, sandbox):
    fault = judge(tokens, sandbox)[1]
    assert fault is None, fault_report([fault], sandbox)


def short_commands(sandbox, first, count):
    """Commands for real processes: those that train nothing, for here nothing cuts a training short."""
    random, seed = Random(first), first
    while count:
        seed += random.randint(1, 9)
        tokens = draw_command(seed)
        if any("\0" in token for token in tokens):
            continue
        found = run_here(tokens, sandbox) if tokens and tokens[0] in ("train", "compare") else None
        sandbox.restore()
        if found is None or (found.code not in (0, None) and found.seconds < 5.0):
            count -= 1
            yield tokens


@pytest.mark.slow
def test_ten_thousand_hostile_commands(sandbox):
    counts, faults = Counts("commands"), []
    for seed in range(first_seed(), first_seed() + wanted("COMMANDS")):
        tokens, began = draw_command(seed), time.perf_counter()
        end, fault = judge(tokens, sandbox)
        counts.add(next((word for word in tokens[:1] if (word,) in verbs() or word == "data"), "other"), end,
                   time.perf_counter() - began)  # fmt: skip
        faults += [fault] if fault is not None else []
        if counts.total % 500 == 0:
            print(f"{counts.total:,} commands, {len(faults)} faults", flush=True)
    counts.close(len({fault.group for fault in faults}))
    assert not faults, fault_report(faults, sandbox)


@pytest.mark.slow
def test_hundreds_of_them_as_processes(sandbox):
    counts, faults = Counts("commands as processes"), []
    for tokens in short_commands(sandbox, first_seed() + 1_000_000, wanted("PROCESSES")):
        began = time.perf_counter()
        end, fault = judge(tokens, sandbox, run_apart)
        counts.add(tokens[0] if tokens and (tokens[0],) in verbs() else "other", end, time.perf_counter() - began)
        faults += [fault] if fault is not None else []
    counts.close(len({fault.group for fault in faults}))
    assert not faults, fault_report(faults, sandbox)
