"""Mistakes by class: confusion matrices, or with many classes the pairs and the classes that are mistaken most."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from arcwise.figures.canvas import (
    COLOURS,
    LISTED,
    PAGE,
    SMALL,
    Depiction,
    even_columns,
    gap_axes,
    panels,
    shown_heads,
    tell_apart,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from arcwise.study.subject import Subject

COUNTED = 12  # classes at most whose counts are written into the cells
RIGHT = "0.9"  # the colour of the diagonal
WORST = 15  # pairs and classes that are listed where there are many


class ConfusionPanel(NamedTuple):
    """Counts, already summed over seeds."""

    title: str
    matrix: np.ndarray
    names: tuple[str, ...]


class Layout(NamedTuple):
    """How many panels stand beside each other at most, and which counts are written: of all, of mistakes, or none."""

    most: int
    counts: Literal["all", "mistakes", "none"]


def draw_confusion(shown: list[ConfusionPanel]) -> Figure:
    """Colours show mistakes only; the diagonal would drown them. The first layout whose counts fit into their cells."""
    import matplotlib.pyplot as plt

    *some, last = layouts(len(shown), len(shown[0].matrix))
    for layout in some:
        if not worth_trying(shown, layout):
            continue
        figure = draw_matrices(shown, layout)
        if words_fit(figure, len(shown[0].matrix)):
            return figure
        plt.close(figure)
    return draw_matrices(shown, last)


def layouts(panels: int, classes: int) -> list[Layout]:
    """What is tried one after the other: as many counts in as few rows as can be, full rows before others."""
    columns = sorted({even_columns(panels, most) for most in (4, 3, 2)}, reverse=True)
    full, other = [n for n in columns if panels % n == 0], [n for n in columns if panels % n]
    counts = ("all", "mistakes") if classes <= COUNTED else ("mistakes",)
    tried = [Layout(most, which) for some in (full, other) for which in counts for most in some]
    return [*tried, *(Layout(most, "none") for most in [*full, *other])]


def worth_trying(shown: list[ConfusionPanel], layout: Layout) -> bool:
    """Whether the words could fit if a panel were nothing but cells: drawing it takes half a second."""
    matrices = [off_diagonal(panel.matrix) if layout.counts == "mistakes" else panel.matrix for panel in shown]
    letters = 0 if layout.counts == "none" else len(str(max(int(matrix.max()) for matrix in matrices)))
    cell = 72.0 * PAGE / layout.most / len(matrices[0])  # points
    return cell > max(0.6 * SMALL * letters, 1.2 * SMALL)


def words_fit(figure: Figure, classes: int) -> bool:
    """Whether every count is narrower than its cell, and no cell lower than the name beside it."""
    figure.draw_without_rendering()
    cell = figure.axes[0].bbox.width / classes
    counts = [text.get_window_extent().width for axes in figure.axes for text in axes.texts]
    return bool(max(counts, default=0.0) < 0.96 * cell and 1.2 * SMALL * figure.dpi / 72.0 < cell)


def draw_matrices(shown: list[ConfusionPanel], layout: Layout) -> Figure:
    """One matrix per head; the names of the rows stand once in each row of panels."""
    with panels(len(shown), most=layout.most, widest=min(3.3, 0.8 + 0.3 * len(shown[0].matrix))) as (figure, axes):
        wrong = [off_diagonal(panel.matrix) for panel in shown]
        top = max(1, max(int(w.max()) for w in wrong))
        looks = [(top, layout.counts)] * len(shown)
        image, *_ = map(draw_matrix, axes, shown, wrong, looks)
        if (place := gap_axes(figure)) is not None:
            bar = place.inset_axes((0.15, 0.5, 0.7, 0.05))
            figure.colorbar(image, cax=bar, orientation="horizontal", label="mistakes")
        elif layout.counts == "none":
            figure.colorbar(image, ax=axes, shrink=0.7, label="mistakes")
    return figure


def draw_matrix(place: Any, panel: ConfusionPanel, mistakes: np.ndarray, look: tuple[int, str]) -> Any:
    """One matrix: mistakes in colours up to the number given, the diagonal grey, and counts."""
    from matplotlib.colors import ListedColormap

    (top, counts), n = look, len(panel.matrix)
    image = place.imshow(mistakes, cmap="OrRd", vmin=0, vmax=top)
    right = np.where(np.eye(n, dtype=bool), 0.0, np.nan)
    place.imshow(right, cmap=ListedColormap([RIGHT]))
    written = {"all": panel.matrix, "mistakes": mistakes, "none": np.zeros_like(mistakes)}[counts]
    for i, j in zip(*np.nonzero(written), strict=True):
        colour = "white" if mistakes[i, j] > 0.6 * top else "0.35" if i == j else "black"
        place.text(j, i, f"{written[i, j]}", ha="center", va="center", fontsize=SMALL, color=colour)
    names = tell_apart(panel.names, 12)
    place.set_xticks(range(n), names, rotation=90 if max(map(len, names)) > 2 else 0)
    first = place.get_subplotspec().is_first_col()
    place.set_yticks(range(n), names if first else [])
    place.tick_params(left=first)
    place.set(title=panel.title, xlabel="taken for", ylabel="is" if first else "")
    place.grid(visible=False)
    return image


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
        "show mistakes only, the diagonal, what was right, is grey.",
        draw_confusion(shown),
    )
