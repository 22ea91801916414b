"""Lines, bars and matrices are drawn with the values that they are given."""

from __future__ import annotations

import numpy as np
import pytest

from regard.core.errors import DataError
from regard.evaluation.drawing import draw_bars, draw_lines, draw_matrix
from regard.evaluation.plots import save_figure


def test_lines_have_their_points_and_names(tmp_path):
    figure = draw_lines({"a": ([1, 2, 3], [4.0, 5.0, 6.0]), "b": (range(50), range(50))}, x="n", y="m", log="x")
    (axes,) = figure.axes
    first, second = axes.get_lines()
    assert first.get_xydata().tolist() == [[1, 4], [2, 5], [3, 6]]
    assert (first.get_marker(), second.get_marker()) == ("o", "")
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["a", "b"]
    assert (axes.get_xlabel(), axes.get_xscale(), axes.get_yscale()) == ("n", "log", "linear")
    save_figure(figure, tmp_path / "lines.png")


def test_bars_stand_in_order_with_their_values(tmp_path):
    figure = draw_bars({"$x$": 0.25, "y": 0.5}, x="P")
    (axes,) = figure.axes
    assert [bar.get_width() for bar in axes.patches] == [0.25, 0.5]
    assert [label.get_text() for label in axes.texts] == ["0.25", "0.5"]
    assert axes.yaxis_inverted()
    save_figure(figure, tmp_path / "bars.png")


def test_a_matrix_has_its_numbers_in_its_cells(tmp_path):
    figure = draw_matrix(np.array([[0.5, -np.inf], [-0.25, 1.0]]), ["r", "s"], ["c", "d"], title="t")
    (axes,) = figure.axes
    assert [text.get_text() for text in axes.texts] == ["0.50", "−∞", "-0.25", "1.00"]
    assert axes.images[0].get_clim() == (-1.0, 1.0)
    save_figure(figure, tmp_path / "matrix.png")


@pytest.mark.parametrize(
    "draw", [lambda: draw_lines({}), lambda: draw_bars({}), lambda: draw_matrix([[1.0]], ["a", "b"], ["c"])]
)
def test_nothing_to_draw_is_said(draw):
    with pytest.raises(DataError):
        draw()
