"""`arcwise figures`: the pictures of finished runs alone."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from arcwise.cli.progress import teller, terminal
from arcwise.cli.report import needs
from arcwise.errors import ArcwiseError, one_of


def figures_command(
    runs: list[Path],
    /,
    *,
    out: Path | None = None,
    only: str = "",
    svg: bool = False,
    animate: bool = False,
) -> None:
    """Draw the figures of finished runs.

    Parameters
    ----------
    runs
        Comparisons or runs of one experiment.
    out
        Figures go to OUT/figures, animations to OUT/animations.
    only
        One figure by its name, as in circle, sphere, roc or sweep.
    svg
        Write SVG files beside the PNG files.
    animate
        Make the animations too, where snapshots were kept.
    """
    needs("matplotlib")
    from arcwise.figures import FIGURES
    from arcwise.report import make

    if only:
        one_of("figure", only, FIGURES)
    folder = out or make.report_folder(runs)
    make.refuse_inside_run(folder)
    about, tell = make.subject_of(runs), teller()
    kinds = ("png", "svg") if svg else ("png",)
    drawn = make.figures(about, folder, only=only, kinds=kinds, tell=tell)
    films = make.animations(about, folder, tell=tell) if animate else []
    if terminal():
        print("\r\x1b[K", end="", file=sys.stderr)
    if not drawn and not films:
        raise ArcwiseError(
            f"these runs do not allow the figure {only!r}: it needs other dimensions, snapshots or a sweep."
        )
    for picture in (picture for many in drawn.values() for picture in many):
        for kind in kinds:
            print((folder / picture.file).with_suffix(f".{kind}"))
    for film in films:
        print(folder / film.file)
    print(f"Next: arcwise report {shlex.join(map(str, runs[:3]))}")
