"""Returns what a comparison consists of: heads, seeds, one configuration and one Run folder for each pair of them."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from arcwise.config import Config, overridden
from arcwise.errors import ArcwiseError
from arcwise.records import FORMAT, Run, read_json, write


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One run to be: the head as it was written, its seed, configuration and folder."""

    head: str
    seed: int
    config: Config
    path: Path

    @property
    def label(self) -> str:
        """The job in a word or two."""
        return f"{self.head} seed {self.seed}"


@dataclass(frozen=True, slots=True)
class Comparison:
    """A folder with one Run per head and seed, comparison.json that lists them, and metrics.json with the table."""

    path: Path

    @classmethod
    def open(cls, path: str | Path) -> Comparison:
        """The comparison in a folder, its format checked."""
        found = cls(path := Path(path))
        if not found.exists():
            raise ArcwiseError(
                f"{path} holds no comparison: there is no comparison.json. Start one with: arcwise compare"
            )
        about = found.about
        if about.get("format") != FORMAT:
            raise ArcwiseError(f"{path} was written in another format; this version of arcwise reads format {FORMAT}.")
        if not all(isinstance(about.get(key), list) and about[key] for key in ("heads", "seeds")):
            raise ArcwiseError(
                f"{path / 'comparison.json'} names no heads and seeds: it is damaged. Give the command that made it "
                "once more; finished runs are kept."
            )
        return found

    def exists(self) -> bool:
        """Whether a comparison was started here."""
        return (self.path / "comparison.json").is_file()

    @property
    def about(self) -> dict[str, Any]:
        """comparison.json: recipe, heads, seeds, settings, and the command."""
        return read_json(self.path / "comparison.json")

    @property
    def heads(self) -> list[str]:
        """The heads in the order they were asked for."""
        return list(self.about["heads"])

    @property
    def seeds(self) -> list[int]:
        """The seeds."""
        return list(self.about["seeds"])

    def run(self, head: str, seed: int) -> Run:
        """The run of one head and seed."""
        return Run.open(self.path / folder_name(head, seed))

    def finished_runs(self) -> dict[str, list[Run]]:
        """The same of the heads that have any, or an error that says how to go on."""
        runs = {head: found for head, found in self.runs().items() if found}
        if not runs:
            raise ArcwiseError(f"{self.path} holds no finished run yet. Go on with: {self.about.get('command')}")
        return runs

    def runs(self) -> dict[str, list[Run]]:
        """The finished runs of each head, by seed."""
        every = {head: [Run(self.path / folder_name(head, seed)) for seed in self.seeds] for head in self.heads}
        return {head: [run for run in runs if run.exists() and run.finished] for head, runs in every.items()}


def parsed_heads(text: str) -> list[str]:
    """The heads of a list whose parameters have commas of their own.

    >>> parsed_heads("softmax,arcface:m=0.3,s=16,normface")
    ['softmax', 'arcface:m=0.3,s=16', 'normface']
    """
    heads: list[str] = []
    for word in (word.strip().lower() for word in text.split(",")):
        if not word:
            raise ArcwiseError(
                f"heads are separated by one comma each, as in softmax,arcface:m=0.3,s=16; got {text!r}."
            )
        if "=" in word and ":" not in word and heads:
            heads[-1] += ("," if ":" in heads[-1] else ":") + word
        else:
            heads.append(word)
    if len(set(heads)) < len(heads):
        raise ArcwiseError(f"a head is named twice in {text!r}.")
    return heads


def folder_name(head: str, seed: int) -> str:
    """The folder of one run.

    >>> folder_name("arcface:m=0.3,s=16", 1)
    'arcface-m0.3-s16-seed1'
    """
    return re.sub(r"[^A-Za-z0-9.+-]+", "-", head.replace("=", "")) + f"-seed{seed}"


def jobs(base: Config, heads: list[str], seeds: list[int], out: Path) -> list[Job]:
    """All runs, seed by seed, so that a comparison that was cut short has whole seeds."""
    configs = {head: overridden(base, [f"head.name={head}"]) for head in heads}
    return [
        Job(head=head, seed=seed, config=replace(configs[head], seed=seed), path=out / folder_name(head, seed))
        for seed in seeds
        for head in heads
    ]


def started(out: Path, base: Config, heads: list[str], seeds: list[int], command: str) -> Comparison:
    """The comparison in a folder, new or gone on with, its comparison.json written."""
    found = Comparison(out)
    if not found.exists():
        Run(out).refuse_strangers()
    told = {
        "format": FORMAT, "recipe": base.recipe, "heads": heads, "seeds": seeds, "command": command,
        "config": json.loads(base.to_json()),
    }  # fmt: skip
    write(out / "comparison.json", json.dumps(told, indent=1))
    return found
