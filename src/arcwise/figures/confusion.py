"""Mistakes by class: confusion matrices, or with many classes the pairs and the classes that are mistaken most."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from arcwise.figures.canvas import COLOURS, LISTED, PAGE, SMALL, Depiction, panels, shown_heads, tell_apart

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from arcwise.study.subject import Subject

COUNTED = 12  # classes at most whose counts are written into the cells
AROUND = 0.45  # inches of a panel beside its cells, for the names of the rows
WORST = 15  # pairs and classes that are listed where there are many


class ConfusionPanel(NamedTuple):
    """Counts, already summed over seeds."""

    title: str
    matrix: np.ndarray
    names: tuple[str, ...]


def draw_confusion(shown: list[ConfusionPanel]) -> Figure:
    """Colours show mistakes only; the diagonal would drown them."""
    most, counted = fitting_columns(shown)
    with panels(len(shown), most=most, widest=3.3) as (figure, axes):
        wrong = [off_diagonal(panel.matrix) for panel in shown]
        top = max(1, max(int(w.max()) for w in wrong))
        for panel, place, mistakes in zip(shown, axes, wrong, strict=True):
            n = len(panel.matrix)
            place.imshow(mistakes, cmap="OrRd", vmin=0, vmax=top)
            for i, j in zip(*np.nonzero(panel.matrix if counted else mistakes), strict=True):
                colour = "white" if mistakes[i, j] > 0.6 * top else "0.45" if i == j else "black"
                place.text(j, i, f"{panel.matrix[i, j]}", ha="center", va="center", fontsize=SMALL, color=colour)
            names = tell_apart(panel.names, 12)
            place.set_xticks(range(n), names, rotation=90 if max(map(len, names)) > 2 else 0)
            place.set_yticks(range(n), names)
            place.set(title=panel.title, xlabel="taken for")
            place.grid(visible=False)
        for place in axes[::most]:
            place.set_ylabel("is")
    return figure


def fitting_columns(shown: list[ConfusionPanel]) -> tuple[int, bool]:
    """How many panels stand beside each other, and whether the diagonal's counts fit into the cells as well."""
    n = len(shown[0].matrix)
    letters = max(len(str(int(panel.matrix.max()))) for panel in shown)
    wanted = n * (0.64 * SMALL * letters + 2.0) / 72.0 + AROUND  # inches
    for most in (4, 3, 2):
        if n <= COUNTED and PAGE / min(most, len(shown)) >= wanted:
            return most, True
    return (2 if n > 6 else 4), False


def draw_mistakes(panel: ConfusionPanel) -> Figure:
    """Two lists of bars: the pairs that are mistaken most often, and the classes that are found least often."""
    mistakes, size = off_diagonal(panel.matrix), panel.matrix.sum(axis=1)
    pairs = [divmod(int(at), len(mistakes)) for at in np.argsort(-mistakes, axis=None, kind="stable")[:WORST]]
    pairs = [(i, j) for i, j in pairs if mistakes[i, j]]
    missed = mistakes.sum(axis=1) / np.maximum(size, 1)
    classes = [int(c) for c in np.argsort(-missed, kind="stable")[:WORST] if missed[c]]
    rows = max(len(pairs), len(classes), 3)
    with panels(2, most=2, widest=3.3, high=(0.6 + 0.16 * rows) / 3.3) as (figure, axes):
        short = dict(enumerate(tell_apart(panel.names)))
        words = [f"{short[i]} as {short[j]}" for i, j in pairs]
        draw_bars_of(axes[0], words, [float(mistakes[i, j]) for i, j in pairs], "times", "most often mistaken")
        words = [f"{short[c]} ({size[c]:,})" for c in classes]
        draw_bars_of(axes[1], words, [100.0 * missed[c] for c in classes], "% missed", "least often found")
    return figure


def draw_bars_of(axes: Axes, names: list[str], values: list[float], unit: str, title: str) -> None:
    """One bar a line, the longest above, its number at its end."""
    bars = axes.barh(range(len(values)), values, color=COLOURS[4], height=0.72)
    axes.bar_label(bars, [f"{value:g}" if value == int(value) else f"{value:.1f}" for value in values], padding=2,
                   fontsize=SMALL)  # fmt: skip
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.margins(x=0.15)
    axes.set(title=title, xlabel=unit)
    axes.grid(axis="y", visible=False)
    if not values:
        axes.text(0.5, 0.5, "no mistakes", transform=axes.transAxes, ha="center", va="center")


def off_diagonal(matrix: np.ndarray) -> np.ndarray:
    """The mistakes alone."""
    return np.where(np.eye(len(matrix), dtype=bool), 0, matrix)


def listed_of(panel: ConfusionPanel) -> str:
    """How many of the pairs and classes with mistakes are listed."""
    mistakes = off_diagonal(panel.matrix)
    pairs, classes = int((mistakes > 0).sum()), int((mistakes.sum(axis=1) > 0).sum())
    return (
        f"{min(WORST, pairs)} of {pairs:,} pairs that are mistaken, the most frequent, and {min(WORST, classes)} of "
        f"{classes:,} classes that are missed, the least often found"
    )


def confusion_matrices(about: Subject) -> Iterator[Depiction]:
    """Mistakes of each head, all seeds together; with many classes those of the head the conclusion speaks of."""
    shown = []
    for head in shown_heads(about):
        matrices = [run.metrics.get("confusion", []) for run in about.runs[head]]
        if not all(matrices):
            return
        shown.append(ConfusionPanel(head, np.sum(matrices, axis=0), about.embeddings(head).names))
    if len(shown[0].names) > LISTED:
        panel = next((panel for panel in shown if panel.title == about.champion), shown[-1])
        yield (
            f"Mistakes of {panel.title} over {len(panel.names)} classes, summed over the seeds: {listed_of(panel)} (in "
            "brackets: their test images, over all seeds). Among equals the first by number are shown.",
            draw_mistakes(panel),
        )
        return
    yield (
        "Confusion matrices, summed over the seeds: rows are what is there, columns what it was taken for; colours "
        "show mistakes only.",
        draw_confusion(shown),
    )
