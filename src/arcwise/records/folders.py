"""What a folder holds: a run, a comparison, a report, or a stranger's files. Nobody writes into another kind's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from arcwise.errors import ArcwiseError
from arcwise.records.files import FORMAT, write_json
from arcwise.schema import Check, anything, many, parse_json, table, text

MARK = ".arcwise.json"  # in a folder that holds a report or figures, and says so
RUN, TABLE = (
    table({"format": anything, "config": anything}),
    table({"recipe": text, "heads": many(text), "metrics": table()}),
)
WORDS = {
    "run": "a run", "comparison": "a comparison", "report": "a report", "gallery": "a gallery",
    "strange": "other files", "file": "a file",
}  # fmt: skip


def kind_of_folder(folder: str | Path) -> str:
    """ "run", "comparison", "report", "gallery" or "strange"; "file" where it is one, "" where there is nothing yet.

    >>> kind_of_folder("/nowhere")
    ''
    """
    folder = Path(folder)
    if folder.is_file():
        return "file"
    if not folder.is_dir() or all(item.name.startswith(".") and item.name != MARK for item in folder.iterdir()):
        return ""
    if (folder / "comparison.json").is_file():
        return "comparison"
    if is_run(folder):
        return "run"
    if fits(folder / "gallery.json", table({"kind": text, "table": text})):
        return "gallery"
    return "report" if is_report(folder) else "strange"


def is_run(folder: Path) -> bool:
    """Whether training was started here: its config.json says so, or what else a run has, where that is damaged."""
    return fits(folder / "config.json", RUN) or (
        (folder / "config.json").is_file() and (folder / "journal.jsonl").is_file()
    )


def is_report(folder: Path) -> bool:
    """Whether arcwise wrote a report or figures here; earlier reports are known by their table of numbers."""
    told = fits(folder / MARK, table({"kind": text}))
    return told or ((folder / "report.html").is_file() and fits(folder / "metrics.json", TABLE))


def fits(path: Path, check: Check) -> bool:
    """Whether a JSON file is there and as the check wants it."""
    try:
        check(parse_json(path.read_bytes()), "")
    except (OSError, ValueError):
        return False
    return True


def claim_folder(folder: str | Path, kind: str, *, also: tuple[Path, ...] = ()) -> None:
    """Raises unless a folder may be written into as this kind: it is new, empty or of the kind, or one of `also`.

    Nothing is begun inside of a run or a report either, and inside of a comparison runs and reports alone.
    """
    folder = Path(folder)
    whole = folder.resolve()
    if whole in [place.resolve() for place in also]:
        return
    found, choose = kind_of_folder(folder), "name another place" if kind == "gallery" else "choose another --out"
    if found not in ("", kind):
        raise ArcwiseError(f"{folder} holds {WORDS[found]}, and {WORDS[kind]} needs a folder of its own: {choose}.")
    for parent in whole.parents:
        if parent.is_file():
            raise ArcwiseError(f"{parent} is a file: {choose}.")
        if kind_of_own(parent) or (kind not in ("run", "report") and (parent / "comparison.json").is_file()):
            raise ArcwiseError(
                f"{folder} lies inside of {parent}, which is not yours to fill: {choose}, "
                f"{parent.parent / folder.name} for example."
            )


def refuse_new_file(out: Path, *, own: Path | None = None) -> None:
    """Raises unless a new file may be put here: over nothing, in a folder that is there and is none of arcwise's.

    `own` is a folder of arcwise's that it may lie in all the same.
    """
    whole = out.resolve()
    if whole.exists():
        raise ArcwiseError(f"{out} is there already: remove it, or choose another name.")
    if not whole.parent.is_dir():
        raise ArcwiseError(f"there is no folder {out.parent}: make it first, or choose another place.")
    for folder in whole.parents:
        kind = kind_of_folder(folder)
        if kind in ("run", "comparison", "report", "gallery") and (own is None or whole.parent != own.resolve()):
            raise ArcwiseError(f"{folder} holds {WORDS[kind]}, and this is no part of it: choose another place.")


def kind_of_own(folder: Path) -> bool:
    """Whether arcwise made a folder, and nothing of another kind belongs below it."""
    marks = ((folder / "config.json", RUN), (folder / MARK, table({"kind": text})),
             (folder / "gallery.json", table({"kind": text, "table": text})))  # fmt: skip
    return any(fits(path, check) for path, check in marks)


def mark_report(folder: Path, about: dict[str, Any] | None = None) -> None:
    """Says in a folder that arcwise's report or figures are in it; a comparison's own folder says so already."""
    if not (folder / "comparison.json").is_file():
        write_json(folder / MARK, {"kind": "report", "format": FORMAT, **(about or {})})
