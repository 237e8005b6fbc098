"""The portraits: what is drawn is what the margin says, and the figures need no torch."""

import subprocess
import sys

import numpy as np
import pytest

from arcwise.curves import portrait
from arcwise.figures.canvas import figure_bytes
from arcwise.figures.margin_portrait import draw_portrait, opened
from arcwise.margins import MARGINS


@pytest.mark.parametrize("name", MARGINS)
def test_the_slope_is_the_derivative_of_psi(name):
    drawn = portrait(name)
    for curve in drawn.curves:
        numeric = np.gradient(curve.psi, drawn.theta)
        smooth = np.abs(np.gradient(numeric)) < 0.05  # away from jumps of the slope
        step = np.diff(drawn.theta)[0]
        bend = 4.0**2  # the largest second derivative here, SphereFace's m^2, which flips at its kinks
        assert np.abs(numeric - curve.slope)[2:-2][smooth[2:-2]].max() < bend * step


def test_the_margin_of_arcface_is_a_band_of_constant_width():
    drawn = portrait("arcface")
    lead, theta = drawn.curves[drawn.main].lead, drawn.theta
    for i in range(20, 200, 20):  # class 1 wins where theta_2 > theta_1 + m
        met = theta[lead[i] > 0]
        assert met.min() == pytest.approx(theta[i] + 0.5, abs=np.diff(theta)[0] * 1.01)


def test_lines_open_where_they_jump_and_nowhere_else():
    gaps = {
        (name, i): (
            int(np.isnan(opened(c.psi)).sum()),
            int(np.isnan(opened(c.slope)).sum()),
        )
        for name in MARGINS
        for i, c in enumerate(portrait(name).curves)
    }
    assert gaps["sphereface", 2] == (0, 0)  # m = 4: steep, not broken
    assert gaps["arcface", 1] == (0, 1)  # the slope jumps at pi - m
    assert gaps["arcface", 3] == (1, 1)  # the paper's continuation jumps itself
    assert gaps["cosface", 1] == (0, 0)


def test_a_portrait_becomes_a_png_and_an_svg():
    figure = draw_portrait(portrait("curricularface"))
    assert len(figure.axes) == 4
    assert figure_bytes(figure).startswith(b"\x89PNG")
    assert b"<svg" in figure_bytes(draw_portrait(portrait("cosface")), "svg")


def test_figures_and_records_import_no_torch():
    code = "import sys; sys.modules['torch'] = None; import arcwise.figures.margin_portrait, arcwise.records"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0
