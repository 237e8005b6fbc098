"""Comparison: a folder with one Run per head and seed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arcwise.errors import ArcwiseError
from arcwise.headspec import folder_name
from arcwise.records.files import FORMAT, is_there, read_json
from arcwise.records.run import Run, own_command
from arcwise.schema import anything, many, table, text, whole

ABOUT = table(
    {"format": anything, "heads": many(text, least=1), "seeds": many(whole(0), least=1)},
    {"command": text, "recipe": text, "config": table()},
)


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
        if found.about["format"] != FORMAT:
            raise ArcwiseError(f"{path} was written in another format; this version of arcwise reads format {FORMAT}.")
        return found

    def exists(self) -> bool:
        """Whether a comparison was started here."""
        return is_there(self.path / "comparison.json")

    @property
    def about(self) -> dict[str, Any]:
        """comparison.json: recipe, heads, seeds, settings, and the command."""
        again = "It is damaged: give the command that made it once more; finished runs are kept."
        return read_json(self.path / "comparison.json", ABOUT, cure=again)

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
            told = self.about
            again = f"arcwise compare {told.get('recipe', '')} --heads {','.join(self.heads)} --out {self.path}"
            raise ArcwiseError(
                f"{self.path} holds no finished run yet. Go on with: {own_command(told.get('command', ''), again)}"
            )
        return runs

    def runs(self) -> dict[str, list[Run]]:
        """The finished runs of each head, by seed."""
        told = self.about
        every = {head: [Run(self.path / folder_name(head, seed)) for seed in told["seeds"]] for head in told["heads"]}
        return {head: [run for run in runs if run.exists() and run.finished] for head, runs in every.items()}
