"""Films: words stay inside at every epoch, what lies behind is pale, and the poster is fit for paper."""

import io

import numpy as np
import pytest
from PIL import Image

from arcwise.figures.animation import Track, make_movie
from arcwise.figures.canvas import offscreen
from arcwise.records import Embeddings

GROWING = ["epoch 0, accuracy 9.80%, Dunn 0.01", "epoch 20, accuracy 100.00%, Dunn 48.33"]


def tracks(dim, words=GROWING, heads=("softmax", "ArcFace m=0.5")):
    random = np.random.default_rng(0)
    x = random.standard_normal((60, dim)).astype(np.float32)
    found = [Embeddings(x, np.arange(60) % 6, tuple("012345")) for _ in words]
    centres = random.standard_normal((6, dim)).astype(np.float32)
    return [Track(head, found, [centres] * len(words), words, 3.0 if dim == 2 else 0.0) for head in heads]


@pytest.mark.parametrize("dim", [2, 3])
@pytest.mark.parametrize("last", [GROWING[1], "epoch 20000, accuracy 100.00%, Dunn 1234567.89"])
def test_the_words_of_no_epoch_are_cut_off_or_meet_those_of_the_next_head(dim, last):
    offscreen()
    movie = make_movie(tracks(dim, [GROWING[0], last]), between=1)
    for frame in movie.frames[:2]:
        pixels = np.asarray(frame)
        edges = np.concatenate([pixels[:, :2].reshape(-1, 3), pixels[:, -2:].reshape(-1, 3), pixels[0]])
        assert edges.min() == 255
    rows = movie.frames[1].size[1] // 8  # above the panels, where titles and words stand
    ink = np.flatnonzero(np.asarray(movie.frames[1])[:rows].min(axis=(0, 2)) < 128)  # columns
    assert np.diff(ink).max() >= 8  # more than between two words


def test_the_poster_is_the_last_frame_in_more_dots():
    offscreen()
    movie = make_movie(tracks(2), between=1)
    poster, last = Image.open(io.BytesIO(movie.poster)).convert("RGB"), movie.frames[-1]
    assert poster.size[0] >= 2.2 * last.size[0]
    alike = np.asarray(poster.resize(last.size), float) - np.asarray(last, float)
    assert np.abs(alike).mean() < 6.0
    assert len(movie.gif()) < 3e6


def test_samples_behind_the_sphere_are_pale_however_many_they_are():
    offscreen()
    x = np.tile(np.array([[-0.5, 0.8, -0.3]], np.float32), (900, 1))  # behind, as seen from the first view
    found = Embeddings(x, np.zeros(900, int), ("0",))
    frame = np.asarray(make_movie([Track("softmax", [found] * 2, [None] * 2, ["", ""], 0.0)], turn=0).frames[0])
    blue = frame[(frame[..., 2] > frame[..., 0].astype(int) + 30)]
    assert len(blue) and blue[:, 0].min() > 140
