"""The illustrated page of the margins: Markdown, with one figure per margin in a folder beside it."""

from __future__ import annotations

import importlib.util
import inspect
from collections.abc import Iterator
from pathlib import Path

from arcwise.curves import portrait
from arcwise.errors import ArcwiseError
from arcwise.figures.canvas import figure_bytes
from arcwise.figures.margin_portrait import draw_portrait
from arcwise.margins import MARGINS
from arcwise.records import write


def write_page(path: Path) -> Iterator[Path]:
    """Writes the figures and then the page, handing over each path once it is there."""
    if path.suffix != ".md" or path.is_dir():
        raise ArcwiseError(f"--page must name a Markdown file, got {path}. Try: --page {path.stem or 'margins'}.md")
    if path.exists() and not path.read_bytes().startswith(INTRODUCTION.partition("\n\n")[0].encode()):
        raise ArcwiseError(f"{path} is there and is not a page of margins: choose another --page.")
    if importlib.util.find_spec("matplotlib") is None:
        raise ArcwiseError('figures need matplotlib: pip install "arcwise[figures]"')
    for name in MARGINS:
        yield write(path.with_suffix("") / f"{name}.png", figure_bytes(draw_portrait(portrait(name)), dpi=150))
    yield write(path, page_text(path.stem))


def margin_row(name: str) -> dict[str, str]:
    """One margin in words."""
    kind = MARGINS[name]
    defaults = ", ".join(
        f"{p.name}={p.default!r}" for p in inspect.signature(kind).parameters.values() if p.default is not p.empty
    )
    neutral = ", ".join(f"{key}={getattr(value, '__name__', value)}" for key, value in kind.neutral.items())
    return {
        "name": name,
        "formula": str(kind.formula),
        "defaults": defaults or "no parameters",
        "neutral": neutral or "always",
        "paper": str(kind.paper),
    }


def page_text(folder: str) -> str:
    """The words of the page."""
    parts = [INTRODUCTION]
    for entry in map(margin_row, MARGINS):
        kind = MARGINS[entry["name"]]
        rest = inspect.cleandoc(kind.__doc__ or "").split("\n\n")[1:]
        prose = next((p for p in rest if not p.startswith(">>>")), "")
        parts.append(
            f"## {kind.__name__}\n\n"
            f'`margin="{entry["name"]}"`, defaults `{entry["defaults"]}`. {entry["paper"]}.\n\n'
            f"ψ = {entry['formula']}\n\n" + (f"{prose}\n\n" if prose else "") + f"NormFace at: {entry['neutral']}.\n\n"
            f"![{kind.__name__}: psi, its slope and the boundary between two classes]({folder}/{entry['name']}.png)\n"
        )
    return "\n".join(parts)


INTRODUCTION = """# The margins

This page and its figures are written by `arcwise margins --page docs/margins.md`.

A margin changes one number per sample, the logit of its own class: from s cos θ to s ψ(θ). Every ψ here is
continuous over all angles (but for ArcFace's option `continuation="paper"`), never rises with the angle and
never exceeds the cosine, and its gradient is exact and finite, at θ = 0 and θ = π too.

How to read the panels:

- **ψ(θ), the own logit / s**: what the loss is told instead of the cosine (grey). The further below the cosine, the
  closer to its centre a sample must come for the same loss.
- **its slope dψ/dθ**: how hard a sample at that angle is pulled. Where it touches zero, nothing pulls.
- **how another class counts** (where the margin changes that): its cosine (grey) after the reshaping.
- **where the margin is met**: the plane of the angles to two centres. In the coloured regions a sample of that
  class beats the other with the margin; the white band between them is the margin. The dotted diagonal is
  the boundary that counts at test time, without margin. The solid line and the colours are the setting to
  look at first (the papers' default, where there is one), dashed lines others.
"""
