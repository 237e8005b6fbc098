"""The ROC of each head, and histograms of genuine and impostor scores with the chosen threshold."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from arcwise.figures.canvas import (
    COLOURS,
    PAGE,
    Depiction,
    even_columns,
    inward_ends,
    legend_below,
    panels,
    plain_logarithm,
    shown_heads,
)
from arcwise.metrics.verification import Roc, SortedScores, all_pairs, eer, roc

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from arcwise.study.subject import Subject


class RocPanel(NamedTuple):
    """One head: its curve, its histograms over [-1, 1], and a threshold with its words."""

    head: str
    roc: Roc
    edges: np.ndarray
    genuine: np.ndarray
    impostor: np.ndarray
    threshold: float
    note: str


def draw_roc(shown: list[RocPanel], title: str = "ROC") -> Figure:
    """The curves together in the first panel, one histogram per head after it."""
    wide = min(2.4, PAGE / even_columns(1 + len(shown), 4))
    with panels(1 + len(shown), high=1.75 / wide) as (figure, axes):
        for i, panel in enumerate(shown):
            axes[0].plot(panel.roc.far, panel.roc.tar, color=COLOURS[i % 8], label=panel.head)
        smallest = max(min(float(p.roc.far[p.roc.far > 0].min(initial=1.0)) for p in shown), 1e-6)
        axes[0].set(
            xscale="log",
            xlim=(smallest, 1),
            ylim=(0, 1.02),
            yticks=(0, 0.5, 1),
            xlabel="FAR",
            ylabel="TAR",
            title=title,
        )
        plain_logarithm(axes[0].xaxis)
        for panel, place in zip(shown, axes[1:], strict=True):
            for counts, colour, label in (
                (panel.impostor, COLOURS[4], "different"),
                (panel.genuine, COLOURS[0], "same"),
            ):
                share = counts / max(counts.sum(), 1)
                place.stairs(share, panel.edges, fill=True, color=colour, alpha=0.55, label=label)
            place.axvline(panel.threshold, color="black", linewidth=0.9, linestyle="--")
            place.set(
                title=panel.head, xlabel=f"cosine of a pair\n{panel.note}", yticks=[], xlim=(-1, 1), xticks=(-1, 0, 1)
            )
            inward_ends(place)
        axes[1].set_ylabel("share of pairs")
        entries = [entry for place in axes[:2] for entry in zip(*place.get_legend_handles_labels(), strict=True)]
        legend_below(figure, *zip(*entries, strict=True))
    return figure


def verification_curves(about: Subject) -> Iterator[Depiction]:
    """ROC and score histograms, on unseen classes where there are any."""
    unseen = bool(about.config.data.unseen)
    shown = []
    for head in shown_heads(about):
        found = about.embeddings(head, "unseen" if unseen else "test")
        pairs = all_pairs(found)
        at = eer(pairs)
        edges = np.linspace(-1, 1, 81)
        counts = [histogram(scores, edges) for scores in (pairs.genuine, pairs.impostor)]
        note = f"threshold {at.threshold:.3f},\nequal error {(at.far + 1 - at.tar) / 2:.1%}"
        shown.append(RocPanel(head, roc(pairs), edges, counts[0], counts[1], at.threshold, note))
    several = max(map(len, about.runs.values())) > 1
    means = "; the tables have the means over all seeds" if several else ""
    where = "pairs of classes nobody has seen" if unseen else "all pairs of test images"
    yield (
        f"Verification on {where}: ROC, and scores of pairs of the same and of different classes with the threshold "
        f"of equal error. {about.drawn}{means}.",
        draw_roc(shown, "ROC, unseen classes" if unseen else "ROC"),
    )


def histogram(scores: SortedScores, edges: np.ndarray) -> np.ndarray:
    """How many scores fall into each bin."""
    below = scores.total - scores.at_least(edges)
    below[-1] = scores.total
    return np.diff(below)
