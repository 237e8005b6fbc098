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
from arcwise.config import Config, override
from arcwise.errors import ArcwiseError, Interrupted
from arcwise.launcher import process_count
from arcwise.recipes import recipe as recipe_config
from arcwise.records import Run


def train_command(
    recipe: str,
    /,
    *,
    set_: Annotated[list[str] | None, Parameter(name="--set", consume_multiple=False)] = None,
    head: str | None = None,
    data: str | None = None,
    unseen: str | None = None,
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
    unseen
        Classes to keep from training and to be judged on at the end, by position, name or pattern: 5-9, or s2-*.
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
    config = configure(recipe, set_ or [], head=head, data=data, unseen=unseen)
    if init is not None:
        refuse_model_settings(set_ or [])
    config = replace(config, seed=seed, init=str(init.resolve()) if init else config.init)
    folder = out or Path("runs") / f"{recipe}-{config.head.kind}-{seed}"
    if process_count() > 1:  # that a process is gone is said in words of our own
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    from arcwise.train import train

    leads = os.environ.get("RANK", "0") == "0"  # of the processes that torchrun starts one speaks for all
    with TrainDisplay() as display:
        try:
            done = train(
                config, folder, resume=resume, device=device, data_dir=data_dir, listener=display,
                command=resume_command(sys.argv),
            )  # fmt: skip
        except Interrupted as stop:
            display.close()
            if leads:
                print(f"\narcwise: {stop}\nGo on with: {Run.open(folder).resume_command}", file=sys.stderr)
            sys.exit(128 + stop.signum)
    if leads:
        print_result(done, as_json=json_)


def configure(
    recipe: str, settings: list[str], *, head: str | None, data: str | None, unseen: str | None = None
) -> Config:
    """The recipe with the command line's changes; other images bring no unseen classes of the recipe's along."""
    if data is not None and unseen is None and not any(s.split("=")[0].strip() == "data.unseen" for s in settings):
        known = recipe_config(recipe).data
        unseen = None if data == known.source else "" if known.unseen else None
    options = (("head.name", head, "--head"), ("data.source", data, "--data"), ("data.unseen", unseen, "--unseen"))
    for name, value, option in options:
        if value is not None and any(setting.split("=")[0].strip() == name for setting in settings):
            raise ArcwiseError(f"{option} and --set {name} say the same thing: give one of them.")
        if value is not None:
            settings = [f"{name}={value}", *settings]
    if any(setting.split("=")[0].strip() in ("seed", "init", "recipe") for setting in settings):
        raise ArcwiseError(
            "seed, init and recipe are no settings: --seed (of compare --seeds) and --init say the first two, and the "
            "first word is the recipe."
        )
    return override(recipe_config(recipe), settings)


def refuse_model_settings(settings: list[str]) -> None:
    """With --init the model says what network it is and what images it takes."""
    for setting in settings:
        key = setting.split("=")[0].strip()
        if key.startswith("model.") or key in ("data.size", "data.channels"):
            raise ArcwiseError(f"{key} is the model's own with --init: leave it out.")


def resume_command(words: list[str]) -> str:
    """The command line that goes on with a run, from the one that began it; nothing where another program began it.

    >>> resume_command(["arcwise", "train", "mnist", "--seed", "1"])
    'arcwise train mnist --seed 1 --resume'
    """
    if words[1:2] != ["train"]:
        return ""
    count = os.environ.get("LOCAL_WORLD_SIZE", "1")
    begin = ["arcwise"] if count == "1" else ["torchrun", "--nproc-per-node", count, "-m", "arcwise"]
    return shlex.join([*begin, *words[1:], *(["--resume"] if "--resume" not in words else [])])


def print_result(run: Run, *, as_json: bool) -> None:
    """The final numbers, and what to type next."""
    metrics = run.result
    if "test" not in metrics:
        raise ArcwiseError(f"{run.path / 'result.json'} is not whole: remove it and say it again with --resume.")
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
    known = print_unseen(run)
    print(f"{'':10} {metrics['images']:,} images in {metrics['seconds']:.1f} s on {metrics['device']}")
    print(f"\n{run.path}{os.sep}model.safetensors is the model, result.json the numbers, journal.jsonl the way there.")
    evaluate = ["arcwise", "evaluate", str(run.path), *(["--only", "unseen-*"] if known else [])]
    calibrate = ["arcwise", "calibrate", str(run.path), "--on", "SOURCE"]
    print(f"Next: {shlex.join(evaluate)}, or a threshold for classes nobody has seen: {shlex.join(calibrate)}")


UNSEEN_AT_ONCE = 20_000  # images of unseen classes at most that are judged at the end of training


def print_unseen(run: Run) -> bool:
    """Whether there were unseen classes; what the model is worth on them, where that does not take long."""
    if not run.embeddings_path("unseen").is_file():
        return False
    from arcwise.measure import evidence_of
    from arcwise.metrics.summary import METRICS, Evidence, number_text

    evidence = Evidence(*evidence_of(run))
    if evidence.unseen is None or len(evidence.unseen) > UNSEEN_AT_ONCE:
        return True
    words = {
        "unseen-eer": "equal error rate",
        "unseen-recall-1": "recall@1",
        "open-auroc": "known against unseen AUROC",
    }
    found = {name: METRICS[name].compute(evidence) for name in words}
    shown = [f"{words[name]} {number_text(name, value)}" for name, value in found.items() if value is not None]
    count, classes = len(evidence.unseen), evidence.unseen_classes
    kinds = f"{classes:,} class{'' if classes == 1 else 'es'}"
    print(f"{'unseen':10} {'   '.join(shown)}   ({count:,} images of {kinds})")
    return True
