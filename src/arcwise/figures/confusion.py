"""Confusion matrices, one per head: rows are what is there, columns what it is taken for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from arcwise.figures.canvas import Depiction, panels, shown_heads

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from arcwise.study.subject import Subject


class ConfusionPanel(NamedTuple):
    """Counts, already summed over seeds."""

    title: str
    matrix: np.ndarray
    names: tuple[str, ...]


def draw_confusion(shown: list[ConfusionPanel]) -> Figure:
    """Colours show mistakes only; the diagonal would drown them."""
    with panels(len(shown)) as (figure, axes):
        wrong = [np.where(np.eye(len(p.matrix), dtype=bool), 0, p.matrix) for p in shown]
        top = max(1, max(int(w.max()) for w in wrong))
        for panel, place, mistakes in zip(shown, axes, wrong, strict=True):
            n = len(panel.matrix)
            place.imshow(mistakes, cmap="OrRd", vmin=0, vmax=top)
            if n <= 12:
                for i in range(n):
                    for j in range(n):
                        if panel.matrix[i, j]:
                            colour = "white" if mistakes[i, j] > 0.6 * top else "0.45" if i == j else "black"
                            text = {"ha": "center", "va": "center", "fontsize": 9 if n <= 6 else 7, "color": colour}
                            place.text(j, i, f"{panel.matrix[i, j]}", **text)
                place.set(xticks=range(n), yticks=range(n), xticklabels=panel.names, yticklabels=panel.names)
                place.tick_params(axis="x", rotation=45 if max(map(len, panel.names)) > 2 else 0)
            place.set(title=panel.title, xlabel="taken for")
            place.grid(visible=False)
        axes[0].set_ylabel("is")
    return figure


def confusion_matrices(about: Subject) -> Iterator[Depiction]:
    """Mistakes of each head, all seeds together."""
    shown = []
    for head in shown_heads(about):
        matrices = [run.metrics.get("confusion", []) for run in about.runs[head]]
        if not all(matrices):
            return
        shown.append(ConfusionPanel(head, np.sum(matrices, axis=0), about.embeddings(head).names))
    yield (
        "Confusion matrices, summed over the seeds: rows are what is there, columns what it was taken for; colours "
        "show mistakes only.",
        draw_confusion(shown),
    )
