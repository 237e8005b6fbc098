"""The biases of a softmax head against the number of training images of each class."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from arcwise.figures.canvas import Depiction, class_colour, panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from arcwise.study.subject import Subject


def draw_bias(counts: np.ndarray, bias: np.ndarray, names: tuple[str, ...]) -> Figure:
    """One point per class, with the line log count would give."""
    with panels(1, widest=3.6, high=0.7) as (figure, axes):
        place = axes[0]
        for c, name in enumerate(names):
            place.plot(counts[c], bias[c], "o", color=class_colour(c), markersize=6)
            place.annotate(name, (counts[c], bias[c]), textcoords="offset points", xytext=(6, -3), fontweight="bold")
        slope, start = np.polyfit(np.log(counts), bias, 1)
        ends = np.geomspace(counts.min(), counts.max(), 50)
        place.plot(ends, slope * np.log(ends) + start, color="0.5", linewidth=0.8, linestyle="--",
                   label=f"least squares: {slope:+.3f} per factor of e")  # fmt: skip
        place.set(xscale="log", xlabel="training images of the class", ylabel="bias of the class")
        place.set_xticks(sorted(set(counts.tolist())), [f"{count:,}" for count in sorted(set(counts.tolist()))])
        place.minorticks_off()
        place.legend()
    return figure


def bias_and_frequency(about: Subject) -> Iterator[Depiction]:
    """Biases against counts, of the run that was trained on an imbalanced set."""
    run, counts = about.imbalanced, about.imbalanced_counts
    centres = None if run is None else run.prototypes()
    if centres is None or centres.bias is None or counts is None:
        return
    yield (
        "A softmax head with bias, trained on classes of unequal size: its biases against the number of images.",
        draw_bias(counts, centres.bias, centres.names),
    )
