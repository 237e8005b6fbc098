"""Returns figures: one file per picture, drawn from records and results, never computed here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe & Ito 2008: told apart by colour-blind readers, and in print.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#F0E442", "#000000")

STYLE: dict[Any, Any] = {
    "figure.dpi": 100, "font.size": 12, "axes.titlesize": 13, "axes.labelsize": 12,
    "legend.fontsize": 10.5, "axes.spines.top": False, "axes.spines.right": False, "lines.linewidth": 2.2,
    "axes.grid": True, "grid.alpha": 0.25, "axes.axisbelow": True, "legend.frameon": False,
}  # fmt: skip


def image(figure: Figure, kind: str = "png") -> bytes:
    """The figure as the bytes of a PNG or SVG file; the figure is closed."""
    import io

    import matplotlib.pyplot as plt

    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind, dpi=150, metadata={"Software": None} if kind == "png" else {"Date": None})
    plt.close(figure)
    return buffer.getvalue()
