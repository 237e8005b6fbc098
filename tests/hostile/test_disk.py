"""A disk that is full, read-only, broken or short, and a clock that jumps: words, nothing half, and the same end."""

import time

import pytest

from hostile.counts import Counts, first_seed, wanted
from hostile.disk import Breaker, Fault
from hostile.found import DISK
from hostile.kills import Butcher, weights
from hostile.shim import FAULTS, compiled
from hostile.templates import SETTINGS
from hostile.zygote import Zygote


@pytest.fixture(scope="module")
def breaker(templates, tmp_path_factory):
    scratch = tmp_path_factory.mktemp("disk").resolve()
    library = compiled(scratch)
    if library is None:
        pytest.skip("there is no C compiler here")
    zygote = Zygote(LD_PRELOAD=str(library))
    yield Breaker(Butcher(zygote, templates, scratch))
    zygote.close()


def complaint(fault, wrong):
    """What to say of a fault that went wrong, and how to try it again."""
    return f"{wrong}\n    again: {tuple(fault)!r},  # into DISK of tests/hostile/found.py"


@pytest.mark.parametrize("verb", ["train", "evaluate", "report", "embed", "data show"])
def test_a_failing_disk_is_told_in_words_and_spoils_nothing(verb, breaker):
    for seed in range(1 if verb == "train" else 3):
        fault = breaker.draw(seed, verb)
        wrong = breaker.attempt(fault)[1]
        assert wrong is None, complaint(fault, wrong)


@pytest.mark.parametrize("fault", [name for name, (_, _, lasting, half) in FAULTS.items() if lasting and not half])
def test_the_library_makes_the_disk_fail(fault, breaker):
    """The oracle itself: what is refused from the first call on is noticed."""
    assert breaker.calls("embed", fault) and breaker.attempt(Fault("embed", fault, 0))[0] == "exit 1"


@pytest.mark.parametrize("fault", DISK, ids=str)
def test_what_was_found_on_disks_stays_mended(fault, breaker):
    wrong = breaker.attempt(Fault(*fault))[1]
    assert wrong is None, complaint(fault, wrong)


@pytest.mark.parametrize("seed", range(2))
def test_a_clock_that_jumps_changes_no_weight(seed, at_templates, tmp_path, monkeypatch):
    from random import Random

    from arcwise.train import train

    random, real = Random(seed), {name: getattr(time, name) for name in ("time", "monotonic", "perf_counter")}
    jump = [0.0]

    def jumping(name):
        def now():
            if random.random() < 0.3:
                jump[0] = random.choice((-1e9, -3600.0, -1.0, 0.0, 1.0, 3600.0, 1e9))
            return real[name]() + jump[0]

        return now

    for name in real:
        monkeypatch.setattr(time, name, jumping(name))
    run = train("digits-2d", tmp_path / "run", settings=SETTINGS, device="cpu", listener=lambda event: None)
    monkeypatch.undo()
    monkeypatch.chdir(at_templates)
    from hostile.cases import told

    assert told(weights("run")(tmp_path)[0][1:]) == told(weights("run")(at_templates)[0][1:])
    assert all(isinstance(entry.get("step", 0), int) for entry in run.journal()) and run.result["seconds"] >= 0.0


@pytest.mark.slow
def test_two_thousand_faults_of_the_disk(breaker):
    counts, faults = Counts("disk"), {}
    for seed in range(first_seed(), first_seed() + wanted("DISK")):
        fault, began = breaker.draw(seed), time.perf_counter()
        end, wrong = breaker.attempt(fault)
        counts.add(f"{fault.verb}, {fault.fault}", end, time.perf_counter() - began)
        if wrong is not None:
            faults.setdefault((fault.verb, wrong[:60]), []).append(complaint(fault, wrong))
            print(complaint(fault, wrong), flush=True)
    counts.close(len(faults))
    assert not faults, "\n".join(f"{len(many)} x {group}: {many[0]}" for group, many in faults.items())
