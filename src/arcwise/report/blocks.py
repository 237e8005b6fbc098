"""The pieces a report is made of; how they look is up to the page and the PDF."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import NamedTuple


class Heading(NamedTuple):
    """The title of a section (level 1) or a part of one (level 2); on paper it may begin a page."""

    text: str
    level: int = 1
    new_page: bool = False


class Paragraph(NamedTuple):
    """Plain text; words between backticks are code, [[name]] is the number of a figure or table: "Figure 3"."""

    text: str


class Lead(NamedTuple):
    """A paragraph that stays with what comes after it."""

    text: str


class Answer(NamedTuple):
    """What the report found, in a sentence or two; it stands out."""

    text: str


class Link(NamedTuple):
    """Words that lead somewhere else."""

    words: str
    address: str


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
    name: str = ""
    number: int = 0


class PictureFile(NamedTuple):
    """A figure by its file below figures/; `width` is its share of the page. On paper text may pass one that floats."""

    file: str
    caption: str
    width: float = 1.0
    name: str = ""
    number: int = 0
    floats: bool = False


class Film(NamedTuple):
    """An animation by its file below animations/; on paper its poster is shown."""

    file: str
    poster: str
    caption: str
    name: str = "film"
    number: int = 0


class Code(NamedTuple):
    """Lines to type."""

    text: str


class Viewer(NamedTuple):
    """The interactive view; paper leaves it out."""

    data: str
    caption: str


Block = Heading | Paragraph | Lead | Answer | Link | Formula | TableRows | PictureFile | Film | Code | Viewer


def number_blocks(blocks: list[Block]) -> list[Block]:
    """The same with figures and tables counted, and with their numbers wherever the text names them.

    >>> number_blocks([Paragraph("See [[a]]."), TableRows([], [], name="a")])[0]
    Paragraph(text='See Table 1.')
    """
    counts, numbers, out = {"Table": 0, "Figure": 0}, defaultdict(list), []
    for block in blocks:
        if isinstance(block, TableRows | PictureFile | Film):
            kind = kind_of(block)
            counts[kind] += 1
            numbers[block.name].append((kind, counts[kind]))
            block = block._replace(number=counts[kind])
        out.append(block)
    return [
        block._replace(
            text=re.sub(r"\[\[([\w-]+)\]\]", lambda at: place_words(numbers.get(at[1], [])) or at[0], block.text)
        )
        if isinstance(block, Paragraph | Lead | Answer)
        else block
        for block in out
    ]


def unbroken(text: str) -> str:
    r"""The text with no line end between a number and its sign, or before a unit in brackets.

    >>> unbroken("95 % of (\u00b0) 2 \u00b1 1") == "95\u00a0% of\u00a0(\u00b0) 2\u00a0\u00b1\u00a01"
    True
    """
    text = re.sub(r"(?<=[\d)]) (?=%)| (?=\((?:%|°|points)\))| (?=±)|(?<=±) ", "\u00a0", text)
    return re.sub(r"\b(Figure|Figures|Table|Tables) (?=\d)", "\\1\u00a0", text)


def kind_of(block: TableRows | PictureFile | Film) -> str:
    """What it is called in the text."""
    return "Table" if isinstance(block, TableRows) else "Figure"


def place_words(places: list[tuple[str, int]]) -> str:
    """Where something is shown.

    >>> place_words([("Figure", 3)]), place_words([("Figure", 3), ("Figure", 4), ("Figure", 5)])
    ('Figure 3', 'Figures 3 to 5')
    """
    if not places:
        return ""
    kind, first = places[0]
    if len(places) == 1:
        return f"{kind} {first}"
    return f"{kind}s {first} {'and' if len(places) == 2 else 'to'} {places[-1][1]}"
