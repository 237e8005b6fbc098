"""Returns what a report is about: runs by head and seed, their table, and sweeps or imbalanced runs beside them."""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from arcwise.compare.plan import Comparison
from arcwise.compare.table import Table, table_of
from arcwise.config import Config
from arcwise.errors import ArcwiseError
from arcwise.margins import MARGINS
from arcwise.records import Embeddings, Run
from arcwise.train.setup import flat

if TYPE_CHECKING:
    from arcwise.data import Images, Splits

SWEEP_FROM = 9  # a comparison of this many heads or more is shown as a sweep
NAMES = {
    "softmax": "softmax", "softmax-bias": "softmax + bias", "normface": "NormFace", "sphereface": "SphereFace",
    "cosface": "CosFace", "arcface": "ArcFace", "combined": "combined margin", "adaface": "AdaFace",
    "magface": "MagFace", "elastic-arcface": "ElasticFace-Arc", "elastic-cosface": "ElasticFace-Cos",
    "curricularface": "CurricularFace", "mv-softmax": "MV-Softmax", "noise-filter": "noise filter",
}  # fmt: skip
# What `arcwise train` writes into metrics.json and a report speaks of.
FACTS = ("images", "steps", "epochs", "parameters", "device", "seconds", "test")


@dataclass(frozen=True)
class Subject:
    """Runs by the label of their head, in the order they were given; `notes` says what had to be left out."""

    runs: dict[str, list[Run]]
    sweep: dict[str, list[Run]]
    imbalanced: Run | None
    notes: list[str]

    @cached_property
    def table(self) -> Table:
        """Every number of every head over its seeds."""
        return table_of(self.runs)

    @cached_property
    def sweep_table(self) -> Table | None:
        """The same of the sweep, if there is one."""
        return table_of(self.sweep) if self.sweep else None

    @cached_property
    def config(self) -> Config:
        """The configuration of the first run; the others differ in head and seed."""
        return config_of(self.first)

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
    def read(self) -> dict[tuple[str, str], Embeddings]:
        """Embeddings that were read already."""
        return {}

    def embeddings(self, head: str, part: str = "test") -> Embeddings:
        """The embeddings of a part by a head's first run."""
        if (head, part) not in self.read:
            self.read[head, part] = self.runs[head][0].embeddings(part)
        return self.read[head, part]

    def snapshots(self, head: str, part: str) -> list[Embeddings]:
        """The snapshots of a part by a head's first run, in the order of the epochs; none where one is damaged."""
        try:
            return [Embeddings.load(path) for path in snapshot_files(self.runs[head][0], part)]
        except ArcwiseError as error:
            self.note(str(error))
            return []

    def note(self, text: str) -> None:
        """Keeps, once, why something is left out."""
        if text not in self.notes:
            self.notes.append(text)

    @cached_property
    def splits(self) -> Splits | None:
        """The images that the runs were made of; nothing where they are gone or have changed since."""
        from arcwise.data.sources import load
        from arcwise.train.setup import check_same_images

        try:
            splits = load(self.config.data)
            check_same_images(self.first, splits)
        except (ArcwiseError, OSError) as error:
            self.note(f"pictures of the images, because {str(error)[0].lower()}{str(error)[1:]}")
            return None
        return splits

    def images(self, part: str) -> Images | None:
        """The images of a part, where they can still be had."""
        return None if self.splits is None else self.splits.part(part)


def snapshot_files(run: Run, part: str) -> list[Path]:
    """The snapshots of a part that a run kept, in the order of the epochs."""
    return sorted((run.path / "embeddings").glob(f"{part}-epoch-*.safetensors"))


def subject(paths: list[Path]) -> Subject:
    """What the given runs and comparisons are about, sorted into table, sweep and imbalanced run."""
    runs: dict[str, list[Run]] = {}
    sweep: dict[str, list[Run]] = {}
    imbalanced, seen = None, set()
    for run, many in found(paths):
        if run.path.resolve() in seen:
            continue
        seen.add(run.path.resolve())
        lacking = [name for name in FACTS if name not in run.metrics]
        if lacking:
            raise ArcwiseError(
                f"{run.path / 'metrics.json'} lacks {', '.join(lacking)}: it is not as training wrote it. "
                "Put the file back, or train the run again."
            )
        config = config_of(run)
        if config.data.imbalance > 1.0:
            imbalanced = run
        else:
            (sweep if many else runs).setdefault(label(config), []).append(run)
    if not runs:
        runs = dict(sweep)
    if not runs:
        raise ArcwiseError("there is no finished run beside the imbalanced one: name a comparison as well.")
    refuse_mixtures([run for many in (*runs.values(), *sweep.values()) for run in many])
    for head, many in runs.items():
        seeds = [config_of(run).seed for run in many]
        if len(set(seeds)) < len(seeds):
            raise ArcwiseError(f"{head} is there twice with the same seed: {', '.join(str(run.path) for run in many)}.")
    return Subject(runs, sweep, imbalanced, unfinished(paths))


# What may differ between runs of one experiment: it changes what is kept of a run, not what it learns.
ASIDE = ("snapshots", "evaluate_every", "journal_every", "checkpoint_every", "tensorboard", "compile", "record")


def refuse_mixtures(runs: list[Run]) -> None:
    """Raises when runs differ in more than head and seed."""
    first = learned_from(runs[0])
    for run in runs[1:]:
        here = learned_from(run)
        unlike = [key for key in first if here[key] != first[key]]
        if unlike:
            raise ArcwiseError(
                f"one report is about one experiment, these are several: {runs[0].path} and {run.path} differ in "
                f"{', '.join(unlike[:6])}. Report on each by itself."
            )


def learned_from(run: Run) -> dict[str, Any]:
    """The settings of a run, by their full names, that decide what it learns; head and seed aside."""
    settings = flat(dataclasses.asdict(config_of(run)))
    aside = {"seed", "init", *(f"train.{name}" for name in ASIDE)}
    return {key: value for key, value in settings.items() if key not in aside and not key.startswith("head.")}


def unfinished(paths: list[Path]) -> list[str]:
    """A note for each comparison of which runs are still to be trained."""
    notes = []
    for path in paths:
        if Comparison(path).exists():
            comparison = Comparison.open(path)
            wanted, done = len(comparison.heads) * len(comparison.seeds), sum(map(len, comparison.runs().values()))
            if done < wanted:
                notes.append(f"{wanted - done} of the {wanted} runs of {path.name}, which are not finished")
    return notes


def found(paths: list[Path]):
    """Every run of the paths once, and whether it belongs to a sweep."""
    for path in dict.fromkeys(path.resolve() if path.exists() else path for path in paths):
        if Comparison(path).exists():
            comparison = Comparison.open(path)
            many = len(comparison.heads) >= SWEEP_FROM
            yield from ((run, many) for runs in comparison.finished_runs().values() for run in runs)
        else:
            yield Run.open(path), False


def config_of(run: Run) -> Config:
    """The configuration a run was trained with."""
    return Config.from_json(json.dumps(run.config))


def label(config: Config) -> str:
    """The head as a person writes it.

    >>> from arcwise.config import HeadConfig
    >>> label(Config(head=HeadConfig(name="arcface", m=0.5, s=16.0))), label(Config(head=HeadConfig(name="softmax")))
    ('ArcFace m=0.5 s=16', 'softmax')
    """
    head = config.head
    given = re.findall(r"([a-z_]+)=([^,]+)", head.name.partition(":")[2])
    given += [(key, f"{value:g}") for key, value in (("m", head.m), ("s", head.s), ("k", head.k)) if value is not None]
    if "m" not in dict(given) and head.kind in MARGINS:
        given += [("m", f"{p.default:g}") for p in margin_parameters(head.kind) if p.name == "m"]
    name = NAMES.get(head.kind, head.kind)
    return " ".join([name, *(f"{key}={value}" for key, value in sorted(dict(given).items()))])


def margin_parameters(kind: str) -> list[inspect.Parameter]:
    """The parameters of a margin that have a number as their default."""
    found = inspect.signature(MARGINS[kind]).parameters.values()
    return [p for p in found if isinstance(p.default, int | float) and not isinstance(p.default, bool)]


def scale_and_margin(head: str) -> tuple[float, float] | None:
    """s and m out of a label of NormFace (m = 0) or ArcFace; other heads have no place in a sweep over both.

    >>> scale_and_margin("ArcFace m=0.5 s=16"), scale_and_margin("NormFace s=8"), scale_and_margin("softmax")
    ((16.0, 0.5), (8.0, 0.0), None)
    """
    given = dict(re.findall(r"(\w+)=([-\d.]+)", head))
    if not head.startswith(("NormFace", "ArcFace")):
        return None
    return (float(given["s"]), float(given.get("m", 0.0))) if "s" in given else None
