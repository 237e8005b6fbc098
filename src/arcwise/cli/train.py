"""`arcwise train`: trains a recipe, with changes, into a Run."""

from __future__ import annotations

import json
import os
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from arcwise.cli.advise import Whole
from arcwise.cli.progress import TrainDisplay, degrees
from arcwise.config import Config, overridden
from arcwise.errors import ArcwiseError
from arcwise.recipes import recipe as recipe_config
from arcwise.records import Run


def run(
    recipe: str,
    /,
    *,
    set_: Annotated[list[str] | None, Parameter(name="--set", consume_multiple=False)] = None,
    head: str | None = None,
    data: str | None = None,
    out: Path | None = None,
    resume: bool = False,
    seed: Whole = 0,
    device: str = "auto",
    init: Path | None = None,
    data_dir: Path | None = None,
    json_: bool = False,
) -> None:
    """Train a recipe into a run folder.

    Parameters
    ----------
    recipe
        One of `arcwise recipes`.
    set_
        Change a setting, as in --set train.epochs=5; may be given many times.
    head
        The head, as in softmax, normface or arcface:m=0.3,s=16.
    data
        The images, as in mnist[0-4] or folder:PATH.
    out
        The run's folder; runs/RECIPE-HEAD-SEED if not given.
    resume
        Go on with the run that is there; start it if there is none.
    seed
        Of the weights, the order and the changes to the images.
    device
        auto, cpu, cuda or cuda:1.
    init
        A saved model to start from: a run's folder, a model.safetensors, or insightface's .pth.
    data_dir
        Where data sets are cached, in place of $ARCWISE_DATA.
    json_
        Print the final numbers for a machine.
    """
    config = configured(recipe, set_ or [], head=head, data=data)
    if init is not None:
        refuse_model_settings(set_ or [])
    config = replace(config, seed=seed, init=str(init.resolve()) if init else config.init)
    folder = out or Path("runs") / f"{recipe}-{config.head.kind}-{seed}"
    from arcwise.train import train
    from arcwise.train.signals import Interrupted

    with TrainDisplay() as display:
        try:
            done = train(config, folder, resume=resume, device=device, data_dir=data_dir, listener=display)
        except Interrupted as stop:
            display.__exit__()
            print(f"\narcwise: {stop}\nGo on with: {Run.open(folder).resume_command}", file=sys.stderr)
            sys.exit(128 + stop.signum)
    report(done, as_json=json_)


def configured(recipe: str, settings: list[str], *, head: str | None, data: str | None) -> Config:
    """The recipe with the command line's changes."""
    for name, value, option in (("head.name", head, "--head"), ("data.source", data, "--data")):
        if value is not None and any(setting.split("=")[0].strip() == name for setting in settings):
            raise ArcwiseError(f"{option} and --set {name} say the same thing: give one of them.")
        if value is not None:
            settings = [f"{name}={value}", *settings]
    if any(setting.split("=")[0].strip() in ("seed", "init", "recipe") for setting in settings):
        raise ArcwiseError("seed, init and recipe have options of their own: --seed, --init, and the first word.")
    return overridden(recipe_config(recipe), settings)


def refuse_model_settings(settings: list[str]) -> None:
    """With --init the model says what network it is and what images it takes."""
    for setting in settings:
        key = setting.split("=")[0].strip()
        if key.startswith("model.") or key in ("data.size", "data.channels"):
            raise ArcwiseError(f"{key} is the model's own with --init: leave it out.")


def report(run: Run, *, as_json: bool) -> None:
    """The final numbers, and what to type next."""
    metrics = run.metrics
    if "test" not in metrics:
        raise ArcwiseError(f"{run.path / 'metrics.json'} is not whole: remove it and say it again with --resume.")
    if as_json:
        print(json.dumps({"run": str(run.path), **metrics}))
        return
    for part in ("validation", "test"):
        if part in metrics:
            found = metrics[part]
            own, other = degrees(found["angle_own"]), degrees(found["angle_other"])
            print(
                f"{part:10} accuracy {found['accuracy']:.2%}   angle to own centre {own}, to the nearest other {other}"
            )
    print(f"{'':10} {metrics['images']:,} images in {metrics['seconds']:.1f} s on {metrics['device']}")
    print(f"\n{run.path}{os.sep}model.safetensors is the model, metrics.json the numbers, journal.jsonl the way there.")
    source, out = run.config["data"]["source"], run.path / "all.safetensors"
    words = ["arcwise", "embed", str(run.path), source, "--out", str(out)]
    print(f"Next: {shlex.join(words)}")
