"""The comparison at a glance: arrows that point where the metric says, bars of one standard deviation."""

from types import SimpleNamespace

import matplotlib.pyplot as plt
import pytest

from arcwise.figures.glance import at_a_glance
from arcwise.study.table import Table


@pytest.fixture
def figure():
    # 80, 80, 80 and 92 %: mean 83, squares about it 9 + 9 + 9 + 81 over 3, so one standard deviation is 6.
    values = {"accuracy": {"a": [0.8, 0.8, 0.8, 0.92]}, "angle-own": {"a": [0.1, 0.2, 0.3, 0.4]}}
    found = Table(heads=["a"], seeds={"a": [0, 1, 2, 3]}, values=values, seconds={})
    ((_, drawn),) = at_a_glance(SimpleNamespace(table=found))
    yield drawn
    plt.close(drawn)


def test_arrows_point_down_where_smaller_is_better(figure):
    titles = [place.get_title() for place in figure.axes]
    assert [title[-1] for title in titles] == ["↑", "↓"]
    assert "accuracy" in titles[0] and "angle" in titles[1]


def test_bars_are_mean_and_standard_deviation(figure):
    ((bar, _, lines),) = figure.axes[0].containers
    assert float(bar.get_xdata()[0]) == pytest.approx(83.0)
    (segment,) = lines[0].get_segments()
    assert segment[:, 0].tolist() == pytest.approx([77.0, 89.0])


def test_a_bar_ends_with_a_cap_where_a_share_ends_and_the_caption_says_so():
    values = {"margin-kept-0.5": {"a": [0.80, 0.99, 1.0, 1.0], "b": [0.5, 0.5, 0.5, 0.6]}}
    found = Table(heads=["a", "b"], seeds={"a": [0, 1, 2, 3], "b": [0, 1, 2, 3]}, values=values, seconds={})
    ((caption, drawn),) = at_a_glance(SimpleNamespace(table=found))
    bars = drawn.axes[0].containers
    segment = bars[0].lines[2][0].get_segments()[0]
    plt.close(drawn)
    assert segment[1, 0] == pytest.approx(100.0) and drawn.axes[0].get_xlim()[1] >= 100.0
    assert segment[0, 0] == pytest.approx(94.75 - 9.8446, abs=0.01)
    assert "cut off where the number cannot go on" in caption
