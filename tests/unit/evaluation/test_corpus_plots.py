"""The picture of a corpus: all lines are in it, and its axes say what they are."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from matplotlib.patches import StepPatch

from regard.core.errors import DataError
from regard.data.checks.report import Distribution, Statistics
from regard.evaluation.corpus_plots import draw_statistics
from regard.evaluation.plots import save_figure


def statistics() -> Statistics:
    lengths = Distribution((0.0, 5.0, 10.0, 20.0, 500.0), (10, 60, 25, 5), 9.0, 8.0, 2.0, 30.0, 1.0, 480.0)
    ratios = Distribution((0.5, 1.0, 2.0), (40, 60), 1.1, 1.05, 0.6, 1.8, 0.5, 2.0)
    return Statistics(100, 900, 950, 5000, 5500, 300, 350, "Latin", "Latin", lengths, lengths, ratios)


def test_all_lines_are_drawn_and_axes_are_named(tmp_path: Path) -> None:
    figure = draw_statistics(statistics())
    lengths, ratios = figure.axes
    for axes, curves in ((lengths, 3), (ratios, 2)):  # an area and its edge; the target has an edge only
        patches = [patch for patch in axes.patches if isinstance(patch, StepPatch)]
        assert len(patches) == curves
        for patch in patches:
            assert np.sum(patch.get_data().values) == pytest.approx(100)
    assert lengths.get_xlabel() == "length of a line (the last bar has all longer ones)"
    assert "middle 1.05" in ratios.get_xlabel()
    legend = lengths.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["source (middle 8)", "target (middle 8)"]
    save_figure(figure, tmp_path / "shape.svg")
    assert (tmp_path / "shape.svg").read_text(encoding="utf-8").lstrip().startswith("<?xml")


def test_nothing_cannot_be_drawn() -> None:
    with pytest.raises(DataError, match="there are no pairs to draw"):
        draw_statistics(dataclasses.replace(statistics(), pairs=0))
