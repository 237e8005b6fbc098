"""Images are shown as they are, and error bars end where numbers do."""

import types

import matplotlib.pyplot as plt
import numpy as np

from arcwise.data import Images
from arcwise.figures.canvas import offscreen
from arcwise.figures.conflict_images import class_of, degrees_apart
from arcwise.figures.glance import HeadPanel, draw_glance
from arcwise.figures.neighbours import angle_words, angles_from, neighbours
from arcwise.figures.pictures import Picture, draw_pictures
from arcwise.figures.trial import draw_ranks, side_by_side
from arcwise.records import Embeddings


def test_grey_images_are_no_negatives():
    offscreen()
    white = np.full((4, 4, 1), 255, np.uint8)
    (image,) = draw_pictures([[Picture(white)]]).axes[0].get_images()
    assert image.to_rgba(image.get_array())[0, 0].tolist() == [1.0, 1.0, 1.0, 1.0]
    assert side_by_side(0 * white, 0 * white)[0, 4, 0] == 255  # the line between two stays white


def test_no_axis_and_no_bar_leaves_what_a_share_can_be():
    offscreen()
    draws = {k: types.SimpleNamespace(mean=mean, deviation=0.05, n=10) for k, mean in ((1, 0.9), (5, 0.99))}
    found = types.SimpleNamespace(watch=types.SimpleNamespace(cmc=draws, identities=9))
    (place,) = draw_ranks(found).axes
    bars = np.concatenate([line for part in place.collections for line in part.get_segments()])
    assert bars[:, 1].max() <= 100.0 < place.get_ylim()[1]
    (place,) = draw_glance([HeadPanel("conflicts, %", {"a": [0.0, 1.0], "b": [2.0]}, "lower")]).axes
    assert place.get_xlim()[0] == 0.0


def test_a_cosine_distance_is_told_as_an_angle():
    assert abs(degrees_apart(0.5) - 60.0) < 1e-9


def test_a_black_frame_around_a_black_image_has_paper_within():
    offscreen()
    black = np.zeros((20, 20, 1), np.uint8)
    figure = draw_pictures([[Picture(black, "query", "black")]], side=1.0)
    figure.canvas.draw()
    box = figure.axes[0].bbox
    row = np.asarray(figure.canvas.buffer_rgba())[:, round(box.x0) - 3 : round(box.x1) + 3, :3]
    row = row[len(row) - round((box.y0 + box.y1) / 2)].max(axis=1)  # from left to right through the middle
    runs = "".join("#" if value < 128 else " " for value in row)
    plt.close(figure)
    assert len(runs.split()) == 3  # frame, image, frame


def test_angles_too_small_for_a_cosine_are_told_and_told_apart():
    angles = np.array([0.0, 1e-6, 3e-6, 1e-5, 1e-4, 0.3, np.pi])  # of 1, the cosine of all but the last is 1 in float32
    x = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    found = angles_from(x, x[0])
    assert np.allclose(found, angles, rtol=1e-3)
    words = [angle_words(np.degrees(angle)) for angle in found]
    assert len(set(words)) == len(words) and words[0] == "0°" and words[2] == "0.00017°"


def test_queries_are_said_to_be_of_some_classes_only():
    offscreen()
    names = tuple("abcdefg")
    x = np.random.default_rng(0).standard_normal((70, 8)).astype(np.float32)
    y = np.arange(70) % 7
    images = Images(pixels=np.zeros((70, 8, 8, 1), np.uint8), y=y, names=names, source="own")
    about = types.SimpleNamespace(
        champion="ArcFace", images=lambda part: images,
        embeddings=lambda head, part: Embeddings(x, y, names, images.keys),
        config=types.SimpleNamespace(data=types.SimpleNamespace(unseen="")),
        run_of=lambda head: types.SimpleNamespace(settings=types.SimpleNamespace(seed=0)),
    )  # fmt: skip
    ((caption, figure),) = neighbours(about)
    plt.close(figure)
    assert "the first image of the first 5 of 7 classes" in caption


def test_a_name_of_ten_letters_stands_in_full_below_its_image():
    found = Embeddings(np.ones((1, 2), np.float32), np.zeros(1, int), ("automobile",))
    assert class_of(found, 0) == "automobile"
