"""What all pictures share: colours, panels, legends, and the way from a figure to a file."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from arcwise.data.images import Images
    from arcwise.study.subject import Subject

# Okabe & Ito 2008: told apart by colour-blind readers, and in print. For methods, lines and heads.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#F0E442", "#000000")

# Petroff 2021 (arXiv:2107.02270): ten colours for classes, found by a search over colour-vision models.
CLASS_COLOURS = (
    "#3f90da", "#ffa90e", "#bd1f01", "#94a4a2", "#832db6", "#a96b59", "#e76300", "#b9ac70", "#717581", "#92dadd",
)  # fmt: skip

STYLE: dict[Any, Any] = {
    "figure.dpi": 100, "font.size": 12, "axes.titlesize": 13, "axes.labelsize": 12,
    "legend.fontsize": 10.5, "axes.spines.top": False, "axes.spines.right": False, "lines.linewidth": 2.2,
    "text.parse_math": False, "axes.grid": True, "grid.alpha": 0.25, "axes.axisbelow": True, "legend.frameon": False,
}  # fmt: skip


def offscreen() -> None:
    """Draws into memory from now on: no window is ever asked for; letters the font lacks are boxes."""
    import warnings

    import matplotlib

    matplotlib.use("Agg")
    warnings.filterwarnings("ignore", message=r"Glyph \d+ .* missing from")


def class_colour(i: int) -> str:
    """The colour of class i in every picture."""
    return CLASS_COLOURS[i % len(CLASS_COLOURS)]


OWN_FRAME, OTHER_FRAME = COLOURS[0], COLOURS[4]  # of images of the own and of another class
Depiction = tuple[str, "Figure"]  # a caption that says what to see, and the picture
SIDE_BY_SIDE = 4  # heads at most beside each other


def shown_heads(about: Subject) -> list[str]:
    """The heads that are drawn side by side."""
    return about.heads[:SIDE_BY_SIDE]


def reach(x: Any) -> float:
    """How far a panel must extend for nearly all points."""
    import numpy as np

    return 1.15 * float(np.percentile(np.linalg.norm(x, axis=1), 99.5))


def pixels_of(images: Images, row: int) -> Any:
    """One image."""
    import numpy as np

    return np.asarray(images.pixels[np.array([row])])[0]


@contextlib.contextmanager
def panels(count: int, *, wide: float = 4.6, high: float = 4.6, most: int = 4, **options: Any) -> Iterator[Any]:
    """A figure and its axes, one per panel, in rows of at most `most`; axes that are left over are removed."""
    import matplotlib.pyplot as plt

    columns = min(count, most)
    rows = -(-count // columns)
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(
            rows, columns, figsize=(wide * columns, high * rows), layout="constrained", squeeze=False, **options
        )
        flat = list(axes.flat)
        for extra in flat[count:]:
            extra.remove()
        yield figure, flat[:count]


def class_points(axes: Axes, x: Any, y: Any, *, size: float = 2.5, alpha: float = 0.5) -> None:
    """The points of each class in its colour: one line of markers per class, pixels also in an SVG."""
    for c in sorted(set(y.tolist())):
        here = x[y == c]
        axes.plot(here[:, 0], here[:, 1], ".", color=class_colour(c), markersize=size, alpha=alpha, rasterized=True,
                  markeredgewidth=0)  # fmt: skip


def class_legend(figure: Figure, names: tuple[str, ...], *, title: str = "", most: int = 12) -> None:
    """One legend of the classes for the whole figure, below it."""
    from matplotlib.lines import Line2D

    marks = [Line2D([], [], marker="o", linestyle="", color=class_colour(i)) for i in range(min(len(names), most))]
    labels = list(names[:most]) + ([f"and {len(names) - most} more"] if len(names) > most else [])
    marks += [Line2D([], [], linestyle="")] * (len(labels) - len(marks))
    columns = min(len(labels), 13, max(1, int(figure.get_figwidth() * 8) // (max(map(len, labels)) + 5)))
    figure.legend(marks, labels, loc="outside lower center", ncols=columns, title=title or None)


def figure_bytes(figure: Figure, kind: str = "png", *, close: bool = True) -> bytes:
    """The figure as the bytes of a PNG (in 256 colours, a third of the size) or an SVG file; the figure is closed."""
    import io

    import matplotlib.pyplot as plt
    from PIL import Image

    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind, dpi=150, metadata={"Software": None} if kind == "png" else {"Date": None})
    if close:
        plt.close(figure)
    if kind != "png":
        return buffer.getvalue()
    small = io.BytesIO()
    fewer = Image.open(buffer).convert("RGB").quantize(256, method=Image.Quantize.FASTOCTREE)
    palette = fewer.getpalette() or []
    white = [value for i in range(0, len(palette), 3) for value in whiten(palette[i : i + 3])]
    fewer.putpalette(white)
    fewer.save(small, "PNG", optimize=True)
    return small.getvalue()


def whiten(colour: list[int]) -> list[int]:
    """Nearly white as white: fewer colours must not tint the paper."""
    return [255, 255, 255] if min(colour) >= 248 else colour
