"""Letters that the fonts at hand have; others are looked for among the machine's, and spelt out where none has them."""

from __future__ import annotations

from functools import lru_cache

LOOKED_THROUGH = 400  # fonts of the machine at most


def drawable(text: str) -> str:
    r"""The text with letters that no font here has spelt out by their numbers.

    >>> drawable("α"), drawable("\U000f1234")
    ('α', '<U+F1234>')
    """
    if text.isascii():
        return text
    return "".join(letter if letter.isascii() or font_with(letter) else f"<U+{ord(letter):04X}>" for letter in text)


@lru_cache(maxsize=4096)
def font_with(letter: str) -> str:
    """A font that has a letter: the usual one, or one of the machine's, which is used from then on; "" for none."""
    import matplotlib as mpl
    from matplotlib import font_manager

    usual = font_manager.findfont("DejaVu Sans")
    if ord(letter) in letters_of(usual):
        return usual
    for found in font_manager.fontManager.ttflist[:LOOKED_THROUGH]:
        if "resort" in found.name.lower():  # it has a box for every letter
            continue
        if ord(letter) in letters_of(found.fname):
            family = mpl.rcParams["font.family"]
            mpl.rcParams["font.family"] = [*family, *([found.name] if found.name not in family else [])]
            return found.fname
    return ""


@lru_cache(maxsize=LOOKED_THROUGH)
def letters_of(path: str) -> frozenset[int]:
    """The letters of a font, by number."""
    from matplotlib.ft2font import FT2Font

    try:
        return frozenset(FT2Font(path).get_charmap())
    except (OSError, RuntimeError):
        return frozenset()
