"""The newest whole state of training from a Run's folder, and writes it: tensors and numbers, no pickle."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from arcwise.errors import ArcwiseError
from arcwise.records import FORMAT, Run, errors_name, meta_json
from arcwise.schema import Check, Unfit, many, number, table, truth, whole
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
) -> Path:
    """The checkpoint's path, once it is whole on disk; the two newest are kept."""
    tensors = {f"{key}.{name}": value for key, module in modules.items() for name, value in module.state_dict().items()}
    for name, optimiser in optimisers.items():
        for at, entries in optimiser.state_dict()["state"].items():
            tensors |= {f"{name}.{at}.{key}": v for key, v in entries.items() if isinstance(v, Tensor)}
    tensors |= random_state(device)
    meta = {"arcwise": str(FORMAT), "progress": json.dumps(vars(progress))}
    path = save_tensors(run.path / "checkpoints" / f"step-{progress.step:08d}.safetensors", tensors, meta)
    for old in checkpoints_of(run)[:-KEPT]:
        with contextlib.suppress(OSError):
            old.unlink()
    return path


def checkpoints_of(run: Run) -> list[Path]:
    """The checkpoints of a run, oldest first."""
    return sorted((run.path / "checkpoints").glob("step-*.safetensors"))


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
) -> Restored:
    """Where the newest whole checkpoint left off, with all state put back; the first step when there never was one.

    A damaged one is set aside, by another name, for the one before it, which is as good, only older. `total` is how
    many steps training has.
    """
    paths, notes = checkpoints_of(run), []
    for path in reversed(paths):
        try:
            tensors, progress = read_checkpoint(path, optimisers, total)
        except ArcwiseError as error:
            aside = path.replace(path.with_suffix(".damaged"))
            notes.append(f"{error} It is now called {aside.name}, and the checkpoint before it is taken.")
            continue
        for key, module in modules.items():
            with errors_name(path):
                put_state(module, below(tensors, key), "this run")
        for name, optimiser in optimisers.items():
            restore_optimiser(optimiser, below(tensors, name))
        restore_random(tensors, device)
        return Restored(progress, tuple(notes))
    if paths:
        raise ArcwiseError(
            f"none of the checkpoints in {run.path} can be read; they are now called .damaged. "
            "Say it again to start this run from its first step."
        )
    return Restored(TrainingState())


def read_checkpoint(
    path: Path, optimisers: Mapping[str, torch.optim.Optimizer], total: int
) -> tuple[dict[str, Tensor], TrainingState]:
    """The tensors of a checkpoint and its progress, every one of them checked before anything is put back."""
    tensors, meta = load_tensors(path)
    with errors_name(path):
        if meta.get("arcwise") != str(FORMAT):
            raise ArcwiseError(f"it was written in format {meta.get('arcwise')}; this version reads {FORMAT}.")
        told = meta_json(meta, "progress", progress_of(total), without="{}")
        state = tensors.get("random.cpu")
        if state is None or state.dtype != torch.uint8 or state.shape != (CPU_STATE,) or not is_random_state(state):
            raise ArcwiseError("it lacks the state of random numbers.")
        for name, optimiser in optimisers.items():
            refuse_odd_names(name, optimiser, below(tensors, name))
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


def refuse_odd_names(owner: str, optimiser: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Raises where the state of an optimiser is not told by a parameter's number and a name, or of another shape."""
    parameters = [p for group in optimiser.param_groups for p in group["params"]]
    for name, value in tensors.items():
        found = re.fullmatch(r"(\d{1,9})\.([a-z_]+)", name)
        if found is None or int(found[1]) >= len(parameters):
            raise ArcwiseError(f"{owner} has no state called {name}.")
        if value.ndim and value.shape != parameters[int(found[1])].shape:
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
