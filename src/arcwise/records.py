"""Returns the nouns that travel between the parts: frozen records of arrays, and how files are written."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float

from arcwise.errors import ArcwiseError


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


def write(path: Path, content: str | bytes) -> Path:
    """The path, once the whole content is under it: written beside it first, then renamed.

    >>> import tempfile
    >>> write(Path(tempfile.mkdtemp()) / "a.txt", "whole or not at all").read_text()
    'whole or not at all'
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside.write_bytes(content.encode() if isinstance(content, str) else content)
        return beside.replace(path)
    except OSError as error:
        raise ArcwiseError(f"cannot write {path}: {error.strerror}. Choose another folder.") from error
    finally:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)
