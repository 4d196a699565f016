# SPDX-License-Identifier: BSD-3-Clause
"""The plots of the demo show what they are given."""

import pytest

from torch_loom._demo_plot import bars, curves, save_picture


def canvas(text):
    """The rows of a plot, without labels."""
    return [line.split("|", 1)[1] for line in text.splitlines() if "|" in line]


def test_curves_go_from_the_highest_loss_to_the_lowest():
    text = curves("digits", {"cpu": [(1, 4.0), (50, 2.0), (99, 1.0)]})
    rows = canvas(text)
    assert text.splitlines()[0] == "digits"
    assert rows[0].startswith("o")
    assert rows[-1].rstrip().endswith("o")
    assert rows[-1].index("o") == 59
    assert "4.000" in text
    assert "1.000" in text
    assert "step 99" in text
    assert sum(row.count("o") for row in rows) == 3


def test_a_point_of_several_devices_has_its_own_mark():
    rows = canvas(curves("t", {"cpu": [(1, 2.0), (9, 1.0)], "loom": [(1, 2.0), (9, 1.5)]}))
    assert rows[0][0] == "@"
    assert sum(row.count("o") for row in rows) == 1
    assert sum(row.count("x") for row in rows) == 1


@pytest.mark.parametrize("curve", [[(1, 2.0)], [(1, float("nan")), (2, 2.0)], [(1, 2.0), (2, 2.0)]])
def test_flat_short_and_broken_curves_are_drawn(curve):
    assert any("o" in row for row in canvas(curves("t", {"cpu": curve})))


def test_a_curve_without_numbers_says_so():
    assert curves("t", {"cpu": [(1, float("inf"))]}) == "t: no finite loss"


def test_bars_are_as_long_as_the_times():
    rows = canvas(bars("time", {"cpu": 6.0, "loom": 3.0}))
    assert [row.count("#") for row in rows] == [60, 30]
    assert rows[1].endswith("3.0 s")


def test_a_picture_is_saved_where_matplotlib_is(tmp_path):
    curve = {"digits": {"cpu": [(1, 2.0), (2, 1.0)], "loom": [(1, 2.0), (2, 1.1)]}}
    seconds = {"digits": {"cpu": 2.0, "loom": 1.0}}
    saved = save_picture(tmp_path / "demo.svg", curve, seconds)
    assert (tmp_path / "demo.svg").exists() == saved
    if saved:
        assert "<svg" in (tmp_path / "demo.svg").read_text()
