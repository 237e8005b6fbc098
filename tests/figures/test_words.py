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
from arcwise.figures.canvas import even_columns, reach, shown_heads, tell_apart
from arcwise.figures.circle import unit_circle
from arcwise.figures.confidence import draw_confidence, unreached_words
from arcwise.figures.conflict_images import conflict_triples
from arcwise.figures.confusion import ConfusionPanel, draw_confusion
from arcwise.figures.glance import HeadPanel, draw_glance
from arcwise.figures.plane import PlanePanel, draw_planes
from arcwise.figures.roc import RocPanel, draw_roc
from arcwise.figures.sample import SamplePanel, draw_sample
from arcwise.figures.sphere import SpherePanel, draw_spheres, unit_sphere
from arcwise.figures.story import draw_story
from arcwise.figures.sweep import Line, SweepPanel, counted_seeds, draw_sweep, scale_sweep
from arcwise.figures.training import Curve, CurvePanel, draw_curves, training_curves
from arcwise.headspec import HeadSpec
from arcwise.metrics.planar import Grid
from arcwise.metrics.verification import all_pairs, roc
from arcwise.records import Embeddings, Prototypes, Run
from arcwise.study.subject import Subject
from arcwise.study.table import Table

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
    for low, high in ((1.18, 1.3), (2.4, 4.7), (0.9, 9.5), (0.004, 0.3), (0.01, 50.0)):
        curve = Curve("softmax", epochs, np.geomspace(low, high, 3)[None])
        figure = drawn(draw_curves([CurvePanel("loss", [curve], logarithmic=True)] * 4))
        ticks = [text for text in figure.axes[0].yaxis.get_majorticklabels() if text.get_text()]
        inside = [t for t in ticks if low * 0.99 < t.get_position()[1] < high * 1.01]
        assert inside and not covered([(t.get_text(), t.get_window_extent()) for t in inside]), (low, high)


def test_an_upright_label_is_no_longer_than_its_panel(drawn):
    own = np.linspace(0.0, 0.4, 100)
    figure = drawn(draw_angles([AnglePanel(head, own, 1.2 + own, own + 0.5, own + 0.7) for head in HEADS]))
    assert figure.axes[0].yaxis.label.get_window_extent().height <= figure.axes[0].bbox.height + 1


@pytest.mark.parametrize(("classes", "count", "heads", "name"), [
    (5, 5671, 4, "{}"), (10, 5671, 4, "{}"), (10, 123, 4, "{}"), (12, 54321, 4, "{}"), (10, 5671, 1, "{}"),
    (10, 2877, 3, "automobile{}"), (10, 2877, 4, "automobile{}"), (10, 2877, 2, "automobile{}"), (5, 5671, 3, "{}"),
])  # fmt: skip
def test_counts_are_no_wider_than_their_cells(drawn, classes, count, heads, name):
    matrix = np.ones((classes, classes), int) + (count - 1) * np.eye(classes, dtype=int)
    names = tuple(name.format(i) for i in range(classes))
    figure = drawn(draw_confusion([ConfusionPanel(head, matrix, names) for head in HEADS[:heads]]))
    panels = [axes for axes in figure.axes if axes.get_title()]
    assert len(panels) == heads
    for axes in panels:
        cell = axes.bbox.width / classes
        assert axes.texts and all(text.get_window_extent().width <= cell for text in axes.texts)
        assert all(box.x0 >= 0 and box.x1 <= figure.bbox.width for _, box in words_of(axes))
    if count == 123 or classes == 5:
        assert str(count) in [text.get_text() for text in panels[0].texts]


def test_three_matrices_of_digits_stand_in_one_row_and_what_was_right_is_no_number_there(drawn):
    matrix = np.full((10, 10), 12) + 4900 * np.eye(10, dtype=int)
    panel = ConfusionPanel("softmax", matrix, tuple("0123456789"))
    figure = drawn(draw_confusion([panel] * 3))
    assert len({round(axes.bbox.y0) for axes in figure.axes}) == 1
    assert {text.get_text() for text in figure.axes[0].texts} == {"12"}
    rows = [[label.get_text() for label in axes.get_yticklabels()] for axes in figure.axes]
    assert [any(names) for names in rows] == [True, False, False]


def test_names_of_eighteen_classes_beside_a_matrix_keep_apart(drawn):
    matrix = 1200 - 1100 * np.eye(18, dtype=int)  # no count fits
    figure = drawn(draw_confusion([ConfusionPanel(head, matrix, tuple(f"species {i}" for i in range(18)))
                                   for head in HEADS[:3]]))  # fmt: skip
    for axes in figure.axes[:3]:
        assert not axes.texts and not covered(words_of(axes), slack=0.0)
    assert "mistakes" in [text for axes in figure.findobj(plt.Axes) for text, _ in words_of(axes)]  # the colours' key


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
        assert all(text.get_window_extent().x0 >= axes.bbox.x1 for text in axes.texts)  # nor on one that begins there
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
        for text, bar in zip(axes.texts, axes.patches, strict=False):
            if bar.get_height() < 0:  # its number lies below its end, with a minus as on the axis
                assert text.get_window_extent().y1 < bar.get_window_extent().y0 and text.get_text()[0] == "−"


def test_no_legend_lies_on_the_curves_of_the_roc(drawn):
    x = np.random.default_rng(0).standard_normal((60, 4)).astype(np.float32)
    curve = roc(all_pairs(Embeddings(x, np.arange(60) % 6, tuple("abcdef"))))
    edges, counts = np.linspace(-1, 1, 81), np.arange(80)
    figure = drawn(draw_roc([RocPanel(head, curve, edges, counts, counts, 0.4, "threshold") for head in HEADS]))
    assert not any(axes.get_legend() for axes in figure.axes)
    labels = [text.get_text() for text in figure.legends[0].texts]
    assert labels == [*HEADS, "different", "same"]
    assert figure.legends[0].get_window_extent().y1 > figure.axes[0].bbox.y0 - figure.bbox.height / 2  # in the gap


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


def test_rows_of_panels_are_even():
    assert [even_columns(count, 4) for count in range(1, 13)] == [1, 2, 3, 4, 3, 3, 4, 4, 3, 4, 4, 4]


def test_the_legend_stands_where_the_last_row_has_no_panel(drawn):
    s = np.array([1.0, 2.0, 4.0])
    panel = SweepPanel("accuracy, %", [Line(f"m = {m}", s, np.array([[1.0, 2.0, 3.0]]) + m) for m in range(4)])
    figure = drawn(draw_sweep([panel] * 10))
    box, panels = figure.legends[0].get_window_extent(), [axes for axes in figure.axes if axes.get_title()]
    assert box.y0 > 0 and box.y1 <= panels[-1].bbox.y1 + 1
    assert box.x0 > panels[-1].bbox.x1 and box.x1 <= figure.bbox.width
    assert len(panels) == 10 and len({round(axes.bbox.y0) for axes in panels}) == 3
    curve = Curve("a head whose name is as long as this sentence, and longer than a panel is wide", s, s[None])
    figure = drawn(draw_curves([CurvePanel("loss", [curve])] * 5))  # too long for the gap: below all panels
    assert figure.legends[0].get_window_extent().y1 < min(axes.bbox.y0 for axes in figure.axes)


def test_rows_of_a_legend_are_of_a_length(drawn):
    x = np.random.default_rng(0).standard_normal((70, 2)).astype(np.float32)
    names = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
    found = Embeddings(x, np.arange(70) % 10, names)
    legend = drawn(draw_planes([PlanePanel(head, found, reach(x)) for head in HEADS[:3]])).legends[0]
    rows = [round(text.get_window_extent().y0) for text in legend.texts]
    assert [len([row for row in rows if abs(row - at) < 5]) for at in sorted({max(rows), min(rows)})] == [5, 5]


def test_titles_at_a_glance_hold_a_unit_and_its_arrow_together(drawn):
    titles = ["smallest angle between class means,\N{NO-BREAK SPACE}°", "accuracy,\N{NO-BREAK SPACE}%"]
    figure = drawn(draw_glance([HeadPanel(title, {head: [1.0, 2.0] for head in HEADS}) for title in titles * 5]))
    panels = [axes for axes in figure.axes if axes.get_title()]
    assert all(len(line) > 5 for axes in panels for line in axes.get_title().split("\n"))
    assert not covered([word for axes in panels for word in words_of(axes)])
    assert [text.get_text() for text in figure.legends[0].texts] == ["one seed", "mean and standard deviation"]


def test_every_class_of_a_sphere_is_named_and_those_behind_are_pale(drawn):
    w = np.array([[0.0, -1.0, 0.2], [0.0, 1.0, -0.2], [1.0, 0.0, 0.0]], np.float32)  # the second one lies behind
    w /= np.linalg.norm(w, axis=1, keepdims=True)
    found = Embeddings(np.repeat(w, 2000, axis=0), np.repeat(np.arange(3), 2000), ("front", "behind", "side"))
    figure = drawn(draw_spheres([SpherePanel("softmax", found, w, 0.3)]))
    texts = {text.get_text(): text for text in figure.axes[0].texts}
    assert set(texts) == {"front", "behind", "side"}
    assert texts["behind"].get_color() == "0.6" and texts["front"].get_color() == "0.1"
    clouds = [line for line in figure.axes[0].lines if line.get_marker() == "." and len(line.get_xdata())]
    behind = [line for line in clouds if min(plt.matplotlib.colors.to_rgb(line.get_color())) > 0.6]
    assert len(clouds) == 3 and len(behind) == 1 and behind[0].get_alpha() is None
    assert all(behind[0].get_zorder() < line.get_zorder() for line in clouds if line is not behind[0])


def test_ticks_of_neighbouring_panels_keep_apart_and_both_outlines_are_explained(drawn):
    own = np.linspace(0.0, 0.4, 100)
    figure = drawn(draw_angles([AnglePanel(head, own, 1.2 + own, own + 0.5, own + 0.7) for head in HEADS]))
    ticks = [label.get_window_extent() for axes in figure.axes for label in axes.get_xticklabels()]
    ticks.sort(key=lambda box: box.x0)
    assert min(b.x0 - a.x1 for a, b in itertools.pairwise(ticks)) > 8
    words = [text.get_text() for text in figure.legends[0].texts]
    assert words[2:] == ["own, before training", "nearest other, before training"]


def test_a_level_that_a_head_never_reaches_is_told(drawn):
    axis, found = np.linspace(-2, 2, 5), Embeddings(np.zeros((1, 2), np.float32), np.zeros(1, int), ("a", "b"))
    shown = []
    for head, sure in (("softmax", 0.999), ("NormFace", 0.8), ("ArcFace", 0.85), ("CosFace", 0.95)):
        grid = Grid(axis=axis, winner=np.zeros((5, 5), int), confidence=np.full((5, 5), sure))
        shown.append(PlanePanel(head, found, 2.0, None, grid))
    assert unreached_words(shown) == " (NormFace and ArcFace never reach 90 %; CosFace never reaches 99 %)"
    assert unreached_words(shown[:1]) == ""


def test_lines_of_a_circle_are_called_what_they_are(drawn):
    x = np.random.default_rng(0).standard_normal((60, 2)).astype(np.float32)
    w = np.array([[1, 0], [0, 1], [-1, -1]], np.float32)
    for names, boundaries in (
        (("softmax", "arcface:m=0.5"), "normalised head alone"),
        (("arcface:m=0.5",), "which are"),
    ):
        specs = {name: HeadSpec.parse(name) for name in names}
        about = SimpleNamespace(
            dim=2, heads=list(names), champion=names[-1], specs=specs, drawn="Seed 0",
            embeddings=lambda head: Embeddings(x, np.arange(60) % 3, ("a", "b", "c")),
            prototypes=lambda head: Prototypes(w),
        )  # fmt: skip
        ((caption, figure),) = unit_circle(cast(Subject, about))
        drawn(figure)
        assert "lines the middle between neighbouring centres" in caption and boundaries in caption


def test_no_boundary_of_the_sketch_runs_through_its_words(drawn):
    for axes in drawn(draw_story()).axes:
        ends = [line.get_xydata() for line in axes.lines if len(line.get_xdata()) == 2]
        rays = [axes.transData.transform(np.linspace(start, end, 400)) for start, end in ends]
        boxes = [text.get_window_extent().padded(3) for text in axes.texts if text.get_text() != "margin"]
        assert not any(box.contains(*dot) for box in boxes for ray in rays for dot in ray)


def test_the_caption_of_a_sweep_counts_the_seeds_of_its_lines_and_those_of_softmax(drawn):
    specs = {f"ArcFace m=0.5 s={s}": HeadSpec.parse(f"arcface:m=0.5,s={s}") for s in (1, 2, 4)}
    three = {head: [0.9, 0.8, 0.7] for head in specs}
    swept = Table(heads=list(specs), seeds={head: [0, 1, 2] for head in specs}, values={"accuracy": three}, seconds={})
    five = {"softmax": [0.9] * 5}
    main = Table(heads=["softmax"], seeds={"softmax": [0, 1, 2, 3, 4]}, values={"accuracy": five}, seconds={})
    for table, grey in ((main, "grey is softmax, which has no s, from 5 seeds"), (swept, "")):
        about = SimpleNamespace(sweep_table=swept, table=table, specs=specs)
        ((caption, figure),) = scale_sweep(cast(Subject, about))
        drawn(figure)
        assert "mean of 3 seeds" in caption and grey in caption and ("softmax" in caption) == bool(grey)


class Watched(Run):
    """A run of which nothing is known but its journal."""

    def journal(self, kind):
        return [{"epoch": epoch, "loss": 1.0 / epoch, "accuracy": 0.9} for epoch in (1, 2, 3)]


def test_losses_of_different_heads_are_said_to_be_different_functions(drawn, tmp_path):
    run = Watched(tmp_path)
    for heads in (["softmax"], ["softmax", "ArcFace"]):
        about = SimpleNamespace(heads=heads, champion=heads[-1], runs={head: [run] for head in heads}, watched="test")
        ((caption, figure),) = training_curves(cast(Subject, about))
        drawn(figure)
        assert ("loss is another function" in caption) == (len(heads) > 1)


def test_a_caption_counts_the_seeds_of_what_it_speaks_of():
    assert [counted_seeds(counts) for counts in ({1}, {5}, {2, 3})] == ["1 seed", "5 seeds", "2 to 3 seeds"]
