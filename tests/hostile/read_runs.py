"""Readers of Runs, comparisons and reports: functions from a folder with templates to what was read of them."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from arcwise.records import Comparison, Run
from hostile.limits import short_training
from hostile.templates import SETTINGS


def run_doors(folder: Path, kit: Any) -> object:
    """All that a Run says of itself."""
    run = Run.open(folder / "run")
    return run.settings, run.head, run.given, run.resume_command, run.finished, run.metrics, run.result


def unfinished_doors(folder: Path, kit: Any) -> object:
    """What is said of a Run that is to be gone on with."""
    from arcwise.config import override
    from arcwise.recipes import recipe
    from arcwise.train.setup import NOTHING_GIVEN, same_config

    run = Run.open(folder / "unfinished")
    NOTHING_GIVEN.refuse_others(run)
    kit.refuse_others(run)
    return same_config(run, override(recipe("digits-2d"), SETTINGS)), run.resume_command, run.finished


def splits_of_templates(folder: Path) -> Any:
    """The images that the Run was trained on."""
    from arcwise.config import override
    from arcwise.data import load
    from arcwise.recipes import recipe

    return load(override(recipe("digits-2d"), SETTINGS).data)


def printed_result(folder: Path, kit: Any) -> object:
    """What `arcwise train` prints at the end."""
    from arcwise.cli.train import print_result

    with printed() as out:
        print_result(Run.open(folder / "run"), as_json=False)
        print_result(Run.open(folder / "run"), as_json=True)
    return out.getvalue()


@contextlib.contextmanager
def printed() -> Iterator[io.StringIO]:
    """What is printed while it is entered."""
    out, before = io.StringIO(), sys.stdout
    sys.stdout = out
    try:
        yield out
    finally:
        sys.stdout = before


def measured(folder: Path, kit: Any) -> object:
    """The numbers of a Run, measured again where the file is not whole."""
    from arcwise.measure import measure

    return measure(Run.open(folder / "run"))


def epochs(folder: Path, kit: Any) -> object:
    """The Dunn indices of a Run's snapshots."""
    from arcwise.study.subject import epoch_indices

    return epoch_indices(Run.open(folder / "run"), "test")


def journal(folder: Path, kit: Any) -> object:
    """The journal, and what is drawn of it."""
    from arcwise.figures.training import curve_of

    run = Run.open(folder / "run")
    return run.journal(), [curve_of("a", [run, run], key, 2.0) for key in ("loss", "accuracy", "angle_own")]


def journal_resumed(folder: Path, kit: Any) -> object:
    """The journal as training takes it up."""
    from arcwise.train.checkpoint import TrainingState
    from arcwise.train.journal import Journal

    Journal(Run.open(folder / "unfinished"), TrainingState(step=1)).write("steps", step=2, loss=1.0)
    return Run.open(folder / "unfinished").journal("steps")


def comparison_doors(folder: Path, kit: Any) -> object:
    """All that a comparison says of itself."""
    from arcwise.study.subject import runs_of, unfinished_notes

    found = Comparison.open(folder / "comparison")
    return found.heads, found.seeds, found.finished_runs(), unfinished_notes([found.path]), list(runs_of([found.path]))


def comparison_tabulated(folder: Path, kit: Any) -> object:
    """The table that `compare` writes."""
    from arcwise.study.table import comparison_table

    return str(comparison_table(Comparison.open(folder / "comparison")))


def report_known(folder: Path, kit: Any) -> object:
    """What a folder is taken for, and whether a report may be written into it again."""
    from arcwise.records.folders import claim_folder, kind_of_folder

    kind = kind_of_folder(folder / "report")
    claim_folder(folder / "report", "report")
    return kind


def study(folder: Path, kit: Any) -> object:
    """The text of a report, without its pictures."""
    from arcwise.report.content import content, title
    from arcwise.report.make import subject_of
    from arcwise.study.table import table_values

    about = subject_of(folder / ("comparison" if (folder / "comparison").is_dir() else "run"))
    return title(about), str(about.table), table_values(about.table, ""), len(content(about, {}, [], None))


def drawn(*names: str) -> Callable[[Path, Any], object]:
    """A reader that draws some of the figures of a Run."""

    def read(folder: Path, kit: Any) -> object:
        from arcwise.figures import drawings
        from arcwise.figures.canvas import figure_bytes, offscreen
        from arcwise.report.make import subject_of

        offscreen()
        about = subject_of(folder / "run")
        return [len(figure_bytes(one.figure, "png")) for name in names for one in drawings(about, only=name)]

    return read


def whole_report(folder: Path, kit: Any) -> object:
    """The report, all but its films."""
    from arcwise.figures.canvas import CLASS_COLOURS
    from arcwise.report.blocks import Viewer
    from arcwise.report.content import content, title
    from arcwise.report.make import figures, subject_of, view_words
    from arcwise.report.page import page_html
    from arcwise.report.paper import paper_pdf
    from arcwise.study.viewer import viewer_data

    about, out = subject_of(folder / "run"), folder / "report"
    pictures = figures(about, out, tell=lambda what: None)
    blocks = content(about, pictures, [], Viewer(viewer_data(about, CLASS_COLOURS), view_words(about)))
    return len(page_html(title(about), "", blocks, out)), len(paper_pdf(title(about), "", blocks, out))


def resumed(folder: Path, kit: Any) -> object:
    """Training gone on with, at its last step."""
    from arcwise.train import train

    with short_training():
        run = train("digits-2d", folder / "unfinished", settings=SETTINGS, resume=True, device="cpu",
                    listener=lambda event: None)  # fmt: skip
    return run.result["test"]
