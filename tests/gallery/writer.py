"""A program that changes a gallery for ever, by a plan that its seed gives, and tells: `writer.py PLACE SEED`.

The state after every step is known beforehand, so that others can tell whether what they see was ever committed.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from random import Random
from typing import NamedTuple

MODELS = ("tiles", "turned")


class Step(NamedTuple):
    """What is done, to whom, with how many images."""

    what: str
    name: str = ""
    count: int = 0


class State(NamedTuple):
    """Who is enrolled with how many templates, in order, and whose embeddings they are."""

    people: tuple[tuple[str, int], ...] = ()
    model: str = MODELS[0]

    def after(self, step: Step) -> State:
        """The state that a step leads to."""
        there = dict(self.people)
        if step.what == "add":
            there[step.name] = step.count
        elif step.what == "remove":
            del there[step.name]
        turned = MODELS[1 - MODELS.index(self.model)] if step.what == "reembed" else self.model
        return State(tuple(there.items()), turned)


def steps(seed: int) -> Iterator[tuple[Step, State]]:
    """Steps without end, each with the state after it; 3 to 12 people are there after the first few."""
    random, state = Random(seed), State()
    for number in itertools.count():
        there = [name for name, _ in state.people]
        kind = random.choices(("add", "more", "remove", "reembed"), (5, 2, 3, 1))[0]
        if len(there) < 3 or (kind == "add" and len(there) < 12):
            step = Step("add", f"person{number:05}", random.randint(1, 6))
        elif kind == "reembed":
            step = Step("reembed")
        elif kind == "more":
            name = random.choice(there)
            step = Step("add", name, dict(state.people)[name] + random.randint(1, 3))
        else:
            step = Step("remove", random.choice(there))
        state = state.after(step)
        yield step, state


def number_of(name: str) -> int:
    """Which of the people of `photos` bears a name."""
    return int(name.removeprefix("person"))


def main(place: str, seed: int) -> None:
    """Goes on for ever; a line before each step and one when it is safe."""
    from arcwise import Gallery
    from gallery.kit import Tiles, photos, threshold

    made = Gallery.create(place, Tiles(), keep_images=True, thresholds=[threshold()])
    print("made", flush=True)
    for at, (step, state) in enumerate(steps(seed)):
        print(f"begin {at}", flush=True)
        if step.what == "add":
            made.add(step.name, photos(number_of(step.name), step.count))
        elif step.what == "remove":
            made.remove(step.name)
        else:
            made.reembed(Tiles(state.model), thresholds=[threshold(model=state.model)])
        print(f"done {at}", flush=True)


if __name__ == "__main__":
    sys.path.insert(0, __file__.rpartition("/gallery/")[0])
    main(sys.argv[1], int(sys.argv[2]))
