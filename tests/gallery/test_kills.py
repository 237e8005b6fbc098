"""Galleries whose writer is killed lose nothing confirmed and keep nothing half; readers see committed states."""

import contextlib
import itertools
import os
import random
import signal
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

from arcwise import ArcwiseError, Gallery
from gallery.kit import Tiles, photos, threshold
from gallery.writer import State, number_of, steps

WRITER = Path(__file__).with_name("writer.py")
LONG = 2.5  # seconds in which a writer is killed, from its first word on


def writer(place, seed):
    """A process that changes a gallery until it is killed."""
    command = [sys.executable, str(WRITER), str(place), str(seed)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})


def state_of(place):
    """What is in a gallery, and whether everybody there is who she is said to be."""
    model = Gallery.open(place, None).card.model
    found = Gallery.open(place, Tiles(model))
    for one in found.list():
        assert found.verify(photos(number_of(one.name), one.templates)[-1], one.name).cosine > 0.999, one
    return State(tuple((one.name, one.templates) for one in found.list()), model)


def state_after(seed, done):
    """The state after so many steps, and the one after the next."""
    some = [State(), *(state for _, state in itertools.islice(steps(seed), done + 1))]
    return some[-2], some[-1]


def kill_once(place, seed):
    """What is wrong with a gallery whose writer was killed at a random moment."""
    process = writer(place, seed)
    assert process.stdout is not None
    assert process.stdout.readline() == "made\n"
    time.sleep(random.Random(f"kill {seed}").uniform(0.0, LONG))
    process.send_signal(signal.SIGKILL)
    said = process.communicate()[0].split("\n")[:-1]
    done = sum(line.startswith("done") for line in said)
    before, after = state_after(seed, done)
    found = state_of(place)
    begun = bool(said) and said[-1].startswith("begin")
    assert found == before or (begun and found == after), f"{said[-1]}: {found} is neither {before} nor {after}"
    # Whoever writes next sweeps what the killed one has left, and goes on.
    made = Gallery.open(place, Tiles(found.model))
    made.add("person99999", photos(99999, 2))
    assert made.remove("person99999") == 2
    assert state_of(place) == found
    assert len(list(Path(place).glob("*.lance"))) == 1
    everybody = {name for name, _ in found.people} | {"person99999"}
    gone = {step.name for step, _ in itertools.islice(steps(seed), done + 1) if step.name} - everybody
    content = b"".join(path.read_bytes() for path in Path(place).rglob("*") if path.is_file())
    assert not [name for name in gone if name.encode() in content]
    return done


@pytest.mark.parametrize("seed", range(10))
def test_a_killed_writer_loses_nothing_confirmed_and_leaves_nothing_half(tmp_path, seed):
    kill_once(tmp_path / "people", seed)


@pytest.mark.slow
def test_a_hundred_kills(tmp_path):
    done = [kill_once(tmp_path / str(seed), seed) for seed in range(100, 200)]
    print(f"100 kills after {sum(done)} steps in all, {min(done)} to {max(done)} each")


def is_answer(match, name, states):
    """Whether an image of somebody would be answered so in one of these states."""
    people = (dict(state.people) for state in states)
    return any(match.nearest == name if name in there else match.nearest in (there or {None}) for there in people)


def watch(place, seed, seconds):
    """How many answers were given, how many states were seen, and which answers belong to no committed state."""
    known = [State(), *(state for _, state in itertools.islice(steps(seed), 5000))]
    places: dict[State, int] = {}
    for at, state in enumerate(known):
        places.setdefault(state, at)
    with contextlib.suppress(ArcwiseError):
        Gallery.open(place, None).list()  # what is imported for it takes its time, too
    seen, wrong, answers, end = set(), [], 0, time.monotonic() + seconds
    readers = dict.fromkeys(("tiles", "turned"))
    while time.monotonic() < end:
        try:
            model = Gallery.open(place, None).card.model
            if readers[model] is None:
                readers[model] = Gallery.open(place, Tiles(model))
            reader = readers[model]
            held = reader.held()
            people = tuple((one.name, one.templates) for one in reader.list())
        except ArcwiseError as error:
            if "another model" not in str(error) and "another dimension" not in str(error):
                wrong.append(str(error))
            continue
        state = State(people, model)
        state = state if state in places else State(people, "turned" if model == "tiles" else "tiles")
        answers += 1
        if state not in places:
            wrong.append(str(state))
            continue
        seen.add(people)
        if people and held.templates is reader.held().templates:
            name, count = people[-1]
            try:
                match = reader.identify(photos(number_of(name), count)[-1], threshold=0.5)
            except ArcwiseError as error:
                if "another model" not in str(error):
                    wrong.append(str(error))
                continue
            answers += 1
            if not is_answer(match, name, known[places[state] :]):
                wrong.append(f"{name} in {state}: {match}")
    return answers, len(seen), wrong


def watched(place, readers, seconds, seed=5):
    """The same of many readers beside one writer."""
    process = writer(place, seed)
    assert process.stdout is not None
    assert process.stdout.readline() == "made\n"
    with ProcessPoolExecutor(readers, mp_context=get_context("spawn")) as pool:
        found = list(pool.map(watch, *zip(*[(place, seed, seconds)] * readers, strict=True)))
    process.kill()
    done = sum(line.startswith("done") for line in process.communicate()[0].split("\n"))
    wrong = [one for _, _, some in found for one in some]
    assert not wrong, wrong[:5]
    assert done > 3 and min(answers for answers, _, _ in found) > 3 and max(seen for _, seen, _ in found) > 1
    print(f"{done} steps; {sum(one[0] for one in found)} answers, {sum(one[1] for one in found)} states seen")


def test_readers_beside_a_writer_see_committed_states(tmp_path):
    watched(tmp_path / "people", readers=2, seconds=3)


@pytest.mark.slow
def test_eight_readers_beside_a_writer_for_a_minute(tmp_path):
    watched(tmp_path / "people", readers=8, seconds=60)


def test_a_writer_waits_for_another(tmp_path):
    made = Gallery.create(tmp_path / "people", Tiles(), thresholds=[threshold()])
    with made.store.holding():
        code = (
            "import sys; sys.path.insert(0, sys.argv[2]); from arcwise import Gallery; from gallery.kit import *;"
            "print('here', flush=True); Gallery.open(sys.argv[1], Tiles()).add('ada', photos(1, 1))"
        )
        command = [sys.executable, "-c", code, str(tmp_path / "people"), str(WRITER.parents[1])]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(1.0)
        assert process.poll() is None and made.list() == []
    assert process.wait(30) == 0 and [one.name for one in made.list()] == ["ada"]
    process.stdout.close()
