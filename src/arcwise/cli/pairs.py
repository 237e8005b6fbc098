"""`arcwise pairs`: draws pairs of images, the same or not, into a table that people can read and edit."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from arcwise.cli.advise import Whole
from arcwise.cli.progress import Counter, byte_text, image_text
from arcwise.records.folders import refuse_new_file

pairs_app = App(name="pairs", help="Draw pairs of images to try models on.", result_action="return_value")


@pairs_app.command(name="make")
def make_command(
    source: str,
    /,
    *,
    n: Annotated[Whole, Parameter(name=["-n", "--n"])] = 6000,
    folds: Whole = 10,
    seed: Whole = 0,
    depth: Whole = 1,
    out: Path = Path("pairs.csv"),
    data_dir: Path | None = None,
) -> None:
    """Draw pairs of images, half of them of one identity, in folds that share no identity.

    Parameters
    ----------
    source
        A folder with one folder per identity, or a source, as in glyphs[300-399].
    n
        How many pairs.
    folds
        In how many folds.
    seed
        Another seed draws others.
    depth
        An identity is a folder at this depth below the one that is named.
    out
        The table, which is not overwritten.
    data_dir
        Where data sets are cached, in place of $ARCWISE_DATA.
    """
    import numpy as np

    from arcwise.pairs import make_pairs
    from arcwise.trial import LEAST_IN_A_FOLD

    refuse_new_file(out)
    keys, y, names = labelled_keys(source, depth, data_dir)
    made, root, looked = make_pairs(keys, y, names, n=n, folds=folds, seed=seed), folder_of(source), set[str]()
    while root is not None and (drawn := {*made.a, *made.b} - looked):  # only what is drawn is decoded
        broken = unreadable(root, sorted(drawn))
        looked |= drawn
        for key, reason in broken.items():
            print(f"skipped {key}: {reason}", file=sys.stderr)
        if broken:
            fine = np.array([at for at, key in enumerate(keys) if key not in broken], np.int64)
            keys, y = tuple(keys[at] for at in fine), y[fine]
            made = make_pairs(keys, y, names, n=n, folds=folds, seed=seed)
    made.save(out)
    print(f"{out}: {len(made):,} pairs in {made.folds} folds, of {len(names):,} identities")
    few, best = len(names) // folds, max(1, len(names) // LEAST_IN_A_FOLD)
    fewer = f"Take --folds {best}, or b" if best < folds else "B"
    if few < LEAST_IN_A_FOLD:
        print(
            f"note: a fold has {few} identities or so, and different ones are only paired within a fold: numbers from "
            f"so few say little. {fewer}ring more identities.",
            file=sys.stderr,
        )
    print(f"Next: arcwise evaluate MODEL --pairs {shlex.quote(str(out))} --on {shlex.quote(source)}")


def folder_of(source: str) -> Path | None:
    """What the keys of a folder's images are relative to; none of other sources, whose images are decoded whole."""
    from arcwise.data.fetch import expand_home
    from arcwise.data.images import split_filter
    from arcwise.data.sources import SOURCES

    plain, chosen = split_filter(source)
    name, _, rest = plain.partition(":")
    if name not in SOURCES and Path(source).is_dir():
        return Path()
    return expand_home(rest) if name == "folder" and not chosen else None


def unreadable(root: Path, keys: list[str]) -> dict[str, str]:
    """Images that cannot be decoded, with the reason."""
    from arcwise.records import Unusable, ready_pixels
    from arcwise.records.preprocessing import Framing, no_bombs

    look, counter, bad = Framing(side=8, channels=3), Counter(image_text), {}
    with no_bombs():
        for at, key in enumerate(keys, start=1):
            try:
                ready_pixels(look, root / key, key)
            except Unusable as error:
                bad[key] = error.reason
            counter("decoding", at, len(keys))
    return bad


def labelled_keys(source: str, depth: int, data_dir: Path | None):
    """The keys, labels and names of a source's images; nothing is decoded of a folder."""
    from arcwise.config import DataConfig
    from arcwise.data.fetch import expand_home
    from arcwise.data.images import split_filter
    from arcwise.data.sources import SOURCES, load_whole
    from arcwise.embed import folder_keys, told_listing

    name = split_filter(source)[0].partition(":")[0]
    if name not in SOURCES and Path(source).is_dir():
        return folder_keys(Path(source), told_listing(Path(source), depth=depth), whole=True)
    if name == "folder" and not split_filter(source)[1]:
        root = expand_home(split_filter(source)[0].partition(":")[2])
        return folder_keys(root, told_listing(root, depth=depth), whole=False)
    counter = Counter(image_text if name == "folder" else byte_text)
    images, broken = load_whole(DataConfig(source=source, depth=depth), data_dir=data_dir, tell=counter)
    for key, reason in broken.items():
        print(f"skipped {key}: {reason}", file=sys.stderr)
    return images.keys, images.y, images.names
