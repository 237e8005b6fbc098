"""The report as a PDF, set by Typst."""

from __future__ import annotations

import re
from functools import singledispatch
from pathlib import Path
from typing import Any

from arcwise.errors import ArcwiseError
from arcwise.report.blocks import (
    Answer,
    Block,
    Code,
    Film,
    Formula,
    Heading,
    Link,
    Paragraph,
    PictureFile,
    TableRows,
    Viewer,
)
from arcwise.report.page import typst_compiler

TOGETHER = 26  # rows at most of a table that stays on one page

PAPER_SETTINGS = """
#set document(title: PLAIN)
#set page(paper: "a4", margin: (x: 2.1cm, y: 2.2cm), numbering: "1", header: context {
  if counter(page).get().first() > 1 [#set text(8.5pt, fill: gray); TITLE #h(1fr) arcwise] })
#set text(size: 10.5pt, lang: "en")
#set par(justify: true, leading: 0.62em)
#set heading(numbering: "1.1")
#set math.equation(numbering: "(1)")
#set figure(gap: 0.7em)
#show figure.caption: set text(size: 9pt, fill: luma(35%))
#show figure.caption: set align(left)
#show figure.where(kind: table): set figure.caption(position: top)
#show figure.where(kind: table): set block(breakable: true)
#show heading: set block(sticky: true)
#show heading.where(level: 1): set block(above: 1.6em, below: 0.8em)
#show raw.where(block: true): block.with(fill: luma(95%), inset: 8pt, radius: 3pt, width: 100%)
#align(center)[
  #set par(justify: false)
  #text(19pt, weight: "bold")[TITLE]

  #text(10pt, fill: luma(35%))[SUBTITLE]
]
#v(1em)
"""


def paper_pdf(title: str, subtitle: str, blocks: list[Block], folder: Path) -> bytes:
    """The PDF; `folder` holds figures/ and animations/."""
    compiled = typst_compiler()
    quoted = '"' + title.replace("\\", "\\\\").replace('"', '\\"') + '"'
    head = (
        PAPER_SETTINGS.replace("PLAIN", quoted)
        .replace("SUBTITLE", escape_typst(subtitle))
        .replace("TITLE", escape_typst(title))
    )
    source = head + "\n\n".join(filter(None, (typeset(block) for block in blocks)))
    beside = folder / ".report.typ"  # Typst finds pictures beside its source
    try:
        beside.write_text(source)
        return bytes(compiled(str(beside), root=str(folder)))
    except RuntimeError as error:
        raise ArcwiseError(f"Typst could not set the PDF: {str(error).splitlines()[0]}. Try --html.") from error
    finally:
        beside.unlink(missing_ok=True)


@singledispatch
def typeset(block: Any) -> str:
    """A block in Typst's notation."""
    raise TypeError(f"no way to set {type(block).__name__}")


@typeset.register
def _(block: Heading) -> str:
    page = "#pagebreak(weak: true)\n" if block.new_page else ""
    return f"{page}{'=' * block.level} {escape_typst(block.text)}"


@typeset.register
def _(block: Paragraph) -> str:
    return escape_typst(block.text)


@typeset.register
def _(block: Answer) -> str:
    look = 'inset: (left: 10pt, rest: 7pt), stroke: (left: 2.5pt + rgb("#0072b2")), fill: rgb("#f2f7fb"), width: 100%'
    return f"#block({look})[#set text(size: 11.5pt)\n#set par(justify: false)\n{escape_typst(block.text)}]"


@typeset.register
def _(block: Link) -> str:
    quoted = block.address.replace("\\", "\\\\").replace('"', '\\"')
    return f'#link("{quoted}")[#underline[{escape_typst(block.words)}]]'


@typeset.register
def _(block: Formula) -> str:
    return f"{escape_typst(block.words)}\n$ {block.typst} $"


@typeset.register
def _(block: TableRows) -> str:
    columns = len(block.header)
    wide = columns > 5
    align = "(x, y) => if x == 0 { left } else { right }"
    cells = (
        [f"table.header({', '.join(f'[*{escape_typst(name)}*]' for name in block.header)})"]
        if any(block.header)
        else []
    )
    for i, row in enumerate(block.rows):
        cells += [
            f"[*{escape_typst(v)}*]" if (i, j) in block.strong else f"[{escape_typst(v)}]" for j, v in enumerate(row)
        ]
    sizes = "(" + ", ".join(["1fr"] + ["auto"] * (columns - 1)) + ")" if any(block.header) else "(auto, 1fr)"
    if not any(block.header):
        align = "left"
    lines = "stroke: (x, y) => (bottom: 0.4pt + luma(80%)), inset: (x: 4pt, y: 3.2pt)"
    table = f"table(columns: {sizes}, align: {align}, {lines}, {', '.join(cells)})"
    text = f"#set text(size: {'7.6pt' if wide else '8.6pt'})\n#set par(justify: false)"
    if len(block.rows) <= TOGETHER:
        text += "\n#show figure: set block(breakable: false)"
    return f"#[{text}\n#figure({table}, caption: [{escape_typst(block.caption)}])]"


@typeset.register
def _(block: PictureFile) -> str:
    return f'#figure(image("{block.file}", width: {100 * block.width:g}%), caption: [{escape_typst(block.caption)}])'


@typeset.register
def _(block: Film) -> str:
    words = f"Last frame of {block.file}. {block.caption}"
    return f'#figure(image("{block.poster}", width: 72%), caption: [{escape_typst(words)}])'


@typeset.register
def _(block: Code) -> str:
    longest = max((len(run) for run in re.findall(r"`+", block.text)), default=2)
    fence = "`" * max(3, longest + 1)
    return f"{fence}sh\n{block.text}\n{fence}"


@typeset.register
def _(block: Viewer) -> str:
    return ""


def escape_typst(text: str) -> str:
    """Text with Typst's own signs made harmless; code words stay code."""
    parts = re.split(r"(`[^`]+`)", text)
    return "".join(
        part if part.startswith("`") and len(part) > 2 else re.sub(r"([\\#$*_@<>\[\]~`/=+-])", r"\\\1", part)
        for part in parts
    )
