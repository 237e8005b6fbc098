"""The biases of a softmax head against the number of training images of each class."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from arcwise.figures.canvas import (
    NAMED,
    Depiction,
    class_colour,
    halo,
    legend_below,
    panels,
    plain_logarithm,
    tell_apart,
    true_minus,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from arcwise.study.subject import Subject


class UnequalClasses(NamedTuple):
    """What a head with a bias learned from classes of unequal size: one run, its images and its bias by class."""

    head: str
    seed: int
    counts: np.ndarray
    bias: np.ndarray
    names: tuple[str, ...]

    @property
    def slope(self) -> float | None:
        """By how much the bias rises from a class to one with e times as many images."""
        return bias_slope(self.counts, self.bias)


def bias_slope(counts: np.ndarray, bias: np.ndarray) -> float | None:
    """The slope of the biases over log count by least squares; None where all classes are of one size.

    A bias that says how often a class occurs, and nothing else, is log count but for a constant: the slope is 1.

    >>> round(bias_slope(np.array([10, 100, 1000]), np.log([10, 100, 1000]) - 3.0), 6)
    1.0
    """
    x = np.log(counts) - np.log(counts).mean()
    return float(x @ (bias - bias.mean()) / (x @ x)) if np.ptp(counts) else None


def unequal_classes(about: Subject) -> UnequalClasses | None:
    """Biases and images by class of the run on classes of unequal size, where there is one with a bias."""
    run, counts = about.imbalanced, about.imbalanced_counts
    centres = None if run is None else run.prototypes()
    if run is None or centres is None or centres.bias is None or counts is None:
        return None
    return UnequalClasses(run.head.label, run.settings.seed, counts, centres.bias, centres.names)


def draw_bias(found: UnequalClasses) -> Figure:
    """One point per class, with the line that log count would give and the one that fits."""
    counts, bias, slope = found.counts, found.bias, found.slope
    with panels(1, widest=3.6, high=0.8) as (figure, axes):
        place = axes[0]
        place.set(xscale="log", xlabel="training images of the class", ylabel="bias of the class")
        ends = np.geomspace(counts.min(), counts.max(), 50)
        x = np.log(ends) - np.log(counts).mean()
        if slope is not None:
            place.plot(ends, x + bias.mean(), color="0.7", linewidth=0.8, label="log of the number of images: slope 1")
            place.plot(ends, slope * x + bias.mean(), color="0.35", linewidth=0.8, linestyle="--",
                       label=f"least squares: slope {true_minus(f'{slope:+.2f}')}")  # fmt: skip
        for c in range(len(counts)):
            place.plot(counts[c], bias[c], "o", color=class_colour(c), markersize=6)
        place.margins(x=0.08, y=0.1)
        for at, name in zip(zip(counts, bias, strict=True), tell_apart(found.names), strict=True):
            place.annotate(name, at, (0, 8), textcoords="offset points", path_effects=halo(), zorder=4, **NAMED)
        plain_logarithm(place.xaxis)
        marks, labels = place.get_legend_handles_labels()
        legend_below(figure, marks, labels)
    return figure


def bias_and_frequency(about: Subject) -> Iterator[Depiction]:
    """Biases against counts, of the run that was trained on an imbalanced set."""
    found = unequal_classes(about)
    if found is None:
        return
    yield (
        f"The biases of one run, {found.head} with seed {found.seed}, trained on classes of unequal size "
        f"({found.counts.min():,} to {found.counts.max():,} images): each point is a class. The grey line is what a "
        "bias that only says how often a class occurs would be, the dashed line fits the points best.",
        draw_bias(found),
    )
