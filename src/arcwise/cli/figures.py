"""`arcwise figures`: the pictures of finished runs alone."""

from __future__ import annotations

import shlex
from pathlib import Path

from arcwise.cli.progress import clear_line, teller
from arcwise.cli.report import needs
from arcwise.errors import ArcwiseError, note, one_of
from arcwise.records import Comparison, Run, claim_folder, mark_report

WHY_NOT = {
    "circle": "it needs embeddings of two dimensions (--set model.dim=2)",
    "confidence": "it needs embeddings of two dimensions (--set model.dim=2)",
    "sample": "it needs embeddings of two dimensions (--set model.dim=2) and at most twelve classes",
    "embeddings": "embeddings of three dimensions are drawn as they are (--only sphere)",
    "sphere": "it needs embeddings of three dimensions (--set model.dim=3)",
    "dunn-epochs": "it needs snapshots (--set train.snapshots=true)",
    "training": "it needs a journal with at least two evaluations",
    "sweep": "it needs a comparison of nine heads or more, NormFace and ArcFace over s and m",
    "bias": "it needs a run of softmax-bias on classes of unequal size (--set data.imbalance=20) beside runs without",
    "conflicts": "it needs the images, and a sample that lies nearer to another class",
    "confusion": "it needs at most a thousand classes",
}


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
        Figures go to OUT/figures, animations to OUT/animations; into the run or comparison itself if not given.
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
    folder = out or own_folder(runs)
    claim_folder(folder, "report", also=tuple(runs))
    about, tell = make.subject_of(runs), teller()
    kinds = ("png", "svg") if svg else ("png",)
    drawn = make.figures(about, folder, only=only, kinds=kinds, tell=tell)
    films = make.animations(about, folder, tell=tell) if animate else []
    if folder not in runs and (drawn or films):
        mark_report(folder)
    clear_line()
    for words in about.notes:
        note(f"left out: {words.rstrip('.')}.")
    if animate and not films:
        note("no animation: they need snapshots (--set train.snapshots=true) of two or three dimensions.")
    if not drawn and not films:
        raise ArcwiseError(
            f"these runs do not allow the figure {only!r}: {WHY_NOT.get(only, 'they lack what it shows')}."
        )
    for picture in (picture for many in drawn.values() for picture in many):
        for kind in kinds:
            print((folder / picture.file).with_suffix(f".{kind}"))
    for film in films:
        print(folder / film.file)
    print(f"Next: arcwise report {shlex.join(map(str, runs[:3]))}")


def own_folder(runs: list[Path]) -> Path:
    """Where pictures go that nobody chose a folder for: into the run or the comparison they are of."""
    return runs[0] if Run(runs[0]).exists() or Comparison(runs[0]).exists() else Path("figures-of-runs")
