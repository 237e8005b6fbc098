"""Comparisons: heads side by side over seeds, one Run each, with spreads and paired differences."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from arcwise.compare.plan import begin_comparison, plan_jobs
from arcwise.compare.workers import JobListener, default_workers, train_all
from arcwise.config import Config, override
from arcwise.errors import count_in
from arcwise.headspec import refuse_twins, split_heads
from arcwise.recipes import recipe
from arcwise.records import Comparison, Run, claim_folder
from arcwise.study.table import Table, comparison_table


def compare(
    base: Config | str,
    heads: Sequence[str] | str,
    out: str | Path | None = None,
    *,
    seeds: int | Sequence[int] = 3,
    settings: Iterable[str] = (),
    workers: int = 0,
    device: str = "auto",
    data_dir: Path | None = None,
    listener: JobListener = lambda job, event: None,
    command: str = "",
) -> tuple[Comparison, Table]:
    """Every head trained with every seed, each with the same data order and first network, and the table of results.

    `base` is a configuration or a recipe's name, `settings` change it for all. Runs that are finished are reused; a
    comparison that was stopped or killed goes on where it was. `workers` processes share the machine; 0 lets the device
    decide.

    >>> import tempfile
    >>> where, short = tempfile.mkdtemp() + "/c", ["train.epochs=1", "data.limit=200"]
    >>> _, table = compare("digits-2d", "softmax,arcface", where, seeds=1, settings=short, workers=1, device="cpu")
    >>> table.heads
    ['softmax', 'arcface']
    """
    from arcwise.train.setup import refuse_impossible, same_config

    base = override(recipe(base) if isinstance(base, str) else base, settings)
    names = split_heads(heads) if isinstance(heads, str) else list(heads)
    refuse_twins(names)
    folder = Path(out) if out is not None else Path("runs") / f"compare-{base.recipe or 'own'}"
    every = list(range(count_in("seeds", seeds, 1, 1000))) if isinstance(seeds, int) else list(seeds)
    count_in("workers", workers, 0, 256)
    jobs = plan_jobs(base, names, every, folder)
    for job in jobs[: len(names)]:
        refuse_impossible(job.config.head, job.config.model.dim)
    claim_folder(folder, "comparison")
    with Run(folder).locked():
        for job in jobs:
            if Run(job.path).exists():
                same_config(Run.open(job.path), job.config)  # refused before comparison.json is touched
        comparison = begin_comparison(folder, base, names, every, command)
        train_all(
            jobs,
            workers=workers or default_workers(device, len(jobs)),
            device=device,
            data_dir=data_dir,
            listener=listener,
        )
        return comparison, comparison_table(comparison)
