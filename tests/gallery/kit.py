"""A model that anybody can follow: four by four grey pixels are the embedding, as distances from the middle grey."""

from __future__ import annotations

import numpy as np

from arcwise.records import CalibratedThreshold, Preprocessing

D = 16


class Tiles:
    """An Encoder without torch; another `name` is another model, which turns every embedding round."""

    dim = D
    preprocessing = Preprocessing(side=4, channels=1, mean=(0.5,), std=(0.5,))

    def __init__(self, name: str = "tiles"):
        self.fingerprint = name

    def encode(self, pixels: np.ndarray) -> np.ndarray:
        x = pixels.reshape(len(pixels), D).astype(np.float32) - np.float32(127.5)
        return x if self.fingerprint == "tiles" else x[:, ::-1].copy()


def photos(person: int, count: int, noise: int = 12) -> np.ndarray:
    """Images of somebody: a pattern of her own, and noise; the same for the same numbers."""
    random = np.random.default_rng([person, 7])
    pattern = random.integers(0, 256, (1, 4, 4, 1))
    return np.clip(pattern + random.integers(-noise, noise + 1, (count, 4, 4, 1)), 0, 255).astype(np.uint8)


def threshold(cosine: float = 0.9, model: str = "tiles", **changes) -> CalibratedThreshold:
    """A threshold as if it had been calibrated."""
    told = {
        "far": 0.01, "cosine": cosine, "far_found": 0.01, "far_low": 0.005, "far_high": 0.02, "tar": 0.9,
        "tar_low": 0.8, "tar_high": 0.95, "identities": 200, "images": 2000, "impostor_pairs": 10**6,
        "genuine_pairs": 9000, "evenness": 50.0, "source": "tests", "date": "2026-01-01", "model": model,
    }  # fmt: skip
    return CalibratedThreshold(**{**told, **changes})
