"""Commands that are killed, ended or interrupted: nothing half is left, and the same command comes to the same end."""

import time

import pytest

from hostile.commands import verbs
from hostile.counts import Counts, first_seed, wanted
from hostile.found import KILLS
from hostile.kills import READING, WRITERS, Butcher, Kill
from hostile.zygote import Zygote


@pytest.fixture(scope="module")
def butcher(templates, tmp_path_factory):
    zygote = Zygote()
    yield Butcher(zygote, templates, tmp_path_factory.mktemp("kills").resolve())
    zygote.close()


def complaint(kill, wrong):
    """What to say of a kill that went wrong, and how to try it again."""
    return f"{wrong}\n    again: {tuple(kill)!r},  # into KILLS of tests/hostile/found.py"


def test_every_verb_is_killed_or_writes_nothing():
    for words in verbs():
        verb = " ".join(words)
        assert (verb in READING) != any(f"{one.line} ".startswith(f"{verb} ") for one in WRITERS.values()), verb


@pytest.mark.parametrize("verb", [name for name, writer in WRITERS.items() if not writer.long])
def test_a_command_that_is_ended_leaves_nothing_half_and_goes_on(verb, butcher):
    kill = butcher.draw(0, verb)
    wrong = butcher.attempt(kill)[1]
    assert wrong is None, complaint(kill, wrong)


@pytest.mark.parametrize("kill", KILLS, ids=str)
def test_what_was_found_by_kills_stays_mended(kill, butcher):
    wrong = butcher.attempt(Kill(*kill))[1]
    assert wrong is None, complaint(kill, wrong)


@pytest.mark.slow
def test_three_hundred_kills(butcher):
    counts, faults = Counts("kills"), {}
    for seed in range(first_seed(), first_seed() + wanted("KILLS")):
        kill, began = butcher.draw(seed), time.perf_counter()
        end, wrong = butcher.attempt(kill)
        counts.add(f"{kill.verb}, {kill.by}", end, time.perf_counter() - began)
        if wrong is not None:
            faults.setdefault((kill.verb, wrong.split(":")[0]), []).append(complaint(kill, wrong))
            print(complaint(kill, wrong), flush=True)
    counts.close(len(faults))
    assert not faults, "\n".join(f"{len(many)} x {group}: {many[0]}" for group, many in faults.items())
