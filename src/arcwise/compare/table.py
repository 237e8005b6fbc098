"""Returns the table of a comparison: mean and spread over seeds of every number, and paired differences of heads."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import dataclass
from typing import Any

from arcwise.compare.measure import measure
from arcwise.compare.plan import Comparison
from arcwise.metrics.spread import Difference, Spread, difference, spread
from arcwise.metrics.summary import METRICS
from arcwise.records import Run, write


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

    def best(self, metric: str, heads: list[str] | None = None) -> str:
        """The head with the best mean."""
        sign = 1.0 if METRICS[metric].better == "higher" else -1.0
        return max(heads or self.heads, key=lambda head: sign * self.spread(metric, head).mean)


def tabulated(comparison: Comparison) -> Table:
    """The table of all finished runs, written into the comparison's metrics.json."""
    table = table_of(comparison.finished_runs())
    write(comparison.path / "metrics.json", json.dumps(as_json(table, comparison.about["recipe"]), indent=1))
    return table


def table_of(runs: dict[str, list[Run]]) -> Table:
    """The table of finished runs, by head; numbers that some run lacks are left out."""
    measured = {head: [measure(run) for run in found] for head, found in runs.items()}
    everywhere = [
        name for name in METRICS if all(name in metrics["measured"] for found in measured.values() for metrics in found)
    ]
    return Table(
        heads=list(runs),
        seeds={head: [int(run.config["seed"]) for run in found] for head, found in runs.items()},
        values={
            name: {head: [number(metrics["measured"][name]) for metrics in found] for head, found in measured.items()}
            for name in everywhere
        },
        seconds={head: [float(found.get("seconds", math.nan)) for found in many] for head, many in measured.items()},
    )


def number(value: float | None) -> float:
    """A number out of JSON, where null stands for infinite."""
    return math.inf if value is None else float(value)


def as_json(table: Table, recipe: str) -> dict[str, Any]:
    """The table for a machine, and for the report: every number in its text is one of these."""
    return {
        "recipe": recipe, "heads": table.heads, "seeds": table.seeds, "seconds": table.seconds,
        "metrics": {
            name: {
                "label": METRICS[name].label, "unit": METRICS[name].unit, "better": METRICS[name].better,
                "heads": {
                    head: {"values": listed(found), **clean(spread(found)._asdict())} for head, found in by_head.items()
                },
                "differences": {
                    f"{a} - {b}": clean(table.difference(name, a, b)._asdict())
                    for b, a in itertools.combinations(table.heads, 2)
                } if len(table.heads) <= 8 else {},
            }
            for name, by_head in table.values.items()
        },
    }  # fmt: skip


def listed(values: list[float]) -> list[float | None]:
    """Numbers with null for what JSON cannot hold."""
    return [value if math.isfinite(value) else None for value in values]


def clean(values: dict[str, float]) -> dict[str, float | None]:
    """The same for a table of values."""
    return dict(zip(values, listed(list(values.values())), strict=True))
