"""The docstrings as Markdown for the site: examples, formulas and columns of text become blocks of code."""

import re

import griffe

FORMULA = re.compile(r"[\w|()^]+ = ")  # loss_i = ..., psi = ...
COLUMNS = re.compile(r"\S+ {2,}\S")  # config.json        the resolved configuration


class Docstrings(griffe.Extension):
    """What Markdown would take for a quotation or run together is fenced before it sees it."""

    def on_instance(self, *, obj: griffe.Object, **_: object) -> None:
        if obj.docstring:
            obj.docstring.value = "\n\n".join(map(as_markdown, obj.docstring.value.split("\n\n")))


def as_markdown(paragraph: str) -> str:
    """The paragraph, fenced where its look carries its meaning."""
    if paragraph.startswith(">>>"):
        return f"```pycon\n{paragraph}\n```"
    lines = paragraph.splitlines()
    if FORMULA.match(paragraph) or (len(lines) > 2 and all(map(COLUMNS.match, lines[:2]))):
        return f"```text\n{paragraph}\n```"
    return paragraph
