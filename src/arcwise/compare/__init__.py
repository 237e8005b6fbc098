"""Returns comparisons: heads side by side over seeds, one Run each, with spreads and paired differences."""

from __future__ import annotations

from pathlib import Path

from arcwise.compare.plan import Comparison, jobs, started
from arcwise.compare.table import Table, tabulated
from arcwise.compare.workers import Listener, default_workers, trained
from arcwise.config import Config
from arcwise.records import Run


def compare(
    base: Config,
    heads: list[str],
    out: str | Path,
    *,
    seeds: list[int],
    workers: int = 0,
    device: str = "auto",
    data_dir: Path | None = None,
    listener: Listener = lambda job, event: None,
    command: str = "",
) -> tuple[Comparison, Table]:
    """Every head trained with every seed, each with the same data order and first network, and the table of results.

    Runs that are finished are reused; a comparison that was stopped or killed goes on where it was. `workers`
    processes share the machine; 0 lets the device decide.
    """
    from arcwise.train.setup import built_head, same_config

    todo = jobs(base, heads, seeds, Path(out))
    for job in todo[: len(heads)]:
        built_head(job.config.head, job.config.model.dim, 2)  # a head that cannot be built is refused at once
    with Run(Path(out)).locked():
        for job in todo:
            if Run(job.path).exists():
                same_config(Run.open(job.path), job.config)  # refused before comparison.json is touched
        comparison = started(Path(out), base, heads, seeds, command)
        trained(
            todo,
            workers=workers or default_workers(device, len(todo)),
            device=device,
            data_dir=data_dir,
            listener=listener,
        )
        return comparison, tabulated(comparison)
