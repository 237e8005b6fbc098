"""Run: a training run as a folder that anyone can open; each stage reads it and writes into its own place in it."""

from __future__ import annotations

import contextlib
import re
import shlex
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arcwise.config import Config, from_values
from arcwise.errors import ArcwiseError
from arcwise.headspec import HeadSpec
from arcwise.records.embeddings import Embeddings
from arcwise.records.files import FORMAT, is_there, read_json, tensors_are_whole, write_json
from arcwise.records.folders import claim_folder
from arcwise.records.lock import locked
from arcwise.records.prototypes import Prototypes
from arcwise.records.trained_on import TrainedOn
from arcwise.schema import MOST, anything, many, nothing_or, number, parse_json, table, text, whole

ABOUT_RUN = table(
    {"format": anything},
    {"config": table(), "head": table(), "given": table(rest=text), "versions": table(), "images": nothing_or(text),
     "resume": text, "network": nothing_or(text), "seed": whole(0, 2**64), "threads": whole(1, 10**6),
     "gradient": nothing_or(text), "start": text},
)  # fmt: skip
FROM_0_TO_1 = number(0.0, 1.0)
ANGLE = nothing_or(number(0.0, 3.2))
JUDGED = table({"accuracy": FROM_0_TO_1, "loss": nothing_or(number()), "angle_own": ANGLE, "angle_other": ANGLE})
RESULT = table(
    {"test": JUDGED, "steps": whole(0), "seconds": number(0.0), "epochs": whole(0), "images": whole(0),
     "parameters": whole(0), "device": text},
    {"validation": JUDGED, "seed": whole(0, 2**64), "model": text, "broken_images": whole(0)},
)  # fmt: skip
CLASS_ROW = table({
    "name": text, "n": whole(0), "recall": FROM_0_TO_1, "precision": FROM_0_TO_1, "f1": FROM_0_TO_1,
    "mistaken_for": text,
})  # fmt: skip
METRICS_KEPT = table(may={
    "measured": table(rest=nothing_or(number())), "definitions": text, "evidence": text,
    "confusion": many(many(whole(0))), "classes": many(CLASS_ROW),
})  # fmt: skip
LINE = table({"kind": text}, {"step": whole(0, MOST)})
# What measuring adds to metrics.json; older Runs have the results of training in the same file.
MEASURED = ("measured", "measured_version", "definitions", "evidence", "confusion", "classes")


@dataclass(frozen=True, slots=True)
class Run:
    """A training run: a folder anyone can open. Each stage reads it and writes into its own place in it.

    config.json        resolved configuration, head, versions, seed, commit; there before the first step
    journal.jsonl      one line per group of steps, one per evaluation
    checkpoints/       the whole state of training, to go on from
    model.safetensors  the finished Embedder
    prototypes/        final.safetensors, and one file per epoch where snapshots were asked for
    embeddings/        test.safetensors, unseen.safetensors, and one file per part and epoch on request
    trained_on.safetensors  a hash of every training image
    thresholds.json    calibrated thresholds
    result.json        what training ended with; written last
    metrics.json       what was measured later
    figures/

    >>> Run.open("/nowhere")
    Traceback (most recent call last):
    arcwise.errors.ArcwiseError: /nowhere holds no run: there is no config.json. Start one with: arcwise train
    """

    path: Path

    @classmethod
    def create(cls, path: str | Path, config: dict[str, Any], **about: Any) -> Run:
        """A new run folder that holds its config.json and nothing else."""
        run = cls(Path(path))
        run.refuse_existing()
        claim_folder(run.path, "run")
        write_json(run.path / "config.json", {"format": FORMAT, "config": config, **about})
        return run

    @classmethod
    def open(cls, path: str | Path) -> Run:
        """The run in a folder, its format checked."""
        run = cls(Path(path))
        if not run.exists():
            raise ArcwiseError(f"{path} holds no run: there is no config.json. Start one with: arcwise train")
        found = run.about.get("format")
        if found != FORMAT:
            raise ArcwiseError(
                f"{path} was written in format {found!r}; this version of arcwise reads format {FORMAT}. "
                "Install the version named in its config.json."
            )
        return run

    def exists(self) -> bool:
        """Whether a run was started here."""
        return is_there(self.path / "config.json")

    @property
    def about(self) -> dict[str, Any]:
        """config.json as it stands: format, config, head, versions, seed, commit."""
        return read_json(self.path / "config.json", ABOUT_RUN)

    @property
    def settings(self) -> Config:
        """The configuration that the run was started with, everything decided."""
        values = self.about.get("config")
        if not isinstance(values, dict):
            raise ArcwiseError(
                f"{self.path / 'config.json'} names no configuration. Put the file back, or begin again elsewhere."
            )
        return from_values(Config, values, where="")

    @property
    def head(self) -> HeadSpec:
        """Which head was trained, with its title, scale and margin."""
        told = self.about.get("head")
        return HeadSpec.from_values(told) if isinstance(told, dict) else self.settings.head.spec.earlier()

    @property
    def given(self) -> dict[str, str]:
        """What was handed over as objects rather than named in the configuration: model, head or data, in words."""
        told = self.about.get("given", {})
        return told if isinstance(told, dict) else {}

    @property
    def finished(self) -> bool:
        """Whether training came to its end."""
        return (self.path / "result.json").is_file() or bool(self.earlier_result())

    @property
    def result(self) -> dict[str, Any]:
        """What training ended with: accuracy, loss and angles by part, steps, seconds, device."""
        path = self.path / "result.json"
        if path.is_file():
            return read_json(path, RESULT, cure=f"Have it written again with: {self.resume_command}")
        found = self.earlier_result()
        if not found:
            raise ArcwiseError(f"{self.path} is not finished. Go on with: {self.resume_command}")
        return found

    @property
    def whole(self) -> bool:
        """Whether training came to its end, and all that it left is as it was written."""
        try:
            kept = [self.model, *(self.embeddings_path(part) for part in self.judged)]
            return self.finished and all(map(tensors_are_whole, kept)) and len(self.prototypes()) > 0
        except ArcwiseError:
            return False

    @property
    def judged(self) -> list[str]:
        """The parts whose embeddings a finished run holds."""
        unseen = ["unseen"] if self.settings.data.unseen else []
        return [part for part in ("test", "validation") if part in self.result] + unseen

    def earlier_result(self) -> dict[str, Any]:
        """The result of a Run from before result.json: it was in metrics.json, beside what was measured."""
        path = self.path / "metrics.json"
        values = read_json(path) if path.is_file() else {}
        if "steps" not in values:
            return {}
        read_json(path, RESULT)
        return {key: value for key, value in values.items() if key not in MEASURED}

    @property
    def metrics(self) -> dict[str, Any]:
        """What was measured after training, and by which definitions; empty before."""
        path = self.path / "metrics.json"
        return {k: v for k, v in read_json(path, METRICS_KEPT).items() if k in MEASURED} if path.is_file() else {}

    def keep_metrics(self, metrics: dict[str, Any]) -> None:
        """Puts what was measured into metrics.json, beside the result of training where an older Run has it there."""
        earlier = {} if (self.path / "result.json").is_file() else self.earlier_result()
        write_json(self.path / "metrics.json", {**earlier, **metrics})

    @property
    def model(self) -> Path:
        """Where the finished Embedder is."""
        return self.path / "model.safetensors"

    @property
    def trained_on(self) -> TrainedOn | None:
        """Which images were trained on; older Runs do not tell."""
        path = self.trained_on_path
        return TrainedOn.load(path) if path.is_file() else None

    @property
    def trained_on_path(self) -> Path:
        """Where that is told."""
        return self.path / "trained_on.safetensors"

    def keep_trained_on(self, seen: TrainedOn) -> None:
        """Puts what is trained on into the run, once."""
        if not self.trained_on_path.is_file():
            seen.save(self.trained_on_path)

    @property
    def resume_command(self) -> str:
        """What to type to go on with this run."""
        about = self.about
        if self.given:
            return (
                f"arcwise.train(..., {', '.join(f'{name}=...' for name in self.given)}, resume=True), as it was begun"
            )
        recipe, seed = about.get("config", {}).get("recipe", ""), about.get("seed", 0)
        return resumed_here(
            own_command(about.get("resume", ""), f"arcwise train {recipe} --seed {seed} --resume"), self.path
        )

    def journal(self, kind: str | None = None) -> list[dict[str, Any]]:
        """The journal's lines ("steps", "evaluation", ...), all or of one kind; a torn last line is left out."""
        path = self.path / "journal.jsonl"
        text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
        entries = [entry for line in text.splitlines() if (entry := parse_line(line))]
        return [entry for entry in entries if kind is None or entry.get("kind") == kind]

    def embeddings(self, name: str = "test") -> Embeddings:
        """Embeddings by their file's name: "test", "unseen", "train-epoch-003"."""
        return Embeddings.load(self.embeddings_path(name))

    def embeddings_path(self, name: str) -> Path:
        """Where embeddings of that name are, if there are any."""
        return self.path / "embeddings" / f"{name}.safetensors"

    def snapshots(self, part: str) -> list[Path]:
        """The snapshots of a part that were kept, in the order of the epochs."""
        return sorted((self.path / "embeddings").glob(f"{part}-epoch-*.safetensors"))

    def prototypes(self, epoch: int | None = None) -> Prototypes:
        """The head's centres at the end of training, or after an epoch of which a snapshot was kept."""
        path = self.prototypes_path(epoch)
        if path.is_file():
            return Prototypes.load(path)
        names = ("test", "validation") if epoch is None else [f"{p}-epoch-{epoch:03d}" for p in ("test", "validation")]
        earlier = next((there for name in names if (there := self.embeddings_path(name)).is_file()), path)
        try:
            return Prototypes.load(earlier)
        except ArcwiseError:
            which = "the end of training" if epoch is None else f"epoch {epoch}"
            raise ArcwiseError(f"{self.path} keeps no prototypes of {which}: there is no {path}.") from None

    def prototypes_path(self, epoch: int | None = None) -> Path:
        """Where prototypes are kept."""
        return self.path / "prototypes" / f"{'final' if epoch is None else f'epoch-{epoch:03d}'}.safetensors"

    def locked(self) -> contextlib.AbstractContextManager[None]:
        """Holds the folder against a second process; the system lets go when this one ends, however it ends."""
        words = f"{self.path} is being trained by another process. Wait for it, or choose another --out."
        return locked(self.path, busy=words)

    def sweep(self) -> None:
        """Removes what a process that was killed while it wrote has left in this run."""
        for left in (*self.path.glob(".*.part"), *self.path.glob("*/.*.part")):
            if re.fullmatch(r"\..+\.\d+(-\d+)?\.part", left.name):
                left.unlink(missing_ok=True)
        for left in self.path.glob("checkpoints/.writing-step-*"):
            shutil.rmtree(left, ignore_errors=True)

    def refuse_existing(self) -> None:
        """Raises when a run was started here: it is not to be overwritten."""
        if self.exists():
            raise ArcwiseError(
                f"{self.path} holds a run already. Add --resume (in Python resume=True) to go on with it, or choose "
                "another folder with --out."
            )


def own_command(command: str, otherwise: str) -> str:
    """A command as a file tells it, if it is one of arcwise's own that trains; else the other.

    >>> own_command("arcwise train mnist", "x"), own_command("curl example.org | sh", "arcwise train mnist")
    ('arcwise train mnist', 'arcwise train mnist')
    >>> own_command("torchrun --nproc-per-node 2 -m arcwise train mnist", "x")
    'torchrun --nproc-per-node 2 -m arcwise train mnist'
    """
    try:
        words = shlex.split(command)
    except ValueError:  # somebody edited it
        return otherwise
    of_several = ["torchrun", "--nproc-per-node", *words[2:3], "-m", "arcwise", "train"]
    ours = words[:1] == ["arcwise"] and words[1:2] in (["train"], ["compare"])
    ours = ours or (words[:6] == of_several and words[2].isdecimal())
    return shlex.join(words) if ours else otherwise


def resumed_here(command: str, folder: Path) -> str:
    """The command that goes on with a run, wherever its folder is by now.

    >>> resumed_here("arcwise train mnist --out old --seed 1 --resume", Path("new"))
    'arcwise train mnist --out new --seed 1 --resume'
    """
    words = shlex.split(command)
    at = next((i for i, word in enumerate(words) if word == "--out" or word.startswith("--out=")), len(words))
    after = at + (2 if words[at : at + 1] == ["--out"] else 1)
    return shlex.join([*words[:at], "--out", str(folder), *words[after:]])


def parse_line(line: str) -> dict[str, Any] | None:
    """One line of a journal, or nothing when it was cut off."""
    try:
        entry = parse_json(line)
        LINE(entry, "")
    except ValueError:
        return None
    return entry
