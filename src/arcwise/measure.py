"""The numbers of a finished Run, measured once and kept in it."""

from __future__ import annotations

import hashlib
import os
from typing import Any

from arcwise.errors import ArcwiseError, note
from arcwise.metrics.identification import class_table, confusion, nearest_prototype
from arcwise.metrics.summary import DUNN, METRICS, all_metrics, definitions, dunn_indices, dunn_name, finite_or_null
from arcwise.records import Embeddings, Prototypes, Run, read_json, write_json
from arcwise.records.files import header_bytes
from arcwise.schema import many, nothing_or, number, table, text

EPOCHS_KEPT = table({"definitions": text, "of": many(text), "values": many(table(rest=nothing_or(number())))})
CLASSES_LISTED = 1000  # classes at most of which a confusion matrix is kept


def measure(run: Run | str, *, again: bool = False) -> dict[str, Any]:
    """Everything that can be measured of a run: numbers by name, confusion matrix, table of classes.

    It is kept in the run's metrics.json, and measured again where the definitions have changed since.

    >>> import tempfile, arcwise
    >>> run = arcwise.train("digits-2d", tempfile.mkdtemp() + "/run", settings=["train.epochs=1"], device="cpu")
    >>> 0.0 <= measure(run)["measured"]["accuracy"] <= 1.0
    True
    """
    run = run if isinstance(run, Run) else Run.open(run)
    _ = run.result  # what is not finished cannot be measured
    known, evidence = {} if again else kept_metrics(run), evidence_digest(run)
    if known.get("definitions") == definitions() and known.get("evidence", "") == evidence and is_whole(known):
        return known
    test, unseen, centres = evidence_of(run)
    try:
        metrics = {
            "definitions": definitions(),
            "evidence": evidence,
            "measured": finite_or_null(all_metrics(test, unseen, centres)),
        }
        if len(test.names) <= CLASSES_LISTED:
            matrix = confusion(test.labels, nearest_prototype(test, centres).predicted, len(test.names))
            metrics["confusion"] = matrix.tolist()
            metrics["classes"] = [row._asdict() for row in class_table(matrix, test.names)]
    except ArcwiseError as error:
        raise ArcwiseError(f"{run.path}: {error}") from None
    if os.access(run.path, os.W_OK):
        run.keep_metrics(metrics)
    else:
        note(f"{run.path} cannot be written: its numbers are not kept, and are measured again the next time.")
    return metrics


def kept_metrics(run: Run) -> dict[str, Any]:
    """What was measured before; nothing where the file is damaged and holds nothing else."""
    try:
        return run.metrics
    except ArcwiseError:
        return {}


def is_whole(known: dict[str, Any]) -> bool:
    """Whether these are numbers by name, as measuring writes them, with a square matrix of as many classes."""
    found, matrix = known.get("measured", {}), known.get("confusion", [])
    square = all(len(row) == len(matrix) for row in matrix) and len(known.get("classes", [])) <= len(matrix)
    return bool(found) and found.keys() <= METRICS.keys() and square


def evidence_digest(run: Run) -> str:
    """A checksum of the files that a run is measured by: of their headers, which bear the checksums of all the rest."""
    sha = hashlib.sha256()
    for path in (run.embeddings_path("test"), run.embeddings_path("unseen"), run.prototypes_path()):
        sha.update(header_bytes(path) if path.is_file() else b"-")
    return sha.hexdigest()[:16]


def evidence_of(run: Run) -> tuple[Embeddings, Embeddings | None, Prototypes]:
    """The test embeddings of a run, those of its unseen classes where there are any, and its centres."""
    if not run.embeddings_path("test").is_file():
        raise ArcwiseError(
            f"{run.path} holds no embeddings of its test images. Write them again with: "
            f"arcwise embed {run.path} {run.settings.data.source} --part test --out {run.embeddings_path('test')}"
        )
    unseen = run.embeddings("unseen") if run.embeddings_path("unseen").is_file() else None
    return run.embeddings("test"), unseen, run.prototypes()


def measure_epochs(run: Run, part: str, *, keep: bool = True) -> list[dict[str, float | None]]:
    """The Dunn indices of a run's snapshots, epoch by epoch; with `keep`, in the run beside its other numbers."""
    files = run.snapshots(part)
    names = [file.name for file in files]
    found = known_epochs(run, part, names)
    if found is None:
        found = [finite_or_null(dunn_indices(Embeddings.load(file))) for file in files]
        if keep and files:
            told = {"definitions": definitions(), "of": names, "values": found}
            write_json(run.path / f"epochs-{part}.json", told)
    return found


def known_epochs(run: Run, part: str, names: list[str]) -> list[dict[str, float | None]] | None:
    """The indices that were kept, if they are of these snapshots, by today's definitions, and whole."""
    wanted = {dunn_name(*variant) for variant in DUNN}
    try:
        known = read_json(run.path / f"epochs-{part}.json", EPOCHS_KEPT)
    except ArcwiseError:
        return None
    values = known["values"]
    current = (known["of"], known["definitions"]) == (names, definitions()) and len(values) == len(names)
    return values if current and all(wanted <= e.keys() for e in values) else None
