"""Angular-margin embeddings: exact, finite, and in bounded memory.

    head = arcwise.Head(512, 1000, margin="arcface", s=64.0)
    loss = head(x, y)

What needs torch is imported when it is first used, so that `import arcwise` itself is quick.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

# At once, not lazily: cheap, and bound before the submodule of the same name could take its place.
from arcwise.advise import Advice as Advice
from arcwise.advise import advise as advise
from arcwise.errors import ArcwiseError as ArcwiseError

if TYPE_CHECKING:
    from arcwise import margins as margins
    from arcwise import ops as ops
    from arcwise.heads import Head as Head
    from arcwise.heads import LinearHead as LinearHead
    from arcwise.heads import Scores as Scores
    from arcwise.heads import head_from as head_from
    from arcwise.margins import MARGINS as MARGINS
    from arcwise.margins import margins_from_counts as margins_from_counts
    from arcwise.model import Embedder as Embedder
    from arcwise.ops import split_lse as split_lse
    from arcwise.records import Embeddings as Embeddings
    from arcwise.records import Run as Run

__version__ = "0.1.0"

_HOME = {
    "Embedder": "arcwise.model",
    "Embeddings": "arcwise.records",
    "Head": "arcwise.heads",
    "LinearHead": "arcwise.heads",
    "MARGINS": "arcwise.margins",
    "Run": "arcwise.records",
    "Scores": "arcwise.heads",
    "head_from": "arcwise.heads",
    "margins_from_counts": "arcwise.margins",
    "split_lse": "arcwise.ops",
}
_MODULES = ("margins", "ops", "optim")

__all__ = sorted(["Advice", "ArcwiseError", "advise", *_HOME, *_MODULES])  # pyright: ignore


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return importlib.import_module(f"arcwise.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'arcwise' has no attribute {name!r}; it has {', '.join(__all__)}")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
