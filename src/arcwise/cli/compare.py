"""`arcwise compare`: trains several heads over several seeds, and prints the table with its spread."""

from __future__ import annotations

import json
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from arcwise.cli.advise import Whole
from arcwise.cli.comparison_display import ComparisonDisplay, print_table
from arcwise.cli.train import configure, refuse_model_settings
from arcwise.errors import ArcwiseError, Interrupted, count_in
from arcwise.headspec import split_heads


def compare_command(
    recipe: str,
    /,
    *,
    heads: str = "softmax,softmax-bias,normface,arcface",
    seeds: Whole = 3,
    set_: Annotated[list[str] | None, Parameter(name="--set", consume_multiple=False)] = None,
    data: str | None = None,
    unseen: str | None = None,
    init: Path | None = None,
    out: Path | None = None,
    workers: Whole = 0,
    device: str = "auto",
    data_dir: Path | None = None,
    json_: bool = False,
) -> None:
    """Train several heads over several seeds, side by side.

    Parameters
    ----------
    recipe
        One of `arcwise recipes`.
    heads
        The heads, separated by commas, as in softmax,normface:s=8,arcface:m=0.3,s=16.
    seeds
        How many seeds, from 0 on; every head meets each with the same order of images and the same first network.
    set_
        Change a setting for all, as in --set train.epochs=5; may be given many times.
    data
        The images, as in mnist[0-4] or folder:PATH.
    unseen
        Classes to keep from training and to be judged on at the end, by position, name or pattern: 5-9, or s2-*.
    init
        A saved model that every head starts from: a run's folder, a model.safetensors, or insightface's .pth.
    out
        The comparison's folder; runs/compare-RECIPE if not given. Runs that are finished there are reused.
    workers
        Processes that share the machine; 0 lets the device decide.
    device
        auto, cpu, cuda or cuda:1.
    data_dir
        Where data sets are cached, in place of $ARCWISE_DATA.
    json_
        Print the table for a machine.
    """
    from arcwise.compare import compare
    from arcwise.study.table import table_values

    config = configure(recipe, set_ or [], head=None, data=data, unseen=unseen)
    if init is not None:
        refuse_model_settings(set_ or [])
        config = replace(config, init=str(init.resolve()))
    if any(setting.split("=")[0].strip().startswith("head.") for setting in set_ or []):
        raise ArcwiseError(
            "heads carry their own settings here: write --heads arcface:m=0.3,s=16 and leave --set head... out."
        )
    names, count = split_heads(heads), count_in("seeds", seeds, 1, 1000)
    count_in("workers", workers, 0, 256)
    folder = out or Path("runs") / f"compare-{recipe}"
    command = shlex.join(["arcwise", "compare", *sys.argv[2:]]) if sys.argv[1:2] == ["compare"] else ""
    with ComparisonDisplay() as display:
        try:
            comparison, table = compare(
                config, names, folder, seeds=list(range(count)), workers=workers, device=device, data_dir=data_dir,
                listener=display, command=command,
            )  # fmt: skip
        except (Interrupted, KeyboardInterrupt) as stop:
            display.close()
            print(f"\narcwise: {stop or 'stopped.'}\nGo on with the same command.", file=sys.stderr)
            sys.exit(130)
    if json_:
        print(json.dumps(table_values(table, config.recipe)))
        return
    print_table(table)
    print(f"\n{comparison.path} holds one run per head and seed, and metrics.json with every number.")
    print(f"Next: arcwise report {shlex.quote(str(comparison.path))}")
