"""A picture of a corpus: how long its lines are, and how the lengths of the two sides go together."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from regard.core.errors import DataError
from regard.data.checks.histograms import Bars, length_bars, length_top, ratio_bars
from regard.data.checks.report import Statistics
from regard.evaluation.plots import COLOURS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def draw_statistics(statistics: Statistics) -> Figure:
    """Histograms of the lengths of both sides and of their ratios. Save it with `regard.evaluation.plots.save_figure`."""
    from matplotlib.figure import Figure

    if not statistics.pairs:
        raise DataError("the picture of the corpus", "there are no pairs to draw", "Give a corpus that is not empty")
    figure = Figure(figsize=(9.6, 3.4), layout="constrained")
    lengths, ratios = figure.subplots(1, 2, gridspec_kw={"wspace": 0.06})
    sides = {"source": statistics.source_lengths, "target": statistics.target_lengths}
    top = length_top(*sides.values())
    for number, (name, side) in enumerate(sides.items()):
        bars = length_bars(side, 64, top)
        _steps(lengths, bars, COLOURS[number], fill=number == 0, label=f"{name} (middle {side.median:g})")
    lengths.legend(frameon=False, fontsize=9)
    lengths.set_xlabel("length of a line (the last bar has all longer ones)")
    lengths.set_ylabel("lines")
    bars = ratio_bars(statistics.ratios, 64)
    _steps(ratios, bars, COLOURS[2], fill=True, label="")
    ratios.set_xlabel(f"target length over source length (middle {statistics.ratios.median:.2f})")
    for axes in (lengths, ratios):
        axes.set_ylim(bottom=0)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", color="#e4e8ee", linewidth=0.8)
        axes.set_axisbelow(True)
    return figure


def _steps(axes: Axes, bars: Bars, colour: str, fill: bool, label: str) -> None:
    edges = np.linspace(0, 1, len(bars.heights) + 1)
    if fill:
        axes.stairs(bars.heights, edges, fill=True, color=colour, alpha=0.25)
    axes.stairs(bars.heights, edges, color=colour, linewidth=1.5, label=label or None)
    axes.set_xlim(0, 1)
    axes.set_xticks([place for place, _ in bars.ticks], [text for _, text in bars.ticks])
