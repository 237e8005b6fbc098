"""Returns the nouns that travel between the parts: Embeddings, a Run, portraits of margins; and writes files whole."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from arcwise.errors import ArcwiseError

FORMAT = 1  # of a Run folder and of the files in it


@dataclass(frozen=True, slots=True, kw_only=True)
class MarginCurve:
    """A margin at one setting, sampled over the angle.

    `lead[i, j]` is psi(theta_i) minus what another class at angle theta_j counts: where it is positive,
    a sample at theta_i from its own and theta_j from the other centre has met its margin; where it is
    NaN, the other class is left out. `other[j]` is what a class at theta_j counts for a sample 45 degrees
    from its own centre, where the margin reshapes other classes.
    """

    label: str
    psi: Float[np.ndarray, " n"]
    slope: Float[np.ndarray, " n"]
    lead: Float[np.ndarray, "n n"]
    other: Float[np.ndarray, " n"] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MarginPortrait:
    """All that a picture of one margin needs: its words, the angles, and a curve per setting.

    `main` is the index of the setting to look at first.
    """

    title: str
    formula: str
    theta: Float[np.ndarray, " n"]
    curves: tuple[MarginCurve, ...]
    main: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Embeddings:
    """Embeddings x (n, d), raw, with their labels, the classes' names and the head's prototypes.

    All that comes after training speaks only this. `prototypes` is (c, d), or (c, k, d) with k sub-centres;
    `bias` is there for a linear head that has one. `index` says which image of its set a row came from, and
    `about` where the numbers are from: source, split, epoch, head, s and m.

    >>> Embeddings(x=np.eye(2, dtype=np.float32), y=np.arange(2), names=("a", "b")).dim
    2
    """

    x: Float[np.ndarray, "n d"]
    y: Int[np.ndarray, " n"]
    names: tuple[str, ...]
    index: Int[np.ndarray, " n"] | None = None
    prototypes: Float[np.ndarray, "c d"] | Float[np.ndarray, "c k d"] | None = None
    bias: Float[np.ndarray, " c"] | None = None
    about: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        if self.x.ndim != 2 or self.y.shape != self.x.shape[:1]:
            raise ArcwiseError(
                f"embeddings need x of shape (n, d) and y of shape (n,), got {self.x.shape} and {self.y.shape}."
            )
        if len(self.y) and not 0 <= self.y.min() <= self.y.max() < len(self.names):
            raise ArcwiseError(f"labels of embeddings must lie in [0, {len(self.names)}), the number of names.")

    @property
    def dim(self) -> int:
        """The dimension d."""
        return self.x.shape[1]

    def save(self, path: str | Path, *, half: bool = False) -> Path:
        """The path of the one safetensors file that now holds everything; `half` keeps x in float16."""
        from safetensors.numpy import save

        arrays = {"x": self.x.astype(np.float16) if half else self.x, "y": self.y.astype(np.int32)}
        for name in ("index", "prototypes", "bias"):
            if getattr(self, name) is not None:
                arrays[name] = getattr(self, name)
        if self.index is not None:
            arrays["index"] = self.index.astype(np.int32)
        arrays = {name: np.ascontiguousarray(value) for name, value in arrays.items()}
        meta = {"arcwise": str(FORMAT), "names": json.dumps(self.names), "about": json.dumps(dict(self.about or {}))}
        return write(Path(path), save(arrays, metadata=meta))

    @classmethod
    def load(cls, path: str | Path) -> Embeddings:
        """The embeddings that `save` wrote; float16 comes back as float32."""
        arrays, meta = tensors(Path(path))
        if "x" not in arrays or "y" not in arrays or "names" not in meta:
            raise ArcwiseError(f"{path} holds no embeddings. Write some with: arcwise embed MODEL DATA --out FILE")
        index = arrays.get("index")
        return cls(
            x=arrays["x"].astype(np.float32), y=arrays["y"].astype(np.int64), names=tuple(json.loads(meta["names"])),
            index=None if index is None else index.astype(np.int64), prototypes=arrays.get("prototypes"),
            bias=arrays.get("bias"), about=json.loads(meta.get("about", "{}")),
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Run:
    """A training run: a folder anyone can open. Each stage reads it and writes into it.

    config.json      resolved configuration, versions, seed, commit; there before the first step
    journal.jsonl    one line per group of steps, one per evaluation
    checkpoints/     the whole state of training, to go on from
    model.safetensors  the finished Embedder
    metrics.json     final numbers
    embeddings/      test.safetensors, unseen.safetensors, and one file per split and epoch on request
    figures/
    """

    path: Path

    @classmethod
    def create(cls, path: str | Path, config: Mapping[str, Any], **about: Any) -> Run:
        """A new run folder that holds its config.json and nothing else."""
        run = cls(Path(path))
        run.refuse_existing()
        run.refuse_strangers()
        write(run.path / "config.json", json.dumps({"format": FORMAT, "config": config, **about}, indent=1))
        return run

    @classmethod
    def open(cls, path: str | Path) -> Run:
        """The run in a folder, its format checked.

        >>> Run.open("/nowhere")
        Traceback (most recent call last):
        arcwise.errors.ArcwiseError: /nowhere holds no run: there is no config.json. Start one with: arcwise train
        """
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
        return (self.path / "config.json").is_file()

    @property
    def about(self) -> dict[str, Any]:
        """config.json as it stands: format, config, versions, seed, commit."""
        return read_json(self.path / "config.json")

    @property
    def config(self) -> dict[str, Any]:
        """The resolved configuration, as plain values; `Config.from_json(json.dumps(...))` makes it one again."""
        config = self.about.get("config")
        if not isinstance(config, dict):
            raise ArcwiseError(
                f"{self.path / 'config.json'} names no configuration. Put the file back, or begin again elsewhere."
            )
        return config

    @property
    def finished(self) -> bool:
        """Whether training came to its end."""
        return (self.path / "metrics.json").is_file()

    @property
    def metrics(self) -> dict[str, Any]:
        """The final numbers."""
        if not self.finished:
            raise ArcwiseError(f"{self.path} is not finished. Go on with: {self.resume_command}")
        return read_json(self.path / "metrics.json")

    @property
    def model(self) -> Path:
        """Where the finished Embedder is."""
        return self.path / "model.safetensors"

    @property
    def resume_command(self) -> str:
        """What to type to go on with this run."""
        return self.about.get("resume", f"arcwise train {self.config.get('recipe', '')} --out {self.path} --resume")

    def journal(self, kind: str | None = None) -> list[dict[str, Any]]:
        """The journal's lines ("steps", "evaluation", ...), all or of one kind; a torn last line is left out."""
        path = self.path / "journal.jsonl"
        text = path.read_text(errors="replace") if path.exists() else ""
        entries = [entry for line in text.splitlines() if (entry := parsed_line(line))]
        return [entry for entry in entries if kind is None or entry.get("kind") == kind]

    def embeddings(self, name: str = "test") -> Embeddings:
        """Embeddings by their file's name: "test", "unseen", "train-epoch-003"."""
        return Embeddings.load(self.path / "embeddings" / f"{name}.safetensors")

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Holds the folder against a second process; the system lets go when this one ends, however it ends."""
        import fcntl

        try:
            self.path.mkdir(parents=True, exist_ok=True)
            handle = (self.path / ".lock").open("a")
        except OSError as error:
            raise ArcwiseError(cannot_write(self.path, error)) from error
        with handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise ArcwiseError(
                    f"{self.path} is being trained by another process. Wait for it, or choose another --out."
                ) from None
            yield

    def sweep(self) -> None:
        """Removes what a process that was killed while it wrote has left in this run."""
        for left in (*self.path.glob(".*.part"), *self.path.glob("*/.*.part")):
            if re.fullmatch(r"\..+\.\d+\.part", left.name):
                left.unlink(missing_ok=True)

    def refuse_existing(self) -> None:
        """Raises when a run was started here: it is not to be overwritten."""
        if self.exists():
            raise ArcwiseError(
                f"{self.path} holds a run already. Add --resume to go on with it, or choose another --out."
            )

    def refuse_strangers(self) -> None:
        """Raises when the folder holds files but no run: they are somebody else's."""
        if (
            not self.exists()
            and self.path.is_dir()
            and any(not item.name.startswith(".") for item in self.path.iterdir())
        ):
            raise ArcwiseError(f"{self.path} holds other files. Choose another --out.")


def tensors(
    path: Path, *, framework: str = "numpy", what: str = "safetensors", missing: str = ""
) -> tuple[dict[str, Any], dict[str, str]]:
    """The arrays of a safetensors file and its metadata, or an error that says what is wrong with the file.

    `framework="pt"` gives torch's tensors; `what` and `missing` are the words for a file that is no such thing, or
    not there.
    """
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise ArcwiseError(missing or f"there is no file {path}.")
    try:
        with safe_open(path, framework=framework) as file:
            return {name: file.get_tensor(name) for name in file.keys()}, dict(file.metadata() or {})  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise ArcwiseError(f"{path} cannot be read as {what} ({error}).") from None


def read_json(path: Path) -> dict[str, Any]:
    """The table in a JSON file."""
    try:
        values = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ArcwiseError(f"{path} cannot be read: {error}. Put the file back, or begin again elsewhere.") from None
    if not isinstance(values, dict):
        raise ArcwiseError(f"{path} does not hold a table of values.")
    return values


def parsed_line(line: str) -> dict[str, Any] | None:
    """One line of a journal, or nothing when it was cut off."""
    try:
        entry = json.loads(line)
    except ValueError:
        return None
    whole = isinstance(entry, dict) and "kind" in entry and isinstance(entry.get("step", 0), int)
    return entry if whole else None


def cannot_write(path: Path, error: OSError) -> str:
    """What to tell a person whose disk refuses."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"cannot write {path}: the disk is full. Make room, then go on."
    return f"cannot write {path}: {error.strerror}. Choose another folder."


def write(path: Path, content: str | bytes) -> Path:
    """The path, once the whole content is under it: written beside it first, pushed to the disk, then renamed.

    >>> import tempfile
    >>> write(Path(tempfile.mkdtemp()) / "a.txt", "whole or not at all").read_text()
    'whole or not at all'
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with beside.open("wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        return beside.replace(path)
    except OSError as error:
        raise ArcwiseError(cannot_write(path, error)) from error
    finally:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)
