"""Returns what a run is before its first step: the resolved configuration, the head, and the circumstances."""

from __future__ import annotations

import dataclasses
import json
import platform
import shlex
import subprocess
import sys
import time
from dataclasses import replace
from typing import Any

import numpy as np
import torch

import arcwise
from arcwise.advise import advise
from arcwise.config import Config, HeadConfig
from arcwise.data import Splits
from arcwise.errors import ArcwiseError
from arcwise.heads import Head, LinearHead, head_from
from arcwise.model import Embedder
from arcwise.records import Run
from arcwise.train.device import device_name


def resolved(config: Config, splits: Splits) -> Config:
    """The configuration with everything decided: the advisor's scale where none was given."""
    head = config.head
    if not head.linear and head.s is None and "s=" not in head.name:
        head = replace(head, s=float(f"{advise(splits.train.classes, config.model.dim).s:.4g}"))
    if config.train.patience and splits.validation is None:
        raise ArcwiseError("train.patience watches validation images: set data.validation=0.1 as well.")
    return replace(config, head=head)


def built_head(config: HeadConfig, dim: int, classes: int) -> Head | LinearHead:
    """The head that a configuration describes."""
    return head_from(head_text(config), dim, classes, engine=config.engine, gradient=config.gradient)


def head_text(config: HeadConfig) -> str:
    """The head as one line of text.

    >>> head_text(HeadConfig(name="arcface", m=0.3, s=16.0))
    'arcface:m=0.3,s=16'
    """
    given = [
        f"{key}={value:g}" for key, value in (("m", config.m), ("s", config.s), ("k", config.k)) if value is not None
    ]
    if not given:
        return config.name
    return config.name + ("," if ":" in config.name else ":") + ",".join(given)


def fitted_to(config: Config, start: Embedder) -> Config:
    """The configuration with the network and the image size of the model that training starts from."""
    look = start.preprocessing
    data = replace(config.data, size=look.side, channels=look.channels)
    return replace(config, data=data, model=start.config)


def same_config(run: Run, config: Config) -> Config:
    """The configuration that the run was started with, or an error when another is asked for."""
    old = Config.from_json(json.dumps(run.config))
    before, now = flat(dataclasses.asdict(old)), flat(dataclasses.asdict(config))
    unlike = [k for k in now if now[k] != before[k] and not (k == "head.s" and now[k] is None)]
    if unlike:
        said = ", ".join(f"{key} was {before[key]!r}, now {now[key]!r}" for key in unlike[:6])
        raise ArcwiseError(
            f"{run.path} was started with other settings: {said}. Give the same, or choose another --out."
        )
    return old


def flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested values by their full names."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
    return found


def circumstances(config: Config, device: torch.device, run: Run) -> dict[str, Any]:
    """What else a run's config.json tells: versions, device, commit, and the command that resumes it."""
    resume = ["arcwise", "train", *sys.argv[2:]] if sys.argv[1:2] == ["train"] else None
    if resume is not None and "--resume" not in resume:
        resume.append("--resume")
    told = {
        "versions": {"arcwise": arcwise.__version__, "torch": torch.__version__, "numpy": np.__version__,
                     "python": platform.python_version()},
        "seed": config.seed, "device": device_name(device), "threads": torch.get_num_threads(), "commit": commit(),
        "created": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }  # fmt: skip
    return {**told, "resume": shlex.join(resume)} if resume else told


def commit() -> str | None:
    """The git commit of the working folder, with a mark when files were changed since; None outside of git."""
    try:
        said = subprocess.run(["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"],
                              capture_output=True, text=True, timeout=10)  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    return said.stdout.strip() or None
