"""Comparisons: heads side by side over seeds, one Run each, with spreads and paired differences."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from arcwise.compare.plan import Job, begin_comparison, plan_jobs, trained_before
from arcwise.compare.workers import JobListener, default_workers, train_all
from arcwise.config import Config, override
from arcwise.data.sources import load
from arcwise.errors import ArcwiseError, count_in
from arcwise.headspec import HeadSpec, refuse_twins, split_heads
from arcwise.recipes import recipe
from arcwise.records import Comparison, Run, claim_folder
from arcwise.schema import MOST
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
    from arcwise.train.setup import same_config

    base = fit_to_start(override(recipe(base) if isinstance(base, str) else base, settings))
    names = split_heads(heads) if isinstance(heads, str) else list(heads)
    refuse_twins(names)
    folder = Path(out) if out is not None else Path("runs") / f"compare-{base.recipe or 'own'}"
    every = list(range(count_in("seeds", seeds, 1, 1000))) if isinstance(seeds, int) else seed_list(seeds)
    count_in("workers", workers, 0, 256)
    jobs = plan_jobs(base, names, every, folder)
    known = [HeadSpec.parse(name) for name in names]
    before = [head for head in trained_before(Comparison(folder))[0] if HeadSpec.parse(head) not in known]
    refuse_equal_heads([*plan_jobs(base, before, [0], folder), *jobs[: len(names)]])
    claim_folder(folder, "comparison")
    with Run(folder).locked():
        for job in jobs:
            if Run(job.path).exists():
                same_config(Run.open(job.path), job.config)  # refused before comparison.json is touched
        begun = [Run.open(job.path) for job in jobs if Run(job.path).exists()]
        if not all(run.finished for run in begun) or len(begun) < len(jobs):
            refuse_other_images(base, begun, data_dir)
        comparison = begin_comparison(folder, base, names, every, command)
        train_all(
            jobs,
            workers=workers or default_workers(device, len(jobs)),
            device=device,
            data_dir=data_dir,
            listener=listener,
        )
        return comparison, comparison_table(comparison)


def seed_list(seeds: Sequence[int]) -> list[int]:
    """Seeds that are given one by one, each once: one that came twice would count as two."""
    found = [count_in("seeds", seed, 0, MOST) for seed in seeds]
    if not found or len(set(found)) < len(found):
        raise ArcwiseError(f"seeds are different whole numbers, at least one; got {list(seeds)}.")
    return found


def refuse_equal_heads(jobs: Sequence[Job]) -> None:
    """Raises where a head cannot be built, or two, of this call or before, are the same once defaults are filled in."""
    import torch

    from arcwise.train.setup import build_head

    seen: dict[str, str] = {}
    for job in jobs:
        with torch.random.fork_rng(devices=[]):  # nobody's random numbers are touched
            label = build_head(job.config.head, job.config.model.dim, 2).spec.label
        first = seen.setdefault(label, job.head)
        if first is not job.head:
            raise ArcwiseError(
                f"{first} and {job.head} are one head, {label}: name it once, and as it was named before."
            )


def refuse_other_images(base: Config, begun: Sequence[Run], data_dir: Path | None) -> None:
    """Raises where the images are not there, or not those that runs of this comparison were trained on."""
    if base.data.source == "given":
        return
    splits = load(base.data, data_dir=data_dir)
    for run in begun:
        splits.refuse_others(run)


def fit_to_start(base: Config) -> Config:
    """The configuration with the network and the framing of the model that training starts from, if any."""
    if not base.init:
        return base
    if not Path(base.init).exists():
        raise ArcwiseError(f"there is no model {base.init} to start from: name one with --init.")
    from arcwise.model import Embedder
    from arcwise.train.setup import fit_to_model

    return fit_to_model(base, Embedder.load(base.init))
