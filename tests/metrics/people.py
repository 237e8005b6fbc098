"""Populations with a known rate of false acceptance, to ask whether an interval covers it.

Weak: everybody is as like anybody else. Strong: some are much more average than others, and account for most mistakes.
"""

import numpy as np

from arcwise.records import Embeddings

DIM, IMAGES, NOISE = 64, 5, 0.9
REGIMES = [(n, effect, far) for n in (20, 50, 200) for effect in ("weak", "strong") for far in (1e-2, 1e-3)]


def centres(effect: str, n: int, random: np.random.Generator) -> np.ndarray:
    """The directions of n people."""
    c = random.standard_normal((n, DIM)) / np.sqrt(DIM)
    if effect == "strong":
        c[:, 0] += 0.35 * random.exponential(1.0, n)
    return c / np.linalg.norm(c, axis=1, keepdims=True)


def pictures(c: np.ndarray, each: int, random: np.random.Generator) -> np.ndarray:
    """Images of these people, as unit vectors."""
    x = c[:, None, :] + NOISE / np.sqrt(DIM) * random.standard_normal((len(c), each, DIM))
    return (x / np.linalg.norm(x, axis=2, keepdims=True)).reshape(-1, DIM)


def drawn(effect: str, n: int, random: np.random.Generator, each: int = IMAGES) -> Embeddings:
    """A sample of n people with so many images each."""
    return Embeddings(pictures(centres(effect, n, random), each, random), np.repeat(np.arange(n), each))


def truth(effect: str, n: int = 4000) -> np.ndarray:
    """The impostor scores of a large population, rising: one image of each of n others."""
    random = np.random.default_rng(12345)
    x = pictures(centres(effect, n, random), 1, random)
    return np.sort(np.concatenate([(x[i] @ x[i + 1 :].T) for i in range(n - 1)]))


def true_rate(scores: np.ndarray, threshold: float) -> float:
    """The share of them at or above a threshold."""
    return 1.0 - float(np.searchsorted(scores, threshold, "left")) / len(scores)
