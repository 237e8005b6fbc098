"""What a comparison consists of: heads, seeds, one configuration and one Run folder for each pair of them."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, replace
from pathlib import Path

from arcwise.config import Config, override
from arcwise.errors import ArcwiseError
from arcwise.headspec import HeadSpec, folder_name
from arcwise.records import FORMAT, Comparison, claim_folder, write_json


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


def plan_jobs(base: Config, heads: list[str], seeds: list[int], out: Path) -> list[Job]:
    """All runs, seed by seed, so that a comparison that was cut short has whole seeds."""
    configs = {head: override(base, [f"head.name={head}"]) for head in heads}
    return [
        Job(head=head, seed=seed, config=replace(configs[head], seed=seed), path=out / folder_name(head, seed))
        for seed in seeds
        for head in heads
    ]


def trained_before(found: Comparison) -> tuple[list[str], list[int]]:
    """The heads and the seeds of which a comparison has finished runs; none of one that is new or damaged."""
    try:
        runs = found.runs() if found.exists() else {}
        return [head for head, many in runs.items() if many], [
            s for s in found.seeds if any(runs.values())
        ] if runs else []
    except ArcwiseError:
        return [], []


def begin_comparison(out: Path, base: Config, heads: list[str], seeds: list[int], command: str) -> Comparison:
    """The comparison in a folder, new or gone on with, its comparison.json written; heads and seeds of before stay."""
    found = Comparison(out)
    claim_folder(out, "comparison")
    before, earlier = trained_before(found)
    kept = [head for head in before if HeadSpec.parse(head) not in map(HeadSpec.parse, heads)]
    told = {
        "format": FORMAT, "recipe": base.recipe, "heads": [*kept, *heads],
        "seeds": sorted({*seeds, *earlier}), "command": command,
        "config": dataclasses.asdict(base),
    }  # fmt: skip
    write_json(out / "comparison.json", told)
    return found
