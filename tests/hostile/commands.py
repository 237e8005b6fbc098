"""Command lines drawn from the verbs' own signatures: good and bad words, in good and bad places."""

from __future__ import annotations

import importlib
import inspect
import types
from collections.abc import Callable
from functools import cache
from pathlib import Path
from random import Random
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin, get_type_hints

from cyclopts import App, Parameter

from arcwise.cli import VERBS
from arcwise.config import Config, setting_names
from hostile.words import (
    GOOD_SETTINGS,
    NEVER,
    NO_HEADS,
    NO_PLACES,
    NO_REAL,
    NO_SOURCES,
    NO_WHOLE,
    ODD,
    PLACES,
    REAL,
    WHOLE,
    WORDS,
)


class Option(NamedTuple):
    """One parameter of a verb: how it is typed, what kind of value it takes, whether it may come many times."""

    name: str
    flag: str  # nothing where it has a place of its own
    kind: type
    many: bool
    required: bool


@cache
def verbs() -> dict[tuple[str, ...], tuple[Option, ...]]:
    """Every verb and verb below a verb with its parameters."""
    found: dict[tuple[str, ...], tuple[Option, ...]] = {}
    for verb, (target, _) in VERBS.items():
        module, _, name = target.partition(":")
        made = getattr(importlib.import_module(module), name)
        if isinstance(made, App):
            below = {word: made[word].default_command for word in made if not word.startswith("-")}
            found |= {(verb, word): options_of(call) for word, call in below.items()}
        else:
            found[verb,] = options_of(made)
    return found


def options_of(call: Callable[..., Any]) -> tuple[Option, ...]:
    """The parameters of one verb's function."""
    hints = get_type_hints(call, include_extras=True)
    return tuple(option_of(parameter, hints[name]) for name, parameter in inspect.signature(call).parameters.items())


def option_of(parameter: inspect.Parameter, hint: Any) -> Option:
    """A parameter as it is typed."""
    flag, many = "--" + parameter.name.strip("_").replace("_", "-"), False
    while get_origin(hint) in (Annotated, Union, types.UnionType, list):
        if get_origin(hint) is Annotated:
            named = [extra.name for extra in hint.__metadata__ if isinstance(extra, Parameter) and extra.name]
            flag = named[0][0] if named else flag
            hint = get_args(hint)[0]
        else:
            many = many or get_origin(hint) is list
            hint = next(option for option in get_args(hint) if option is not type(None))
    placed = parameter.kind is inspect.Parameter.POSITIONAL_ONLY
    return Option(parameter.name, "" if placed else flag, hint, many, parameter.default is inspect.Parameter.empty)


def draw_command(seed: int) -> list[str]:
    """A command line: mostly nearly right."""
    random = Random(f"command {seed}")
    if random.random() < 0.02:
        return [random.choice((*ODD, *VERBS)) for _ in range(random.randint(0, 4))]
    verb = random.choice(list(verbs()))
    bad = random.choice((0.0, 0.1, 0.4))  # how often a word is wrong; most commands have one fault or none
    tokens: list[str] = []
    for option in verbs()[verb]:
        share = 0.97 if option.required else 0.75 if option.name == "set_" else 0.25
        if random.random() < share:
            tokens += typed(random, option, bad)
    tokens = [*verb, *tokens]
    if random.random() < bad / 2:
        spoil(random, tokens)
    return tokens


def typed(random: Random, option: Option, bad: float) -> list[str]:
    """One option with its value or values."""
    if option.kind is bool:
        return [
            option.flag if random.random() > bad / 2 else option.flag + random.choice(("=true", "=maybe", "=", "=0"))
        ]
    count = random.choice((1, 1, 1, 2, 3)) if option.many or not option.flag else 1
    values = [value_of(random, option, bad) for _ in range(count if option.many else 1)]
    if not option.flag:
        return values
    if random.random() < 0.2:
        return [f"{option.flag}={value}" for value in values]
    return [word for value in values for word in (option.flag, value)]


def value_of(random: Random, option: Option, bad: float) -> str:
    """A word that the option takes, or one that it does not."""
    wrong = random.random() < bad
    if wrong and random.random() < 0.2:
        return random.choice(ODD)
    if option.name == "set_":
        return setting(random, wrong)
    if option.kind is Path and option.name not in WORDS:
        return random.choice(NO_PLACES if wrong or random.random() < (0.5 if option.flag else 0.1) else PLACES)
    by_kind = {int: (WHOLE, NO_WHOLE), float: (REAL, NO_REAL)}
    good, poor = WORDS.get(option.name, by_kind.get(option.kind, (("a",), ODD)))
    return random.choice(poor if wrong else good)


def setting(random: Random, wrong: bool) -> str:
    """A setting as --set takes it."""
    if not wrong:
        key = random.choice(list(GOOD_SETTINGS))
        return f"{key}={random.choice(GOOD_SETTINGS[key])}"
    key = random.choice((*setting_names(Config), "train.epoch", "", "data", "train.", ".epochs", "a.b.c", "head"))
    some = (*NO_WHOLE, *NO_REAL, *ODD[:30], *NO_HEADS[:8], *NO_SOURCES[:12], "1", "0.5", "true", "false")
    value = "maybe" if key in NEVER else random.choice(some)
    return f"{key}{random.choice(('=', '=', '=', '=', '==', ' = ', '', ':'))}{value}"


def spoil(random: Random, tokens: list[str]) -> None:
    """Breaks a command line in one place."""
    at = random.randrange(len(tokens))
    what = random.randrange(6)
    if what == 0:
        del tokens[at]
    elif what == 1:
        tokens.insert(at, random.choice(ODD))
    elif what == 2:
        tokens.insert(at, tokens[at])
    elif what == 3:
        tokens[at] = random.choice((tokens[at].upper(), tokens[at][:-1], tokens[at] + "x", "-" + tokens[at]))
    elif what == 4:
        other = random.randrange(len(tokens))
        tokens[at], tokens[other] = tokens[other], tokens[at]
    else:
        tokens.append(random.choice(("--", "--json", "--out", "--unheard-of", "-v", *ODD)))
