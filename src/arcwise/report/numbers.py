"""The numbers of a report for a machine: what its tables say, and more exactly than they say it."""

from __future__ import annotations

from typing import Any

import numpy as np

from arcwise.report.biases import Biases, learned_biases
from arcwise.report.content import MOST_CLASSES, near_published, summed_confusion
from arcwise.study.subject import Subject
from arcwise.study.table import table_values


def report_numbers(about: Subject) -> dict[str, Any]:
    """The table, the sweep's, images of each part and class, numbers per class, confusions, biases, the published pair.

    What nothing is known of is left out.
    """
    alone, every = learned_biases(about)
    found = table_values(about.table, about.config.recipe) | {
        "sweep": None if about.sweep_table is None else sweep_values(about),
        "images": image_counts(about),
        "classes": {head: rows for head in about.heads if (rows := class_values(about, head))},
        "confusion": confusions(about),
        "biases": {one.head: bias_values(one) for one in every},
        "biases_on_unequal_classes": None if alone is None else bias_values(alone),
        "published_pair": [near._asdict() for near in near_published(about)],
    }
    return {name: value for name, value in found.items() if value is not None and value != {} and value != []}


def sweep_values(about: Subject) -> dict[str, Any]:
    """The numbers of the sweep."""
    assert about.sweep_table is not None
    return table_values(about.sweep_table, about.config.recipe)["metrics"]


def image_counts(about: Subject) -> dict[str, Any]:
    """How many images there are of each part, and of each class in training."""
    if about.splits is None:
        return {}
    train = about.splits.train
    parts = {part: len(images) for part, images in about.splits.parts.items()}
    by_class = [[name, n] for name, n in zip(train.names, train.counts.tolist(), strict=True)]
    return {**parts, "of_class_in_training": by_class}


def class_values(about: Subject, head: str) -> list[dict[str, Any]]:
    """Each class under a head: how many test images, and recall, precision and F1 of every seed."""
    found = [run.metrics.get("classes", []) for run in about.runs[head]]
    if not all(found) or len({len(many) for many in found}) > 1:
        return []
    return [
        {"name": rows[0]["name"], "n": rows[0]["n"]}
        | {key: [row[key] for row in rows] for key in ("recall", "precision", "f1")}
        for rows in zip(*found, strict=True)
    ]


def confusions(about: Subject) -> dict[str, Any]:
    """What was taken for what under each head, summed over seeds: rows are what is there."""
    found = {head: summed_confusion(runs) for head, runs in about.runs.items()}
    return {
        head: matrix.tolist() for head, matrix in found.items() if matrix is not None and len(matrix) <= MOST_CLASSES
    }


def bias_values(found: Biases) -> dict[str, Any]:
    """Biases by seed, with the names of their classes and how many training images these had."""
    by_seed = {str(seed): np.asarray(row).tolist() for seed, row in zip(found.seeds, found.values, strict=True)}
    counts = None if found.counts is None else found.counts.tolist()
    return {"head": found.head, "classes": list(found.names), "training_images": counts, "by_seed": by_seed}
