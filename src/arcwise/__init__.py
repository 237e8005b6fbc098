"""Angular-margin embeddings: exact, finite, and in bounded memory.

    head = arcwise.Head(512, 1000, margin="arcface", s=64.0)      # a loss for your own loop
    loss = head(x, y)

    run = arcwise.train("digits-2d")                              # or let arcwise train
    found = arcwise.embed(arcwise.Embedder.load(run.path), arcwise.load("digits").test)

Everything here is imported when it is first used, so that `import arcwise` itself is quick.
"""

from __future__ import annotations

import importlib
import sys
import threading
from types import ModuleType
from typing import TYPE_CHECKING

from arcwise.version import __version__ as __version__

if TYPE_CHECKING:
    from arcwise import margins as margins
    from arcwise import metrics as metrics
    from arcwise import ops as ops
    from arcwise import optim as optim
    from arcwise.advise import Advice as Advice
    from arcwise.advise import advise as advise
    from arcwise.backbones.from_timm import mend_torchvision as mend_torchvision
    from arcwise.building import margins_from_counts as margins_from_counts
    from arcwise.cli.display import Progress as Progress
    from arcwise.compare import compare as compare
    from arcwise.config import Config as Config
    from arcwise.config import ModelConfig as ModelConfig
    from arcwise.config import override as override
    from arcwise.data.images import Images as Images
    from arcwise.data.sources import load as load
    from arcwise.embed import embed as embed
    from arcwise.encoders import load_encoder as load_encoder
    from arcwise.errors import ArcwiseError as ArcwiseError
    from arcwise.errors import Interrupted as Interrupted
    from arcwise.gallery import Gallery as Gallery
    from arcwise.heads import Head as Head
    from arcwise.heads import LinearHead as LinearHead
    from arcwise.heads import Scores as Scores
    from arcwise.heads import head_from as head_from
    from arcwise.headspec import HeadSpec as HeadSpec
    from arcwise.margins import MARGINS as MARGINS
    from arcwise.measure import measure as measure
    from arcwise.model import Embedder as Embedder
    from arcwise.ops import split_lse as split_lse
    from arcwise.recipes import RECIPES as RECIPES
    from arcwise.recipes import recipe as recipe
    from arcwise.records import Comparison as Comparison
    from arcwise.records import Embeddings as Embeddings
    from arcwise.records import Encoder as Encoder
    from arcwise.records import Preprocessing as Preprocessing
    from arcwise.records import Prototypes as Prototypes
    from arcwise.records import Run as Run
    from arcwise.report import report as report
    from arcwise.train import train as train

# Where each name of the door lives.
HOMES = {
    "Advice": "advise", "ArcwiseError": "errors", "Comparison": "records", "Config": "config", "Embedder": "model",
    "Embeddings": "records", "Encoder": "records", "Gallery": "gallery", "Head": "heads", "HeadSpec": "headspec",
    "Images": "data.images", "Interrupted": "errors", "LinearHead": "heads", "MARGINS": "margins",
    "ModelConfig": "config", "Preprocessing": "records", "Progress": "cli.display", "Prototypes": "records",
    "RECIPES": "recipes", "Run": "records", "Scores": "heads", "advise": "advise", "compare": "compare",
    "embed": "embed", "head_from": "heads", "load": "data.sources", "load_encoder": "encoders",
    "margins_from_counts": "building", "measure": "measure", "mend_torchvision": "backbones.from_timm",
    "override": "config", "recipe": "recipes", "report": "report", "split_lse": "ops", "train": "train",
}  # fmt: skip
MODULES = ("margins", "metrics", "ops", "optim")
IMPORTING = threading.RLock()  # threads that open two doors at once would wait for each other's modules

__all__ = sorted([*HOMES, *MODULES])  # pyright: ignore


class Door(ModuleType):
    """This module: `arcwise.train` is the function, also once the package of that name is imported."""

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in HOMES and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = Door


def __getattr__(name: str) -> object:
    if name not in HOMES and name not in MODULES:
        raise AttributeError(f"module 'arcwise' has no attribute {name!r}; it has {', '.join(__all__)}")
    with IMPORTING:
        if name in MODULES:
            return importlib.import_module(f"arcwise.{name}")
        value = getattr(importlib.import_module(f"arcwise.{HOMES[name]}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
