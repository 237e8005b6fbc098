"""Returns the comparison at a glance: every seed as a point, mean and standard deviation, one panel per number."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from arcwise.figures import COLOURS, panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Panel(NamedTuple):
    """One number: its words, and the values of each head over the seeds, in the unit that is shown."""

    title: str
    values: dict[str, list[float]]
    better: str = "higher"


def draw(shown: list[Panel]) -> Figure:
    """Heads side by side; an arrow at the title says which way is better."""
    with panels(len(shown), wide=3.9, high=3.5) as (figure, axes):
        few = len(shown[0].values) <= 4  # names that have room side by side
        for panel, place in zip(shown, axes, strict=True):
            for i, values in enumerate(panel.values.values()):
                found, colour = np.asarray(values), COLOURS[i % len(COLOURS)]
                offsets = np.linspace(-0.12, 0.12, len(found)) if len(found) > 1 else np.zeros(1)
                place.plot(i + offsets, found, "o", color=colour, alpha=0.55, markersize=6)
                deviation = found.std(ddof=1) if len(found) > 1 else 0.0
                place.errorbar(i + 0.27, found.mean(), deviation, fmt="_", color=colour, markersize=12, capsize=3)
            place.set(
                title=f"{panel.title} {'↑' if panel.better == 'higher' else '↓'}", xlim=(-0.5, len(panel.values) - 0.3)
            )
            place.title.set_fontsize(11)
            names = [name.replace(" ", "\n", 1 if few else 0) for name in panel.values]
            place.set_xticks(range(len(names)), names, fontsize=9 if few else 8)
            place.tick_params(axis="x", rotation=0 if few else 40)
            place.grid(axis="x", visible=False)
    return figure
