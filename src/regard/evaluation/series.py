"""How lines of pictures are told apart: a colour, a mark and a dash for each, so that they are found without colours too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from regard.core.visible_text import visible

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = (  # on white; the comparison page has a lighter one of each for dark screens
    *("#0060a0", "#c04a00", "#00704f", "#a3327b", "#7a5c00"),
    *("#5b3fb5", "#00727f", "#b3261e", "#4f5b6b", "#7a4424"),
)
MARKS = ("o", "s", "D", "^", "v")
LINE_STYLES = ("-", "--", ":")
LONGEST = 48  # characters of a name


def look(number: int) -> dict[str, Any]:
    """Of a line, as matplotlib takes it; no two of the first thirty are alike."""
    return {
        "color": COLOURS[number % len(COLOURS)],
        "marker": MARKS[number % len(MARKS)],
        "linestyle": LINE_STYLES[number % len(LINE_STYLES)],
        "markersize": 4.5,
        "linewidth": 1.4,
    }


def plain_axes(axes: Any) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#e4e8ee", linewidth=0.8)
    axes.set_axisbelow(True)


def legend_inside(axes: Any, lines: int) -> None:
    """A legend, where there is more than one line."""
    if lines > 1:
        for text in axes.legend(frameon=False, fontsize=9).get_texts():
            text.set_parse_math(False)


def figure_with_room(names: Sequence[str]) -> Figure:
    """A wide figure with room for a legend of these names below it."""
    from matplotlib.figure import Figure

    return Figure(figsize=(7.5, 3.7 + 0.2 * -(-len(names) // _columns(names))), layout="constrained")


def legend_below(figure: Figure, axes: Any) -> None:
    handles, labels = axes.get_legend_handles_labels()
    legend = figure.legend(
        handles, labels, loc="outside lower center", ncols=_columns(labels), frameon=False, fontsize=8.5, handlelength=3
    )
    for text in legend.get_texts():
        text.set_parse_math(False)


def label(name: str) -> str:
    return visible(name, LONGEST)


def _columns(names: Sequence[str]) -> int:
    """Of a legend with these names, so that it is not wider than the picture."""
    longest = max(len(label(name)) for name in names)
    return min(len(names), 3 if longest <= 20 else 2 if longest <= 36 else 1)
