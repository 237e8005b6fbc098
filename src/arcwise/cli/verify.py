"""`arcwise verify`: whether images show the same."""

from __future__ import annotations

import json
import math
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from arcwise.cli.advise import Share
from arcwise.errors import ArcwiseError, number_in

if TYPE_CHECKING:
    from arcwise.records import CalibratedThreshold


def verify_command(
    model: Path,
    images: list[Path],
    /,
    *,
    far: Share | None = None,
    threshold: float | None = None,
    device: str = "auto",
    json_: bool = False,
) -> None:
    """Say whether images show the same, and how near they are.

    Two images give an answer, more give the table of all pairs. The answer needs a threshold: one that arcwise
    calibrate has put beside the model, or one of your own.

    Parameters
    ----------
    model
        A run's folder, a model.safetensors, insightface's .pth, or an .onnx file that arcwise exported.
    images
        Two images or more.
    far
        Take the threshold that was calibrated for this false accept rate; the one calibrated last if not given.
    threshold
        Take this cosine as the threshold.
    device
        auto, cpu, cuda or cuda:1.
    json_
        Print for a machine.
    """
    if len(images) < 2:
        raise ArcwiseError(f"two images are compared, or more: arcwise verify {shlex.quote(str(model))} A.jpg B.jpg")
    from arcwise.embed import embed
    from arcwise.encoders import load_encoder
    from arcwise.trial import pair_cosines

    encoder = load_encoder(model, device=device)
    rule = threshold_of(model, encoder, far, threshold)
    limit = rule.cosine if rule is not None else threshold
    found = embed(encoder, images)
    n = len(images)
    a, b = (side.ravel() for side in np.indices((n, n)))
    cos = pair_cosines(found, a, b).reshape(n, n)
    if json_:
        print(json.dumps(as_values(images, cos, limit, rule)))
    elif n == 2:
        print_answer(float(cos[0, 1]), limit)
    else:
        print_matrix(images, cos, limit)
    if not json_:
        print(rule_text(rule, threshold, model))


def threshold_of(
    model: Path, encoder: Any, far: float | None, threshold: float | None
) -> CalibratedThreshold | None:  # fmt: skip
    """The calibrated threshold that decides; none where there is none, or where a cosine was named."""
    from arcwise.records.thresholds import pick_threshold, read_thresholds, thresholds_file

    if threshold is not None:
        if far is not None:
            raise ArcwiseError("--far picks a calibrated threshold and --threshold names one: give one of them.")
        number_in("threshold", threshold, -1.0, 1.0, why="It is a cosine.")
        return None
    known = [*getattr(encoder, "thresholds", []), *read_thresholds(thresholds_file(model))]
    found = pick_threshold(known, encoder.fingerprint, far=far)
    if found is None and far is not None:
        raise ArcwiseError(f"no threshold was calibrated for this model. {how_to_calibrate(model, far)}")
    return found


def how_to_calibrate(model: Path, far: Share = 1e-3) -> str:
    """The command that makes a threshold."""
    return f"Make one with: arcwise calibrate {shlex.quote(str(model))} --on SOURCE --far {far:g}"


def angle_text(cos: float) -> str:
    """A cosine as an angle."""
    return f"{math.degrees(math.acos(max(-1.0, min(1.0, cos)))):.1f}°"


def print_answer(cos: float, limit: float | None) -> None:
    """Same or different, the cosine and the angle."""
    said = "" if limit is None else "same       " if cos >= limit else "different  "
    print(f"{said}cosine {cos:.4f}, angle {angle_text(cos)}")


def print_matrix(images: list[Path], cos: np.ndarray, limit: float | None) -> None:
    """The cosines of all pairs; a star marks those at or above the threshold."""
    for number, image in enumerate(images, start=1):
        print(f"{number:4}  {image}")
    print("\n      " + "".join(f"{number:9}" for number in range(1, len(images) + 1)))
    for i, row in enumerate(cos):
        cells = [
            f"{value:8.4f}{'*' if limit is not None and i != j and value >= limit else ' '}"
            for j, value in enumerate(row)
        ]
        print(f"{i + 1:4}  " + "".join(cells))
    print("\n* the same" if limit is not None else "")


def rule_text(rule: CalibratedThreshold | None, threshold: float | None, model: Path) -> str:
    """What decided, or how to have something decide."""
    if rule is not None:
        return rule.told()
    if threshold is not None:
        return f"threshold {threshold:.4f} ({angle_text(threshold)}): yours; no error rate is known of it."
    return f"There is no threshold for this model yet, so nothing is decided. {how_to_calibrate(model)}"


def as_values(
    images: list[Path], cos: np.ndarray, limit: float | None, rule: CalibratedThreshold | None
) -> dict[str, Any]:  # fmt: skip
    """The answer for a machine."""
    pairs = [
        {"a": str(images[i]), "b": str(images[j]), "cosine": float(cos[i, j]),
         "angle_degrees": math.degrees(math.acos(max(-1.0, min(1.0, float(cos[i, j]))))),
         "same": None if limit is None else bool(cos[i, j] >= limit)}
        for i in range(len(images)) for j in range(i + 1, len(images))
    ]  # fmt: skip
    return {"pairs": pairs, "threshold": limit, "calibrated": None if rule is None else rule.as_values()}
