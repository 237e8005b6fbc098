"""Embeddings of many dimensions in two or three: PCA always, t-SNE or UMAP where they are installed."""

from __future__ import annotations

import importlib
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from arcwise.errors import ArcwiseError, one_of

NEIGHBOURS = {"tsne": ("scikit-learn", "sklearn.manifold", "TSNE"), "umap": ("umap-learn", "umap", "UMAP")}


class Projection(NamedTuple):
    """Points to draw, how they were made in words, and centres in the same picture where that is possible."""

    x: Float[np.ndarray, "n p"]
    method: str
    centres: Float[np.ndarray, "c p"] | None = None


def project(
    x: Float[np.ndarray, "n d"],
    *,
    dim: int = 2,
    method: str = "pca",
    centres: Float[np.ndarray, "c d"] | None = None,
    seed: int = 0,
) -> Projection:
    """The points in `dim` dimensions, with the words that belong under the picture.

    PCA keeps the directions of largest variance and says what share of it they hold (Pearson 1901). t-SNE and UMAP keep
    neighbourhoods, not distances; centres cannot be drawn in them.

    >>> project(np.diag([3.0, 2.0, 1.0]), dim=2).x.shape
    (3, 2)
    """
    one_of("method", method, ("pca", "tsne", "umap"))
    if method == "pca":
        return principal(x.astype(np.float64), dim, centres)
    package, module, name = NEIGHBOURS[method]
    try:
        maker = getattr(importlib.import_module(module), name)
    except ImportError:
        raise ArcwiseError(f"{method} needs {package}: pip install {package}. Or take the projection pca.") from None
    made = maker(n_components=dim, random_state=seed).fit_transform(x.astype(np.float32))
    return Projection(np.asarray(made, np.float64), f"{method} of {x.shape[1]} dimensions: neighbours, not distances")


def principal(x: np.ndarray, dim: int, centres: np.ndarray | None) -> Projection:
    """The directions of largest variance, each turned so that its largest weight is positive."""
    mean = x.mean(axis=0)
    values, vectors = np.linalg.eigh(np.cov((x - mean).T, bias=True).reshape(x.shape[1], x.shape[1]))
    axes = vectors[:, ::-1][:, :dim]
    axes = axes * np.sign(axes[np.abs(axes).argmax(axis=0), np.arange(axes.shape[1])])
    share = values[::-1][:dim].sum() / max(values.sum(), 1e-300)
    axes = np.pad(axes, ((0, 0), (0, dim - axes.shape[1])))
    told = f"PCA, {dim} of {x.shape[1]} dimensions, {share:.0%} of the variance"
    return Projection((x - mean) @ axes, told, None if centres is None else (centres - mean) @ axes)
