"""`arcwise margins`: lists the margins, or writes their illustrated page."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from arcwise.errors import ArcwiseError
from arcwise.margins import MARGINS
from arcwise.report.margins_page import margin_row, write_page


def margins_command(*, page: Path | None = None, json_: bool = False) -> None:
    """List the margins with formula, defaults and paper, or write their illustrated page.

    Parameters
    ----------
    page
        Write a Markdown page here, and its figures into a folder of the same name beside it.
    json_
        Print the list for a machine.
    """
    if page is not None and json_:
        raise ArcwiseError("--page and --json are two answers: give one of them.")
    if page is not None:
        for written in write_page(page):
            print(f"wrote {written}", file=sys.stderr)
        print(f"{page}\n\nNext: open it, or arcwise advise --classes 1000 --dim 512")
    elif json_:
        print(json.dumps([margin_row(name) for name in MARGINS], ensure_ascii=False))
    else:
        for entry in map(margin_row, MARGINS):
            print(f"{entry['name']:16} ψ = {entry['formula']}\n{'':16} {entry['defaults']}  ({entry['paper']})")
        print('\nNext: head = arcwise.Head(512, 1000, margin="arcface", s=64.0), or arcwise margins --page margins.md')
