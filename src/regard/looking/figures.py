"""Static pictures of what the viewer shows, for papers and slides: matplotlib figures, saved as PNG, SVG or PDF."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from regard.core.errors import ConfigError, ModelError
from regard.evaluation.plots import draw_alignment
from regard.looking.trace import Trace

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CELL = 1.15  # inches of a head's picture
LABELLED = 24  # tokens, above which a head's picture has no labels
MAP = "Blues"


def alignment_figure(trace: Trace, words: bool) -> Figure:
    """Source by target, the weights as shades."""
    weights, rows, columns = trace.aligned("words" if words else "tokens")
    return draw_alignment(weights, columns, rows)


def heads_figure(trace: Trace, part: str) -> Figure:
    """Every head of every layer as a small picture: layers from top to bottom, heads from left to right."""
    from matplotlib.figure import Figure

    found = trace.part(part)
    layers, heads = found.weights.shape[:2]
    figure = Figure(figsize=(CELL * heads + 0.5, CELL * layers + 0.6), layout="constrained")
    grid: Any = figure.subplots(layers, heads, squeeze=False)
    for i in range(layers):
        for j in range(heads):
            axes = grid[i][j]
            axes.imshow(found.weights[i, j], cmap=MAP, vmin=0, vmax=1, aspect="auto", interpolation="nearest")
            axes.set_xticks([])
            axes.set_yticks([])
            if i == 0:
                axes.set_title(f"head {j + 1}", fontsize=8)
            if j == 0:
                axes.set_ylabel(f"layer {i + 1}", fontsize=8)
    figure.suptitle(str(found.to_plain()["title"]), fontsize=9)
    return figure


def head_figure(trace: Trace, part: str, layer: int, head: int) -> Figure:
    """One head with its tokens."""
    found = trace.part(part)
    rows, columns = trace.text(found.rows).tokens, trace.text(found.columns).tokens
    return draw_alignment(trace.head(part, layer, head), columns, rows)


def positions_figure(tables: dict[str, np.ndarray], names: Sequence[str] = ()) -> Figure:
    """Tables of positions as pictures, with their dot products beside them."""
    from matplotlib.figure import Figure

    chosen = [name for name in names or tables if name in tables]
    if not chosen:
        raise ModelError("positions", "this model has no table of positions", "Choose another model")
    columns = min(2, len(chosen))
    rows = -(-len(chosen) // columns)
    figure = Figure(figsize=(4.2 * columns, 3.2 * rows), layout="constrained")
    grid: Any = figure.subplots(rows, columns, squeeze=False)
    for place, axes in enumerate(grid.flat):
        if place >= len(chosen):
            axes.axis("off")
            continue
        table = tables[chosen[place]]
        shown = axes.imshow(table, cmap="RdBu_r" if table.min() < 0 else MAP, aspect="auto", interpolation="nearest")
        dots = chosen[place].endswith(".dots")
        axes.set_title(chosen[place], fontsize=9)
        axes.set_ylabel("position", fontsize=8)
        axes.set_xlabel("position" if dots else "dimension", fontsize=8)
        figure.colorbar(shown, ax=axes, shrink=0.8)
    return figure


def check_part(trace: Trace, part: str) -> str:
    """The part that is asked for; without one, the first that the model has."""
    if not part:
        if not trace.parts:
            raise ModelError("the model", "it has no attention to draw", "Choose another picture")
        return next(iter(trace.parts))
    if part not in trace.parts:
        raise ConfigError("--part", f"there is no {part!r}", f"Give one of: {', '.join(trace.parts) or 'none'}")
    return part
