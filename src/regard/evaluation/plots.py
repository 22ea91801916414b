"""Pictures of alignments, of scores by length and of training curves; and alignments drawn in a terminal.

Figures are plain matplotlib objects without pyplot's global state: they are drawn nowhere until they are saved.
"""

from __future__ import annotations

import io
import math
import textwrap
import unicodedata
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from regard.core.errors import ConfigError, DataError
from regard.core.types import SPECIALS
from regard.evaluation.lengths import LengthBin
from regard.evaluation.metrics import METRICS
from regard.evaluation.series import (
    COLOURS,
    LINE_STYLES,
    figure_with_room,
    label,
    legend_below,
    legend_inside,
    look,
    plain_axes,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WORD_START = "▁"
# Fonts for what matplotlib's own lacks; those that are installed are asked in this order.
FALLBACK_FONTS = (
    *(f"Noto Sans {script}" for script in ("CJK SC", "CJK JP", "SC", "JP", "KR", "Arabic", "Devanagari", "Thai")),
    *("Arial Unicode MS", "PingFang SC", "Hiragino Sans", "Microsoft YaHei", "Malgun Gothic", "WenQuanYi Zen Hei"),
)
FORMATS = {".png": {"Software": None}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
SHADES = " ·░▒▓█"
SHADE_LIMITS = (0.04, 0.12, 0.3, 0.5, 0.75)


# Alignments -----------------------------------------------------------------------------------------------------------


def merge_to_words(
    weights: Float[np.ndarray, "T S"], source_pieces: Sequence[str], target_pieces: Sequence[str]
) -> tuple[Float[np.ndarray, "Tw Sw"], list[str], list[str]]:
    """An alignment of subwords as one of words: summed over the pieces of a source word, averaged over a target's.

    "▁" starts a word; punctuation and special tokens are words of their own. Rows that sum to 1 still do.
    """
    _check_shape(weights, source_pieces, target_pieces)
    sources, targets = _word_spans(source_pieces), _word_spans(target_pieces)
    columns = [weights[:, start:end].sum(1) for start, end in sources]
    summed = np.stack(columns, axis=1) if columns else weights[:, :0]
    rows = [summed[start:end].mean(0) for start, end in targets]
    merged = np.stack(rows) if rows else summed[:0]
    return merged, _join(source_pieces, sources), _join(target_pieces, targets)


def _word_spans(pieces: Sequence[str]) -> list[tuple[int, int]]:
    if not any(piece.startswith(WORD_START) for piece in pieces):  # a tokenizer of words or of characters
        return [(i, i + 1) for i in range(len(pieces))]
    starts: list[int] = []
    text, closed = "", True  # of the word so far; whether it takes no more pieces
    for i, piece in enumerate(pieces):
        alone = piece in SPECIALS or (_is_punctuation(piece) and text != "")
        if piece.startswith(WORD_START) or alone or closed:
            starts.append(i)
            text = ""
        text += piece.removeprefix(WORD_START)
        closed = piece in SPECIALS or _is_punctuation(text)
    return list(zip(starts, [*starts[1:], len(pieces)], strict=True))


def _is_punctuation(text: str) -> bool:
    return text != "" and all(unicodedata.category(character)[0] in "PS" for character in text)


def _join(pieces: Sequence[str], spans: Sequence[tuple[int, int]]) -> list[str]:
    return ["".join(pieces[start:end]).removeprefix(WORD_START) or WORD_START for start, end in spans]


def _label(token: str, longest: int = 24) -> str:
    """A token as a label: without its word mark, on one line, nothing that a terminal would obey, not too long."""
    text = token.removeprefix(WORD_START).replace(WORD_START, " ")
    text = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
    if not text.strip():
        text = "\N{OPEN BOX}"
    return text if len(text) <= longest else text[: longest - 1] + "…"


def _check_shape(weights: np.ndarray, source: Sequence[str], target: Sequence[str]) -> None:
    if weights.shape != (len(target), len(source)):
        expected = f"{len(target)} target and {len(source)} source tokens"
        raise DataError("alignment", f"weights of shape {tuple(weights.shape)} do not fit {expected}", "Give [T, S]")


def draw_alignment(
    weights: Float[np.ndarray, "T S"], source_tokens: Sequence[str], target_tokens: Sequence[str], title: str = ""
) -> Figure:
    """A heat-map of attention weights: the source along the top, the target downwards. It grows with the sentences."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    _check_shape(weights, source_tokens, target_tokens)
    if not weights.size:
        raise DataError("alignment", "there are no tokens to draw", "Give a sentence that is not empty")
    source, target = [_label(token) for token in source_tokens], [_label(token) for token in target_tokens]
    rows, columns = weights.shape
    cell = float(np.interp(max(rows, columns), [10, 60], [0.36, 0.2]))  # inches
    size = float(np.interp(max(rows, columns), [10, 60], [10, 7]))  # points
    letter = size / 72 * 0.62  # inches
    longest_source, longest_target = max(map(_columns, source)), max(map(_columns, target))
    margins = letter * longest_target + 1.1, letter * longest_source + 0.5
    figure = Figure(figsize=(columns * cell + margins[0], rows * cell + margins[1]), layout="constrained")
    axes = figure.add_subplot()
    top = float(np.nanmax(weights, initial=0.0))
    limit = math.ceil(top * 10 - 1e-6) / 10 if top > 0.1 else max(top, 1e-3)
    image = axes.imshow(weights, cmap="Blues", vmin=0.0, vmax=limit, aspect="equal", interpolation="nearest")

    font: dict[str, Any] = {"fontsize": size, "fontfamily": _fonts(), "parse_math": False}
    axes.xaxis.tick_top()
    upright = {"rotation": 0} if longest_source * letter < cell else {}
    slanted = {"rotation": 55, "ha": "left", "va": "bottom", "rotation_mode": "anchor"}
    axes.set_xticks(range(columns), source, **(upright or slanted), **font)
    axes.set_yticks(range(rows), target, **font)
    axes.tick_params(length=0, pad=3)
    axes.set_xticks(np.arange(columns + 1) - 0.5, minor=True)
    axes.set_yticks(np.arange(rows + 1) - 0.5, minor=True)
    axes.grid(which="minor", color="#e4e8ee", linewidth=0.6)
    axes.tick_params(which="minor", length=0)
    axes.spines[:].set_visible(False)
    if title:
        wrapped = textwrap.fill(title, max(24, int(figure.get_figwidth() / (size / 72 * 0.55))))
        axes.set_title(wrapped, fontsize=size + 1, fontfamily=_fonts(), parse_math=False, pad=8)

    height = min(1.0, max(8 * cell, 1.0) / (rows * cell))
    bar_axes = axes.inset_axes((1 + 0.15 / (columns * cell), 1 - height, 0.12 / (columns * cell), height))
    ticks = MaxNLocator(5, steps=[1, 2, 5, 10]) if height * rows * cell > 1.2 else [0, limit / 2, limit]
    bar = figure.colorbar(image, cax=bar_axes, ticks=ticks, format="%.2g")
    bar.ax.tick_params(labelsize=max(size - 1.5, 6), length=2, width=0.5)
    bar.outline.set_visible(False)  # pyright: ignore[reportCallIssue, reportAttributeAccessIssue]
    return figure


def _fonts() -> list[str]:
    from matplotlib import font_manager

    installed = {font.name for font in font_manager.fontManager.ttflist}
    return ["DejaVu Sans", *(name for name in FALLBACK_FONTS if name in installed)]


def alignment_text(
    weights: Float[np.ndarray, "T S"], source_tokens: Sequence[str], target_tokens: Sequence[str], width: int = 80
) -> str:
    """An alignment in plain characters, at most `width` wide; a long source is drawn in parts, one below the other.

    Each source word stands above its own column, at the end of a line that leads down to it; darker means more weight.
    """
    _check_shape(weights, source_tokens, target_tokens)
    source = [_label(token, 16) for token in source_tokens]
    target = [_clip(_label(token, 16), max(4, width // 3)) for token in target_tokens]
    margin = max(map(_columns, target), default=0) + 1
    parts = []
    start = 0
    while start < len(source):
        end = start + 1
        while end < len(source) and all(
            margin + 2 * (i - start) + 2 + _columns(source[i]) <= width for i in range(start, end + 1)
        ):
            end += 1
        parts.append(_text_part(weights[:, start:end], source[start:end], target, margin, width))
        start = end
    return "\n\n".join(parts)


def _text_part(weights: np.ndarray, source: Sequence[str], target: Sequence[str], margin: int, width: int) -> str:
    lines = []
    for i, word in enumerate(source):
        room = width - margin - 2 * i - 2
        lines.append(" " * margin + "│ " * i + "┌ " + _clip(word, max(1, room)))
    for word, row in zip(target, weights, strict=True):
        levels = np.searchsorted(SHADE_LIMITS, np.nan_to_num(row), side="right")
        cells = "".join(SHADES[level] * 2 for level in levels)
        lines.append((word + " " * (margin - _columns(word)) + cells).rstrip())
    return "\n".join(lines)


def _columns(text: str) -> int:
    """How many columns of a terminal a text takes: East Asian characters take two, combining ones none."""
    wide = sum(unicodedata.east_asian_width(character) in "WF" for character in text)
    return len(text) + wide - sum(unicodedata.combining(character) != 0 for character in text)


def _clip(text: str, columns: int) -> str:
    if _columns(text) <= columns:
        return text
    while text and _columns(text) > columns - 1:
        text = text[:-1]
    return text + "…"


# Curves ---------------------------------------------------------------------------------------------------------------


def draw_lengths(
    bins_by_system: Mapping[str, Sequence[LengthBin]], title: str = "BLEU by source length", below: bool = False
) -> Figure:
    """BLEU by source length, with 95 % intervals, of one or more systems; the legend of many belongs `below`."""
    from matplotlib.figure import Figure

    everything = {(entry.low, entry.high): entry for bins in bins_by_system.values() for entry in bins}
    if not everything:
        raise DataError("BLEU by length", "there are no bins to draw", "Give at least one system with scores")
    order = sorted(everything, key=lambda bounds: (bounds[0], bounds[1] or math.inf))
    narrow = max(4.5, 1.0 + 0.85 * len(order)), 3.4
    figure = figure_with_room(list(bins_by_system)) if below else Figure(figsize=narrow, layout="constrained")
    axes = figure.add_subplot()
    step = min(0.12, 0.8 / len(bins_by_system))
    for number, (name, bins) in enumerate(bins_by_system.items()):
        shift = step * (number - (len(bins_by_system) - 1) / 2)  # so that error bars stand side by side
        places = [order.index((entry.low, entry.high)) + shift for entry in bins]
        values = [entry.bleu.value for entry in bins]
        lows = [v - (v if entry.bleu.low is None else entry.bleu.low) for v, entry in zip(values, bins, strict=True)]
        highs = [(v if entry.bleu.high is None else entry.bleu.high) - v for v, entry in zip(values, bins, strict=True)]
        axes.errorbar(
            places, values, yerr=[lows, highs], elinewidth=0.9, capsize=2.5, label=label(name), **look(number)
        )
    axes.set_xticks(range(len(order)), [f"{everything[b].label}\nn={everything[b].sentences}" for b in order])
    axes.set_xlim(-0.5, len(order) - 0.5)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("words in the source")
    axes.set_ylabel("BLEU (95 % interval)")
    axes.set_title(title)
    plain_axes(axes)
    if below:
        legend_below(figure, axes)
    else:
        legend_inside(axes, len(bins_by_system))
    return figure


def draw_curves(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """Training and validation loss over steps, from rows of metrics.jsonl, and beside them the scores, if any."""
    from matplotlib.figure import Figure

    losses = {"loss": "training loss", "valid_nll": "validation nll", "valid_loss": "validation loss"}
    scores = {f"valid_{name}": METRICS.get(name).label for name in METRICS.names()}
    panels = (("loss (nats per token)", losses), ("validation score", scores))
    curves = [(title, {name: _curve(rows, key) for key, name in names.items()}) for title, names in panels]
    curves = [(title, {k: v for k, v in lines.items() if len(v[0])}) for title, lines in curves]
    curves = [(title, lines) for title, lines in curves if lines]
    if not curves:
        raise DataError("training curves", "no row has a step and a loss or score", "Give the rows of a metrics.jsonl")
    figure = Figure(figsize=(5.2 * len(curves), 3.4), layout="constrained")
    for panel, (title, lines) in enumerate(curves):
        axes = figure.add_subplot(1, len(curves), panel + 1)
        for number, (name, (steps, values)) in enumerate(lines.items()):
            few = len(steps) <= 40
            axes.plot(
                steps, values, label=name, color=COLOURS[number], marker="o" if few else "", markersize=3.5,
                linewidth=1.4, linestyle=LINE_STYLES[number],
            )  # fmt: skip
        axes.set_xlabel("step")
        axes.set_ylabel(title)
        plain_axes(axes)
        legend_inside(axes, 2)
    return figure


def _curve(rows: Sequence[Mapping[str, Any]], key: str) -> tuple[list[int], list[float]]:
    points = [(row["step"], row[key]) for row in rows if row.get(key) is not None and row.get("step") is not None]
    finite = [(step, float(value)) for step, value in points if math.isfinite(value)]
    return [step for step, _ in finite], [value for _, value in finite]


# Files ----------------------------------------------------------------------------------------------------------------


def save_figure(figure: Figure, path: str | Path) -> None:
    """Writes a figure as PNG, SVG or PDF, by the name's suffix. What no installed font can draw becomes a box."""
    from matplotlib import rc_context

    from regard.core.files import write_bytes

    path = Path(path)
    suffix = path.suffix.lower()
    if suffix not in FORMATS:
        raise ConfigError(path, f"{suffix or 'no suffix'!r} is no format of pictures", f"Use {', '.join(FORMATS)}")
    if not path.parent.is_dir():
        raise DataError(path, "its folder does not exist", f"Make {path.parent} first")
    if path.is_dir():
        raise DataError(path, "it is a directory, not a picture", "Give a file name")
    buffer = io.BytesIO()
    with warnings.catch_warnings(), rc_context({"svg.hashsalt": "regard", "svg.fonttype": "path"}):
        warnings.filterwarnings("ignore", message=r"(?i).*glyph|.*does not support .* natively", category=UserWarning)
        figure.savefig(
            buffer, format=suffix[1:], dpi=200, bbox_inches="tight", pad_inches=0.08, metadata=FORMATS[suffix]
        )
    try:
        write_bytes(path, buffer.getvalue())
    except OSError as error:
        raise DataError(
            path, f"it cannot be written ({error.strerror})", "Check its folder, and the free space"
        ) from None
