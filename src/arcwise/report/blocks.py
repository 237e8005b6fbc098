"""The pieces a report is made of; how they look is up to the page and the PDF."""

from __future__ import annotations

from typing import NamedTuple


class Heading(NamedTuple):
    """The title of a section (level 1) or a part of one (level 2)."""

    text: str
    level: int = 1


class Paragraph(NamedTuple):
    """Plain text; words between backticks are code."""

    text: str


class Formula(NamedTuple):
    """A formula in Typst's notation, with the words that stand before it."""

    typst: str
    words: str = ""


class TableRows(NamedTuple):
    """A table; the first column is text, the others are shown as they are. `strong` marks cells (row, column)."""

    header: list[str]
    rows: list[list[str]]
    caption: str = ""
    strong: frozenset[tuple[int, int]] = frozenset()


class PictureFile(NamedTuple):
    """A figure by its file below figures/; `width` is its share of the page."""

    file: str
    caption: str
    width: float = 1.0


class Film(NamedTuple):
    """An animation by its file below animations/; on paper its poster is shown."""

    file: str
    poster: str
    caption: str


class Code(NamedTuple):
    """Lines to type."""

    text: str


class Viewer(NamedTuple):
    """The interactive view; paper leaves it out."""

    data: str
    caption: str


Block = Heading | Paragraph | Formula | TableRows | PictureFile | Film | Code | Viewer
