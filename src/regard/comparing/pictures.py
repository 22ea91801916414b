"""The pictures of a comparison's Markdown report, as PNG files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from regard.comparing.charts import attention_by_words
from regard.comparing.results import Alignment
from regard.comparing.summary import Summary, mean_curves
from regard.evaluation.plots import draw_alignment, draw_lengths, save_figure
from regard.evaluation.series import figure_with_room, label, legend_below, look, plain_axes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FOLDER = "pictures"


def write_pictures(folder: Path, summary: Summary) -> dict[str, str]:
    """Draws what there is to draw; gives the files, relative to `folder`, by name ("lengths", "curves", "alignment-SLUG")."""
    (folder / FOLDER).mkdir(exist_ok=True)
    names = {row.slug: row.entry for row in summary.rows}
    curves, axis = mean_curves(summary)
    figures: dict[str, Figure] = {}
    if summary.lengths:
        lengths = {name: summary.lengths[slug] for slug, name in names.items() if slug in summary.lengths}
        figures["lengths"] = draw_lengths(lengths, title="", below=True)
    if curves:
        figures["curves"] = draw_curves(curves, names, axis)
    for slug, name in names.items():
        runs = summary.of(slug)
        if runs and runs[0].alignment is not None and runs[0].alignment.target and runs[0].alignment.source:
            figures[f"alignment-{slug}"] = draw_attention(runs[0].alignment, name)
    for name, figure in figures.items():
        save_figure(figure, folder / FOLDER / f"{name}.png")
    return {name: f"{FOLDER}/{name}.png" for name in figures}


def draw_curves(curves: Mapping[str, Sequence[tuple[float, float]]], names: Mapping[str, str], axis: str) -> Figure:
    """Validation loss over training."""
    figure = figure_with_room([names[slug] for slug in curves])
    axes = figure.add_subplot()
    for number, (slug, points) in enumerate(curves.items()):
        every = max(1, len(points) // 12)
        axes.plot(*zip(*points, strict=True), label=label(names[slug]), markevery=every, **look(number))
    values = sorted(y for points in curves.values() for _, y in points)
    low, middle = values[0], values[len(values) // 2]
    room = max(middle - low, 0.25 * abs(low), 1e-3)  # what is far above the rest leaves the picture
    axes.set_ylim(low - 0.1 * room, min(values[-1], low + 4 * room) + 0.1 * room)
    axes.set_xlabel(axis)
    axes.set_ylabel("validation loss (nats per token)")
    plain_axes(axes)
    legend_below(figure, axes)
    return figure


def draw_attention(alignment: Alignment, name: str) -> Figure:
    """The attention of one translation, by words."""
    weights, source, target = attention_by_words(alignment)
    return draw_alignment(weights, source, target, label(name))
