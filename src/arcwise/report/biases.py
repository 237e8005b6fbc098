"""The section on biases: what heads with a bias have learned of how often classes occur, and what is not shown."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from arcwise.data.folder import counted
from arcwise.figures.bias import bias_slope
from arcwise.metrics.spread import student
from arcwise.records import Run
from arcwise.report import conclusions
from arcwise.report.blocks import Block, Heading, Paragraph
from arcwise.report.words import range_words
from arcwise.study.subject import Subject


class Biases(NamedTuple):
    """The biases of a head, a row per run, beside the training images of each class, where these are known."""

    head: str
    seeds: list[int]
    values: Float[np.ndarray, "runs c"]
    counts: Int[np.ndarray, " c"] | None
    names: tuple[str, ...]


def biases_of(head: str, runs: list[Run], counts: np.ndarray | None) -> Biases | None:
    """What these runs have learned as biases; nothing where a head has none."""
    found = [run.prototypes() for run in runs]
    values = [one.bias for one in found if one.bias is not None]
    if len(values) < len(runs) or len({len(one) for one in values}) != 1:
        return None
    counts = counts if counts is not None and len(counts) == len(values[0]) and counts.min() > 0 else None
    return Biases(head, [run.settings.seed for run in runs], np.array(values, np.float64), counts, found[0].names or ())


def learned_biases(about: Subject) -> tuple[Biases | None, list[Biases]]:
    """Those of the run on classes of unequal size, and those of the heads of the experiment."""
    skewed = about.imbalanced
    images = about.images("train")
    counts = None if images is None else images.counts
    every = [biases_of(head, many, counts) for head, many in {**about.runs, **about.aside}.items()]
    alone = None if skewed is None else biases_of(skewed.head.label, [skewed], about.imbalanced_counts)
    return alone, [one for one in every if one is not None]


def slope_over_log(counts: np.ndarray, bias: np.ndarray) -> tuple[float, float, float] | None:
    """The slope of biases over the logarithm of the counts with its 95 % interval; nothing from too few sizes.

    >>> slope = slope_over_log(np.array([10, 100, 1000, 10000]), np.log([11.0, 90.0, 1100.0, 9000.0]))
    >>> " ".join(f"{value:.2f}" for value in slope)
    '0.98 0.88 1.09'
    """
    x = np.log(counts)
    x, y = x - x.mean(), bias - bias.mean()
    if len(np.unique(counts)) < 3:
        return None
    slope = bias_slope(counts, bias)
    assert slope is not None, "there are several sizes"
    left = y - slope * x
    half = student(len(x) - 2) * math.sqrt(float(left @ left) / (len(x) - 2) / float(x @ x))
    return slope, slope - half, slope + half


def skewed_sentence(found: Biases) -> str:
    """What one run on classes of unequal size has made of its biases."""
    counts, bias = found.counts, found.values[0]
    assert counts is not None
    rare, often = int(counts.argmin()), int(counts.argmax())
    seed, names = found.seeds[0], found.names or tuple(map(str, range(len(counts))))
    said = (
        f"{conclusions.capital(found.head)} was trained once (seed {seed}) on {len(counts)} classes of unequal size: "
        f"the rarest, {names[rare]} ({counts[rare]:,} training images), has a bias of "
        f"{conclusions.signed(bias[rare])}, the most frequent, {names[often]} ({counts[often]:,}), one of "
        f"{conclusions.signed(bias[often])}."
    )
    if (fit := slope_over_log(counts, bias)) is None:
        return said
    slope, low, high = (conclusions.signed(value) for value in fit)
    said += f" Over the logarithm of the count the biases change by {slope} per factor of e (95 % interval over the "
    said += f"classes [{low}, {high}]); had they learned how often classes occur and nothing else, it would be +1. "
    if fit[1] <= 0.0 <= fit[2]:
        return said + "So this run does not show whether frequent classes get the larger bias."
    return said + f"So in this run frequent classes have the {'larger' if fit[0] > 0 else 'smaller'} biases."


def equal_sentence(found: Biases) -> str:
    """What the biases of a head of the experiment are, and whether a class has the same in every run."""
    runs, c = found.values.shape
    sizes = f" (training images of a class: {range_words(found.counts)})" if found.counts is not None else ""
    apart = float(found.values.std(axis=1, ddof=1).mean()) if c > 1 else 0.0
    said = (
        f"In the {counted(runs, 'run')} of {found.head} on its {c:,} classes{sizes}, biases lie between "
        f"{conclusions.signed(float(found.values.min()))} and {conclusions.signed(float(found.values.max()))}; within "
        f"a run they differ by a standard deviation of {apart:.2f}" + (" on the average." if runs > 1 else ".")
    )
    if runs < 2:
        return said
    steady = float(found.values.mean(axis=0).std(ddof=1)) if c > 1 else 0.0
    return said + f" Their means over the runs, class by class, have one of {steady:.2f}."


def bias(about: Subject, drawn: list[Block]) -> list[Block]:
    """What biases were learned."""
    alone, every = learned_biases(about)
    if not drawn and (alone is None or alone.counts is None):
        return []
    said = [skewed_sentence(alone)] if alone is not None and alone.counts is not None else []
    return [
        Heading("What a bias does"),
        Paragraph(
            "A bias moves the boundary between two classes away from the middle, towards the class with the smaller "
            "bias. It is the same for every image, so it can hold how often a class occurs, but not how it looks."
        ),
        *drawn,
        *map(Paragraph, [*said, *map(equal_sentence, every)]),
    ]
