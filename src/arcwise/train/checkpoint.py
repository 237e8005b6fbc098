"""The newest whole state of training from a Run's folder, and writes it: tensors and numbers, no pickle."""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from arcwise.errors import ArcwiseError
from arcwise.records import FORMAT, Run
from arcwise.weights import load_tensors, save_tensors

KEPT = 2


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
        for number, entries in optimiser.state_dict()["state"].items():
            tensors |= {f"{name}.{number}.{key}": v for key, v in entries.items() if isinstance(v, Tensor)}
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


def restore_checkpoint(
    run: Run, modules: dict[str, nn.Module], optimisers: dict[str, torch.optim.Optimizer], device: torch.device
) -> TrainingState | None:
    """Where the newest readable checkpoint left off, with all state put back; None when there never was one."""
    paths = checkpoints_of(run)
    for path in reversed(paths):
        try:
            tensors, meta = load_tensors(path)
            progress = TrainingState(**json.loads(meta["progress"]))
        except (ArcwiseError, KeyError, ValueError, TypeError):
            path.rename(path.with_suffix(".damaged"))  # the one before it is as good, only older
            continue
        for key, module in modules.items():
            prefix = f"{key}."
            try:
                module.load_state_dict({n.removeprefix(prefix): v for n, v in tensors.items() if n.startswith(prefix)})
            except RuntimeError as error:
                first = " ".join(str(error).split()[:40])
                raise ArcwiseError(f"{path} does not fit this run: {first} ... Choose another --out.") from None
        for name, optimiser in optimisers.items():
            restore_optimiser(name, optimiser, tensors)
        restore_random(tensors, device)
        return progress
    if paths:
        raise ArcwiseError(
            f"none of the checkpoints in {run.path} can be read; they are now called .damaged. "
            "Say it again to start this run from its first step."
        )
    return None


def restore_optimiser(prefix: str, optimiser: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    """Momentum and the like, put back parameter by parameter, each in its parameter's order in memory.

    The fused optimisers read both as they lie in memory: a contiguous momentum beside a channels-last weight would
    be applied to the wrong numbers, without a word.
    """
    state: dict[int, dict[str, Any]] = {}
    for name, value in tensors.items():
        if name.startswith(f"{prefix}."):
            _, number, key = name.split(".", 2)
            state.setdefault(int(number), {})[key] = value
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
