"""Returns the newest whole state of training from a Run's folder, and writes it: tensors and numbers, no pickle."""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from arcwise.errors import ArcwiseError
from arcwise.model import read_weights
from arcwise.records import FORMAT, Run, write

KEPT = 2


@dataclass
class Progress:
    """How far training is: whole steps, seconds of training, the best validation accuracy and when it was.

    `within` is what has been summed up for the journal's next line.
    """

    step: int = 0
    seconds: float = 0.0
    best: float = -1.0
    best_epoch: int = 0
    within: list[float] = field(default_factory=list)


def save(run: Run, progress: Progress, modules: dict[str, nn.Module], optimiser: torch.optim.Optimizer) -> Path:
    """The checkpoint's path, once it is whole on disk; the two newest are kept."""
    from safetensors.torch import save as packed

    tensors = {f"{key}.{name}": value for key, module in modules.items() for name, value in module.state_dict().items()}
    for number, entries in optimiser.state_dict()["state"].items():
        tensors |= {f"optimiser.{number}.{key}": v for key, v in entries.items() if isinstance(v, Tensor)}
    tensors |= random_state()
    tensors = {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}
    meta = {"arcwise": str(FORMAT), "progress": json.dumps(vars(progress))}
    path = write(run.path / "checkpoints" / f"step-{progress.step:08d}.safetensors", packed(tensors, metadata=meta))
    for old in existing(run)[:-KEPT]:
        with contextlib.suppress(OSError):
            old.unlink()
    return path


def existing(run: Run) -> list[Path]:
    """The checkpoints of a run, oldest first."""
    return sorted((run.path / "checkpoints").glob("step-*.safetensors"))


def restore(run: Run, modules: dict[str, nn.Module], optimiser: torch.optim.Optimizer) -> Progress | None:
    """Where the newest readable checkpoint left off, with all state put back; None when there is none."""
    for path in reversed(existing(run)):
        try:
            tensors, meta = read_weights(path)
            progress = Progress(**json.loads(meta["progress"]))
        except (ArcwiseError, KeyError, ValueError, TypeError):
            continue  # damaged from outside: the one before it is as good, only older
        for key, module in modules.items():
            prefix = f"{key}."
            module.load_state_dict({n.removeprefix(prefix): v for n, v in tensors.items() if n.startswith(prefix)})
        restore_optimiser(optimiser, tensors)
        restore_random(tensors)
        return progress
    return None


def restore_optimiser(optimiser: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    """Momentum and the like, put back parameter by parameter, each in its parameter's order in memory.

    The fused optimisers read both as they lie in memory: a contiguous momentum beside a channels-last weight would
    be applied to the wrong numbers, without a word.
    """
    state: dict[int, dict[str, Any]] = {}
    for name, value in tensors.items():
        if name.startswith("optimiser."):
            _, number, key = name.split(".", 2)
            state.setdefault(int(number), {})[key] = value
    optimiser.load_state_dict({"state": state, "param_groups": optimiser.state_dict()["param_groups"]})
    for parameter, entries in optimiser.state.items():
        for key, value in entries.items():
            if isinstance(value, Tensor) and value.shape == parameter.shape:
                entries[key] = torch.empty_like(parameter, dtype=value.dtype).copy_(value)


def random_state() -> dict[str, Tensor]:
    """The state of torch's own random numbers, which dropout and drawn margins use."""
    states = {"random.cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        states["random.cuda"] = torch.cuda.get_rng_state()
    return states


def restore_random(tensors: dict[str, Tensor]) -> None:
    """The opposite of `random_state`."""
    torch.set_rng_state(tensors["random.cpu"])
    if torch.cuda.is_available() and "random.cuda" in tensors:
        torch.cuda.set_rng_state(tensors["random.cuda"])
