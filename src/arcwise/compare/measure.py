"""Returns the numbers of a finished Run, measured once and kept in its metrics.json."""

from __future__ import annotations

import json
from typing import Any

from arcwise.errors import ArcwiseError
from arcwise.metrics.identification import class_table, confusion, nearest_prototype
from arcwise.metrics.summary import measured, plain
from arcwise.records import Embeddings, Run, write

VERSION = 1  # of the numbers' definitions: older ones are measured again


def measure(run: Run, *, again: bool = False) -> dict[str, Any]:
    """metrics.json with everything measured: numbers by name, confusion matrix, table of classes."""
    metrics = run.metrics
    if not again and metrics.get("measured_version") == VERSION and is_whole(metrics.get("measured")):
        return metrics
    test, unseen = parts(run)
    try:
        metrics |= {"measured": plain(measured(test, unseen)), "measured_version": VERSION}
    except ArcwiseError as error:
        raise ArcwiseError(f"{run.path}: {error}") from None
    if test.prototypes is not None and len(test.names) <= 1000:
        matrix = confusion(test.y, nearest_prototype(test).predicted, len(test.names))
        metrics["confusion"] = matrix.tolist()
        metrics["classes"] = [row._asdict() for row in class_table(matrix, test.names)]
    write(run.path / "metrics.json", json.dumps(metrics, indent=1))
    return metrics


def is_whole(found: Any) -> bool:
    """Whether these are numbers by name, as measuring writes them."""
    return isinstance(found, dict) and all(value is None or isinstance(value, int | float) for value in found.values())


def parts(run: Run) -> tuple[Embeddings, Embeddings | None]:
    """The test embeddings of a run, and those of its unseen classes where there are any."""
    if not (run.path / "embeddings" / "test.safetensors").is_file():
        raise ArcwiseError(
            f"{run.path} holds no embeddings of its test images. Write them again with: "
            f"arcwise embed {run.path} {run.config.get('data', {}).get('source', 'DATA')} --part test "
            f"--out {run.path / 'embeddings' / 'test.safetensors'}"
        )
    has_unseen = (run.path / "embeddings" / "unseen.safetensors").is_file()
    return run.embeddings("test"), run.embeddings("unseen") if has_unseen else None
