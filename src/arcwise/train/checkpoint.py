"""The newest whole state of training from a Run's folder, and writes it: tensors and numbers, no pickle."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from arcwise.errors import ArcwiseError
from arcwise.ops.sharded import Shard
from arcwise.records import FORMAT, Run, errors_name, meta_json
from arcwise.schema import Check, Unfit, many, number, table, truth, whole
from arcwise.train.spread import STATE, load_spread, save_spread, state_of
from arcwise.train.together import ALONE, Together
from arcwise.weights import load_tensors, put_state, refuse_not_finite, save_tensors

KEPT = 2
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
    together: Together = ALONE,
) -> Path:
    """The checkpoint's path, once it is whole on disk; the two newest are kept. Several processes write one folder."""
    tensors = {f"{key}.{name}": value for key, module in modules.items() for name, value in module.state_dict().items()}
    for name, optimiser in optimisers.items():
        for at, entries in optimiser.state_dict()["state"].items():
            tensors |= {f"{name}.{at}.{key}": v for key, v in entries.items() if isinstance(v, Tensor)}
    place = run.path / "checkpoints" / f"step-{progress.step:08d}"
    if together.alone:
        meta = {"arcwise": str(FORMAT), "progress": json.dumps(vars(progress))}
        path = save_tensors(place.with_suffix(".safetensors"), tensors | random_state(device), meta)
    else:
        shards = spread_names(list(tensors), modules, optimisers)
        path = save_spread(place, tensors, shards, vars(progress), together)
    if together.lead:
        for old in checkpoints_of(run)[:-KEPT]:
            forget(old)
    return path


def forget(path: Path) -> None:
    """Takes a checkpoint away; of a folder first that which makes it one."""
    with contextlib.suppress(OSError):
        (path / STATE if path.is_dir() else path).unlink()
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)


def spread_names(
    names: list[str], modules: Mapping[str, nn.Module], optimisers: Mapping[str, torch.optim.Optimizer]
) -> dict[str, Shard]:
    """Which of these tensors are rows of larger ones, for the classes they belong to are spread over processes."""
    found: dict[str, Shard] = {}
    for owner, module in modules.items():
        shard = getattr(module["head"], "shard", None)  # type: ignore[index]
        if shard is not None:
            found[f"{owner}.head.weight"] = shard
    head = modules["model"]["head"]  # type: ignore[index]
    if getattr(head, "shard", None) is not None:
        for owner, optimiser in optimisers.items():
            parameters = [p for group in optimiser.param_groups for p in group["params"]]
            at = next((str(at) for at, p in enumerate(parameters) if p is head.weight), None)
            mine = [name for name in names if at is not None and name.startswith(f"{owner}.{at}.")]
            found |= {name: head.shard for name in mine if not name.endswith((".t", ".step"))}
    return found


def checkpoints_of(run: Run) -> list[Path]:
    """The checkpoints of a run, oldest first: files of one process, folders of several."""
    folder = run.path / "checkpoints"
    several = [path.parent for path in folder.glob(f"step-*/{STATE}") if not path.parent.suffix]
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

    def choose() -> tuple[Path | None, tuple[str, ...]]:
        return newest_whole(run, optimisers, total, together)

    path, notes = together.say(together.lead_first(choose, lambda: (None, ())))
    if path is None:
        return Restored(TrainingState(), notes)
    tensors, progress = read_checkpoint(path, optimisers, total, modules, together)
    for key, module in modules.items():
        with errors_name(path):
            put_state(module, below(tensors, key), "this run")
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
    paths, notes = checkpoints_of(run), []
    for path in reversed(paths):
        try:
            if path.is_dir():
                state_of(path, progress_of(total))
            else:
                read_file(path, optimisers, total, whole=together.alone)
            return path, tuple(notes)
        except ArcwiseError as error:
            aside = path.replace(path.with_suffix(".damaged"))
            notes.append(f"{error} It is now called {aside.name}, and the checkpoint before it is taken.")
    if paths:
        raise ArcwiseError(
            f"none of the checkpoints in {run.path} can be read; they are now called .damaged. "
            "Say it again to start this run from its first step."
        )
    return None, ()


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
    told = state_of(path, progress_of(total)) if together.lead else None
    progress = TrainingState(**together.say(told)["progress"])
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


def restore_random(tensors: dict[str, Tensor], device: torch.device) -> None:
    """The opposite of `random_state`."""
    torch.set_rng_state(tensors["random.cpu"])
    if device.type == "cuda" and "random.cuda" in tensors:
        torch.cuda.set_rng_state(tensors["random.cuda"], device)
