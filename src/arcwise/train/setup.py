"""Returns what a run is before its first step: the resolved configuration, the head, and the circumstances."""

from __future__ import annotations

import dataclasses
import hashlib
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
from arcwise.data import Images, Splits
from arcwise.data.samplers import stream
from arcwise.embed import embed
from arcwise.errors import ArcwiseError
from arcwise.heads import Head, LinearHead, head_from
from arcwise.model import Embedder, Preprocessing, some_rows
from arcwise.ops import why_not
from arcwise.records import Run
from arcwise.sphere import normalise
from arcwise.train.device import device_name

CLASS_MEANS_FROM = 50_000  # images at most that prototypes of a fine-tuned model are taken from


def resolved(config: Config, splits: Splits) -> Config:
    """The configuration with everything decided: the advisor's scale where none was given."""
    head, train = config.head, config.train
    if not head.linear and head.s is None and not head.names_s:
        head = replace(head, s=float(f"{advise(splits.train.classes, config.model.dim).s:.4g}"))
    if config.train.patience and splits.validation is None:
        raise ArcwiseError("train.patience watches validation images: set data.validation=0.1 as well.")
    at_once = min(train.batch, len(splits.train)) // train.accumulate
    if at_once < 2:
        raise ArcwiseError(
            f"batch norms need at least two images at a time, and {at_once} would go through: raise train.batch, "
            "lower train.accumulate, or add images."
        )
    if head.inside and (head.linear or train.clip or train.accumulate > 1):
        raise ArcwiseError(
            "head.inside lets prototypes step in the backward pass, where their gradient can be neither clipped nor "
            "accumulated, and a linear head has none: set train.clip=0 and train.accumulate=1, or head.inside=false."
        )
    if not config.init and (train.frozen_epochs or train.batch_norm == "frozen"):
        raise ArcwiseError("train.frozen_epochs and train.batch_norm=frozen are for fine-tuning: add --init MODEL.")
    return replace(config, head=head)


def built(
    config: Config, images: Images, start: Embedder | None, *, device: torch.device
) -> tuple[Embedder, Head | LinearHead]:
    """The network and the head, from one seed each: every head meets the same network."""
    torch.manual_seed(stream("network", config.seed))
    model = start
    if model is None:
        mean, std = images.mean_and_std()
        look = Preprocessing(side=images.shape[0], channels=images.shape[2], mean=mean, std=std)
        model = Embedder(config.model, preprocessing=look)
    model.names, model.about = images.names, {"config": dataclasses.asdict(config)}
    torch.manual_seed(stream("head", config.seed))
    head = built_head(config.head, model.dim, images.classes)
    if isinstance(head, Head):
        one = torch.empty(1, model.dim, device=device)
        if (problem := why_not(head.engine, one, moving=config.head.inside)) is not None:
            raise ArcwiseError(f"head.engine: {problem}")
    if config.train.margin_warmup and isinstance(head, Head) and has_more_than_psi(head):
        raise ArcwiseError(
            f"train.margin_warmup raises psi from the cosine, and {config.head.kind} changes more: set it to 0."
        )
    if config.train.channels_last:
        model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return model.to(device), head.to(device)


def has_more_than_psi(head: Head) -> bool:
    """Whether a margin also reshapes other classes or adds a penalty."""
    return any(hasattr(head.margin, name) for name in ("others", "penalty"))


@torch.no_grad()
def start_at_class_means(model: Embedder, head: Head | LinearHead, images: Images) -> None:
    """Puts prototypes at the class means of the model that training starts from; sub-centres close to them."""
    found = embed(model, images.take(some_rows(len(images), CLASS_MEANS_FROM)))
    x, y = normalise(torch.from_numpy(found.x)), torch.from_numpy(found.y)
    w = head.weight
    means = normalise(torch.zeros(images.classes, found.dim).index_add_(0, y, x)).to(w)
    known = (torch.bincount(y, minlength=images.classes) > 0).to(w.device)
    if w.ndim == 3:
        means, known = means.unsqueeze(1) + 0.01 * w, known.unsqueeze(1)
    w.copy_(torch.where(known.unsqueeze(-1), means, w))


def built_head(config: HeadConfig, dim: int, classes: int) -> Head | LinearHead:
    """The head that a configuration describes."""
    return head_from(head_text(config), dim, classes, engine=config.engine, gradient=config.gradient)


def head_text(config: HeadConfig) -> str:
    """The head as one line of text.

    >>> head_text(HeadConfig(name="arcface", m=0.3, s=16.0))
    'arcface:m=0.3,s=16'
    """
    given = [
        f"{key}={value:.12g}" for key, value in (("m", config.m), ("s", config.s), ("k", config.k)) if value is not None
    ]
    if not given:
        return config.name
    return config.name + ("," if ":" in config.name else ":") + ",".join(given)


def fitted_to(config: Config, start: Embedder | None) -> Config:
    """The configuration with the network and the image size of the model that training starts from, if any."""
    if start is None:
        return config
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


def fingerprint(splits: Splits) -> str:
    """A checksum of which images are in which part, by name and label; not of their pixels."""
    sha = hashlib.sha256()
    for name, part in splits.parts.items():
        sha.update(json.dumps([name, part.names, part.shape, part.y.tolist(), part.files]).encode())
    return sha.hexdigest()[:24]


def check_same_images(run: Run, splits: Splits) -> None:
    """Refuses to go on with a run whose images have been added to, taken from or renamed."""
    before = run.about.get("images")
    if before is not None and before != fingerprint(splits):
        raise ArcwiseError(
            f"the images are not those that {run.path} was started with: some were added, removed or renamed. "
            "Put them back, or choose another --out."
        )


def flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested values by their full names."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
    return found


def circumstances(config: Config, device: torch.device) -> dict[str, Any]:
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
