"""`arcwise checkpoint`: looks into checkpoints, joins those of several processes, and changes a run's classes."""

from __future__ import annotations

import json
from pathlib import Path

from cyclopts import App

from arcwise.cli.advise import Whole
from arcwise.cli.progress import byte_text
from arcwise.errors import ArcwiseError
from arcwise.records import Run
from arcwise.records.folders import refuse_new_file

checkpoint_app = App(
    name="checkpoint", help="Look into checkpoints, join them, or change a run's classes.", result_action="return_value"
)


@checkpoint_app.command(name="inspect")
def inspect_command(checkpoint: Path, /, *, json_: bool = False) -> None:
    """Say what a run's checkpoints hold, and whether they are as they were written: exit status 1 where one is not.

    Parameters
    ----------
    checkpoint
        A run's folder, or one of its checkpoints.
    json_
        Print for a machine.
    """
    from arcwise.train.checkpoint import checkpoints_at, look_at

    found = [look_at(path) for path in checkpoints_at(checkpoint)]
    if json_:
        print(json.dumps([vars(one) for one in found]))
        return
    for one in found:
        print(one.path)
        if one.problem:
            print(f"  damaged: {one.problem}")
            continue
        by = "one process" if one.processes == 1 else f"{one.processes:,} processes"
        centres = f", {one.centres} centres each" if one.centres > 1 else ""
        print(f"  step {one.step:,}, {byte_text(one.bytes)} in {one.tensors:,} tensors, saved by {by}")
        print(f"  {one.classes:,} classes of {one.dim:,} numbers{centres}")
    run = run_around(checkpoint)
    if run is not None:
        print(f"\nNext: {run.resume_command}")
    bad = sum(bool(one.problem) for one in found)
    if bad == len(found):
        whole = run is not None and len(found) == len(checkpoints_at(run.path))
        begins = ": --resume calls it .damaged, and, said again, begins at the first step." if whole else "."
        raise ArcwiseError(f"there is no checkpoint here that can be read{begins}")
    if bad:
        raise ArcwiseError(f"{bad} of {len(found)} cannot be read: training goes on from the newest that can.")


@checkpoint_app.command(name="merge")
def merge_command(checkpoint: Path, /, *, out: Path | None = None) -> None:
    """Join a checkpoint that several processes saved into one safetensors file.

    Any number of processes goes on from either; the file is one that other programs can read.

    Parameters
    ----------
    checkpoint
        A run's folder, whose newest checkpoint is meant, or a checkpoint's folder.
    out
        The file, which is not overwritten; if not given, the checkpoint's own place in its run, whose folder goes.
    """
    from arcwise.train.checkpoint import merge_checkpoint

    if out is not None:
        refuse_new_file(out)
    path = merge_checkpoint(checkpoint, out)
    print(f"{path} holds all of it.\nNext: arcwise checkpoint inspect {path}")


@checkpoint_app.command(name="grow")
def grow_command(run: Path, /, *, data: str, out: Path, classes: Whole = 0, data_dir: Path | None = None) -> None:
    """Begin a new run where another is, with more classes.

    New classes begin at the mean embedding of their images; the others keep prototypes and momentum to the bit.

    Parameters
    ----------
    run
        The run's folder.
    data
        Images of all classes, old and new, as in folder:PATH. Classes are known by their names.
    out
        The new run's folder.
    classes
        How many classes there are to be then: a check, and not needed.
    data_dir
        Where data sets are cached, in place of $ARCWISE_DATA.
    """
    print_change(run, data, out, classes, data_dir, grow=True)


@checkpoint_app.command(name="drop")
def drop_command(run: Path, /, *, data: str, out: Path, classes: Whole = 0, data_dir: Path | None = None) -> None:
    """Begin a new run where another is, without some of its classes.

    Parameters
    ----------
    run
        The run's folder.
    data
        Images of the classes that stay, as in folder:PATH or mnist[0-4]. Classes are known by their names.
    out
        The new run's folder.
    classes
        How many classes there are to be then: a check, and not needed.
    data_dir
        Where data sets are cached, in place of $ARCWISE_DATA.
    """
    print_change(run, data, out, classes, data_dir, grow=False)


def print_change(run: Path, data: str, out: Path, classes: int, data_dir: Path | None, *, grow: bool) -> None:
    """What came, what went, and what to type next."""
    from arcwise.train.classes import change_classes

    done = change_classes(Run.open(run), data, out, grow=grow, classes=classes, data_dir=data_dir)
    changes = [f"{len(names):,} {what} ({shown(names)})" for names, what in ((done.came, "new"), (done.went, "gone"))
               if names]  # fmt: skip
    print(f"{out} holds a run before its first step: {done.stayed:,} classes as they were, {', '.join(changes)}.")
    print(f"Next: {done.command}")


def shown(names: tuple[str, ...]) -> str:
    """A few names."""
    return ", ".join(names[:4]) + (", ..." if len(names) > 4 else "")


def run_around(path: Path) -> Run | None:
    """The run that a folder or a checkpoint belongs to, if any."""
    for place in (path, path.parent, path.parent.parent):
        if Run(place).exists():
            return Run.open(place)
    return None
