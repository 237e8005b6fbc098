"""`arcwise report`: a document from finished runs."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from arcwise.cli.progress import clear_line, teller
from arcwise.errors import ArcwiseError


def needs(*packages: str) -> None:
    """Refuses, with the command to type, when something is not installed."""
    for package in packages:
        if importlib.util.find_spec(package) is None:
            raise ArcwiseError(f'this needs {package}: pip install "arcwise[report]"')


def report_command(
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
    from arcwise.report.make import report, report_folder

    folder, both = out or report_folder(runs), not html and not pdf
    written = report(runs, folder, html=html or both, pdf=pdf or both, archive=zip_, tell=teller())
    clear_line()
    for path in written:
        if path.suffix in (".html", ".pdf", ".zip", ".json"):
            print(path)
    pictures = [path for path in written if path.suffix in (".png", ".gif")]
    places = sorted({str(path.parent) for path in pictures})
    print(f"{len(pictures)} pictures in {' and '.join(places)}")
    print(f"Next: open {next((p for p in written if p.suffix in ('.html', '.pdf')), written[0])}")
