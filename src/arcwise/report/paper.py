"""The report as a PDF, set by Typst: the template here is all the markup there is; every word reaches it as data."""

from __future__ import annotations

import json
import re
from functools import singledispatch
from pathlib import Path
from typing import Any

from arcwise.errors import ArcwiseError
from arcwise.figures.fonts import drawable
from arcwise.report.blocks import (
    Answer,
    Block,
    Code,
    Film,
    Formula,
    Heading,
    Lead,
    Link,
    Paragraph,
    PictureFile,
    TableRows,
    Viewer,
    unbroken,
)
from arcwise.report.page import typst_compiler

TOGETHER = 12  # rows at most of a table that stays on one page
WIDE = 5  # columns of a table, beyond which its letters are smaller

# `report` is the document as data: words are lists of {text, code}, and Typst takes a text of data as it is. FORMULAS
# are the only source that is put in, and all of them are written in this package.
TEMPLATE = """
#let report = json(bytes(sys.inputs.report))
#let formulas = (FORMULAS)
#let words(parts) = parts.map(part => if part.code { raw(part.text) } else [#part.text]).join()
#set document(title: report.title)
#set page(paper: "a4", margin: (x: 2.1cm, y: 2.2cm), numbering: "1", header: context {
  if counter(page).get().first() > 1 [#set text(8.5pt, fill: gray); #report.title #h(1fr) arcwise] })
#set text(size: 10.5pt, lang: "en")
#set par(justify: true, leading: 0.62em)
#set heading(numbering: "1.1")
#set math.equation(numbering: "(1)")
#set figure(gap: 0.7em)
#show figure.caption: set text(size: 9pt, fill: luma(35%))
#show figure.caption: set align(left)
#show figure.where(kind: table): it => { show figure.caption: set block(sticky: true); it }
#show figure.where(kind: table): set figure.caption(position: top)
#show figure.where(kind: table): set block(breakable: true)
#show heading: set block(sticky: true)
#show heading.where(level: 1): set block(above: 1.6em, below: 0.8em)
#show raw.where(block: true): block.with(fill: luma(95%), inset: 8pt, radius: 3pt, width: 100%)
#align(center)[
  #set par(justify: false)
  #text(19pt, weight: "bold")[#report.title]

  #text(10pt, fill: luma(35%))[#report.subtitle]
]
#v(1em)

#let answer(it) = block(
  inset: (left: 10pt, rest: 7pt), stroke: (left: 2.5pt + rgb("#0072b2")), fill: rgb("#f2f7fb"), width: 100%,
)[
  #set text(size: 11.5pt)
  #set par(justify: false)
  #words(it.words)
]

#let rows(it) = {
  set text(size: if it.wide { 7.6pt } else { 8.6pt })
  set par(justify: false)
  show figure: set block(breakable: not it.together)
  let cell(it) = if it.strong { strong(words(it.words)) } else { words(it.words) }
  let columns = if it.header.len() > 0 { (1fr,) + (auto,) * (it.columns - 1) } else { (auto, 1fr) }
  let count = calc.quo(it.cells.len(), it.columns)
  // Cells of no width over the first and the last three rows: where a table breaks, no row stands alone.
  let held = table.cell(rowspan: 3, breakable: false, inset: 0pt)[]
  let beside(i) = if count >= 6 and i in (0, count - 3) { (held,) } else if count >= 6 and (i < 3 or i >= count - 3) {
    ()
  } else { ([],) }
  let body = range(count).map(i => (
    ..it.cells.slice(i * it.columns, (i + 1) * it.columns).map(cell), ..beside(i),
  )).flatten()
  figure(caption: words(it.caption), table(
    columns: columns + (0pt,),
    align: if it.header.len() > 0 { (x, y) => if x == 0 { left } else { right } } else { left },
    stroke: (x, y) => (bottom: 0.4pt + luma(80%)), inset: (x: 4pt, y: 3.2pt),
    ..if it.header.len() > 0 { (table.header(..it.header.map(cell), []),) },
    ..body,
  ))
}

#let kinds = (
  heading: it => { if it.new_page { pagebreak(weak: true) }; heading(level: it.level, words(it.words)) },
  paragraph: it => words(it.words),
  lead: it => block(sticky: true, words(it.words)),
  answer: answer,
  link: it => link(it.address, underline(words(it.words))),
  formula: it => [#words(it.words) #formulas.at(it.number)],
  table: rows,
  picture: it => {
    if not it.floats { place.flush() } // figures keep their order
    let place = if it.floats { bottom } else { none }
    figure(image(it.file, width: it.width * 1%), caption: words(it.caption), placement: place)
  },
  code: it => raw(it.text, block: true, lang: "sh"),
)
#for it in report.blocks { kinds.at(it.kind)(it); parbreak() }
"""


def paper_pdf(title: str, subtitle: str, blocks: list[Block], folder: Path) -> bytes:
    """The PDF; `folder` holds figures/ and animations/."""
    compiled = typst_compiler()
    formulas = [block.typst for block in blocks if isinstance(block, Formula)]
    source = TEMPLATE.replace("FORMULAS", "".join(f"$ {formula} $, " for formula in formulas))
    told = {"title": sound(title), "subtitle": sound(subtitle), "blocks": blocks_as_data(blocks)}
    beside = folder / ".report.typ"  # Typst finds pictures beside its source
    try:
        beside.write_text(source, encoding="utf-8")
        return bytes(compiled(str(beside), root=str(folder), sys_inputs={"report": json.dumps(told)}))
    except RuntimeError as error:
        raise ArcwiseError(f"Typst could not set the PDF: {str(error).splitlines()[0]}. Try --html.") from error
    finally:
        beside.unlink(missing_ok=True)


def blocks_as_data(blocks: list[Block]) -> list[dict[str, Any]]:
    """The blocks as the template takes them; formulas are counted."""
    found, formulas = [], 0
    for block in blocks:
        told = as_data(block)
        if isinstance(block, Formula):
            told["number"], formulas = formulas, formulas + 1
        found += [told] if told else []
    return found


@singledispatch
def as_data(block: Any) -> dict[str, Any]:
    """A block as the template takes it."""
    raise TypeError(f"no way to set {type(block).__name__}")


@as_data.register
def _(block: Heading) -> dict[str, Any]:
    return {"kind": "heading", "words": in_words(block.text), "level": block.level, "new_page": block.new_page}


@as_data.register
def _(block: Paragraph) -> dict[str, Any]:
    return {"kind": "paragraph", "words": in_words(block.text)}


@as_data.register
def _(block: Lead) -> dict[str, Any]:
    return {"kind": "lead", "words": in_words(block.text)}


@as_data.register
def _(block: Answer) -> dict[str, Any]:
    return {"kind": "answer", "words": in_words(block.text)}


@as_data.register
def _(block: Link) -> dict[str, Any]:
    return {"kind": "link", "words": in_words(block.words), "address": sound(block.address)}


@as_data.register
def _(block: Formula) -> dict[str, Any]:
    return {"kind": "formula", "words": in_words(block.words)}


@as_data.register
def _(block: TableRows) -> dict[str, Any]:
    return {
        "kind": "table", "columns": len(block.header), "wide": len(block.header) > WIDE,
        "together": len(block.rows) <= TOGETHER, "caption": in_words(block.caption),
        "header": [{"words": in_words(name), "strong": True} for name in block.header] if any(block.header) else [],
        "cells": [
            {"words": in_words(text), "strong": (i, j) in block.strong}
            for i, row in enumerate(block.rows)
            for j, text in enumerate(row)
        ],
    }  # fmt: skip


@as_data.register
def _(block: PictureFile) -> dict[str, Any]:
    return {"kind": "picture", "file": block.file, "width": 100 * block.width, "caption": in_words(block.caption),
            "floats": block.floats}  # fmt: skip


@as_data.register
def _(block: Film) -> dict[str, Any]:
    words = f"Last frame of {block.file}. {block.caption}"
    return {"kind": "picture", "file": block.poster, "width": 72.0, "caption": in_words(words), "floats": False}


@as_data.register
def _(block: Code) -> dict[str, Any]:
    return {"kind": "code", "text": sound(block.text)}


@as_data.register
def _(block: Viewer) -> dict[str, Any]:
    return {}


def in_words(text: str) -> list[dict[str, Any]]:
    """A text as pieces, those between backticks as code.

    >>> in_words("type `ls`")
    [{'text': 'type ', 'code': False}, {'text': 'ls', 'code': True}]
    """
    pieces = [piece for piece in re.split(r"(`[^`]+`)", sound(text)) if piece]
    code = [len(piece) > 2 and piece[0] == piece[-1] == "`" for piece in pieces]
    return [
        {"text": piece[1:-1] if is_code else breakable(unbroken(piece)), "code": is_code}
        for piece, is_code in zip(pieces, code, strict=True)
    ]


def breakable(text: str) -> str:
    """Words of more letters than a column is wide may break at every twentieth: names of classes have any length.

    >>> breakable("short"), breakable("L" * 45).count("\u200b")
    ('short', 2)
    """
    return re.sub(r"\S{40,}", lambda word: "\u200b".join(re.findall(r".{1,20}", word[0])), text)


def sound(text: str) -> str:
    """Text that is Unicode: bytes of a file's name that are no letters become signs of replacement.

    Letters that no font of this machine has are spelt out, for Typst would leave a gap.
    """
    return drawable(text.encode(errors="surrogateescape").decode(errors="replace"))
