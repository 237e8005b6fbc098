"""The worked examples of a report: small numbers to check by hand, computed as they are shown."""

from __future__ import annotations

import math

import numpy as np

from arcwise.report.blocks import Block, Heading, Paragraph, TableRows

CENTRES = np.array([[0.96, 0.37], [-0.67, -0.33], [0.31, 1.03], [0.45, -0.77], [-0.66, 0.59]])
SAMPLE = np.array([18.14, 2.41])
ARC_CENTRES = np.array([[0.37, 0.46], [-0.35, 0.49], [-0.05, -1.19], [0.34, -0.12], [-0.45, -0.14]])
ARC_SAMPLE = np.array([0.62, 0.78])


def softmax(z: np.ndarray) -> np.ndarray:
    """Probabilities of logits."""
    e = np.exp(z - z.max())
    return e / e.sum()


def decimals(values: np.ndarray, digits: int = 2) -> list[str]:
    """Numbers as text."""
    return [f"{value:.{digits}f}" for value in values]


def worked_examples(m: float = 0.5) -> list[Block]:
    """The examples, in the order a reader meets them."""
    logits = CENTRES @ SAMPLE
    arc = (ARC_CENTRES / np.linalg.norm(ARC_CENTRES, axis=1, keepdims=True)) @ (ARC_SAMPLE / np.linalg.norm(ARC_SAMPLE))
    theta = math.acos(min(1.0, float(arc[0])))
    return [
        Heading("Numbers to check by hand", 2),
        Paragraph(angle_sentence()),
        Paragraph(
            f"A digit at x = ({SAMPLE[0]:g}, {SAMPLE[1]:g}) among five centres without bias gets the logits of "
            f"[[logits]]. Their exponentials sum to {np.exp(logits).sum() / 1e6:.1f} million, and the softmax gives "
            f"class 0 a probability of {softmax(logits)[0]:.5f}: a long x makes any softmax sure. For x of a tenth of "
            f"that length, in the same direction, it is {softmax(logits / 10)[0]:.2f}."
        ),
        TableRows(
            ["class", "0", "1", "2", "3", "4"],
            [["centre", *(f"({a:g}, {b:g})" for a, b in CENTRES)], ["logit", *decimals(logits)]],
            "One sample, five centres: logits are dot products.",
            name="logits",
        ),
        Paragraph(
            "softmax(1, -1, 0.5, -0.25, 3) = "
            + ", ".join(decimals(softmax(np.array([1, -1, 0.5, -0.25, 3])), 3))
            + ": it keeps the order and shares out one."
        ),
        Paragraph(
            f"The margin in one number: cos(0.5) = {math.cos(0.5):.2f} becomes cos(0.5 + {m:g}) = "
            f"{math.cos(0.5 + m):.2f}. Past θ = π − m the cosine would rise again: cos(π + {m:g}) = "
            f"{math.cos(math.pi + m):.2f} is more than -1, and a sample on the far side would be pushed further "
            f"away. There ψ goes on as cos θ − (1 − cos m), which is {-1 - (1 - math.cos(m)):.2f} at θ = π."
        ),
        Paragraph(
            f"For x = ({ARC_SAMPLE[0]:g}, {ARC_SAMPLE[1]:g}) and the centres of [[cosines]] the dot products are "
            "not cosines until both sides are divided by their lengths. Done so, class 0 has the cosine "
            f"{arc[0]:.5f}, an angle of θ = {theta:.3f} rad, and under m = {m:g} the logit cos(θ + m) = "
            f"{math.cos(theta + m):.2f} (times s)."
        ),
        TableRows(
            ["class", "0", "1", "2", "3", "4"],
            [
                ["centre", *(f"({a:g}, {b:g})" for a, b in ARC_CENTRES)],
                ["dot product", *decimals(ARC_CENTRES @ ARC_SAMPLE)],
                ["cosine", *decimals(arc)],
            ],
            "Dot products and cosines of the same sample.",
            name="cosines",
        ),
    ]


def angle_sentence() -> str:
    """Why angles: lengths change distances and leave angles alone."""
    a, b = np.array([5.0, 2.0]), np.array([7.0, 4.0])
    cos = a @ b / np.linalg.norm(a) / np.linalg.norm(b)
    return (
        f"Why angles: (5, 2) and (7, 4) are {np.linalg.norm(a - b):.2f} apart, at an angle of "
        f"{math.degrees(math.acos(cos)):.1f} degrees. Make the second 1.5 times as long and the distance is "
        f"{np.linalg.norm(a - 1.5 * b):.2f}, while the angle stays as it was. An angle does not ask how long a "
        "vector is."
    )
