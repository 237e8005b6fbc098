"""A folder of other people's things to run commands in, and what a command has done to them.

What a verb may write: its own place in a Run, the comparison that it makes, and what is new. Everything else has to be
there afterwards as it was, to the byte.
"""

from __future__ import annotations

import contextlib
import fnmatch
import os
import shutil
import stat
from pathlib import Path

from hostile.cases import signature

RUNS = ("run", "comparison/*-seed?", "unfinished", "spread")
MEASURED = tuple(f"{run}/{name}" for run in RUNS for name in ("metrics.json", "epochs-*.json"))
PICTURES = tuple(f"{place}/{kind}/*" for place in (*RUNS, "comparison") for kind in ("figures", "animations"))
REPORTS = tuple(
    f"comparison/{name}"
    for name in ("report.*", "report-*", "method.html", "metrics.json", "figures/*", "animations/*")
)
# By verb: what it may change or put into folders that were there before.
OWNED: dict[str, tuple[str, ...]] = {
    "evaluate": MEASURED,
    "figures": (*MEASURED, *PICTURES, "comparison/new*"),
    "report": (*MEASURED, *REPORTS),
    "compare": ("comparison/*",),
    "checkpoint": ("spread/checkpoints/*",),
    "train": (
        "unfinished/*",
        "spread/*",
        "comparison/new*",
    ),  # a run may lie beside a comparison's own, as the demo's do
    "embed": ("run/embeddings/*", "comparison/*-seed?/embeddings/*", "unfinished/embeddings/*", "spread/embeddings/*"),
    "export": tuple(f"{run}/*.onnx" for run in RUNS),
    "calibrate": tuple(f"{place}/thresholds.json" for place in (*RUNS, "exported")),
    "gallery": ("people/*", "stranger/new"),  # where somebody says that a new file is to be
    "pairs": ("stranger/new",),
}
# Decoded pictures, in the cache or in a cache that --data-dir names; a new place in a folder that is nobody's kind.
EVERYBODY = ("*folders/*", "exported/new.onnx", "exported/new.onnx/*")
NOTES = "# Notes\n\nNobody else writes here.\n"


def furnish(root: Path, templates: Path) -> None:
    """Fills a folder with the templates and with what other programs and people have."""
    shutil.copytree(templates, root, copy_function=shutil.copy2)
    (root / "empty").mkdir()
    (root / "home").mkdir()
    (root / "file.txt").write_text("a file\n")
    stranger = root / "stranger"
    stranger.mkdir()
    (stranger / "metrics.json").write_text('{"theirs": 1}\n')
    (stranger / "report.html").write_text("<p>theirs</p>\n")
    (stranger / "notes.md").write_text(NOTES)
    for name in ("$x$", "<b>&", "a\nb", "\udcff", "#let"):
        shutil.copytree(root / "pictures" / "a", root / "odd" / name)
    os.mkfifo(root / "pipe")
    (root / "loop").mkdir()
    (root / "loop" / "again").symlink_to("..")
    (root / "loop" / "a").mkdir()
    (root / "dangling").symlink_to("nothing")
    (root / "to the run").symlink_to("run")
    (root / "ü ber").mkdir()


class Sandbox:
    """The folder, and a second one like it to put things back from."""

    def __init__(self, root: Path, templates: Path):
        self.pristine, self.outside = root / "pristine", root / "outside"
        self.outside.mkdir(parents=True)
        self.folder = self.outside / "sandbox"
        for place in (self.pristine, self.folder):
            furnish(place, templates)
        self.before = signature(self.outside, locks=True)

    def changes(self, verb: str) -> list[str]:
        """What a command changed, added or removed that is not its verb's to write."""
        after = signature(self.outside, locks=True)
        known = {Path(name).relative_to("sandbox").parts[0] for name in self.before}
        found = []
        for name in sorted(after.keys() | self.before.keys()):
            if after.get(name) == self.before.get(name):
                continue
            inside = name.removeprefix("sandbox/")
            new = name not in self.before
            if (new and Path(inside).parts[0] not in known) or owned(verb, inside):
                continue
            if new or name not in after or not self.same(inside):
                found.append(f"{'added' if new else 'gone' if name not in after else 'changed'}: {inside}")
        return found

    def same(self, name: str) -> bool:
        """Whether a file holds what it held."""
        mine, theirs = self.folder / name, self.pristine / name
        kinds = [stat.S_IFMT(path.lstat().st_mode) for path in (mine, theirs)]
        if kinds[0] != kinds[1] or kinds[0] != stat.S_IFREG:
            return kinds[0] == kinds[1]
        return mine.read_bytes() == theirs.read_bytes()

    def restore(self) -> None:
        """Puts everything back."""
        after = signature(self.outside, locks=True)
        for name in after.keys() - self.before.keys():
            (self.outside / name).unlink()
        for folder in sorted((p for p in self.outside.rglob("*") if p.is_dir() and not p.is_symlink()), reverse=True):
            if not (self.pristine / folder.relative_to(self.folder)).is_dir() if folder != self.folder else False:
                with contextlib.suppress(OSError):
                    shutil.rmtree(folder)
        for name, was in self.before.items():
            if after.get(name) != was:
                self.put_back(name)
        self.before = signature(self.outside, locks=True)

    def put_back(self, name: str) -> None:
        """One file as it was."""
        here, theirs = self.outside / name, self.pristine / name.removeprefix("sandbox/")
        here.parent.mkdir(parents=True, exist_ok=True)
        here.unlink(missing_ok=True)
        if theirs.is_symlink():
            here.symlink_to(theirs.readlink())
        elif stat.S_ISFIFO(theirs.lstat().st_mode):
            os.mkfifo(here)
        else:
            shutil.copy2(theirs, here)


def owned(verb: str, name: str) -> bool:
    """Whether a verb may write this file."""
    return any(fnmatch.fnmatch(name, own) for own in (*OWNED.get(verb, ()), *EVERYBODY))
