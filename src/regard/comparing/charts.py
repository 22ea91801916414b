"""The charts of the comparison page, as SVG that the page holds in itself; colours come from the page's style.

A series has a colour, a mark and a dash of its own, so that it is found without colours too.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Mapping, Sequence
from html import escape

import numpy as np

from regard.comparing.results import Alignment
from regard.core.visible_text import visible
from regard.evaluation import series
from regard.evaluation.lengths import LengthBin
from regard.evaluation.plots import merge_to_words

COLOURS, MARKS, DASHES = len(series.COLOURS), len(series.MARKS), len(series.LINE_STYLES)
WIDTH, NARROW, HEIGHT = 900, 420, 360  # narrow ones are for telephones
LEFT, RIGHT, TOP, BOTTOM = 52, 10, 12, 58
MOST_WORDS = 50  # of a side of an alignment
CELL, DENSE_CELL, DENSE = 22, 16, 16  # pixels; the smaller ones from so many words on

Points = Sequence[tuple[float, float]]


def series_class(number: int) -> str:
    """The classes that give a series its colour and its dash."""
    return f"s{number % COLOURS} d{number % DASHES}"


def mark(number: int, x: float, y: float, size: float = 5) -> str:
    """The mark of a series: disc, square, diamond, or a triangle up or down."""
    r = size
    corners = {
        1: [(-r, -r), (r, -r), (r, r), (-r, r)],
        2: [(0, -1.4 * r), (1.4 * r, 0), (0, 1.4 * r), (-1.4 * r, 0)],
        3: [(0, -1.2 * r), (1.2 * r, r), (-1.2 * r, r)],
        4: [(0, 1.2 * r), (1.2 * r, -r), (-1.2 * r, -r)],
    }.get(number % MARKS)
    colour = f"s{number % COLOURS}"
    if corners is None:
        return f'<circle class="mark {colour}" cx="{x:.1f}" cy="{y:.1f}" r="{r:g}"/>'
    path = "L".join(f"{x + dx:.1f} {y + dy:.1f}" for dx, dy in corners)
    return f'<path class="mark {colour}" d="M{path}Z"/>'


def swatch(number: int) -> str:
    """A piece of the line of a series, for legends and tables."""
    line = f'<line class="curve {series_class(number)}" x1="0" x2="34" y1="8" y2="8"/>'
    return f'<svg class="swatch" aria-hidden="true" viewBox="0 0 34 16">{line}{mark(number, 17, 8, 4.5)}</svg>'


def lengths_chart(lengths: Mapping[str, Sequence[LengthBin]], numbers: Mapping[str, int], width: int = WIDTH) -> str:
    """BLEU by source length with intervals, all entries on one pair of axes; `numbers` are those of the series."""
    bins = {(part.low, part.high): part for parts in lengths.values() for part in parts}
    order = sorted(bins, key=lambda bounds: (bounds[0], bounds[1] or math.inf))
    highest = max((part.bleu.high or part.bleu.value for parts in lengths.values() for part in parts), default=1.0)
    ticks = _ticks(0.0, max(highest, 1.0))
    top = max(ticks[-1], highest)
    each = (width - LEFT - RIGHT) / len(order)
    step = min(16.0, 0.8 * each / max(len(lengths), 1))

    def height(value: float) -> float:
        return HEIGHT - BOTTOM - value / top * (HEIGHT - TOP - BOTTOM)

    parts = [_y_axis([(height(tick), f"{tick:g}") for tick in ticks], "BLEU", width)]
    for i, bounds in enumerate(order):
        x = LEFT + (i + 0.5) * each
        parts.append(f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{bins[bounds].label}</text>')
        count = f"{'n = ' if i == 0 or width == WIDTH else ''}{bins[bounds].sentences:,}"
        parts.append(f'<text class="small" x="{x:.1f}" y="{HEIGHT - BOTTOM + 34}" text-anchor="middle">{count}</text>')
    parts.append(_x_title("words in the source; n: sentences", HEIGHT - 6, width))
    lines, marks = [], []
    for place, (slug, parts_of) in enumerate(lengths.items()):
        number = numbers[slug]
        shift = step * (place - (len(lengths) - 1) / 2)
        points = []
        for part in parts_of:
            x, y = LEFT + (order.index((part.low, part.high)) + 0.5) * each + shift, height(part.bleu.value)
            points.append((x, y))
            if part.bleu.low is not None and part.bleu.high is not None:
                y1, y2 = height(part.bleu.high), height(part.bleu.low)
                lines.append(
                    f'<path class="range s{number % COLOURS}" '
                    f'd="M{x:.1f} {y1:.1f}V{y2:.1f}M{x - 3:.1f} {y1:.1f}h6M{x - 3:.1f} {y2:.1f}h6"/>'
                )
            marks.append(mark(number, x, y, 4.5))
        lines.append(_polyline(points, f"curve {series_class(number)}"))
    said = f"BLEU by the number of words in the source, of {len(lengths)} systems, with 95 % intervals"
    return _svg(said, [*parts, *lines, *marks], width)


def curves_chart(curves: Mapping[str, Points], numbers: Mapping[str, int], x_title: str, width: int = WIDTH) -> str:
    """Validation loss over training. What is far above the rest (a run that went astray) leaves the picture."""
    xs = [x for points in curves.values() for x, _ in points]
    ys = sorted(y for points in curves.values() for _, y in points)
    right, low = max(xs), ys[0]
    high = min(ys[-1], low + 4 * max(ys[len(ys) // 2] - low, 0.25 * abs(low), 1e-3))
    ticks = _ticks(low, max(high, low + 1e-3))
    bottom, top = min(ticks[0], low), max(ticks[-1], high)
    room = width - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def place(point: tuple[float, float]) -> tuple[float, float]:
        return point[0] / (right or 1) * room[0], (top - point[1]) / (top - bottom) * room[1]

    parts = [_y_axis([(TOP + place((0, tick))[1], f"{tick:g}") for tick in ticks], "nats per token", width)]
    for tick in (tick for tick in _ticks(0, right) if tick <= right * 1.001):
        x = LEFT + place((tick, 0))[0]
        anchor = "end" if x > width - 30 else "middle"
        parts.append(f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="{anchor}">{tick:,.10g}</text>')
    parts.append(_x_title(x_title, HEIGHT - BOTTOM + 38, width))
    lines = []
    for slug, points in curves.items():
        placed = [place(point) for point in points]
        lines.append(_polyline(placed, f"curve {series_class(numbers[slug])}"))
        chosen = placed if len(placed) <= 12 else placed[:: math.ceil(len(placed) / 12)]
        lines += [mark(numbers[slug], x, y, 4) for x, y in chosen]
    edge = 7  # room for marks at the ends
    inner = (  # an inner picture cuts what leaves it
        f'<svg x="{LEFT - edge}" y="{TOP - edge}" width="{room[0] + 2 * edge}" height="{room[1] + 2 * edge}" '
        f'viewBox="{-edge} {-edge} {room[0] + 2 * edge} {room[1] + 2 * edge}">{"".join(lines)}</svg>'
    )
    return _svg(f"Validation loss of {len(curves)} systems over training", [*parts, inner], width)


def range_chart(
    number: int, value: float, low: float, high: float, limits: tuple[float, float], seeds: Sequence[float]
) -> str:
    """A score and its interval on an axis that all rows of a table share; small lines are single seeds."""
    width, middle = 150, 10
    span = (limits[1] - limits[0]) or 1.0
    x, x1, x2, *ticks = (6 + (v - limits[0]) / span * (width - 12) for v in (value, low, high, *seeds))
    lines = "".join(f'<path class="seed" d="M{tick:.1f} 3V17"/>' for tick in ticks)
    bar = f'<path class="range s{number % COLOURS}" d="M{x1:.1f} {middle}H{x2:.1f}"/>'
    return (
        f'<svg class="interval" aria-hidden="true" viewBox="0 0 {width} 20"><path class="grid" d="M0 {middle}H{width}"/>'
        f"{bar}{lines}{mark(number, x, middle, 3.2)}</svg>"
    )


def attention_by_words(alignment: Alignment) -> tuple[np.ndarray, list[str], list[str]]:
    """Weights, words of the source and words of the target; no more than a picture has room for."""
    weights = np.array(alignment.weights, dtype=np.float64).reshape(len(alignment.target), len(alignment.source))
    weights, source, target = merge_to_words(weights, alignment.source, alignment.target)
    cut = slice(MOST_WORDS)
    return weights[cut, cut], source[cut], target[cut]


def alignment_chart(name: str, alignment: Alignment) -> str:
    """The attention of one translation, by words: the source along the top, the target downwards; darker is more."""
    weights, source, target = attention_by_words(alignment)
    if not weights.size:
        return '<p class="soft">Nothing was written.</p>'
    source, target = [visible(word, 16) for word in source], [visible(word, 16) for word in target]
    dense = max(len(source), len(target)) > DENSE
    cell, letter = (DENSE_CELL, 0.85) if dense else (CELL, 1.0)
    left = max(map(_width, target)) * letter + 8
    top = max(map(_width, source)) * letter * 0.82 + 18  # slanted by 55 degrees
    over = max(_width(word) * letter * 0.58 - (len(source) - i - 1) * cell for i, word in enumerate(source))
    width, height = left + len(source) * cell + max(0, over), top + len(target) * cell + 2
    parts = [
        f'<text transform="translate({left + (i + 0.6) * cell:.1f} {top - 6:.1f}) rotate(-55)">{escape(word)}</text>'
        for i, word in enumerate(source)
    ]
    parts += [
        f'<text x="{left - 6:.1f}" y="{top + (j + 0.5) * cell + 4.5 * letter:.1f}" text-anchor="end">{escape(word)}</text>'
        for j, word in enumerate(target)
    ]
    parts.append(
        f'<rect class="sheet" x="{left:.1f}" y="{top:.1f}" width="{len(source) * cell}" height="{len(target) * cell}"/>'
    )
    for j, row in enumerate(np.clip(np.nan_to_num(weights), 0.0, 1.0)):
        parts += [
            f'<rect class="cell" x="{left + i * cell + 0.5:.1f}" y="{top + j * cell + 0.5:.1f}" width="{cell - 1}" '
            f'height="{cell - 1}" fill-opacity="{weight:.2f}"/>'
            for i, weight in enumerate(row)
            if weight >= 0.01
        ]
    said = f"Attention of {visible(name, 100)}: for each word written, how much each word of the source counts"
    return (
        f'<svg class="alignment{" dense" if dense else ""}" role="img" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}"><title>{escape(said)}</title>{"".join(parts)}</svg>'
    )


def _width(text: str) -> float:
    """About how many pixels a label takes."""
    return sum(
        14.0 if unicodedata.east_asian_width(c) in "WF" else 0.0 if unicodedata.combining(c) else 7.6 for c in text
    )


def _ticks(low: float, high: float) -> list[float]:
    """Round numbers from the first at or below `low` to the first at or above `high`, about five."""
    span = max(high - low, 1e-9)
    step = 10.0 ** math.floor(math.log10(span / 5))
    step = next(step * m for m in (1, 2, 2.5, 5, 10) if span / (step * m) <= 6)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(i * step, 10) for i in range(first, last + 1)]


def _y_axis(ticks: Sequence[tuple[float, str]], title: str, width: int) -> str:
    lines = "".join(
        f'<line class="grid" x1="{LEFT}" x2="{width - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        f'<text x="{LEFT - 7}" y="{y + 4.5:.1f}" text-anchor="end">{label}</text>'
        for y, label in ticks
    )
    middle = TOP + (HEIGHT - TOP - BOTTOM) / 2
    return f'{lines}<text transform="translate(13 {middle:.0f}) rotate(-90)" text-anchor="middle">{title}</text>'


def _x_title(title: str, y: float, width: int) -> str:
    middle = LEFT + (width - LEFT - RIGHT) / 2
    return f'<text x="{middle:.0f}" y="{y:.0f}" text-anchor="middle">{escape(title)}</text>'


def _polyline(points: Points, classes: str) -> str:
    path = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    return f'<path class="{classes}" d="M{path}"/>' if points else ""


def _svg(said: str, parts: Sequence[str], width: int) -> str:
    return (
        f'<svg class="chart {"wide" if width == WIDTH else "narrow"}" role="img" viewBox="0 0 {width} {HEIGHT}">'
        f"<title>{escape(said)}</title>{''.join(parts)}</svg>"
    )
