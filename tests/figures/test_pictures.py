"""Images are shown as they are, and error bars end where numbers do."""

import types

import numpy as np

from arcwise.figures.canvas import offscreen
from arcwise.figures.conflict_images import degrees_apart
from arcwise.figures.glance import HeadPanel, draw_glance
from arcwise.figures.pictures import Picture, draw_pictures
from arcwise.figures.trial import draw_ranks, side_by_side


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
