"""Portraits of margins: what a picture of one needs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float


@dataclass(frozen=True, slots=True, kw_only=True)
class MarginCurve:
    """A margin at one setting, sampled over the angle.

    `lead[i, j]` is psi(theta_i) minus what another class at angle theta_j counts: where it is positive,
    a sample at theta_i from its own and theta_j from the other centre has met its margin; where it is
    NaN, the other class is left out. `other[j]` is what a class at theta_j counts for a sample 45 degrees
    from its own centre, where the margin reshapes other classes.
    """

    label: str
    psi: Float[np.ndarray, " n"]
    slope: Float[np.ndarray, " n"]
    lead: Float[np.ndarray, "n n"]
    other: Float[np.ndarray, " n"] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MarginPortrait:
    """All that a picture of one margin needs: its words, the angles, and a curve per setting.

    `main` is the index of the setting to look at first.
    """

    title: str
    formula: str
    theta: Float[np.ndarray, " n"]
    curves: tuple[MarginCurve, ...]
    main: int
