"""The pictures of a comparison's Markdown report, as PNG files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from regard.comparing.results import Alignment
from regard.comparing.summary import Summary, mean_curves
from regard.core.visible_text import visible
from regard.evaluation.lengths import LengthBin
from regard.evaluation.plots import draw_alignment, merge_to_words, save_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = (
    *("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#B8860B"),
    *("#56B4E9", "#000000", "#7F3C8D", "#A5522D", "#6B7280"),
)
MARKS = ("o", "s", "D", "^", "v")
DASHES = ("-", "--", ":")
MOST_WORDS = 50  # of a side of an alignment
FOLDER = "pictures"


def write_pictures(folder: Path, summary: Summary) -> dict[str, str]:
    """Draws what there is to draw; gives the files, relative to `folder`, by name ("lengths", "curves", "alignment-SLUG")."""
    (folder / FOLDER).mkdir(exist_ok=True)
    names = {row.slug: row.entry for row in summary.rows}
    curves, axis = mean_curves(summary)
    figures: dict[str, Figure] = {}
    if summary.lengths:
        lengths = {slug: summary.lengths[slug] for slug in names if slug in summary.lengths}
        figures["lengths"] = draw_lengths(lengths, names)
    if curves:
        figures["curves"] = draw_curves(curves, names, axis)
    for slug, name in names.items():
        runs = summary.of(slug)
        if runs and runs[0].alignment is not None and runs[0].alignment.target and runs[0].alignment.source:
            figures[f"alignment-{slug}"] = draw_attention(runs[0].alignment, name)
    for name, figure in figures.items():
        save_figure(figure, folder / FOLDER / f"{name}.png")
    return {name: f"{FOLDER}/{name}.png" for name in figures}


def draw_lengths(lengths: Mapping[str, Sequence[LengthBin]], names: Mapping[str, str]) -> Figure:
    """BLEU by source length with 95 % intervals; the legend stands below."""
    bins = {(part.low, part.high): part for parts in lengths.values() for part in parts}
    order = sorted(bins, key=lambda bounds: (bounds[0], bounds[1] or float("inf")))
    figure, axes = _axes([names[slug] for slug in lengths])
    step = min(0.12, 0.8 / len(lengths))
    for number, (slug, parts) in enumerate(lengths.items()):
        places = [order.index((part.low, part.high)) + step * (number - (len(lengths) - 1) / 2) for part in parts]
        values = [part.bleu.value for part in parts]
        lows = [part.bleu.value - (part.bleu.low if part.bleu.low is not None else part.bleu.value) for part in parts]
        highs = [
            (part.bleu.high if part.bleu.high is not None else part.bleu.value) - part.bleu.value for part in parts
        ]
        axes.errorbar(
            places, values, yerr=[lows, highs], elinewidth=0.8, capsize=2, label=_label(names[slug]), **_look(number)
        )
    axes.set_xticks(range(len(order)), [f"{bins[b].label}\nn={bins[b].sentences}" for b in order])
    axes.set_xlim(-0.5, len(order) - 0.5)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("words in the source")
    axes.set_ylabel("BLEU (95 % interval)")
    _legend(figure, axes)
    return figure


def draw_curves(curves: Mapping[str, Sequence[tuple[float, float]]], names: Mapping[str, str], axis: str) -> Figure:
    """Validation loss over training."""
    figure, axes = _axes([names[slug] for slug in curves])
    for number, (slug, points) in enumerate(curves.items()):
        every = max(1, len(points) // 12)
        axes.plot(*zip(*points, strict=True), label=_label(names[slug]), markevery=every, **_look(number))
    values = sorted(y for points in curves.values() for _, y in points)
    low, middle = values[0], values[len(values) // 2]
    room = max(middle - low, 0.25 * abs(low), 1e-3)  # what is far above the rest leaves the picture
    axes.set_ylim(low - 0.1 * room, min(values[-1], low + 4 * room) + 0.1 * room)
    axes.set_xlabel(axis)
    axes.set_ylabel("validation loss (nats per token)")
    _legend(figure, axes)
    return figure


def draw_attention(alignment: Alignment, name: str) -> Figure:
    """The attention of one translation, by words."""
    weights = np.array(alignment.weights, dtype=np.float64).reshape(len(alignment.target), len(alignment.source))
    weights, source, target = merge_to_words(weights, alignment.source, alignment.target)
    cut = slice(MOST_WORDS)
    return draw_alignment(weights[cut, cut], source[cut], target[cut], _label(name))


def _axes(names: Sequence[str]) -> tuple[Figure, Any]:
    from matplotlib.figure import Figure

    rows = -(-len(names) // _columns(names))
    figure = Figure(figsize=(7.5, 3.7 + 0.2 * rows), layout="constrained")
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#e4e8ee", linewidth=0.8)
    axes.set_axisbelow(True)
    return figure, axes


def _look(number: int) -> dict[str, Any]:
    return {
        "color": COLOURS[number % len(COLOURS)],
        "marker": MARKS[number % len(MARKS)],
        "linestyle": DASHES[number % len(DASHES)],
        "markersize": 4.5,
        "linewidth": 1.4,
    }


def _legend(figure: Figure, axes: Any) -> None:
    handles, labels = axes.get_legend_handles_labels()
    legend = figure.legend(
        handles,
        labels,
        loc="outside lower center",
        ncols=_columns(labels),
        frameon=False,
        fontsize=8.5,
        handlelength=3,
    )
    for text in legend.get_texts():
        text.set_parse_math(False)


def _columns(names: Sequence[str]) -> int:
    """Of a legend with these names, so that it is not wider than the picture."""
    longest = max(len(_label(name)) for name in names)
    return min(len(names), 3 if longest <= 20 else 2 if longest <= 36 else 1)


def _label(name: str) -> str:
    return visible(name, 48)
