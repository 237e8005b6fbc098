"""The files of a report: figures, animations, metrics.json, report.html, report.pdf, and a zip of all."""

from __future__ import annotations

import io
import time
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

from arcwise.figures import FIGURES, drawings
from arcwise.figures.animation import Track, make_movie
from arcwise.figures.canvas import CLASS_COLOURS, PAGE, TOLD_APART, figure_bytes, offscreen, reach
from arcwise.headspec import HeadSpec
from arcwise.metrics.summary import MAIN_DUNN
from arcwise.records import Comparison, claim_folder, mark_report, write, write_json
from arcwise.report.blocks import Film, PictureFile, Viewer
from arcwise.report.content import content, is_introductory, lecture, runs_words, title
from arcwise.report.numbers import report_numbers
from arcwise.report.page import page_html
from arcwise.report.paper import paper_pdf
from arcwise.study.subject import Subject, epoch_indices, subject
from arcwise.study.viewer import viewer_data

Say = Callable[[str], None]
FRAMES = 60  # of an animation, or one per epoch


def report(
    runs: str | Path | Sequence[str | Path],
    out: str | Path | None = None,
    *,
    html: bool = True,
    pdf: bool = True,
    archive: bool = False,
    tell: Say = lambda what: None,
) -> list[Path]:
    """A report on finished runs or comparisons, in `out` (a comparison's own folder if not given); what was written.

    >>> import tempfile, arcwise
    >>> run = arcwise.train("digits-2d", tempfile.mkdtemp() + "/run", settings=["train.epochs=1"], device="cpu")
    >>> report(run.path, run.path.parent / "report", pdf=False)[0].name
    'report.html'
    """
    paths = path_list(runs)
    folder = Path(out) if out is not None else report_folder(paths)
    claim_folder(folder, "report", also=tuple(path for path in paths if Comparison(path).exists()))
    return write_report(subject_of(runs), folder, html=html, pdf=pdf, archive=archive, tell=tell)


def path_list(runs: str | Path | Sequence[str | Path]) -> list[Path]:
    """One path or many as a list."""
    return [Path(runs)] if isinstance(runs, str | Path) else [Path(path) for path in runs]


def subject_of(runs: str | Path | Sequence[str | Path]) -> Subject:
    """What the runs are about, with margins that can say what they make of a cosine."""
    return subject(path_list(runs), psi=known_psi)


def known_psi(head: HeadSpec, cos: float, norm: float) -> float | None:
    """psi of a head whose margin is in the catalogue."""
    from arcwise.curves import psi_at
    from arcwise.margins import MARGINS

    return psi_at(head, cos, norm) if head.name in MARGINS else None


def report_folder(runs: list[Path]) -> Path:
    """A comparison's own folder, or one beside a single run."""
    first = runs[0]
    return first if Comparison(first).exists() else first.parent / f"report-{first.name}"


def write_report(about: Subject, out: Path, *, html: bool, pdf: bool, archive: bool, tell: Say) -> list[Path]:
    """Everything, written into `out`; the paths of what was written, the report first."""
    tell("measuring")
    about.measure(epochs=True)
    mark_report(out)
    # A comparison's own table stays as it is.
    name = "report.json" if Comparison(out).exists() else "metrics.json"
    written = [write_json(out / name, report_numbers(about))]
    pictures = figures(about, out, tell=tell)
    films = animations(about, out, tell=tell)
    tell("writing the report")
    view = Viewer(viewer_data(about, CLASS_COLOURS), view_words(about)) if html else None
    blocks = content(about, pictures, films, view)
    version = about.first.about.get("versions", {}).get("arcwise", "")
    said = f"{runs_words(about)}; {time.strftime('%d %B %Y')}, arcwise {version}"
    reports = []
    if not is_introductory(about.config):
        written.append(
            write(out / "method.html", page_html("From softmax to ArcFace", "one change at a time", lecture(), out))
        )
    if html:
        reports.append(write(out / "report.html", page_html(title(about), said, blocks, out)))
    if pdf:
        reports.append(write(out / "report.pdf", paper_pdf(title(about), said, blocks, out)))
    written += [out / picture.file for many in pictures.values() for picture in many]
    written += [out / film.file for film in films]
    if archive:
        reports.append(write(out / "report.zip", zip_report(about, [*reports, *written], out)))
    return reports + written


def figures(
    about: Subject, out: Path, *, only: str = "", kinds: tuple[str, ...] = ("png",), tell: Say
) -> dict[str, list[PictureFile]]:
    """Every picture as a file, by name."""
    offscreen()
    found: dict[str, list[PictureFile]] = {}
    for drawing in drawings(about, only=only):
        if FIGURES[drawing.name].section == "method" and not only and not is_introductory(about.config):
            continue  # nothing would show it
        tell(f"drawing {drawing.name}")
        many = found.setdefault(drawing.name, [])
        wide = drawing.figure.get_figwidth() / PAGE  # a figure is printed as large as it was drawn
        file = f"figures/{drawing.name}{f'-{len(many) + 1}' if many else ''}"
        for kind in kinds[1:]:
            write(out / f"{file}.{kind}", figure_bytes(drawing.figure, kind, close=False))
        write(out / f"{file}.{kinds[0]}", figure_bytes(drawing.figure, kinds[0]))
        many.append(PictureFile(f"{file}.{kinds[0]}", drawing.caption, min(1.0, wide), drawing.name))
    return found


def animations(about: Subject, out: Path, *, tell: Say) -> list[Film]:
    """The cloud over the epochs, for each part that was kept, two heads side by side."""
    heads = [about.heads[0], about.heads[-1]] if len(about.heads) > 1 else about.heads
    plain, arc = about.heads_named("softmax")[:1], about.heads_named("arcface")[:1]
    heads = plain + arc if plain and arc else heads
    films = []
    for part in ("test", "validation", "train"):
        if part == "test" and about.config.data.validation:
            continue
        tracks = [found for head in heads if (found := animation_track(about, head, part)) is not None]
        if len(tracks) < len(heads) or about.dim not in (2, 3):
            continue
        tell(f"animating {part}")
        made = make_movie(tracks, between=max(1, FRAMES // len(tracks[0].snapshots)))
        write(out / f"animations/{part}.gif", made.gif())
        write(out / f"animations/{part}.png", made.poster)
        film = made.mp4()
        if film is not None:
            write(out / f"animations/{part}.mp4", film)
        tested = len(about.embeddings(heads[0]))
        words = film_words(part, heads, tracks[0], seed=about.first.settings.seed, tested=tested)
        films.append(Film(f"animations/{part}.gif", f"animations/{part}.png", words))
    return films


def film_words(part: str, heads: list[str], track: Track, *, seed: int, tested: int) -> str:
    """What a film shows, and which images its numbers are of, beside those of the tables."""
    kind, kept = {"train": "training"}.get(part, part), len(track.snapshots[0].x)
    others = "" if part == "test" and kept == tested else f"; the tables' are of all {tested:,} test images"
    rays = (
        "Rays are the centres, their lengths in proportion, drawn to fill the panel."
        if track.snapshots[0].dim == 2
        else "Rays are the directions of the centres; what lies behind is pale."
    )
    return (
        f"Embeddings of {kind} images over the epochs, {' beside '.join(heads)}, seed {seed}. Accuracy and Dunn index "
        f"are of the {kept:,} {kind} images that every epoch keeps{others}. {rays} Samples move in straight lines "
        "between epochs."
    )


def animation_track(about: Subject, head: str, part: str) -> Track | None:
    """One head's snapshots with epoch, accuracy and Dunn index in the corner."""
    found = about.snapshots(head, part)
    if len(found) < 2:
        return None
    words = []
    for e, indices in zip(found, epoch_indices(about.runs[head][0], part), strict=True):
        facts = e.about or {}
        told = facts.get("accuracy")
        accuracy = f"accuracy {told:.2%}" if isinstance(told, float | int) else "accuracy unknown"
        words.append(f"epoch {facts.get('epoch', '?')}, {accuracy}, Dunn {indices[MAIN_DUNN]:.2f}")
    last = found[-1]
    free = last.dim == 2 or about.specs[head].linear
    centres = [None if (one := about.centres_at(head, e)) is None else one.w for e in found]
    return Track(head, found, centres, words, reach(last.x) if free else 0.0)


def view_words(about: Subject) -> str:
    """What the interactive view shows."""
    hover = ", hover over a point for its image" if about.splits is not None else ""
    many = len(about.embeddings(about.heads[0]).names) > TOLD_APART
    repeated = " Colours repeat; the class of the point under the pointer keeps its own." if many else ""
    if about.dim == 2:
        return f"The same to play with: slide through the epochs, drag and zoom{hover}.{repeated}"
    shown = "three principal components of the embeddings" if about.dim > 3 else "the embeddings"
    return f"To turn by hand: {shown}, directions only for normalised heads. Drag, zoom{hover}.{repeated}"


def zip_report(about: Subject, files: list[Path], out: Path) -> bytes:
    """One archive: the report, its figures and numbers, and the code that made them."""
    buffer, package = io.BytesIO(), Path(__file__).parents[1]
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in files:
            archive.write(path, path.relative_to(out))
        for path in sorted(p for p in package.rglob("*") if p.suffix in (".py", ".html", ".npz", ".typed")):
            archive.write(path, Path("code") / "arcwise" / path.relative_to(package))
        for runs in about.runs.values():
            for run in runs:
                for name in ("config.json", "result.json", "metrics.json", "journal.jsonl"):
                    if (run.path / name).is_file():
                        archive.write(run.path / name, Path("runs") / run.path.name / name)
    return buffer.getvalue()
