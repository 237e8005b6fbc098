"""Readers of what comes after training: exported models, thresholds, pairs, galleries, hashes of training images."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from hostile.read_files import Looker


def exported(folder: Path, kit: Any) -> object:
    """The model in an ONNX file, and one embedding of it."""
    from arcwise.export.encoder import OnnxEmbedder

    found = OnnxEmbedder.load(folder / "exported" / "model.onnx")
    look = found.preprocessing
    pixels = np.zeros((1, look.side, look.side, look.channels), np.uint8)
    return (
        found.fingerprint, found.names, found.about, look, found.precision, found.licence, found.thresholds,
        found.encode(pixels) if look.side <= 64 else None,
    )  # fmt: skip


def thresholds(folder: Path, kit: Any) -> object:
    """The thresholds beside a model, what is said of them, and the one that is taken."""
    from arcwise.records.thresholds import keep_threshold, pick_threshold, read_thresholds, thresholds_file

    found = read_thresholds(thresholds_file(folder / "exported"))
    if found:
        keep_threshold(folder / "exported" / "new" / "thresholds.json", found[0])
    return [one.told() for one in found], [pick_threshold(found, one.model) for one in found]


def pairs(folder: Path, kit: Any) -> object:
    """The pairs in a table."""
    from arcwise.pairs import PairTable

    found = PairTable.load(folder / "pairs" / "pairs.csv")
    return found.a, found.b, found.same, found.fold, found.columns, found.folds


def trained_on(folder: Path, kit: Any) -> object:
    """Which images a model was trained on."""
    from arcwise.overlap import trained_on

    found = trained_on(folder / "run")
    return None if found is None else (found.names, found.holds(np.arange(9).astype(np.uint64)))


class Opened(Looker):
    """An Encoder of the model that a gallery says it is of."""

    def __init__(self, fingerprint: str, dim: int):
        super().__init__()
        self.fingerprint, self.dim = fingerprint, dim

    def encode(self, pixels: np.ndarray) -> np.ndarray:
        return np.ones((len(pixels), self.dim), np.float32)


def gallery(folder: Path, kit: Any) -> object:
    """A gallery: who is in it, how large it is, who somebody is."""
    from arcwise.gallery import Gallery

    card = Gallery.open(folder / "people", None).card
    found = Gallery.open(folder / "people", Opened(card.model, card.dim))
    everybody, image = found.list(), np.zeros((8, 8, 3), np.uint8)
    asked = found.identify(image, threshold=0.5), found.identify([image] * 2, threshold=-1.0, tags=everybody[0].tags)
    found.store.read(images=True)
    return everybody, found.embeddings().x, asked, sorted(found.stats())
