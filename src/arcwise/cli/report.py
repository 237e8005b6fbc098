"""`arcwise report` and `arcwise figures`: a document from finished runs, or its pictures alone."""

from __future__ import annotations

import importlib.util
import shlex
import sys
import time
from pathlib import Path

from arcwise.cli.progress import terminal
from arcwise.errors import ArcwiseError, one_of


def needs(*packages: str) -> None:
    """Refuses, with the command to type, when something is not installed."""
    for package in packages:
        if importlib.util.find_spec(package) is None:
            raise ArcwiseError(f'this needs {package}: pip install "arcwise[report]"')


def teller():
    """Says on stderr what is being done, with the seconds since the start."""
    began = time.monotonic()

    def tell(what: str) -> None:
        start, end = ("\r\x1b[K", "") if terminal() else ("", "\n")
        print(f"{start}{time.monotonic() - began:5.1f} s  {what}", end=end, file=sys.stderr, flush=True)

    return tell


def default_out(runs: list[Path]) -> Path:
    """Beside a comparison's runs, or beside a single run."""
    first = runs[0]
    return first if (first / "comparison.json").is_file() else first.parent / f"report-{first.name}"


def report(
    runs: list[Path],
    /,
    *,
    out: Path | None = None,
    html: bool = False,
    pdf: bool = False,
    zip_: bool = False,
) -> None:
    """Write a report on finished runs: HTML, PDF, figures, animations.

    Parameters
    ----------
    runs
        Comparisons or runs of one experiment; a comparison of nine heads or more is shown as a sweep.
    out
        Where everything goes; the comparison's own folder if not given.
    html
        Write report.html. Without --html or --pdf both are written.
    pdf
        Write report.pdf.
    zip_
        Put the report, its figures, its numbers and the code into report.zip.
    """
    needs("matplotlib", "typst")  # the page's formulas are set by it too
    from arcwise.report.make import refuse_inside_run
    from arcwise.report.make import report as make
    from arcwise.report.subject import subject

    folder, both = out or default_out(runs), not html and not pdf
    refuse_inside_run(folder)
    tell = teller()
    written = make(subject(runs), folder, html=html or both, pdf=pdf or both, archive=zip_, tell=tell)
    if terminal():
        print("\r\x1b[K", end="", file=sys.stderr)
    for path in written:
        if path.suffix in (".html", ".pdf", ".zip", ".json"):
            print(path)
    pictures = [path for path in written if path.suffix in (".png", ".gif")]
    print(f"{len(pictures)} pictures in {folder / 'figures'} and {folder / 'animations'}")
    print(f"Next: open {next((p for p in written if p.suffix in ('.html', '.pdf')), written[0])}")


def figures(
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
    from arcwise.report import make
    from arcwise.report.drawings import FIGURES
    from arcwise.report.subject import subject

    if only:
        one_of("figure", only, FIGURES)
    folder = out or default_out(runs)
    make.refuse_inside_run(folder)
    about, tell = subject(runs), teller()
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
