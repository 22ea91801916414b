"""Plain pictures for lessons and notebooks: lines, bars, and matrices with their numbers written into them.

Figures are matplotlib objects without pyplot's global state. `regard.evaluation.plots.save_figure` writes them to files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from regard.core.errors import DataError
from regard.evaluation.series import COLOURS, legend_inside, look, plain_axes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_MARKS = 40  # of a line; one of more points is drawn without marks
MOST_NUMBERS = 400  # cells of a matrix whose numbers are written


def draw_lines(
    lines: Mapping[str, tuple[Any, Any]],
    *,
    x: str = "",
    y: str = "",
    title: str = "",
    log: str = "",
    points: tuple[Any, Any] | None = None,
) -> Figure:
    """Lines by name, each (x values, y values). `log` names axes, as "y" or "xy"; `points` are drawn as dots behind them."""
    from matplotlib.figure import Figure

    if not lines:
        raise DataError("the picture", "there are no lines to draw", "Give at least one")
    figure = Figure(figsize=(6.4, 3.6), layout="constrained")
    axes = figure.add_subplot()
    if points is not None:
        axes.plot(*points, ".", color="#9aa5b4", markersize=4, zorder=1)
    for number, (name, (across, up)) in enumerate(lines.items()):
        style = look(number)
        if len(across) > MOST_MARKS:
            style["marker"] = ""
        axes.plot(np.asarray(across), np.asarray(up), label=name, **style)
    if "x" in log:
        axes.set_xscale("log")
    if "y" in log:
        axes.set_yscale("log")
    _finish(axes, x, y, title)
    legend_inside(axes, len(lines))
    return figure


def draw_bars(bars: Mapping[str, float], *, x: str = "", title: str = "") -> Figure:
    """Horizontal bars by name, the first on top, each with its value."""
    from matplotlib.figure import Figure

    if not bars:
        raise DataError("the picture", "there are no bars to draw", "Give at least one")
    figure = Figure(figsize=(6.4, 0.9 + 0.3 * len(bars)), layout="constrained")
    axes = figure.add_subplot()
    drawn = axes.barh(range(len(bars)), list(bars.values()), color=COLOURS[0], height=0.7)
    axes.bar_label(drawn, fmt="%.3g", padding=3, fontsize=9)
    axes.set_yticks(range(len(bars)), list(bars), parse_math=False)
    axes.invert_yaxis()
    axes.margins(x=0.12)
    _finish(axes, x, "", title)
    axes.grid(visible=False)
    return figure


def draw_matrix(
    values: Any, rows: Sequence[str], columns: Sequence[str], *, title: str = "", numbers: str = ".2f"
) -> Figure:
    """A matrix as coloured cells with its numbers in them (`numbers`: their format, "" for none).

    Negative values are red and positive ones blue; infinite ones are left white.
    """
    from matplotlib.figure import Figure

    values = np.asarray(values, dtype=float)
    if values.shape != (len(rows), len(columns)) or not values.size:
        what = f"values of shape {values.shape} do not fit {len(rows)} rows and {len(columns)} columns"
        raise DataError("the picture", what, "Name every row and every column")
    shown = np.where(np.isfinite(values), values, np.nan)
    most = float(np.nanmax(np.abs(shown), initial=0.0)) or 1.0
    longest = max(map(len, rows))
    figure = Figure(figsize=(1.2 + 0.08 * longest + 0.62 * len(columns), 1.0 + 0.4 * len(rows)), layout="constrained")
    axes = figure.add_subplot()
    signed = bool(np.nanmin(shown, initial=0.0) < 0)
    axes.imshow(shown, cmap="RdBu" if signed else "Blues", vmin=-most if signed else 0.0, vmax=most, aspect="auto")
    axes.set_xticks(range(len(columns)), columns, parse_math=False)
    axes.set_yticks(range(len(rows)), rows, parse_math=False)
    axes.tick_params(length=0, labelsize=9)
    axes.xaxis.tick_top()
    axes.spines[:].set_visible(False)
    if numbers and values.size <= MOST_NUMBERS:
        for (i, j), value in np.ndenumerate(values):
            text = format(value, numbers) if np.isfinite(value) else "−∞" if value < 0 else ""
            dark = np.isfinite(value) and abs(value) > 0.6 * most
            axes.text(j, i, text, ha="center", va="center", fontsize=8.5, color="white" if dark else "black")
    if title:
        axes.set_title(title, fontsize=10, parse_math=False)
    return figure


def _finish(axes: Any, x: str, y: str, title: str) -> None:
    plain_axes(axes)
    axes.set_xlabel(x, parse_math=False)
    axes.set_ylabel(y, parse_math=False)
    if title:
        axes.set_title(title, fontsize=10, parse_math=False)
