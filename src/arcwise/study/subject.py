"""Subject: what a report, figures or an explorer are about: runs by head and seed, their table, sweeps beside them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int

from arcwise.config import Config
from arcwise.data.images import Images
from arcwise.data.sources import PIXELS_TOO, Splits, load
from arcwise.errors import ArcwiseError
from arcwise.headspec import HeadSpec
from arcwise.measure import evidence_of, measure_epochs
from arcwise.metrics.resting import weak_rates
from arcwise.records import Comparison, Embeddings, Prototypes, Run
from arcwise.study.table import Table, finite_or_infinite, table_of

SWEEP_FROM = 9  # a comparison of this many heads or more is shown as a sweep
# What `arcwise train` writes into result.json and a report speaks of.
FACTS = ("images", "steps", "epochs", "parameters", "device", "seconds", "test")


Psi = Callable[[HeadSpec, float, float], float | None]


def no_psi(head: HeadSpec, cos: float, norm: float) -> float | None:
    """Nothing is known of the margin."""
    return None


@dataclass(frozen=True)
class Subject:
    """Runs by the label of their head, in the order they were given; `notes` says what had to be left out.

    `aside` are heads of a single run where others have several: no mean, so they are in no table. `psi` says what a
    head's margin makes of a cosine at a length of x; who has no torch has none.
    """

    runs: dict[str, list[Run]]
    sweep: dict[str, list[Run]]
    imbalanced: Run | None
    notes: list[str]
    psi: Psi = no_psi
    aside: dict[str, list[Run]] = field(default_factory=dict)

    @cached_property
    def table(self) -> Table:
        """Every number of every head over its seeds."""
        return table_of(self.runs)

    def measure(self, *, epochs: bool = False) -> None:
        """Measures what is not measured yet and keeps it in the runs; from then on nothing here writes into them."""
        _ = self.table, self.sweep_table
        wanted = [(run, part) for many in self.runs.values() for run in many for part in ("test", "validation")]
        wanted += [(many[0], "train") for many in self.runs.values()]  # films show the first seed alone
        for run, part in wanted if epochs else []:
            with contextlib.suppress(ArcwiseError):  # a damaged snapshot is told where it is shown
                measure_epochs(run, part)

    @cached_property
    def sweep_table(self) -> Table | None:
        """The same of the sweep, if there is one."""
        return table_of(self.sweep) if self.sweep else None

    @cached_property
    def config(self) -> Config:
        """The configuration of the first run; the others differ in head and seed."""
        return self.first.settings

    @property
    def first(self) -> Run:
        """The first run of the first head."""
        return next(iter(self.runs.values()))[0]

    @property
    def heads(self) -> list[str]:
        """The labels of the heads."""
        return list(self.runs)

    @property
    def dim(self) -> int:
        """The dimension of the embeddings."""
        return self.config.model.dim

    @property
    def watched(self) -> str:
        """The part that training was watched on: validation images, or test images where there are none."""
        return "validation" if self.config.data.validation else "test"

    @cached_property
    def specs(self) -> dict[str, HeadSpec]:
        """Which head each label stands for, those of the sweep included."""
        return {label: runs[0].head for label, runs in {**self.sweep, **self.aside, **self.runs}.items()}

    @property
    def drawn(self) -> str:
        """Which seed figures are of that show one."""
        return f"Seed {self.first.settings.seed}" + (" of each head" if len(self.heads) > 1 else "")

    @cached_property
    def weak(self) -> dict[str, str]:
        """The numbers that rest on too little to mean much, by name, each with what it rests on."""
        return weak_rates(*evidence_of(self.first)[:2])

    def run_of(self, head: str) -> Run:
        """The first run of a head."""
        return (self.runs.get(head) or self.aside[head])[0]

    @cached_property
    def champion(self) -> str:
        """The head that the others are measured against: the first ArcFace, or the last head."""
        return next((head for head in self.heads if self.specs[head].name == "arcface"), self.heads[-1])

    def heads_named(self, name: str) -> list[str]:
        """The labels of the heads of that name."""
        return [head for head in self.heads if self.specs[head].name == name]

    @cached_property
    def read(self) -> dict[tuple[str, str], Any]:
        """Records that were read already."""
        return {}

    def embeddings(self, head: str, part: str = "test") -> Embeddings:
        """The embeddings of a part by a head's first run."""
        if (head, part) not in self.read:
            self.read[head, part] = self.run_of(head).embeddings(part)
        return self.read[head, part]

    def prototypes(self, head: str) -> Prototypes:
        """The centres of a head's first run."""
        if (head, "centres") not in self.read:
            self.read[head, "centres"] = self.run_of(head).prototypes()
        return self.read[head, "centres"]

    def snapshots(self, head: str, part: str) -> list[Embeddings]:
        """The snapshots of a part by a head's first run, in the order of the epochs; none where one is damaged."""
        try:
            return [Embeddings.load(path) for path in self.runs[head][0].snapshots(part)]
        except ArcwiseError as error:
            self.note(str(error))
            return []

    def centres_at(self, head: str, snapshot: Embeddings) -> Prototypes | None:
        """The centres of a head's first run at the epoch of a snapshot, where they were kept."""
        epoch = (snapshot.about or {}).get("epoch")
        try:
            return self.runs[head][0].prototypes(epoch) if isinstance(epoch, int) else None
        except ArcwiseError:
            return None

    def dunn_series(self, head: str, part: str = "test") -> list[list[dict[str, float]]]:
        """The Dunn indices of every seed's snapshots, epoch by epoch."""
        every = [epoch_indices(run, part) for run in self.runs[head]]
        return [series for series in every if series]

    def note(self, text: str) -> None:
        """Keeps, once, why something is left out."""
        if text not in self.notes:
            self.notes.append(text)

    @cached_property
    def splits(self) -> Splits | None:
        """The images that the runs were made of; nothing where they are gone or have changed since."""
        if "data" in self.first.given:
            self.note("pictures of the images, which were handed over as arrays")
            return None
        try:
            splits = load(self.config.data)
            splits.refuse_others(self.first)
        except (ArcwiseError, OSError) as error:
            self.note(f"pictures of the images, because {str(error)[0].lower()}{str(error)[1:]}")
            return None
        return splits

    @cached_property
    def imbalanced_counts(self) -> Int[np.ndarray, " c"] | None:
        """Training images of each class of the imbalanced run, where they can still be had."""
        if self.imbalanced is None:
            return None
        try:
            return load(self.imbalanced.settings.data).train.counts
        except (ArcwiseError, OSError):
            return None

    def images(self, part: str) -> Images | None:
        """The images of a part, where they can still be had."""
        return None if self.splits is None else self.splits.part(part)


def epoch_indices(run: Run, part: str) -> list[dict[str, float]]:
    """The Dunn indices of one run's snapshots."""
    found = measure_epochs(run, part, keep=False)
    return [{name: finite_or_infinite(value) for name, value in e.items()} for e in found]


def subject(paths: Sequence[str | Path], *, psi: Psi = no_psi) -> Subject:
    """What the given runs and comparisons are about, sorted into table, sweep and imbalanced run."""
    paths = [Path(path) for path in paths]
    runs: dict[str, list[Run]] = {}
    sweep: dict[str, list[Run]] = {}
    every = {run.path.resolve(): (run, many) for run, many in runs_of(paths)}.values()
    skewed = [run for run, _ in every if run.settings.data.imbalance > 1.0]
    skewed = skewed if len(skewed) < len(every) else []  # where all are, that is the experiment
    if len(skewed) > 1:
        raise ArcwiseError(
            f"beside an experiment one run on an imbalanced set is shown, these are several: {skewed[0].path} and "
            f"{skewed[1].path}. Name one of them."
        )
    for run, many in every:
        result = run.result
        lacking = [name for name in FACTS if name not in result]
        if lacking:
            raise ArcwiseError(
                f"{run.path / 'result.json'} lacks {', '.join(lacking)}: it is not as training wrote it. "
                "Put the file back, or train the run again."
            )
        if run not in skewed:
            (sweep if many else runs).setdefault(run.head.label, []).append(run)
    if not runs:
        runs = dict(sweep)
    refuse_mixtures([run for many in (*runs.values(), *sweep.values()) for run in many])
    for head, many in (*runs.items(), *sweep.items()):
        refuse_other_heads(head, many)
        seeds = [run.settings.seed for run in many]
        if len(set(seeds)) < len(seeds):
            raise ArcwiseError(
                f"{head} is there twice with the same seed: {', '.join(str(run.path) for run in many)}. Name one of "
                "them, or move the other out of its comparison."
            )
    runs = shortly_labelled(runs)
    most = max(map(len, runs.values()))
    aside = {head: many for head, many in runs.items() if len(many) == 1 < most}
    kept = {head: many for head, many in runs.items() if head not in aside}
    about = Subject(kept, sweep, skewed[0] if skewed else None, unfinished_notes(paths), psi, aside)
    about.measure()
    return about


def shortly_labelled(runs: dict[str, list[Run]]) -> dict[str, list[Run]]:
    """The same under labels without the scale, where all heads that have one have the same and are told apart so."""
    specs = {label: many[0].head for label, many in runs.items()}
    scales = [spec.s for spec in specs.values() if spec.s is not None]
    short = [replace(spec, s=None).label for spec in specs.values()]
    if len(scales) < 2 or len(set(scales)) > 1 or len(set(short)) < len(short):
        return runs
    return dict(zip(short, runs.values(), strict=True))


# What may differ between runs of one experiment: it changes what is kept of a run, not what it learns.
ASIDE = ("snapshots", "evaluate_every", "journal_every", "checkpoint_every", "tensorboard", "compile", "record")


def refuse_mixtures(runs: list[Run]) -> None:
    """Raises when runs differ in more than head and seed."""
    first = learned_from(runs[0])
    for run in runs[1:]:
        here = learned_from(run)
        unlike = [key for key in first if here[key] != first[key] and None not in (here[key], first[key])]
        if unlike:
            raise ArcwiseError(
                f"one report is about one experiment, these are several: {runs[0].path} and {run.path} differ in "
                f"{', '.join(unlike[:6])}. Report on each by itself."
            )


def learned_from(run: Run) -> dict[str, Any]:
    """What decides what a run learns, by name: settings, images, layers of an own network; head and seed aside.

    Older runs do not tell everything; what one does not tell is None.
    """
    settings, told = run.settings.flat(), run.about
    aside = {"seed", "init", *(f"train.{name}" for name in ASIDE)}
    found = {key: value for key, value in settings.items() if key not in aside and not key.startswith("head.")}
    images = str(told.get("images") or "")
    return found | {
        "the images": images if images.startswith(PIXELS_TOO) else None, "the network": told.get("network"),
        "whether they were fine-tuned": bool(settings["init"]),
        "the model they were fine-tuned from": told.get("start"),
        "init": None if "start" in told else settings["init"],
    }  # fmt: skip


def refuse_other_heads(label: str, runs: list[Run]) -> None:
    """Raises when runs under one label are of heads that differ in what the label does not say."""
    told = [{"head": run.head, "gradient": run.settings.head.gradient, "own": run.given.get("head")} for run in runs]
    for run, here in zip(runs, told, strict=True):
        unlike = [name for name in here if here[name] != told[0][name]]
        if unlike:
            raise ArcwiseError(
                f"{runs[0].path} and {run.path} are both of {label}, but differ in their {' and '.join(unlike)}: they "
                "are no seeds of one head. Report on each by itself."
            )


def unfinished_notes(paths: list[Path]) -> list[str]:
    """A note for each comparison of which runs are still to be trained."""
    notes = []
    for path in paths:
        if Comparison(path).exists():
            comparison = Comparison.open(path)
            wanted, done = len(comparison.heads) * len(comparison.seeds), sum(map(len, comparison.runs().values()))
            if done < wanted:
                notes.append(f"{wanted - done} of the {wanted} runs of {path.name}, which are not finished")
    return notes


def runs_of(paths: list[Path]) -> Iterator[tuple[Run, bool]]:
    """Every run of the paths once, and whether it belongs to a sweep."""
    for path in dict.fromkeys(path.resolve() if path.exists() else path for path in paths):
        if Comparison(path).exists():
            comparison = Comparison.open(path)
            many = len(comparison.heads) >= SWEEP_FROM
            yield from ((run, many) for runs in comparison.finished_runs().values() for run in runs)
        else:
            yield Run.open(path), False


def scale_and_margin(spec: HeadSpec) -> tuple[float, float] | None:
    """s and m of NormFace (m = 0) or ArcFace; other heads have no place in a sweep over both.

    >>> scale_and_margin(HeadSpec.parse("arcface:m=0.5,s=16")), scale_and_margin(HeadSpec.parse("softmax"))
    ((16.0, 0.5), None)
    """
    if spec.name not in ("normface", "arcface") or spec.s is None:
        return None
    return spec.s, spec.m or 0.0
