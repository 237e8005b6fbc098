"""The report as one HTML file that needs nothing else: pictures, animations, formulas and scripts inside."""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Callable
from functools import lru_cache, singledispatch
from importlib.resources import files
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
    Lead,
    Link,
    Paragraph,
    PictureFile,
    TableRows,
    Viewer,
    kind_of,
)


def page_html(title: str, subtitle: str, blocks: list[Block], folder: Path) -> str:
    """The whole page; `folder` holds figures/ and animations/."""
    body, contents, section = [], [], 0
    for block in blocks:
        if isinstance(block, Heading) and block.level == 1:
            section += 1
            contents.append(f'<a href="#s{section}">{html.escape(block.text)}</a>')
            body.append(f'<h2 id="s{section}">{html.escape(block.text)}</h2>')
        else:
            body.append(render(block, folder))
    template = files("arcwise.report").joinpath("page.html").read_text(encoding="utf-8")
    filled = {
        "TITLE": html.escape(title),
        "SUBTITLE": html.escape(subtitle),
        "CONTENTS": " ".join(contents),
        "BODY": "\n".join(body),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda found: filled[found[1]], template)


@singledispatch
def render(block: Any, folder: Path) -> str:
    """A block as HTML."""
    raise TypeError(f"no way to show {type(block).__name__}")


@render.register
def _(block: Heading, folder: Path) -> str:
    return f"<h3>{html.escape(block.text)}</h3>"


@render.register
def _(block: Paragraph, folder: Path) -> str:
    return f"<p>{inline(block.text)}</p>"


@render.register
def _(block: Lead, folder: Path) -> str:
    return f"<p>{inline(block.text)}</p>"


@render.register
def _(block: Answer, folder: Path) -> str:
    return f'<p class="answer">{inline(block.text)}</p>'


@render.register
def _(block: Link, folder: Path) -> str:
    return f'<p><a href="{html.escape(block.address, quote=True)}">{html.escape(block.words)}</a></p>'


@render.register
def _(block: Formula, folder: Path) -> str:
    shown = formula_svg(block.typst)
    return f'<p class="before">{inline(block.words)}</p><div class="formula">{shown}</div>'


@render.register
def _(block: TableRows, folder: Path) -> str:
    head = "".join(f"<th>{html.escape(name)}</th>" for name in block.header)
    rows = []
    for i, row in enumerate(block.rows):
        cells = "".join(
            f"<td{' class=best' if (i, j) in block.strong else ''}>{html.escape(value)}</td>"
            for j, value in enumerate(row)
        )
        rows.append(f"<tr>{cells}</tr>")
    kind = "sortable" if any(block.header) else "plain"
    table = f'<table class="{kind}"><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table>'
    return f"<figure>{caption_of(block)}<div class=wide>{table}</div></figure>"


@render.register
def _(block: PictureFile, folder: Path) -> str:
    words, style = html.escape(block.caption, quote=True), f"width: {100 * block.width:g}%"
    shown = f'<img loading="lazy" style="{style}" alt="{words}" src="{inside(folder / block.file)}">'
    return f'<figure><div class="wide picture">{shown}</div>{caption_of(block)}</figure>'


@render.register
def _(block: Film, folder: Path) -> str:
    shown = f'<img loading="lazy" alt="animation" src="{inside(folder / block.file)}">'
    return f'<figure class="film">{shown}{caption_of(block)}</figure>'


@render.register
def _(block: Code, folder: Path) -> str:
    return f"<pre>{html.escape(block.text)}</pre>"


@render.register
def _(block: Viewer, folder: Path) -> str:
    data = block.data.replace("<", "\\u003c")
    return (
        f'<figure class="viewer"><div id="viewer"></div><figcaption>{inline(block.caption)}</figcaption></figure>'
        f'<script type="application/json" id="viewer-data">{data}</script>'
    )


def caption_of(block: TableRows | PictureFile | Film) -> str:
    """The caption with its number."""
    return f"<figcaption><b>{kind_of(block)} {block.number}.</b> {inline(block.caption)}</figcaption>"


def inline(text: str) -> str:
    """Text with its code words marked."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(text))


def inside(path: Path) -> str:
    """A file as an address that holds it."""
    kind = {".png": "image/png", ".gif": "image/gif"}[path.suffix]
    return f"data:{kind};base64,{base64.b64encode(path.read_bytes()).decode()}"


@lru_cache(maxsize=64)
def formula_svg(typst: str) -> str:
    """A formula as a picture made of lines."""
    source = f"#set page(width: auto, height: auto, margin: 2pt, fill: none)\n#set text(size: 12pt)\n$ {typst} $"
    svg = typst_compiler()(source.encode(), format="svg").decode()
    return svg.replace("<svg ", '<svg role="img" ', 1)


def typst_compiler() -> Callable[..., bytes]:
    """Typst's compiler: it sets the formulas of the page, and the paper."""
    try:
        import typst
    except ImportError:
        raise ArcwiseError('a report needs typst: pip install "arcwise[report]"') from None
    return typst.compile  # type: ignore[return-value]
