"""Biases against class sizes: one run, its slope, and the line that the number of images alone would give."""

from types import SimpleNamespace
from typing import cast

import matplotlib.pyplot as plt
import numpy as np
import pytest

from arcwise.figures.bias import bias_and_frequency, bias_slope, unequal_classes
from arcwise.figures.canvas import offscreen
from arcwise.figures.plane import biased_plane
from arcwise.headspec import HeadSpec
from arcwise.records import Embeddings, Prototypes
from arcwise.study.subject import Subject

COUNTS = np.array([5923, 3188, 1508, 713, 337])
BIAS = np.array([-0.04, -0.41, -0.02, 0.07, 0.22], np.float32)


def about_unequal(counts=COUNTS, bias=BIAS):
    """A Subject of which nothing is known but the run on classes of unequal size."""
    head = HeadSpec.parse("softmax-bias")
    centres = Prototypes(np.eye(5, 2, dtype=np.float32), bias, head=head, names=tuple("01234"))
    run = SimpleNamespace(head=head, settings=SimpleNamespace(seed=7), prototypes=lambda: centres)
    return cast(Subject, SimpleNamespace(imbalanced=run, imbalanced_counts=counts))


def test_the_slope_over_log_count_is_that_of_a_least_squares_line():
    slope = bias_slope(COUNTS, BIAS)
    assert slope is not None and slope == pytest.approx(np.polyfit(np.log(COUNTS), BIAS, 1)[0], abs=1e-6) and slope < 0
    assert bias_slope(COUNTS, np.log(COUNTS) + 3.0) == pytest.approx(1.0)
    assert bias_slope(np.full(5, 100), BIAS) is None
    found = unequal_classes(about_unequal())
    assert found is not None and found.slope == slope and found.head == "softmax + bias"


def test_the_caption_tells_that_the_biases_are_of_one_run():
    offscreen()
    ((caption, figure),) = bias_and_frequency(about_unequal())
    plt.close(figure)
    assert "one run, softmax + bias with seed 7" in caption and "337 to 5,923 images" in caption


def test_both_lines_are_drawn_and_the_grey_one_is_log_count():
    offscreen()
    ((_, figure),) = bias_and_frequency(about_unequal())
    lines = [line for line in figure.axes[0].lines if len(line.get_xdata()) > 2]
    slopes = [np.polyfit(np.log(line.get_xdata()), line.get_ydata(), 1)[0] for line in lines]
    words = [text.get_text() for text in figure.legends[0].texts]
    plt.close(figure)
    assert slopes == pytest.approx([1.0, bias_slope(COUNTS, BIAS)], abs=1e-6)
    assert "slope 1" in words[0] and "−0.14" in words[1]


def test_classes_of_one_size_have_points_and_no_line():
    offscreen()
    ((_, figure),) = bias_and_frequency(about_unequal(counts=np.full(5, 100)))
    assert [len(line.get_xdata()) for line in figure.axes[0].lines] == [1] * 5
    plt.close(figure)


def test_boundaries_with_a_bias_are_drawn_once_and_not_where_all_heads_are_seen_anyway():
    offscreen()
    x = np.random.default_rng(0).standard_normal((50, 2)).astype(np.float32)
    w = np.array([[1, 0], [0, 1], [-1, -1]], np.float32)
    specs = {"softmax": HeadSpec.parse("softmax"), "softmax + bias": HeadSpec.parse("softmax-bias")}

    def about(heads, aside):
        return SimpleNamespace(
            dim=2, heads=heads, aside=aside, specs=specs, imbalanced=object(), champion=heads[-1],
            heads_named=lambda name: [head for head in heads if specs[head].name == name],
            embeddings=lambda head: Embeddings(x, np.arange(50) % 3, ("a", "b", "c")),
            prototypes=lambda head: Prototypes(w, head=specs[head]),
            run_of=lambda head: SimpleNamespace(settings=SimpleNamespace(seed=3)),
        )  # fmt: skip

    ((caption, figure),) = biased_plane(cast(Subject, about(["softmax"], {"softmax + bias": []})))
    plt.close(figure)
    assert "One run of softmax and one of softmax + bias" in caption and "Seed 3" in caption
    assert not list(biased_plane(cast(Subject, about(list(specs), {}))))
