"""Every file that arcwise reads, by what reads it: a dict of readers, each a function from a folder to what was read.

The folder is a copy of the templates that the reader asks for; the working folder is that of the templates, so
that relative sources are found.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hostile.limits import SECONDS
from hostile.read_files import (
    best_weights,
    checkpoint,
    decoded,
    embeddings,
    embeddings_measured,
    fetched,
    image,
    insight,
    model,
    prototypes,
    snapshots,
    stopped,
    summed_anew,
    table,
    table_loaded,
    trainer,
)
from hostile.read_runs import (
    comparison_doors,
    comparison_tabulated,
    drawn,
    epochs,
    journal,
    journal_resumed,
    measured,
    printed_result,
    report_known,
    resumed,
    run_doors,
    splits_of_templates,
    study,
    unfinished_doors,
    whole_report,
)
from hostile.read_used import exported, gallery, pairs, thresholds, trained_on


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


IMAGES = (
    "colour.jpg", "cmyk.jpg", "progressive.jpg", "clear.png", "palette.png", "deep.png", "film.gif", "colour.bmp",
    "bits.bmp", "colour.tiff", "float.tiff", "colour.webp", "clear.webp", "colour.ppm", "colour.ico",
)  # fmt: skip
OWN = ("run/metrics.json", "run/epochs-*.json")
SPREAD = "spread/checkpoints/step-*/"
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
                                         share=0.1, seconds=90.0, may_write=(*OWN, "report/*")),
    "metrics, drawn": Reader(file="run/metrics.json", family="json", read=drawn("confusion", "glance"), needs=("run",),
                             share=1, seconds=30.0, may_write=OWN),
    "journal, drawn": Reader(file="run/journal.jsonl", family="lines", read=drawn("training"), needs=("run",), share=1,
                             seconds=30.0, may_write=OWN),
    "embeddings, drawn": Reader(file="run/embeddings/test.safetensors", family="tensors", needs=("run",), share=1,
                                read=drawn("embeddings", "angles", "roc"), seconds=30.0, may_write=OWN),
    "epochs": Reader(file="run/epochs-test.json", family="json", read=epochs, needs=("run",), share=40),
    "epochs, in a film": Reader(file="run/epochs-test.json", family="json", read=snapshots, needs=("run",), share=5,
                                may_write=OWN),
    "journal": Reader(file="run/journal.jsonl", family="lines", read=journal, needs=("run",), share=100),
    "journal, taken up": Reader(file="unfinished/journal.jsonl", family="lines", read=journal_resumed,
                                needs=("unfinished",), share=40, may_write=("unfinished/journal.jsonl",)),
    "journal, in a whole report": Reader(file="run/journal.jsonl", family="lines", read=whole_report, needs=("run",),
                                         share=0.1, seconds=90.0, may_write=(*OWN, "report/*")),
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
    "checkpoint": Reader(file=STEP, family="tensors", read=checkpoint("unfinished"), needs=("unfinished",), share=30,
                         exact=True, prepare=trainer("unfinished")),
    "checkpoint, resumed": Reader(file=STEP, family="tensors", read=resumed, needs=("unfinished",), share=2,
                                  may_write=("unfinished/*",)),
    "shard of a checkpoint": Reader(file=SPREAD + "*.safetensors", family="tensors", read=checkpoint("spread"),
                                    needs=("spread",), share=30, exact=True, prepare=trainer("spread")),
    "shard of a checkpoint, its sum mended": Reader(
        file=SPREAD + "*.safetensors", family="tensors", read=summed_anew, needs=("spread",), share=30,
        prepare=trainer("spread"), may_write=("spread/checkpoints/*",)),
    "state of a checkpoint": Reader(file=SPREAD + "state.json", family="json", read=checkpoint("spread"),
                                    needs=("spread",), share=60, prepare=trainer("spread")),
    "best weights": Reader(file="unfinished/checkpoints/best-*.safetensors", family="tensors", read=best_weights,
                           needs=("unfinished",), share=30, exact=True, prepare=trainer("unfinished")),
    "embeddings": Reader(file="run/embeddings/test.safetensors", family="tensors", read=embeddings, needs=("run",),
                         share=80, exact=True),
    "embeddings, measured": Reader(file="run/embeddings/unseen.safetensors", family="tensors", read=embeddings_measured,
                                   needs=("run",), share=10),
    "embeddings, in a whole report": Reader(file="run/embeddings/test.safetensors", family="tensors", read=whole_report,
                                            needs=("run",), share=0.1, seconds=90.0, may_write=(*OWN, "report/*")),
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
    "decoded hashes": Reader(file="cache/folders/*/hashes.u8", family="bytes", read=decoded, needs=("cache",), share=15,
                             exact=True, may_write=("cache/folders/*",)),
    "rows of a stop": Reader(file="stopped/.all.safetensors.rows", family="bytes", read=stopped, needs=("stopped",),
                             share=15, exact=True, may_write=("stopped/*",)),
    "state of a stop": Reader(file="stopped/.all.safetensors.json", family="json", read=stopped, needs=("stopped",),
                              share=15, exact=True, may_write=("stopped/*",)),
    "decoded, about": Reader(file="cache/folders/*/about.json", family="json", read=decoded, needs=("cache",), share=5,
                             exact=True, may_write=("cache/folders/*",)),
    "table": Reader(file="table/labels.csv", family="cells", read=table, needs=("table",), share=60),
    "table, loaded": Reader(file="table/labels.csv", family="cells", read=table_loaded, needs=("table",), share=8,
                            may_write=("cache/folders/*",)),
    "trained on": Reader(file="run/trained_on.safetensors", family="tensors", read=trained_on, needs=("run",), share=20,
                         exact=True),
    "exported": Reader(file="exported/model.onnx", family="bytes", read=exported, needs=("exported",), share=20,
                       exact=True),
    "exported, crafted": Reader(file="exported/model.onnx", family="onnx", read=exported, needs=("exported",),
                                share=20),
    "thresholds": Reader(file="exported/thresholds.json", family="json", read=thresholds, needs=("exported",), share=60,
                         may_write=("exported/new/*",)),
    "pairs": Reader(file="pairs/pairs.csv", family="cells", read=pairs, needs=("pairs",), share=60),
    "gallery": Reader(file="people/gallery.json", family="json", read=gallery, needs=("people",), share=10),
    "templates": Reader(file="people/*.lance/data/*.lance", family="bytes", read=gallery, needs=("people",), share=10,
                        exact=True),
    "versions of templates": Reader(file="people/*.lance/_versions/*", family="bytes", read=gallery, needs=("people",),
                                    share=5, exact=True),
    **{f"image {name}": Reader(file=f"images/{name}", family="bytes", read=image(name), needs=("images",), share=10)
       for name in IMAGES},
    "insightface, unknown": Reader(file="insight/short.pth", family="pickle", read=insight("short.pth"),
                                   needs=("insight",), share=25),
    "insightface": Reader(file="insight/named.pth", family="pickle", read=insight("named.pth"), needs=("insight",),
                          share=1),
}  # fmt: skip
