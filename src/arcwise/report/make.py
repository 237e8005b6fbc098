"""Returns the files of a report: figures, animations, metrics.json, report.html, report.pdf, and a zip of all."""

from __future__ import annotations

import io
import json
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

from arcwise.compare.table import as_json
from arcwise.errors import ArcwiseError
from arcwise.figures import image, offscreen
from arcwise.figures.animation import Track, movie
from arcwise.metrics.identification import has_linear_head
from arcwise.records import read_json, write
from arcwise.report.blocks import Film, Picture, Viewer
from arcwise.report.content import content, counted, title
from arcwise.report.drawings import WIDTHS, drawings, reach, run_series
from arcwise.report.page import page
from arcwise.report.paper import paper
from arcwise.report.subject import Subject
from arcwise.report.viewer import viewer_data

Tell = Callable[[str], None]
FRAMES = 60  # of an animation, or one per epoch
CORNER = "dunn-nearest-diameter-unit-95"


def report(
    about: Subject,
    out: Path,
    *,
    html: bool = True,
    pdf: bool = True,
    archive: bool = False,
    tell: Tell = lambda what: None,
) -> list[Path]:
    """Everything, written into `out`; the paths of what was written, the report first."""
    tell("measuring")
    numbers = as_json(about.table, about.config.recipe)
    if about.sweep_table is not None:
        numbers["sweep"] = as_json(about.sweep_table, about.config.recipe)["metrics"]
    if (out / "comparison.json").is_file() and (out / "metrics.json").is_file():  # the comparison's own table stays
        numbers = {**read_json(out / "metrics.json"), "report": numbers}
    written = [write(out / "metrics.json", json.dumps(numbers, indent=1))]
    pictures = figures(about, out, tell=tell)
    films = animations(about, out, tell=tell)
    tell("writing the report")
    view = Viewer(viewer_data(about), view_words(about)) if html else None
    blocks = content(about, pictures, films, view)
    runs = sum(map(len, about.runs.values()))
    version = about.first.about.get("versions", {}).get("arcwise", "")
    said = f"{counted(runs, 'run')}, {time.strftime('%d %B %Y')}, arcwise {version}"
    reports = []
    if html:
        reports.append(write(out / "report.html", page(title(about), said, blocks, out)))
    if pdf:
        reports.append(write(out / "report.pdf", paper(title(about), said, blocks, out)))
    written += [out / picture.file for many in pictures.values() for picture in many]
    written += [out / film.file for film in films]
    if archive:
        reports.append(write(out / "report.zip", zipped(about, [*reports, *written], out)))
    return reports + written


def figures(
    about: Subject, out: Path, *, only: str = "", kinds: tuple[str, ...] = ("png",), tell: Tell
) -> dict[str, list[Picture]]:
    """Every picture as a file, by name."""
    offscreen()
    found: dict[str, list[Picture]] = {}
    for drawing in drawings(about, only=only):
        tell(f"drawing {drawing.name}")
        many = found.setdefault(drawing.name, [])
        file = f"figures/{drawing.name}{f'-{len(many) + 1}' if many else ''}"
        for kind in kinds[1:]:
            write(out / f"{file}.{kind}", image(drawing.figure, kind, close=False))
        write(out / f"{file}.{kinds[0]}", image(drawing.figure, kinds[0]))
        many.append(Picture(f"{file}.{kinds[0]}", drawing.caption, WIDTHS.get(drawing.name, 1.0)))
    return found


def animations(about: Subject, out: Path, *, tell: Tell) -> list[Film]:
    """The cloud over the epochs, for each part that was kept, two heads side by side."""
    heads = [about.heads[0], about.heads[-1]] if len(about.heads) > 1 else about.heads
    plain = [head for head in about.heads if head == "softmax"][:1]
    arc = [head for head in about.heads if head.startswith("ArcFace")][:1]
    heads = plain + arc if plain and arc else heads
    films = []
    for part in ("test", "validation", "train"):
        if part == "test" and about.config.data.validation:
            continue
        tracks = [found for head in heads if (found := track(about, head, part)) is not None]
        if len(tracks) < len(heads) or about.dim not in (2, 3):
            continue
        tell(f"animating {part}")
        made = movie(tracks, between=max(1, FRAMES // len(tracks[0].snapshots)))
        write(out / f"animations/{part}.gif", made.gif())
        write(out / f"animations/{part}.png", made.poster)
        film = made.mp4()
        if film is not None:
            write(out / f"animations/{part}.mp4", film)
        words = f"Embeddings of {part} images over the epochs, {' beside '.join(heads)}."
        words += " Samples move in straight lines between epochs."
        films.append(Film(f"animations/{part}.gif", f"animations/{part}.png", words))
    return films


def track(about: Subject, head: str, part: str) -> Track | None:
    """One head's snapshots with epoch, accuracy and Dunn index in the corner."""
    found = about.snapshots(head, part)
    if len(found) < 2:
        return None
    words = []
    for e, indices in zip(found, run_series(about.runs[head][0], part), strict=True):
        facts = e.about or {}
        accuracy = f"accuracy {facts.get('accuracy', float('nan')):.2%}"
        words.append(f"epoch {facts.get('epoch', '?')}\n{accuracy}\nDunn {indices[CORNER]:.2f}")
    last = found[-1]
    free = last.dim == 2 or has_linear_head(last)
    return Track(head, found, words, reach(last.x) if free else 0.0)


def view_words(about: Subject) -> str:
    """What the interactive view shows."""
    hover = ", hover over a point for its image" if about.splits is not None else ""
    if about.dim == 2:
        return f"The same to play with: slide through the epochs, drag and zoom{hover}."
    shown = "three principal components of the embeddings" if about.dim > 3 else "the embeddings"
    return f"To turn by hand: {shown}, directions only for normalised heads. Drag, zoom{hover}."


def zipped(about: Subject, files: list[Path], out: Path) -> bytes:
    """One archive: the report, its figures and numbers, and the code that made them."""
    import arcwise

    buffer, package = io.BytesIO(), Path(arcwise.__file__).parent
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in files:
            archive.write(path, path.relative_to(out))
        for path in sorted(p for p in package.rglob("*") if p.suffix in (".py", ".html", ".npz", ".typed")):
            archive.write(path, Path("code") / "arcwise" / path.relative_to(package))
        for runs in about.runs.values():
            for run in runs:
                for name in ("config.json", "metrics.json", "journal.jsonl"):
                    if (run.path / name).is_file():
                        archive.write(run.path / name, Path("runs") / run.path.name / name)
    return buffer.getvalue()


def refuse_inside_run(out: Path) -> None:
    """A report does not go where a run's own files are, nor over a file."""
    for folder in (out.resolve(), *out.resolve().parents):
        if folder.is_file():
            raise ArcwiseError(f"{folder} is a file: choose a folder for --out.")
        if (folder / "config.json").is_file() and (folder / "journal.jsonl").is_file():
            raise ArcwiseError(f"{folder} is a run's own folder: choose --out {folder.parent / 'report'}, for example.")
