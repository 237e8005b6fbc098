"""Commands that are ended in the middle: by which signal, at which moment, and what has to be true afterwards."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from hostile.cases import told
from hostile.templates import SETTINGS
from hostile.zygote import Zygote

SIGNALS: dict[str, list[int]] = {
    "kill": [signal.SIGKILL], "term": [signal.SIGTERM], "interrupt": [signal.SIGINT],
    "interrupt twice": [signal.SIGINT, signal.SIGINT],
}  # fmt: skip
PATIENCE = 60.0  # seconds that a command may take to end once it was asked to


@dataclass(frozen=True, kw_only=True)
class Writer:
    """A command that writes: what it needs, how it is gone on with, and what it must come to in the end."""

    line: str
    again: str = ""  # what is typed afterwards, if not the same
    needs: tuple[str, ...] = ("pictures",)
    limits: tuple[str, ...] = ()
    done: str = ""  # what it says the second time, where it does nothing twice
    result: Callable[[Path], object] = lambda folder: None
    share: int = 1
    apart: bool = False  # as a process of its own, which imports everything first
    long: bool = False  # too long for every test run


def weights(*runs: str) -> Callable[[Path], object]:
    """Weights, embeddings and final numbers of runs."""

    def read(folder: Path) -> object:
        from safetensors.numpy import load_file

        from arcwise.records import Run

        found = []
        for path in (path for run in runs for path in sorted(folder.glob(run))):
            run = Run.open(path)
            found.append(
                (path.name, load_file(run.model), run.embeddings("test"), run.prototypes(), run.result["test"])
            )
        assert found, f"there is no {runs}"
        return found

    return read


def files(*names: str) -> Callable[[Path], object]:
    """The content of files; of pictures and pages only that they are there."""

    def read(folder: Path) -> object:
        found = {}
        for path in (path for name in names for path in sorted(folder.glob(name)) if not path.name.startswith(".")):
            exact = path.suffix in (".json", ".safetensors")
            found[str(path.relative_to(folder))] = path.read_bytes() if exact else path.stat().st_size > 0
        assert found, f"there is no {names}"
        return found

    return read


def decoded_pixels(folder: Path) -> object:
    """The pictures as the cache gives them: those of their files."""
    import numpy as np
    from PIL import Image

    place = next(iter((folder / "fresh" / "folders").iterdir()))
    pixels, state = (np.fromfile(place / name, np.uint8) for name in ("pixels.u8", "state.u8"))
    wanted = [np.asarray(Image.open(path)) for path in sorted((folder / "pictures").rglob("*.png"))]
    assert np.array_equal(pixels, np.stack(wanted).ravel()) and (state == 1).all(), "the cache holds other pixels"
    return len(state)


def calibrated(folder: Path) -> object:
    """The thresholds, but for their dates."""
    from arcwise.records.thresholds import read_thresholds

    return [(one.far, one.cosine, one.far_low, one.model) for one in read_thresholds(folder / "run/thresholds.json")]


def enrolled(name: str) -> Callable[[Path], object]:
    """Who is in a gallery, and what is known of everybody."""

    def read(folder: Path) -> object:
        from arcwise.gallery import Gallery

        found = Gallery.open(folder / name, None)
        return found.list(), found.embeddings().x, len(list((folder / name).glob("*.lance")))

    return read


def gallery_card(name: str) -> Callable[[Path], object]:
    """What a gallery says of itself, but for its dates and the name of its table."""

    def read(folder: Path) -> object:
        from arcwise.gallery import Gallery

        card = Gallery.open(folder / name, None).card
        return card.model, card.dim, card.match, [(one.far, one.cosine) for one in card.thresholds]

    return read


def exported_rows(folder: Path) -> object:
    """Whose model a file is, and what it makes of one image."""
    import numpy as np

    from arcwise.export.encoder import OnnxEmbedder

    found = OnnxEmbedder.load(folder / "new.onnx")
    look = found.preprocessing
    return found.fingerprint, found.encode(np.full((1, look.side, look.side, look.channels), 77, np.uint8))


SMALL = " ".join(f"--set {setting}" for setting in SETTINGS if not setting.startswith("data.source"))
WRITERS: dict[str, Writer] = {
    "train": Writer(line=f"train digits-2d --data folder:pictures {SMALL} --out new", again="--resume",
                    result=weights("new"), share=6),
    "compare": Writer(line=f"compare digits-2d --heads softmax,arcface --seeds 1 --workers 1 --data folder:pictures "
                           f"{SMALL} --out new", result=weights("new/*-seed?"), share=3),
    "compare, two workers": Writer(line=f"compare digits-2d --heads softmax,arcface --seeds 1 --workers 2 "
                                        f"--data folder:pictures {SMALL} --out new", result=weights("new/*-seed?"),
                                   long=True),
    "evaluate, apart": Writer(line="evaluate run --again", needs=("pictures", "run"), result=files("run/metrics.json"),
                              share=2, apart=True, long=True),
    "train, apart": Writer(line=f"train digits-2d --data folder:pictures {SMALL} --out new", again="--resume",
                           result=weights("new"), share=2, apart=True, long=True),
    "evaluate": Writer(line="evaluate run --again", needs=("pictures", "run"), result=files("run/metrics.json"),
                       share=2),
    "evaluate, on images": Writer(line="evaluate run --on folder:pictures[e-f] --out new", needs=("pictures", "run"),
                                  limits=("few_pictures",), result=files("new/*"), long=True),
    "figures": Writer(line="figures run --svg", needs=("pictures", "run"), limits=("few_pictures",),
                      result=files("run/figures/*"), share=2),
    "report": Writer(line="report comparison", needs=("pictures", "comparison"), limits=("few_pictures",),
                     result=files("comparison/report.*", "comparison/figures/*"), share=2),
    "embed": Writer(line="embed run folder:pictures --out new.safetensors", needs=("pictures", "run"),
                    result=files("new.safetensors"), share=2),
    "calibrate": Writer(line="calibrate run --on folder:pictures[e-f] --far 0.2 --few-identities",
                        needs=("pictures", "run"), result=calibrated),
    "gallery add": Writer(line="gallery add people pictures --model run --tags new",
                          needs=("pictures", "run", "people"), result=enrolled("people"), share=2),
    "gallery reembed": Writer(line="gallery reembed people --model run", needs=("run", "people"),
                              result=enrolled("people")),
    "gallery create": Writer(line="gallery create new --model run", needs=("run",), done="is a gallery already",
                             result=gallery_card("new")),
    "gallery remove": Writer(line="gallery remove people b", needs=("people",), done="nobody called 'b'",
                             result=enrolled("people")),
    "gallery copy": Writer(line="gallery copy people new", needs=("people",), result=enrolled("new")),
    "checkpoint merge": Writer(line="checkpoint merge spread", needs=("spread",), done="is one file already",
                               result=files("spread/checkpoints/*.safetensors")),
    "checkpoint drop": Writer(line="checkpoint drop unfinished --data folder:pictures[a-c] --out new",
                              needs=("pictures", "unfinished"), done="holds a run",
                              result=files("new/checkpoints/*", "new/*.safetensors")),
    "gallery export": Writer(line="gallery export people new.safetensors", needs=("people",),
                             done="is there already", result=files("new.safetensors")),
    "gallery calibrate": Writer(line="gallery calibrate people --model run", needs=("run", "people"),
                                result=gallery_card("people")),
    "pairs make": Writer(line="pairs make folder:pictures[a-d] -n 20 --folds 2 --out new.csv",
                         done="is there already", result=lambda folder: (folder / "new.csv").read_text()),
    "export": Writer(line="export run new.onnx --on folder:pictures[a-c]", needs=("pictures", "run"),
                     done="is there already", result=exported_rows, long=True),
    "margins": Writer(line="margins --page new.md", needs=(), limits=("few_margins",), result=files("new.md", "new/*"),
                      long=True),
    "data show": Writer(line="data show folder:pictures --set data.size=8 --data-dir fresh", result=decoded_pixels,
                        share=2),
}  # fmt: skip


# What writes nothing, and `checkpoint grow`, which goes the way of drop. `data get` needs a network: what it leaves
# where it is cut off is in tests/data/test_fetch.py.
READING = ("advise", "plan", "recipes", "data list", "data get", "verify", "gallery identify", "gallery verify",
           "gallery list", "gallery stats", "checkpoint inspect", "checkpoint grow")  # fmt: skip


class Kill(NamedTuple):
    """Which command, by what, and when: at the so-manieth thing it does to a file, or after this share of its time."""

    verb: str
    by: str
    at: int | float


class Undisturbed(NamedTuple):
    """What a command does when it is left alone: things to files, seconds, its result, and calls by their kinds.

    Calls are counted where the zygote has the library of a failing disk.
    """

    events: int
    seconds: float
    result: str
    calls: dict[int, int]


class Butcher:
    """Ends commands, and looks at what they leave."""

    def __init__(self, zygote: Zygote, templates: Path, scratch: Path):
        self.zygote, self.templates, self.scratch = zygote, templates, scratch
        self.known: dict[str, Undisturbed] = {}

    def undisturbed(self, verb: str) -> Undisturbed:
        """The command left alone, once."""
        if verb not in self.known:
            folder = self.place(verb)
            events, calls = (folder.parent / f"{folder.name}.{name}" for name in ("events", "calls"))
            fault = {"folder": str(folder), "fault": "broken", "at": -1, "count": str(calls)}
            counted = {"events": str(events)} | ({"fault": fault} if "LD_PRELOAD" in self.zygote.environment else {})
            ended = self.zygote.run(**self.wanted(verb, folder, ""), **counted)
            assert ended["status"] == 0, (folder / "err").read_text()
            seen, kinds = (json.loads(path.read_text()) if path.exists() else None for path in (events, calls))
            by_kind = {int(kind): count for kind, count in (kinds or {}).items()}
            self.known[verb] = Undisturbed(seen or 0, ended["seconds"], told(WRITERS[verb].result(folder)), by_kind)
            shutil.rmtree(folder)
        return self.known[verb]

    def place(self, verb: str) -> Path:
        """A fresh folder with what the command needs."""
        folder = Path(tempfile.mkdtemp(dir=self.scratch))
        for need in WRITERS[verb].needs:
            shutil.copytree(self.templates / need, folder / need)
        return folder

    def wanted(self, verb: str, folder: Path, more: str) -> dict[str, Any]:
        """The command as the zygote takes it."""
        tokens = f"{WRITERS[verb].line} {more}".split()
        env = {"ARCWISE_DATA": str(folder / "cache"), "HOME": str(folder)}
        return {"tokens": tokens, "cwd": str(folder), "env": env, "out": str(folder / "out"),
                "err": str(folder / "err"), "limits": WRITERS[verb].limits, "apart": WRITERS[verb].apart}  # fmt: skip

    def draw(self, seed: int, verb: str | None = None) -> Kill:
        """A kill of a seed."""
        random = Random(f"kill {verb} {seed}")
        verb = verb or random.choice([name for name, writer in WRITERS.items() for _ in range(writer.share)])
        by = random.choice(list(SIGNALS))
        alone = self.undisturbed(verb)
        inside = random.random() < 0.6 and not WRITERS[verb].apart
        return Kill(verb, by, random.randrange(alone.events) if inside else round(random.random(), 4))

    def attempt(self, kill: Kill) -> tuple[str, str | None]:
        """How the command ended, and what is wrong afterwards, if anything."""
        alone, folder = self.undisturbed(kill.verb), self.place(kill.verb)
        try:
            ended = self.end(kill, folder, alone)
            code = ended["status"]
            end = f"signal {-code}" if code < 0 else f"exit {code}"
            said = folder / "err"  # which is not there yet where the command was ended before its first word
            errors = said.read_text(errors="replace") if said.exists() else ""
            if ended["seconds"] > alone.seconds + PATIENCE:
                return end, f"hang: it took {ended['seconds']:.0f} s to end"
            if "Traceback" in errors and (not WRITERS[kill.verb].apart or "in main" in errors):  # Python itself starts
                return end, f"traceback: {' | '.join(errors.splitlines()[-3:])}"
            half = [f"{path.relative_to(folder)}: {why}" for path in shown(folder) if (why := why_half(path))]
            if half:
                return end, f"half a file: {'; '.join(half[:4])}"
            return end, self.gone_on_with(kill.verb, folder, alone)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def end(self, kill: Kill, folder: Path, alone: Undisturbed) -> dict[str, Any]:
        """How a command ended that was struck from inside, at a thing it does, or from outside, at a time."""
        wanted, signals = self.wanted(kill.verb, folder, ""), SIGNALS[kill.by]
        if isinstance(kill.at, int):
            return self.zygote.run(**wanted, moment={"at": kill.at, "signals": signals})
        child = self.zygote.begin(**wanted)
        time.sleep(kill.at * alone.seconds)
        for number in signals:
            with contextlib.suppress(ProcessLookupError):  # it was quicker
                os.kill(child, number)
            time.sleep(0.01)
        return self.zygote.answer()

    def gone_on_with(self, verb: str, folder: Path, alone: Undisturbed) -> str | None:
        """What is wrong when the command is given again: it succeeds, and comes to the same end."""
        ended = self.zygote.run(**self.wanted(verb, folder, WRITERS[verb].again))
        said = (folder / "err").read_text(errors="replace").strip().splitlines()
        done = WRITERS[verb].done
        if ended["status"] != 0 and not (done and done in " ".join(said)):
            return f"cannot go on: exit {ended['status']}: {' | '.join(said[-2:])}"
        try:
            same = told(WRITERS[verb].result(folder)) == alone.result
        except Exception as error:
            return f"no result: {type(error).__name__}: {error}"
        return None if same else "another result than undisturbed"


def shown(folder: Path) -> list[Path]:
    """The files that a person or a program may open: what begins with a dot is nobody's yet.

    Files of LanceDB's tables are its own: what counts of them is what is read.
    """
    every = (path for path in folder.rglob("*") if path.is_file() and path.parent != folder / "fresh")
    return [
        path
        for path in every
        if not any(part.startswith(".") or part.endswith(".lance") for part in path.relative_to(folder).parts)
    ]


def why_half(path: Path) -> str | None:
    """Why a file is not whole, if it is not."""
    try:
        if path.suffix == ".json":
            json.loads(path.read_text())
        elif path.suffix == ".jsonl":
            for line in path.read_text().splitlines()[:-1]:  # a torn last line is left out
                json.loads(line)
        elif path.suffix == ".safetensors":
            from arcwise.records import read_tensors

            read_tensors(path)
        elif path.suffix in (".png", ".gif"):
            from PIL import Image

            with Image.open(path) as picture:
                picture.load()
        elif path.suffix in (".html", ".svg", ".pdf", ".md", ".zip") and not path.stat().st_size:
            return "empty"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None
