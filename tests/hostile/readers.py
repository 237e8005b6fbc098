"""Every file that arcwise reads, by what reads it: a dict of readers, each a function from a folder to what was read.

The folder is a copy of the templates that the reader asks for; the working folder is that of the templates, so
that relative sources are found.
"""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from arcwise.records import Comparison, Embeddings, Prototypes, Run
from hostile.limits import SECONDS, no_network, short_training
from hostile.templates import SETTINGS


@dataclass(frozen=True, kw_only=True)
class Reader:
    """One way to read one file. `exact`: raw damage is noticed, or what comes back is what came back before it.

    `needs` are the templates it gets a copy of, `may_write` the places (patterns) in them that are its own to write,
    `prepare` makes once what every reading needs. Of a thousand cases it gets about `share`.
    """

    file: str
    family: str
    read: Callable[[Path, Any], object]
    needs: tuple[str, ...]
    share: float = 20.0
    exact: bool = False
    seconds: float = SECONDS
    may_write: tuple[str, ...] = ()
    prepare: Callable[[Path], Any] = lambda folder: None


# ---------------------------------------------------------------------------------------------- Runs and comparisons


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


# ---------------------------------------------------------------------------------------------- tensors


def model(folder: Path, kit: Any) -> object:
    """The Embedder, one embedding of it, and what `arcwise embed` asks it."""
    from arcwise.cli.embed import data_config
    from arcwise.errors import ArcwiseError
    from arcwise.model import Embedder

    found = Embedder.load(folder / "run" / "model.safetensors")
    look = found.preprocessing
    if look.side <= 64:
        pixels = np.zeros((1, look.side, look.side, look.channels), np.uint8)
        found.encode(pixels)
    for part in ("all", "test"):
        with contextlib.suppress(ArcwiseError):
            data_config(found, "folder:pictures", part)
    return found.fingerprint, found.names, found.about, found.config, look


def trainer(folder: Path) -> Any:
    """Network, head and optimiser of the unfinished Run."""
    import torch

    from arcwise.train.loop import Trainer

    run = Run.open(folder / "unfinished")
    return Trainer(run, run.settings, splits_of_templates(folder), device=torch.device("cpu"))


def checkpoint(folder: Path, kit: Any) -> object:
    """The state of training that is put back."""
    from arcwise.train.checkpoint import restore_checkpoint

    found = restore_checkpoint(Run(folder / "unfinished"), kit.modules, kit.optimisers, kit.device, total=kit.total)
    return (
        found.progress,
        {name: module.state_dict() for name, module in kit.modules.items()},
        kit.optimiser.state_dict(),
    )


def best_weights(folder: Path, kit: Any) -> object:
    """The best weights that are put back."""
    from arcwise.train.results import put_best

    put_best(Run(folder / "unfinished"), kit.final, kit.progress.best_epoch)
    return kit.final.state_dict()


def embeddings(folder: Path, kit: Any) -> object:
    """The record."""
    return Embeddings.load(folder / "run" / "embeddings" / "test.safetensors")


def embeddings_measured(folder: Path, kit: Any) -> object:
    """The numbers that `arcwise evaluate` gives of two files and a Run's centres."""
    from arcwise.metrics.summary import all_metrics, finite_or_null

    run = Run(folder / "run")
    return finite_or_null(all_metrics(run.embeddings("test"), run.embeddings("unseen"), run.prototypes()))


def prototypes(folder: Path, kit: Any) -> object:
    """The record."""
    found = Prototypes.load(folder / "run" / "prototypes" / "final.safetensors")
    return found, found.scale, found.linear, found.head.label


def snapshots(folder: Path, kit: Any) -> object:
    """The snapshots as a film and the interactive view take them."""
    from arcwise.figures.canvas import CLASS_COLOURS
    from arcwise.report.make import animation_track, subject_of
    from arcwise.study.viewer import viewer_data

    about = subject_of(folder / "run")
    return len(viewer_data(about, CLASS_COLOURS)), animation_track(about, about.heads[0], "test") is None


# ---------------------------------------------------------------------------------------------- images and their caches


def fetched(folder: Path, kit: Any) -> object:
    """A public set from the cache; nothing else may give it."""
    from arcwise.data.fetch import fetch_arrays

    with no_network():
        return fetch_arrays("cifar100", data_dir=folder / "cache")


def decoded(folder: Path, kit: Any) -> object:
    """The pictures from the folder's cache."""
    from arcwise.data import load

    found = load("folder:pictures", size=8, data_dir=folder / "cache")
    return [(name, np.asarray(part.pixels), part.y, part.names, part.files) for name, part in found.parts.items()]


def table(folder: Path, kit: Any) -> object:
    """The images that a CSV names."""
    from arcwise.data.folder import list_images

    found = list_images(folder / "table")
    return found, found.names


def table_loaded(folder: Path, kit: Any) -> object:
    """The same, decoded."""
    from arcwise.data import load

    found = load(f"folder:{folder / 'table'}", size=8, data_dir=folder / "cache", test=0.3)
    return [np.asarray(part.pixels).shape for part in found.parts.values()]


class Looker:
    """An Encoder that only looks: the mean of each channel."""

    dim, fingerprint = 3, "looker"

    def __init__(self) -> None:
        from arcwise.records import Preprocessing

        self.preprocessing = Preprocessing(side=8, channels=3, mean=(0.5,) * 3, std=(0.5,) * 3)

    def encode(self, pixels: np.ndarray) -> np.ndarray:
        return pixels.mean(axis=(1, 2), dtype=np.float32)


def image(name: str) -> Callable[[Path, Any], object]:
    """A reader of one image, as bytes and as a file."""

    def read(folder: Path, kit: Any) -> object:
        from arcwise.embed import embed

        path = folder / "images" / name
        return embed(Looker(), [path.read_bytes(), path]).x

    return read


def insight(name: str) -> Callable[[Path, Any], object]:
    """A reader of one checkpoint of insightface."""

    def read(folder: Path, kit: Any) -> object:
        from arcwise.model import Embedder

        return Embedder.load(folder / "insight" / name).config

    return read


IMAGES = (
    "colour.jpg", "cmyk.jpg", "progressive.jpg", "clear.png", "palette.png", "deep.png", "film.gif", "colour.bmp",
    "bits.bmp", "colour.tiff", "float.tiff", "colour.webp", "clear.webp", "colour.ppm", "colour.ico",
)  # fmt: skip
OWN = ("run/metrics.json", "run/epochs-*.json")
STEP = "unfinished/checkpoints/step-*.safetensors"

READERS: dict[str, Reader] = {
    "config": Reader(file="run/config.json", family="json", read=run_doors, needs=("run",), share=120),
    "config, to resume": Reader(file="unfinished/config.json", family="json", read=unfinished_doors,
                                needs=("unfinished",), share=60, prepare=splits_of_templates),
    "config, in a report": Reader(file="run/config.json", family="json", read=study, needs=("run",), share=8,
                                  may_write=OWN),
    "config, resumed": Reader(file="unfinished/config.json", family="json", read=resumed, needs=("unfinished",),
                              share=3, may_write=("unfinished/*",)),
    "result": Reader(file="run/result.json", family="json", read=run_doors, needs=("run",), share=60),
    "result, printed": Reader(file="run/result.json", family="json", read=printed_result, needs=("run",), share=60),
    "result, in a report": Reader(file="run/result.json", family="json", read=study, needs=("run",), share=8,
                                  may_write=OWN),
    "metrics": Reader(file="run/metrics.json", family="json", read=measured, needs=("run",), share=40, may_write=OWN),
    "metrics, in a report": Reader(file="run/metrics.json", family="json", read=study, needs=("run",), share=8,
                                   may_write=OWN),
    "metrics, in a whole report": Reader(file="run/metrics.json", family="json", read=whole_report, needs=("run",),
                                         share=0.3, seconds=90.0, may_write=(*OWN, "report/*")),
    "epochs": Reader(file="run/epochs-test.json", family="json", read=epochs, needs=("run",), share=40),
    "epochs, in a film": Reader(file="run/epochs-test.json", family="json", read=snapshots, needs=("run",), share=5,
                                may_write=OWN),
    "journal": Reader(file="run/journal.jsonl", family="lines", read=journal, needs=("run",), share=100),
    "journal, taken up": Reader(file="unfinished/journal.jsonl", family="lines", read=journal_resumed,
                                needs=("unfinished",), share=40, may_write=("unfinished/journal.jsonl",)),
    "journal, in a whole report": Reader(file="run/journal.jsonl", family="lines", read=whole_report, needs=("run",),
                                         share=0.3, seconds=90.0, may_write=(*OWN, "report/*")),
    "comparison": Reader(file="comparison/comparison.json", family="json", read=comparison_doors, needs=("comparison",),
                         share=60),
    "comparison, tabulated": Reader(file="comparison/comparison.json", family="json", read=comparison_tabulated,
                                    needs=("comparison",), share=5, may_write=("comparison/metrics.json",)),
    "comparison, in a report": Reader(file="comparison/comparison.json", family="json", read=study,
                                      needs=("comparison",), share=3),
    "mark of a report": Reader(file="report/.arcwise.json", family="json", read=report_known, needs=("report",),
                               share=30),
    "numbers of a report": Reader(file="report/metrics.json", family="json", read=report_known, needs=("report",),
                                  share=5),
    "model": Reader(file="run/model.safetensors", family="tensors", read=model, needs=("run",), share=50, exact=True),
    "checkpoint": Reader(file=STEP, family="tensors", read=checkpoint, needs=("unfinished",), share=30, exact=True,
                         prepare=trainer),
    "checkpoint, resumed": Reader(file=STEP, family="tensors", read=resumed, needs=("unfinished",), share=2,
                                  may_write=("unfinished/*",)),
    "best weights": Reader(file="unfinished/checkpoints/best-*.safetensors", family="tensors", read=best_weights,
                           needs=("unfinished",), share=30, exact=True, prepare=trainer),
    "embeddings": Reader(file="run/embeddings/test.safetensors", family="tensors", read=embeddings, needs=("run",),
                         share=80, exact=True),
    "embeddings, measured": Reader(file="run/embeddings/unseen.safetensors", family="tensors", read=embeddings_measured,
                                   needs=("run",), share=10),
    "embeddings, in a whole report": Reader(file="run/embeddings/test.safetensors", family="tensors", read=whole_report,
                                            needs=("run",), share=0.3, seconds=90.0, may_write=(*OWN, "report/*")),
    "prototypes": Reader(file="run/prototypes/final.safetensors", family="tensors", read=prototypes, needs=("run",),
                         share=80, exact=True),
    "prototypes, measured": Reader(file="run/prototypes/final.safetensors", family="tensors", read=embeddings_measured,
                                   needs=("run",), share=10),
    "snapshot": Reader(file="run/embeddings/test-epoch-001.safetensors", family="tensors", read=snapshots,
                       needs=("run",), share=5, may_write=OWN),
    "prototypes of an epoch": Reader(file="run/prototypes/epoch-001.safetensors", family="tensors", read=snapshots,
                                     needs=("run",), share=5, may_write=OWN),
    "fetched set": Reader(file="cache/cifar100.safetensors", family="tensors", read=fetched, needs=("cache",), share=40,
                          exact=True),
    "decoded pixels": Reader(file="cache/folders/*/pixels.u8", family="bytes", read=decoded, needs=("cache",), share=15,
                             exact=True, may_write=("cache/folders/*",)),
    "decoded states": Reader(file="cache/folders/*/state.u8", family="bytes", read=decoded, needs=("cache",), share=15,
                             exact=True, may_write=("cache/folders/*",)),
    "decoded sums": Reader(file="cache/folders/*/sums.u4", family="bytes", read=decoded, needs=("cache",), share=15,
                           exact=True, may_write=("cache/folders/*",)),
    "decoded, about": Reader(file="cache/folders/*/about.json", family="json", read=decoded, needs=("cache",), share=5,
                             exact=True, may_write=("cache/folders/*",)),
    "table": Reader(file="table/labels.csv", family="cells", read=table, needs=("table",), share=60),
    "table, loaded": Reader(file="table/labels.csv", family="cells", read=table_loaded, needs=("table",), share=8,
                            may_write=("cache/folders/*",)),
    **{f"image {name}": Reader(file=f"images/{name}", family="bytes", read=image(name), needs=("images",), share=10)
       for name in IMAGES},
    "insightface, unknown": Reader(file="insight/short.pth", family="pickle", read=insight("short.pth"),
                                   needs=("insight",), share=25),
    "insightface": Reader(file="insight/named.pth", family="pickle", read=insight("named.pth"), needs=("insight",),
                          share=1),
}  # fmt: skip
