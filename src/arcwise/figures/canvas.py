"""What all pictures share: colours, panels, legends, and the way from a figure to a file."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from arcwise.figures.fonts import drawable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from arcwise.data.images import Images
    from arcwise.study.subject import Subject

# Okabe & Ito 2008: told apart by colour-blind readers, and in print. For methods, lines and heads.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#F0E442", "#000000")

# For classes: eight of Petroff's ten colours (2021, arXiv:2107.02270; found by a search over colour-vision models),
# with a green and a pink in the place of its two greys, which cannot be told apart as small points.
CLASS_COLOURS = (
    "#3f90da", "#ffa90e", "#bd1f01", "#2ca46d", "#832db6", "#a96b59", "#e76300", "#b9ac70", "#e377c2", "#62c4c9",
)  # fmt: skip

PAGE = 6.6  # inches that a page has for text: a figure is printed as large as it is drawn
EDGE = 0.02  # inches at least from all that is drawn to the figure's upper and lower edge
SMALL = 7.2  # points: the smallest letters of a figure

# On a screen, and on paper.
SCREEN_STYLE: dict[Any, Any] = {
    "figure.dpi": 100, "font.size": 12, "axes.titlesize": 13, "axes.labelsize": 12,
    "legend.fontsize": 10.5, "axes.spines.top": False, "axes.spines.right": False, "lines.linewidth": 2.2,
    "text.parse_math": False, "axes.grid": True, "grid.alpha": 0.25, "axes.axisbelow": True, "legend.frameon": False,
}  # fmt: skip
STYLE: dict[Any, Any] = SCREEN_STYLE | {
    "font.size": 8, "axes.titlesize": 8.5, "axes.labelsize": 8, "xtick.labelsize": SMALL, "ytick.labelsize": SMALL,
    "legend.fontsize": 7.6, "lines.linewidth": 1.3, "axes.linewidth": 0.6, "xtick.major.width": 0.6,
    "ytick.major.width": 0.6, "grid.linewidth": 0.5, "hatch.linewidth": 0.6,
}  # fmt: skip


def offscreen() -> None:
    """Draws into memory from now on: no window is ever asked for; letters the font lacks are boxes."""
    import warnings

    wanted = os.environ.pop("MPLBACKEND", None)  # one that there is not would end the import
    try:
        import matplotlib
    finally:
        if wanted is not None:
            os.environ["MPLBACKEND"] = wanted
    matplotlib.use("Agg")
    warnings.filterwarnings("ignore", message=r"Glyph \d+ .* missing from")


def class_colour(i: int) -> str:
    """The colour of class i in every picture."""
    return CLASS_COLOURS[i % len(CLASS_COLOURS)]


OWN_FRAME, OTHER_FRAME = COLOURS[0], COLOURS[4]  # of images of the own and of another class
Depiction = tuple[str, "Figure"]  # a caption that says what to see, and the picture
SIDE_BY_SIDE = 4  # heads at most beside each other


def shown_heads(about: Subject) -> list[str]:
    """The heads that are drawn side by side: the first few, and always the one that the conclusion speaks of."""
    some = about.heads[:SIDE_BY_SIDE]
    return some if about.champion in some else [*some[:-1], about.champion]


def reach(x: Any) -> float:
    """How far a panel must extend for nearly all points."""
    import numpy as np

    return 1.15 * float(np.percentile(np.linalg.norm(x, axis=1), 99.5))


def paler(colour: str, strength: float) -> tuple[float, float, float]:
    """A colour as it looks when it is drawn on white with that opacity, however often it is drawn.

    >>> paler("#ff0000", 0.5)
    (1.0, 0.5, 0.5)
    """
    from matplotlib.colors import to_rgb

    red, green, blue = (1.0 - strength * (1.0 - share) for share in to_rgb(colour))
    return red, green, blue


def true_minus(text: str) -> str:
    """A number's text with a minus sign in the place of a hyphen, as axes have it."""
    return text.replace("-", "\N{MINUS SIGN}")


def inward_ends(axes: Axes) -> None:
    """The first tick's words begin where the panel begins, the last one's end where it ends: apart from neighbours'."""
    ticks = axes.get_xticklabels()
    ticks[0].set_horizontalalignment("left")
    ticks[-1].set_horizontalalignment("right")


def pixels_of(images: Images, row: int) -> Any:
    """One image."""
    import numpy as np

    return np.asarray(images.pixels[np.array([row])])[0]


@contextlib.contextmanager
def panels(
    count: int, *, high: float = 1.0, most: int = 4, widest: float = 2.4, style: dict[Any, Any] = STYLE, **options: Any
) -> Iterator[Any]:
    """A figure and its axes, one per panel, in rows of at most `most`, as even as can be.

    Together they are as wide as a page, or narrower where each would be wider than `widest` inches; a panel's height is
    `high` times its width, and more where its words need it.
    """
    import matplotlib.pyplot as plt

    columns = even_columns(count, most)
    rows, wide = -(-count // columns), min(widest, PAGE / columns)
    with plt.rc_context(style):
        figure, axes = plt.subplots(
            rows, columns, figsize=(wide * columns, wide * high * rows), layout="constrained", squeeze=False, **options
        )
        flat = list(axes.flat)
        for extra in flat[count:]:
            extra.remove()
        yield figure, flat[:count]
        grow_until_all_fits(figure)


def even_columns(count: int, most: int) -> int:
    """Into how many columns so many panels go, in as few rows as there can be.

    >>> even_columns(4, 3), even_columns(5, 4), even_columns(7, 4)
    (2, 3, 4)
    """
    rows = -(-count // most)
    return -(-count // rows)


def grow_until_all_fits(figure: Figure) -> None:
    """Makes a figure higher where a title or a label would stick out of it, or out of its panel."""
    for _ in range(3):
        figure.draw_without_rendering()  # lays out
        box, high = figure.get_tightbbox(), figure.get_figheight()
        lacking = max(0.0, EDGE - box.y0) + max(0.0, EDGE + box.y1 - high) + upright_words_beyond(figure)
        if lacking < 0.01:
            return
        figure.set_figheight(high + lacking + EDGE)


def upright_words_beyond(figure: Figure) -> float:
    """By how many inches the rows of panels are too low for the upright labels of their axes, all rows together."""
    rows = {place.rowspan.start for axes in figure.axes if (place := axes.get_subplotspec()) is not None}
    beyond = [axes.yaxis.label.get_window_extent().height - axes.bbox.height for axes in figure.axes
              if axes.get_ylabel() and axes.yaxis.label.get_rotation() == 90.0]  # fmt: skip
    return max(1, len(rows)) * max(0.0, *beyond, 0.0) / figure.dpi


TOLD_APART = len(CLASS_COLOURS)  # classes that have a colour of their own
LISTED = 20  # classes at most that are all named in a picture


def point_look(n: int) -> dict[str, float]:
    """Size and opacity of points, so that few are seen and many do not hide each other.

    >>> point_look(60)["markersize"] > point_look(6000)["markersize"]
    True
    """
    return {"markersize": min(5.5, max(1.8, 110.0 / n**0.5)) if n else 1.8, "alpha": 0.8 if n < 1000 else 0.5}


def class_points(axes: Axes, x: Any, y: Any) -> None:
    """The points of each class in its colour: one line of markers per class, pixels also in an SVG."""
    look: dict[str, Any] = point_look(len(x))
    for c in sorted(set(y.tolist())):
        here = x[y == c]
        axes.plot(here[:, 0], here[:, 1], ".", color=class_colour(c), rasterized=True, markeredgewidth=0, **look)


def class_legend(figure: Figure, names: tuple[str, ...]) -> None:
    """One legend of the classes for the whole figure, below it; none where colours would repeat."""
    from matplotlib.lines import Line2D

    if len(names) > TOLD_APART:
        return
    marks = [Line2D([], [], marker="o", linestyle="", color=class_colour(i), markersize=4) for i in range(len(names))]
    legend_below(figure, marks, tell_apart(names, 30))


def legend_below(figure: Figure, marks: Sequence[Any], labels: Sequence[str]) -> None:
    """One legend for the whole figure: where panels leave room for it, or below them.

    Below, it has as few rows as its width allows, all of a length; further rows make the figure higher.
    """
    if legend_in_gap(figure, marks, labels):
        return
    for most in range(len(labels), 0, -1):
        columns = even_columns(len(labels), most)
        legend = figure.legend(marks, labels, loc="outside lower center", ncols=columns)
        if most == 1 or legend.get_window_extent().width <= figure.bbox.width:
            rows = -(-len(labels) // columns)
            more = legend.get_window_extent().height * (rows - 1) / rows / figure.dpi
            figure.set_figheight(figure.get_figheight() + more)
            return
        legend.remove()


def legend_in_gap(figure: Figure, marks: Sequence[Any], labels: Sequence[str]) -> bool:
    """Puts a legend where the last row of panels has none, if there is such a place and it is large enough."""
    place = gap_axes(figure)
    if place is None:
        return False
    figure.draw_without_rendering()  # lays out
    for columns in range(1, len(labels) + 1):
        legend = figure.legend(marks, labels, loc="upper center", bbox_to_anchor=(0.5, 1.0), ncols=columns,
                               bbox_transform=place.transAxes, borderaxespad=0.0)  # fmt: skip
        box = legend.get_window_extent()
        if box.width <= place.bbox.width and box.height <= place.bbox.y1:  # beside the words below the panels as well
            return True
        legend.remove()
    place.remove()
    return False


def gap_axes(figure: Figure) -> Axes | None:
    """Axes without a frame over the cells that the last row of panels leaves free; none where it is full."""
    taken = [spec for axes in figure.axes if (spec := axes.get_subplotspec()) is not None]
    grid = taken[0].get_gridspec()
    used = sum(spec.rowspan.stop == grid.nrows for spec in taken)
    if used == grid.ncols:
        return None
    place = figure.add_subplot(grid[grid.nrows - 1, used:])
    place.set_axis_off()
    return place


NAMED: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": SMALL, "fontweight": "bold", "color": "0.1"}


def halo() -> list[Any]:
    """What makes words legible on whatever lies below them."""
    from matplotlib import patheffects

    return [patheffects.withStroke(linewidth=1.8, foreground="white", alpha=0.85)]


def name_at(axes: Axes, place: Any, name: str, **options: Any) -> None:
    """A class's name at a place of the picture, legible on whatever lies there; inside the frame."""
    look = {"zorder": 6, **NAMED, **options}
    axes.text(place[0], place[1], shorten(name, 16), path_effects=halo(), clip_on=True, **look)


def shorten(name: str, most: int = 16) -> str:
    """A name of at most so many letters: the end stays, for there names differ.

    >>> shorten("Alphabet_of_the_Magi/character01")
    'Alphabe…racter01'
    """
    name = drawable(name)
    if len(name) <= most:
        return name
    end = (most - 1) * 8 // 15
    return f"{name[: most - 1 - end]}…{name[-end:]}"


def tell_apart(names: Sequence[str], most: int = 16) -> list[str]:
    """Names of at most so many letters; where all are long and begin with the same words, without these.

    Of folders in folders the last alone, where no two are called so.

    >>> tell_apart(["species number 1", "species number 12"], 10)
    ['…1', '…12']
    >>> tell_apart(["copepods/acartia", "jellies/aurelia"], 10)
    ['acartia', 'aurelia']
    """
    names, start = [drawable(name) for name in names], 0
    last = [name.rsplit("/", 1)[-1] for name in names]
    if max(map(len, names), default=0) > most and len(set(last)) == len(set(names)):
        names = last
    if len(names) > 1 and max(map(len, names)) > most:
        same = next((i for i, letters in enumerate(zip(*names, strict=False)) if len(set(letters)) > 1), None)
        same = min(map(len, names)) if same is None else same
        start = max(names[0].rfind(sign, 0, same) for sign in " /_-") + 1
    rest = ["…" * bool(start) + name[start:] for name in names]
    short = [shorten(name, most) for name in rest]
    if len(set(short)) < len(set(rest)):  # what tells them apart was left out: something of every folder stays
        short = [shorten_folders(name, most) for name in rest]
    return short


def shorten_folders(name: str, most: int) -> str:
    """A name of folders in folders with each of them shortened, so that all together have about so many letters.

    >>> shorten_folders("alphabet0/character2", 16)
    'alp…et0/cha…er2'
    """
    parts = name.split("/")
    return "/".join(shorten(part, max(5, (most + 1) // len(parts) - 1)) for part in parts)


def room_for_names(spots: Any, names: Sequence[str], *, extent: float, inches: float) -> list[Any]:
    """Where each name may stand so that none covers another: at its spot or around it; None where there is no room.

    A panel reaches from -extent to extent, and is so many inches wide.
    """
    import numpy as np

    unit = 2.0 * extent / (72.0 * inches)  # of the picture's numbers in a point
    high = 1.25 * SMALL * unit
    taken: list[tuple[float, float, float, float]] = []
    found: list[Any] = []
    for spot, name in zip(spots, names, strict=True):
        wide, place = 0.74 * SMALL * unit * max(len(name), 1), None
        for dx, dy in ((0, 0), (0, 1), (0, -1), (1, 0), (-1, 0), (1, 1), (-1, 1), (1, -1), (-1, -1), (0, 2), (0, -2)):
            x = float(np.clip(spot[0] + 0.55 * dx * wide, wide / 2 - extent, extent - wide / 2))
            y = float(np.clip(spot[1] + dy * high, high / 2 - extent, extent - high / 2))
            box = (x - wide / 2, x + wide / 2, y - high / 2, y + high / 2)
            if not any(box[0] < r and l < box[1] and box[2] < t and b < box[3] for l, r, b, t in taken):
                taken.append(box)
                place = (x, y)
                break
        found.append(place)
    return found


def plain_logarithm(axis: Any) -> None:
    """Ticks of a logarithmic axis as plain numbers: at 1, 2 and 5 of each power where those are few."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

    low, high = sorted(axis.get_view_interval())
    few = low > 0 and high / low < 100 and len(round_numbers(low, high)) <= 5
    locator = LogLocator(10, subs=(1.0, 2.0, 5.0) if few else (1.0,), numticks=12 if high < 1e5 * low else 4)
    narrow = low > 0 and len(round_numbers(low, high)) < 2  # there LogLocator takes as many ticks as it likes
    axis.set_major_locator(MaxNLocator(2, steps=[1, 2, 5, 10]) if narrow else locator)
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: power_text(value)))
    axis.set_minor_formatter(NullFormatter())


def round_numbers(low: float, high: float) -> list[float]:
    """1, 2 and 5 times every power of ten between two numbers above 0.

    >>> round_numbers(0.9, 6), round_numbers(1.1, 1.9)
    ([1.0, 2.0, 5.0], [])
    """
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    return [step * 10.0**power for power in powers for step in (1, 2, 5) if low <= step * 10.0**power <= high]


def power_text(value: float) -> str:
    """A number as it is read on an axis: small powers of ten with their exponent above.

    >>> power_text(0.001), power_text(1e-6)
    ('0.001', '10⁻⁶')
    """
    if 1e-3 <= abs(value) < 1e5 or value <= 0:
        return f"{value:g}"
    digits, _, power = f"{value:.0e}".partition("e")
    raised = str(int(power)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"{'' if digits == '1' else digits + '·'}10{raised}"


def figure_bytes(figure: Figure, kind: str = "png", *, close: bool = True, dpi: int = 300) -> bytes:
    """The figure as the bytes of a PNG (in 256 colours, a third of the size) or an SVG file; the figure is closed."""
    import io

    import matplotlib.pyplot as plt
    from PIL import Image

    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind, dpi=dpi, metadata={"Software": None} if kind == "png" else {"Date": None})
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
