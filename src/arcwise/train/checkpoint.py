"""The newest whole state of training from a Run's folder, and writes it: tensors and numbers, no pickle."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from arcwise.data.samplers import stream
from arcwise.errors import ArcwiseError
from arcwise.ops.sharded import Shard
from arcwise.records import FORMAT, Run, errors_name, meta_json, write_tensors
from arcwise.records.files import header_bytes, header_of
from arcwise.schema import MOST, Check, Unfit, anything, many, number, parse_json, table, truth, whole
from arcwise.train.pieces import own_rows, shard_of, spread_as
from arcwise.train.saving import Saver
from arcwise.train.spread import STATE_FILE, load_spread, merged_entries, refuse_damaged, save_spread, state_of
from arcwise.train.together import ALONE, Together
from arcwise.weights import load_tensors, put_state, refuse_not_finite, save_tensors, tensor_entry

CPU_STATE = 5056  # bytes of torch's random state


@dataclass
class TrainingState:
    """How far training is: whole steps, seconds of training, the best validation accuracy and when it was.

    `within` is what has been summed up for the journal's next line: loss, two angles, correct answers, images.
    `stopped` says that the validation accuracy has stopped rising.
    """

    step: int = 0
    seconds: float = 0.0
    best: float = -1.0
    best_epoch: int = 0
    within: list[float] = field(default_factory=lambda: [0.0] * 5)
    stopped: bool = False


def save_checkpoint(
    run: Run,
    progress: TrainingState,
    modules: dict[str, nn.Module],
    optimisers: dict[str, torch.optim.Optimizer],
    device: torch.device,
    *,
    saver: Saver,
    identity: str = "",
    keep: int = 2,
    together: Together = ALONE,
) -> None:
    """Has the state of this moment written; the `keep` newest checkpoints stay. Several processes write one folder."""
    tensors = {f"{key}.{name}": value for key, module in modules.items() for name, value in module.state_dict().items()}
    tensors = {name: own_rows(value) for name, value in tensors.items()}
    for name, optimiser in optimisers.items():
        for at, entries in optimiser.state_dict()["state"].items():
            tensors |= {f"{name}.{at}.{key}": v for key, v in entries.items() if isinstance(v, Tensor)}
    place = run.path / "checkpoints" / f"step-{progress.step:08d}"
    told = json.dumps(vars(progress))
    shards = spread_names(list(tensors), modules, optimisers)

    def write(tensors: Mapping[str, Tensor]) -> None:
        if together.alone:
            meta = {"arcwise": str(FORMAT), "progress": told, "run": identity}
            save_tensors(place.with_suffix(".safetensors"), tensors, meta)
        else:
            save_spread(place, tensors, shards, parse_json(told), together.saving, run=identity)
        if together.lead:
            for old in checkpoints_of(run)[:-keep]:
                forget(old)

    saver.save(tensors | (random_state(device) if together.alone else {}), write)


def forget(path: Path) -> None:
    """Takes a checkpoint away; of a folder first that which makes it one."""
    with contextlib.suppress(OSError):
        (path / STATE_FILE if path.is_dir() else path).unlink()
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)


def spread_names(
    names: list[str], modules: Mapping[str, nn.Module], optimisers: Mapping[str, torch.optim.Optimizer]
) -> dict[str, Shard]:
    """Which of these tensors are rows of larger ones, for the classes they belong to are spread over processes."""
    found: dict[str, Shard | None] = {}
    for owner, module in modules.items():
        found |= {f"{owner}.{name}": shard_of(value) for name, value in module.state_dict().items()}
        found[f"{owner}.head.weight"] = getattr(module["head"], "shard", None)  # type: ignore[index]
    head = modules["model"]["head"]  # type: ignore[index]
    for owner, optimiser in optimisers.items():
        parameters = [p for group in optimiser.param_groups for p in group["params"]]
        for at, p in enumerate(parameters):
            shard = getattr(head, "shard", None) if p is head.weight else shard_of(p)
            mine = [name for name in names if name.startswith(f"{owner}.{at}.")] if shard is not None else []
            found |= {name: shard for name in mine if not name.endswith((".t", ".step"))}
    return {name: shard for name, shard in found.items() if shard is not None}


def checkpoints_of(run: Run) -> list[Path]:
    """The checkpoints of a run, oldest first: files of one process, folders of several."""
    folder = run.path / "checkpoints"
    several = [path.parent for path in folder.glob(f"step-*/{STATE_FILE}") if not path.parent.suffix]
    found = [*folder.glob("step-*.safetensors"), *several]
    return sorted(found, key=lambda path: path.name.removesuffix(".safetensors"))


@dataclass(frozen=True)
class Restored:
    """Where training is, and what a person should know of how it was found."""

    progress: TrainingState
    notes: tuple[str, ...] = ()


def restore_checkpoint(
    run: Run,
    modules: dict[str, nn.Module],
    optimisers: dict[str, torch.optim.Optimizer],
    device: torch.device,
    *,
    total: int,
    together: Together = ALONE,
) -> Restored:
    """Where the newest whole checkpoint left off, with all state put back; the first step when there never was one.

    A damaged one is set aside, by another name, for the one before it, which is as good, only older. `total` is how
    many steps training has. It does not matter how many processes wrote it, nor how many read it.
    """

    path, notes = newest_whole(run, optimisers, total, together)
    if path is None:
        return Restored(TrainingState(), notes)
    tensors, progress = read_checkpoint(path, optimisers, total, modules, together)
    for key, module in modules.items():
        with errors_name(path):
            put_state(module, spread_as(below(tensors, key), module.state_dict()), "this run")
    for name, optimiser in optimisers.items():
        restore_optimiser(optimiser, below(tensors, name))
    if together.alone and "random.cpu" in tensors:
        restore_random(tensors, device)
    if not together.lead:
        progress.within = [0.0] * 5  # the first process has the sums of all
    return Restored(progress, notes)


def newest_whole(
    run: Run, optimisers: Mapping[str, torch.optim.Optimizer], total: int, together: Together
) -> tuple[Path | None, tuple[str, ...]]:
    """The newest checkpoint that is whole, None where there never was one; damaged ones are set aside."""
    paths, notes = together.say(checkpoints_of(run) if together.lead else None), []
    for path in reversed(paths):
        problem = together.first_of(
            what_is_wrong(path, optimisers, total, together) or another_run(path, identity_of(run)), unless=""
        )
        if not problem:
            return path, tuple(notes)
        aside = path.with_suffix(".damaged")
        together.lead_first(functools.partial(set_aside, path, aside), lambda: None)
        notes.append(f"{problem} It is now called {aside.name}, and the checkpoint before it is taken.")
    if paths:
        raise ArcwiseError(
            f"none of the checkpoints in {run.path} can be read; they are now called .damaged. "
            "Say it again to start this run from its first step."
        )
    return None, ()


class WholeState(NamedTuple):
    """All tensors of a checkpoint, with those of all classes, its progress, and how many processes wrote it."""

    tensors: dict[str, Tensor]
    progress: dict[str, Any]
    processes: int


def read_whole(path: Path) -> WholeState:
    """A checkpoint, whoever wrote it, looked over."""
    if path.is_dir():
        told = state_of(path, progress_of(MOST))
        refuse_damaged(path, told["crc32"])
        found = WholeState(load_spread(path, lambda names: {}, ALONE), told["progress"], told["processes"])
    else:
        tensors, meta = load_tensors(path)
        if "progress" not in meta:
            raise ArcwiseError(f"{path} is no checkpoint: name a run's folder, or a file of its checkpoints.")
        with errors_name(path):
            found = WholeState(tensors, meta_json(meta, "progress", progress_of(MOST), without="{}"), 1)
    refuse_another_step(path, found.progress.get("step", 0))
    with errors_name(path):
        refuse_not_finite(found.tensors)
    return found


def checkpoints_at(path: Path) -> list[Path]:
    """The checkpoint at a path, or those of the Run there."""
    if path.is_file() or (path / STATE_FILE).is_file():
        return [path]
    run = Run.open(path.parent if path.name == "checkpoints" and Run(path.parent).exists() else path)
    found = checkpoints_of(run)
    if not found:
        raise ArcwiseError(f"{run.path} has no checkpoint. Go on with: {run.resume_command}")
    return found


@dataclass(frozen=True)
class Look:
    """What a checkpoint holds; `problem` says what is wrong with a damaged one, of which the rest is not known."""

    path: str
    step: int = -1
    processes: int = 1
    tensors: int = 0
    bytes: int = 0
    classes: int = 0
    centres: int = 1
    dim: int = 0
    problem: str = ""


def look_at(path: Path) -> Look:
    """A checkpoint, looked at: all of it is read."""
    try:
        found = read_whole(path)
        w = found.tensors.get("model.head.weight")
        if w is None or w.ndim < 2:
            raise ArcwiseError(f"{path} is no checkpoint of a training: it holds no prototypes.")
    except ArcwiseError as error:
        return Look(str(path), problem=str(error))
    size = sum(value.numel() * value.element_size() for value in found.tensors.values())
    centres = w.shape[1] if w.ndim == 3 else 1
    return Look(
        str(path), found.progress["step"], found.processes, len(found.tensors), size, w.shape[0], centres, w.shape[-1]
    )


def merge_checkpoint(path: Path, out: Path | None = None) -> Path:
    """One file with all that several processes saved, piece by piece; in its Run where no other place is named."""
    path = checkpoints_at(path)[-1]
    if not path.is_dir():
        raise ArcwiseError(f"{path} is one file already: nothing to join. See: arcwise checkpoint inspect {path}")
    run, place = Run(path.parent.parent), out or path.with_suffix(".safetensors")
    with run.locked() if run.exists() else contextlib.nullcontext():  # training lets old checkpoints go
        told = state_of(path, progress_of(MOST))
        refuse_damaged(path, told["crc32"])
        state = first_random_state(run.settings.seed if run.exists() else 0)
        meta = {"arcwise": str(FORMAT), "progress": json.dumps(told["progress"]), "run": told.get("run", "")}
        write_tensors(place, {**merged_entries(path), "random.cpu": tensor_entry(state["random.cpu"])}, meta)
        if out is None:
            forget(path)
    return place


def set_aside(path: Path, aside: Path) -> None:
    """Gives what is damaged another name, in the place of what had that name before."""
    if aside.is_dir():
        shutil.rmtree(aside)
    path.replace(aside)


def what_is_wrong(path: Path, optimisers: Mapping[str, torch.optim.Optimizer], total: int, together: Together) -> str:
    """What keeps a checkpoint from being taken, as far as this process looks at it; nothing where it is whole."""
    try:
        if path.is_dir():
            told = state_of(path, progress_of(total))
            refuse_another_step(path, told["progress"]["step"])
            refuse_damaged(path, told["crc32"], together)
            refuse_odd_state(path, optimisers, whole=together.alone)
        elif together.lead:
            refuse_another_step(path, read_file(path, optimisers, total, whole=together.alone)[1].step)
    except ArcwiseError as error:
        return str(error)
    return ""


def identity_of(run: Run) -> str:
    """A digest of what a run began with: checkpoints bear it, so that none of another run is gone on from."""
    if not run.exists():
        return ""
    about = run.about
    began = [about.get(key) for key in ("config", "head", "images", "start")]
    return hashlib.sha256(json.dumps(began, sort_keys=True).encode()).hexdigest()[:16]


def another_run(path: Path, identity: str) -> str:
    """What is to be said of a checkpoint that another run has written; nothing of one that does not tell."""
    try:
        if path.is_dir():
            told = state_of(path, anything).get("run", "")
        else:
            told = header_of(header_bytes(path)).get("__metadata__", {}).get("run", "")
    except ValueError:
        return ""
    return f"{path} is a checkpoint of another run." if told and identity and told != identity else ""


def refuse_another_step(path: Path, step: int) -> None:
    """Raises where a checkpoint tells of another step than the one that its name says it is of."""
    named = re.fullmatch(r"step-(\d+)", path.name.removesuffix(".safetensors"))
    if named is not None and int(named[1]) != step:
        raise ArcwiseError(f"{path} tells of step {step:,}, and is called by another.")


def refuse_odd_state(folder: Path, optimisers: Mapping[str, torch.optim.Optimizer], *, whole: bool) -> None:
    """Raises where several processes saved what no optimiser of this training keeps; sizes alone are looked at."""
    sizes = {name: torch.empty(entry.shape, device="meta") for name, entry in merged_entries(folder).items()}
    with errors_name(folder):
        for name, optimiser in optimisers.items():
            refuse_odd_names(name, optimiser, below(sizes, name), whole=whole)


def read_checkpoint(
    path: Path,
    optimisers: Mapping[str, torch.optim.Optimizer],
    total: int,
    modules: Mapping[str, nn.Module],
    together: Together,
) -> tuple[dict[str, Tensor], TrainingState]:
    """The tensors of a checkpoint, of those that are spread out this process's rows, and its progress."""
    if not path.is_dir():
        tensors, progress = read_file(path, optimisers, total, whole=together.alone)
        shards = spread_names(list(tensors), modules, optimisers)
        return {n: v[shards[n].start : shards[n].stop] if n in shards else v for n, v in tensors.items()}, progress
    progress = TrainingState(**state_of(path, progress_of(total))["progress"])
    tensors = load_spread(path, lambda names: spread_names(names, modules, optimisers), together)
    with errors_name(path):
        refuse_not_finite(tensors)
    return tensors, progress


def read_file(
    path: Path, optimisers: Mapping[str, torch.optim.Optimizer], total: int, *, whole: bool
) -> tuple[dict[str, Tensor], TrainingState]:
    """The tensors of a checkpoint and its progress, every one of them checked before anything is put back.

    `whole` says that all classes are in this process, so that shapes can be compared.
    """
    tensors, meta = load_tensors(path)
    with errors_name(path):
        if meta.get("arcwise") != str(FORMAT):
            raise ArcwiseError(f"it was written in format {meta.get('arcwise')}; this version reads {FORMAT}.")
        told = meta_json(meta, "progress", progress_of(total), without="{}")
        state = tensors.get("random.cpu")
        if state is None or state.dtype != torch.uint8 or state.shape != (CPU_STATE,) or not is_random_state(state):
            raise ArcwiseError("it lacks the state of random numbers.")
        for name, optimiser in optimisers.items():
            refuse_odd_names(name, optimiser, below(tensors, name), whole=whole)
        refuse_not_finite(tensors)
    return tensors, TrainingState(**told)


def is_random_state(state: Tensor) -> bool:
    """Whether torch takes it for a state of its random numbers; tried on a generator of our own."""
    try:
        torch.Generator().set_state(state)
    except RuntimeError:
        return False
    return True


def progress_of(total: int) -> Check:
    """What a checkpoint must tell of a training of so many steps."""
    known = {
        "step": whole(0, total), "seconds": number(0.0), "best": number(-1.0, 1.0), "best_epoch": whole(0),
        "within": many(number(), least=5), "stopped": truth,
    }  # fmt: skip
    return table({"step": known["step"]}, known, rest=unheard_of)


def unheard_of(value: Any, where: str) -> None:
    """Raises: nothing else belongs there."""
    raise Unfit(f"{where} is nothing that training keeps")


def below(tensors: Mapping[str, Tensor], owner: str) -> dict[str, Tensor]:
    """The tensors of one owner, by their names in it."""
    return {name.removeprefix(f"{owner}."): v for name, v in tensors.items() if name.startswith(f"{owner}.")}


def refuse_odd_names(
    owner: str, optimiser: torch.optim.Optimizer, tensors: Mapping[str, Tensor], *, whole: bool
) -> None:
    """Raises where the state of an optimiser is not told by a parameter's number and a name, or of another shape."""
    parameters = [p for group in optimiser.param_groups for p in group["params"]]
    for name, value in tensors.items():
        found = re.fullmatch(r"(\d{1,9})\.([a-z_]+)", name)
        if found is None or int(found[1]) >= len(parameters):
            raise ArcwiseError(f"{owner} has no state called {name}.")
        if whole and value.ndim and value.shape != parameters[int(found[1])].shape:
            raise ArcwiseError(f"the state {name} of {owner} is of another shape than its parameter.")
    kept: dict[str, set[str]] = {}
    for name in tensors:
        at, _, key = name.partition(".")
        kept.setdefault(at, set()).add(key)
    if len({frozenset(keys) for keys in kept.values()}) > 1:  # what one parameter has all of them have
        raise ArcwiseError(f"the state of {owner} is not whole.")


def restore_optimiser(optimiser: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Momentum and the like, put back parameter by parameter, each in its parameter's order in memory.

    The fused optimisers read both as they lie in memory: a contiguous momentum beside a channels-last weight would
    be applied to the wrong numbers, without a word.
    """
    state: dict[int, dict[str, Any]] = {}
    for name, value in tensors.items():
        at, key = name.split(".", 1)
        state.setdefault(int(at), {})[key] = value
    optimiser.load_state_dict({"state": state, "param_groups": optimiser.state_dict()["param_groups"]})
    for parameter, entries in optimiser.state.items():
        for key, value in entries.items():
            if isinstance(value, Tensor) and value.shape == parameter.shape:
                entries[key] = torch.empty_like(parameter, dtype=value.dtype).copy_(value)


def random_state(device: torch.device) -> dict[str, Tensor]:
    """The state of torch's own random numbers, which dropout and drawn margins use."""
    states = {"random.cpu": torch.get_rng_state()}
    return states | ({"random.cuda": torch.cuda.get_rng_state(device)} if device.type == "cuda" else {})


def first_random_state(seed: int) -> dict[str, Tensor]:
    """The state of torch's random numbers before the first step of a run with this seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(stream("steps", seed))
        return random_state(torch.device("cpu"))


def restore_random(tensors: dict[str, Tensor], device: torch.device) -> None:
    """The opposite of `random_state`."""
    torch.set_rng_state(tensors["random.cpu"])
    if device.type == "cuda" and "random.cuda" in tensors:
        torch.cuda.set_rng_state(tensors["random.cuda"], device)
