"""Words of figures: none covers another, sticks out, or is wider than what it belongs to."""

import itertools
from types import SimpleNamespace
from typing import cast

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.text import Text

from arcwise.data import Images
from arcwise.figures.angles import AnglePanel, draw_angles
from arcwise.figures.canvas import reach, shown_heads, tell_apart
from arcwise.figures.confidence import draw_confidence
from arcwise.figures.conflict_images import conflict_triples
from arcwise.figures.confusion import ConfusionPanel, draw_confusion
from arcwise.figures.plane import PlanePanel, draw_planes
from arcwise.figures.roc import RocPanel, draw_roc
from arcwise.figures.sample import SamplePanel, draw_sample
from arcwise.figures.sphere import unit_sphere
from arcwise.figures.training import Curve, CurvePanel, draw_curves
from arcwise.metrics.planar import Grid
from arcwise.metrics.verification import all_pairs, roc
from arcwise.records import Embeddings, Prototypes
from arcwise.study.subject import Subject

HEADS = ("softmax", "softmax + bias", "NormFace", "ArcFace m=0.5")


@pytest.fixture
def drawn():
    """Gives a figure back as it will be printed, and closes it."""
    figures = []

    def lay_out(figure):
        figures.append(figure)
        figure.canvas.draw()
        return figure

    yield lay_out
    for figure in figures:
        plt.close(figure)


def words_of(axes):
    """The words of a panel that are seen, with their boxes; those of ticks beyond the ends of an axis are not."""
    hidden = set()
    for axis in (axes.xaxis, axes.yaxis):
        low, high = sorted(axis.get_view_interval())
        hidden |= {tick.label1 for tick in axis.get_major_ticks() if not low <= tick.get_loc() <= high}
    found = [text for text in axes.findobj(Text) if text.get_text().strip() and text not in hidden]
    return [(text.get_text(), text.get_window_extent()) for text in found if text.get_visible()]


def covered(words, slack=1.5):
    """Pairs of words that lie on each other."""
    return [
        (a, b)
        for (a, p), (b, q) in itertools.combinations(words, 2)
        if min(p.x1, q.x1) - max(p.x0, q.x0) > slack and min(p.y1, q.y1) - max(p.y0, q.y0) > slack
    ]


def test_the_legend_of_a_narrow_figure_keeps_to_its_width(drawn):
    x = np.random.default_rng(0).standard_normal((70, 2)).astype(np.float32)
    found = Embeddings(x, np.arange(70) % 10, tuple("0123456789"))
    figure = drawn(draw_planes([PlanePanel("ArcFace", found, reach(x))]))
    box = figure.legends[0].get_window_extent()
    assert box.x0 >= 0 and box.x1 <= figure.bbox.width
    assert len(figure.legends) == 1 and [text.get_text() for text in figure.legends[0].texts] == list("0123456789")


def test_ticks_of_a_logarithm_over_little_more_than_nothing_stay_apart(drawn):
    epochs = np.arange(1, 4)
    for low, high in ((1.18, 1.3), (2.4, 4.7), (0.9, 9.5), (0.01, 50.0)):
        curve = Curve("softmax", epochs, np.geomspace(low, high, 3)[None])
        figure = drawn(draw_curves([CurvePanel("loss", [curve], logarithmic=True)] * 4))
        ticks = [text for text in figure.axes[0].yaxis.get_majorticklabels() if text.get_text()]
        inside = [t for t in ticks if low * 0.99 < t.get_position()[1] < high * 1.01]
        assert inside and not covered([(t.get_text(), t.get_window_extent()) for t in inside]), (low, high)


def test_an_upright_label_is_no_longer_than_its_panel(drawn):
    own = np.linspace(0.0, 0.4, 100)
    figure = drawn(draw_angles([AnglePanel(head, own, 1.2 + own, own + 0.5, own + 0.7) for head in HEADS]))
    assert figure.axes[0].yaxis.label.get_window_extent().height <= figure.axes[0].bbox.height + 1


@pytest.mark.parametrize(("classes", "count"), [(5, 5671), (10, 5671), (10, 123), (12, 54321)])
def test_counts_are_no_wider_than_their_cells(drawn, classes, count):
    matrix = np.ones((classes, classes), int) + (count - 1) * np.eye(classes, dtype=int)
    names = tuple(str(i) for i in range(classes))
    figure = drawn(draw_confusion([ConfusionPanel(head, matrix, names) for head in HEADS]))
    for axes in figure.axes:
        cell = axes.bbox.width / classes
        assert axes.texts and all(text.get_window_extent().width <= cell for text in axes.texts)
    assert (str(count) in [text.get_text() for text in figure.axes[0].texts]) == (count < 50_000)


def test_the_words_of_two_close_lines_do_not_cover_each_other(drawn):
    curves = [Curve(head, np.arange(3), np.geomspace(0.01, 40_000, 3)[None]) for head in HEADS]
    panel = CurvePanel("nearest / mean", curves, logarithmic=True, lines=((5.31, "5.31"), (29.11, "29.11")))
    figure = drawn(draw_curves([panel] * 6, most=3, high=0.62))
    assert not any(covered(words_of(axes)) for axes in figure.axes)


def test_the_words_of_a_line_lie_on_no_curve_that_rises_to_it(drawn):
    epochs = np.arange(21)
    rising = [Curve(str(end), epochs, np.geomspace(0.01, end, 21)[None]) for end in (3.0, 8.0, 25.0, 40.0)]
    level = [Curve(curve.head, epochs, np.where(epochs < 4, 0.01, curve.values[:, -1:])) for curve in rising]
    panel = CurvePanel("nearest / mean", rising + level, logarithmic=True, lines=((5.31, "5.31"), (29.11, "29.11")))
    for axes in drawn(draw_curves([panel] * 6, most=3, high=0.62)).axes:
        dots = [axes.transData.transform(line.get_xydata()) for line in axes.lines if len(line.get_xdata()) > 2]
        boxes = [text.get_window_extent() for text in axes.texts]
        assert len(boxes) == 2 and not any(box.contains(*dot) for box in boxes for line in dots for dot in line)


def test_a_sample_hides_no_name_and_names_keep_apart(drawn):
    angles = np.radians([0.0, 3.0, 90.0, 180.0, 260.0])
    w = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    logits = np.array([29.5, 28.9, -20.4, -19.9, 5.2])
    shown = [SamplePanel(head, 20.0 * w[0], 0, w, tuple("01234"), logits) for head in HEADS]
    figure = drawn(draw_sample(shown))
    for axes in figure.axes:
        words = words_of(axes)
        assert not covered(words)
        for line in axes.lines:
            if line.get_marker() == "o":
                dot = axes.transData.transform(line.get_xydata()[0])
                assert not any(box.contains(*dot) for _, box in words)
        bars = [text.get_window_extent() for text in axes.texts]
        assert all(axes.bbox.y0 - 1 <= box.y0 and box.y1 <= axes.bbox.y1 + 1 for box in bars)


def test_no_legend_lies_on_the_curves_of_the_roc(drawn):
    x = np.random.default_rng(0).standard_normal((60, 4)).astype(np.float32)
    curve = roc(all_pairs(Embeddings(x, np.arange(60) % 6, tuple("abcdef"))))
    edges, counts = np.linspace(-1, 1, 81), np.arange(80)
    figure = drawn(draw_roc([RocPanel(head, curve, edges, counts, counts, 0.4, "threshold") for head in HEADS]))
    assert not any(axes.get_legend() for axes in figure.axes)
    labels = [text.get_text() for text in figure.legends[0].texts]
    assert labels == [*HEADS, "different", "same"]


def test_short_names_of_folders_in_folders_tell_them_apart():
    names = [f"alphabet{a}/character{c:02d}" for a in range(5) for c in range(30)]
    short = tell_apart(names)
    assert len(set(short)) == len(names) and max(map(len, short)) <= 17


def test_a_head_that_is_as_sure_as_chance_is_white_and_a_surer_one_is_not(drawn):
    x = np.random.default_rng(0).standard_normal((60, 2)).astype(np.float32)
    found = Embeddings(x, np.arange(60) % 30, tuple(f"c{i}" for i in range(30)))
    axis = np.linspace(-2, 2, 20)
    winner, sure = np.zeros((20, 20), int), np.full((20, 20), 1 / 30)
    sure[:, 10:] = 0.18
    grid = Grid(axis=axis, winner=winner, confidence=sure)
    figure = drawn(draw_confidence([PlanePanel("ArcFace", found, 2.0, None, grid)]))
    pixels = np.asarray(figure.axes[0].images[0].get_array())
    assert pixels[:, :10].min() == pytest.approx(1.0) and pixels[:, 10:].min() < 0.95


def test_long_names_below_images_cover_no_neighbour_and_stay_on_the_page(drawn):
    random, names = np.random.default_rng(0), tuple(f"alphabet/character{c:03d}" for c in range(40))
    y = np.repeat(np.arange(40), 4)
    w = random.standard_normal((40, 3)).astype(np.float32)
    x = (w[y] + 0.5 * random.standard_normal((160, 3))).astype(np.float32)
    images = Images(pixels=np.zeros((160, 8, 8, 1), np.uint8), y=y, names=names, source="own")
    about = SimpleNamespace(
        heads=["softmax", "ArcFace m=0.3"], champion="ArcFace m=0.3",
        drawn="Seed 0 of each head", images=lambda part: images,
        prototypes=lambda head: Prototypes(w),
        embeddings=lambda head: Embeddings(x, y, names, images.keys),
    )  # fmt: skip
    ((_, figure),) = conflict_triples(cast(Subject, about))
    words = [word for axes in drawn(figure).axes for word in words_of(axes)]
    assert any("character" in text or "…" in text for text, _ in words) and not covered(words, slack=0.0)
    assert all(box.x0 >= 0 and box.x1 <= figure.bbox.width for _, box in words)
    assert all(box.y0 >= 0 and box.y1 <= figure.bbox.height for _, box in words)


def test_four_spheres_stand_in_one_row_and_no_words_cover_others(drawn):
    random = np.random.default_rng(0)
    found = Embeddings(random.standard_normal((90, 3)).astype(np.float32), np.arange(90) % 9, tuple("123456789"))
    about = SimpleNamespace(
        dim=3, heads=[*HEADS[:3], "CurricularFace m=0.5"], champion="NormFace", embeddings=lambda head: found,
        drawn="Seed 5 of each head",
    )  # fmt: skip
    ((caption, figure),) = unit_sphere(cast(Subject, about))
    words = [word for axes in drawn(figure).axes for word in words_of(axes)]
    assert len(figure.axes) == 4 and len({round(axes.bbox.y0) for axes in figure.axes}) == 1 and "Seed 5" in caption
    below = [word for word in words if "closest means" in word[0]]
    assert len(below) == 4 and not covered(below, slack=0.0)
    assert all(box.x0 >= 0 and box.x1 <= figure.bbox.width for _, box in words)


def test_the_head_that_the_conclusion_speaks_of_is_always_drawn():
    heads = ["softmax", "softmax + bias", "NormFace", "CosFace", "ArcFace", "AdaFace"]
    for champion, drawn in (("ArcFace", [*heads[:3], "ArcFace"]), ("CosFace", heads[:4]), ("softmax", heads[:4])):
        assert shown_heads(cast(Subject, SimpleNamespace(heads=heads, champion=champion))) == drawn


def test_a_legend_of_many_rows_leaves_the_curves_their_height(drawn):
    def height(count):
        curves = [Curve(f"ArcFace m=0.{i} s=16", np.arange(3), np.array([[1.0, 2.0, 3.0]]) + i) for i in range(count)]
        return drawn(draw_curves([CurvePanel("accuracy, %", curves)] * 4)).axes[0].bbox.height

    assert min(height(4), height(8)) > 0.93 * height(1)
