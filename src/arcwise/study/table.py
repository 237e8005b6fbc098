"""The table of runs: mean and spread over seeds of every number, and paired differences of heads."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any

from arcwise.measure import measure
from arcwise.metrics.spread import Difference, Spread, difference, spread
from arcwise.metrics.summary import METRICS, digits_shown, headline_metrics, in_unit, with_unit
from arcwise.records import Comparison, Run, write_json


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """values[metric][head] is one number per seed; `seconds` is what training took."""

    heads: list[str]
    seeds: dict[str, list[int]]
    values: dict[str, dict[str, list[float]]]
    seconds: dict[str, list[float]]

    def spread(self, metric: str, head: str) -> Spread:
        """Mean and spread of one number under one head."""
        return spread(self.values[metric][head])

    def difference(self, metric: str, head: str, other: str) -> Difference:
        """head - other over the seeds that both have."""
        both = [seed for seed in self.seeds[head] if seed in self.seeds[other]]
        a, b = ([self.values[metric][h][self.seeds[h].index(seed)] for seed in both] for h in (head, other))
        return difference(a, b)

    @property
    def several(self) -> list[str]:
        """The heads of several seeds; all of them where none has more than one."""
        return [head for head in self.heads if len(self.seeds[head]) > 1] or self.heads

    def best(self, metric: str) -> str:
        """The head with the best mean; a single seed is no mean beside those of several."""
        sign = 1.0 if METRICS[metric].better == "higher" else -1.0
        return max(self.several, key=lambda head: sign * self.spread(metric, head).mean)

    def shared(self, heads: list[str]) -> Table:
        """These heads, each with the seeds that all of them have."""
        both = [seed for seed in self.seeds[heads[0]] if all(seed in self.seeds[head] for head in heads)]
        at = {head: [self.seeds[head].index(seed) for seed in both] for head in heads}
        return Table(
            heads=heads, seeds=dict.fromkeys(heads, both),
            values={
                name: {head: [found[head][i] for i in at[head]] for head in heads}
                for name, found in self.values.items()
            },
            seconds={head: [self.seconds[head][i] for i in at[head]] for head in heads},
        )  # fmt: skip

    def cell(self, metric: str, head: str) -> str:
        """Mean and spread as text, in the unit that is shown."""
        found = self.spread(metric, head)
        if not math.isfinite(found.mean):
            return "∞"
        mean, deviation = in_unit(metric, found.mean), in_unit(metric, found.deviation)
        digits = digits_shown(metric, mean)
        return f"{mean:.{digits}f} ± {deviation:.{digits}f}" if found.n > 1 else f"{mean:.{digits}f}"

    def headline_rows(self) -> list[list[str]]:
        """The main numbers, one row each: what it says, then a cell per head."""
        some = [name for name in headline_metrics() if name in self.values]
        return [[with_unit(name), *(self.cell(name, head) for head in self.heads)] for name in some]

    def __str__(self) -> str:
        """The main numbers for a terminal, heads side by side."""
        rows = [["", *self.heads], *self.headline_rows()]
        wide = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
        return "\n".join(
            "  ".join(
                cell.ljust(width) if i == 0 else cell.rjust(width)
                for i, (cell, width) in enumerate(zip(row, wide, strict=True))
            )
            for row in rows
        )


def comparison_table(comparison: Comparison) -> Table:
    """The table of all finished runs, written into the comparison's metrics.json."""
    table = table_of(comparison.finished_runs())
    write_json(comparison.path / "metrics.json", table_values(table, comparison.about.get("recipe", "")))
    return table


def table_of(runs: dict[str, list[Run]]) -> Table:
    """The table of finished runs, by head; numbers that some run lacks are left out."""
    measured = {head: [measure(run) for run in found] for head, found in runs.items()}
    everywhere = [
        name for name in METRICS if all(name in metrics["measured"] for found in measured.values() for metrics in found)
    ]
    return Table(
        heads=list(runs),
        seeds={head: [run.settings.seed for run in found] for head, found in runs.items()},
        values={
            name: {
                head: [finite_or_infinite(metrics["measured"][name]) for metrics in found]
                for head, found in measured.items()
            }
            for name in everywhere
        },
        seconds={head: [float(run.result.get("seconds", math.nan)) for run in found] for head, found in runs.items()},
    )


def finite_or_infinite(value: float | None) -> float:
    """A number out of JSON, where null stands for infinite."""
    return math.inf if value is None else float(value)


def table_values(table: Table, recipe: str) -> dict[str, Any]:
    """The table for a machine, and for the report: every number in its text is one of these."""
    return {
        "recipe": recipe, "heads": table.heads, "seeds": table.seeds, "seconds": table.seconds,
        "metrics": {
            name: {
                "label": METRICS[name].label, "unit": METRICS[name].unit, "better": METRICS[name].better,
                "heads": {
                    head: {"values": null_for_infinite(found), **null_in(spread(found)._asdict())}
                    for head, found in by_head.items()
                },
                "differences": {
                    f"{a} - {b}": null_in(table.difference(name, a, b)._asdict())
                    for b, a in itertools.combinations(table.heads, 2)
                } if len(table.heads) <= 8 else {},
            }
            for name, by_head in table.values.items()
        },
    }  # fmt: skip


def null_for_infinite(values: list[float]) -> list[float | None]:
    """Numbers with null for what JSON cannot hold."""
    return [value if math.isfinite(value) else None for value in values]


def null_in(values: dict[str, float]) -> dict[str, float | None]:
    """The same for a table of values."""
    return dict(zip(values, null_for_infinite(list(values.values())), strict=True))
