"""`arcwise recipes`: lists what can be trained by name, or shows one recipe's settings."""

from __future__ import annotations

import dataclasses
import inspect
import json
import re

from arcwise.recipes import RECIPES, recipe


def recipes_command(name: str | None = None, /, *, json_: bool = False) -> None:
    """List the recipes with what they do, how long they take and what they reach.

    Parameters
    ----------
    name
        Show all settings of this one, each ready for --set.
    json_
        Print for a machine.
    """
    if name is not None:
        show_recipe(name, as_json=json_)
        return
    entries = [{"name": key, **recipe_words(key)} for key in RECIPES]
    if json_:
        print(json.dumps(entries, ensure_ascii=False))
        return
    for entry in entries:
        print(f"{entry['name']:16} {entry['what']}\n{'':16} takes {entry['takes']}\n{'':16} reaches {entry['reaches']}")
    print("\nNext: arcwise recipes mnist, or arcwise train digits-2d")


def recipe_words(name: str) -> dict[str, str]:
    """What a recipe does, takes and reaches, from its docstring.

    >>> sorted(recipe_words("mnist"))
    ['reaches', 'takes', 'what']
    """
    lines = [line.strip() for line in inspect.getdoc(RECIPES[name]).splitlines() if line.strip()]  # type: ignore[union-attr]
    found = {"what": lines[0]}
    for key in ("takes", "reaches"):
        found[key] = next(line.split(":", 1)[1].strip() for line in lines if line.lower().startswith(f"{key}:"))
    return found


def setting_words(kind: type) -> dict[str, str]:
    """What each setting means, from the comments beside them; nothing where the source is not there.

    >>> from arcwise.config import ModelConfig
    >>> setting_words(ModelConfig)["dim"]
    'numbers in an embedding'
    """
    try:
        lines = inspect.getsource(kind).splitlines()
    except OSError:
        return {}
    found = (re.fullmatch(r"    (\w+): [^#]+  # (.+)", line) for line in lines)
    return {match[1]: match[2] for match in found if match}


def show_recipe(name: str, *, as_json: bool) -> None:
    """One recipe's settings."""
    config = recipe(name)
    if as_json:
        print(config.to_json())
        return
    print(f"{recipe_words(name)['what']}\n")
    for part in ("data", "model", "head", "train"):
        words = setting_words(type(getattr(config, part)))
        for key, value in dataclasses.asdict(config)[part].items():
            said = f"{part}.{key}={value}"
            print(f"{said:32}  # {words[key]}" if key in words else said)
    own = " --data folder:PATH" if config.data.source.startswith("folder:") else ""
    print(f"\nNext: arcwise train {name}{own} --set train.epochs={config.train.epochs}")
