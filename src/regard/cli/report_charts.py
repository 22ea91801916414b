"""The charts of the corpus page, as SVG that a page holds in itself: no script, colours from the page's style."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from regard.data.checks.histograms import Bars, length_bars, length_top, ratio_bars
from regard.data.checks.report import Statistics

WIDTH, HEIGHT = 560, 230
LEFT, RIGHT, TOP, BOTTOM = 54, 8, 10, 40


def lengths_chart(statistics: Statistics) -> str:
    """The lengths of both sides, one over the other."""
    sides = (statistics.source_lengths, statistics.target_lengths)
    top = length_top(*sides)
    bars = [length_bars(side, 64, top) for side in sides]
    limit = max(max(b.heights) for b in bars) or 1.0
    said = "; ".join(
        f"{name}: middle {side.median:g}, longest {side.most:,g}"
        for name, side in zip(("source", "target"), sides, strict=True)
    )
    parts = [_y_axis(limit), _x_axis(bars[0], "length of a line; the last bar has all longer ones")]
    for name, side_bars, side in zip(("source", "target"), bars, sides, strict=True):
        parts.append(_steps(side_bars, limit, name))
        place = side.median / side_bars.high
        if place <= 1:
            x = LEFT + place * (WIDTH - LEFT - RIGHT)
            parts.append(f'<line class="middle {name}" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>')
    return _svg("lengths", f"How long the lines are. {said}", parts)


def ratios_chart(statistics: Statistics) -> str:
    """Target length over source length, on a logarithmic axis."""
    bars = ratio_bars(statistics.ratios, 64)
    limit = max(bars.heights) or 1.0
    ratios = statistics.ratios
    said = f"middle {ratios.median:.2f}; 98 % are between {ratios.percentile_1:.2f} and {ratios.percentile_99:.2f}"
    parts = [_y_axis(limit), _x_axis(bars, "target length over source length"), _steps(bars, limit, "ratio")]
    return _svg("ratios", f"Target length over source length: {said}", parts)


def places_strip(name: str, kind: str, counts: Sequence[float]) -> str:
    """Where in the file a finding is: a strip from its first to its last line, darker where there is more of it."""
    top = max(counts, default=0) or 1
    parts, i = [], 0
    while i < len(counts):
        end = next((j for j in range(i, len(counts)) if counts[j] != counts[i]), len(counts))
        if counts[i]:
            width = max((end - i) / len(counts) * 1000, 3)
            parts.append(
                f'<rect class="{escape(kind)}" x="{i / len(counts) * 1000:.1f}" y="0" width="{width:.1f}" height="10" '
                f'fill-opacity="{0.3 + 0.7 * math.sqrt(counts[i] / top):.2f}"/>'
            )
        i = end
    first = next((i for i, count in enumerate(counts) if count), 0) / max(len(counts), 1)
    last = next((i for i, count in reversed(list(enumerate(counts))) if count), 0) + 1
    said = f"{name}: between {first:.0%} and {last / max(len(counts), 1):.0%} of the file"
    return (
        '<svg class="strip" role="img" viewBox="0 0 1000 10" preserveAspectRatio="none">'
        f"<title>{escape(said)}</title>{''.join(parts)}</svg>"
    )


def _svg(name: str, said: str, parts: Sequence[str]) -> str:
    return (
        f'<svg class="chart" role="img" aria-labelledby="{name}-said" viewBox="0 0 {WIDTH} {HEIGHT}">'
        f'<title id="{name}-said">{escape(said)}</title>{"".join(parts)}</svg>'
    )


def _y_axis(limit: float) -> str:
    step = 10.0 ** math.floor(math.log10(max(limit, 1)))
    step = next(step * m for m in (0.2, 0.25, 0.5, 1, 2, 5) if limit / (step * m) <= 5)
    step = max(step, 1)
    parts = []
    for i in range(int(limit / step) + 1):
        y = HEIGHT - BOTTOM - i * step / limit * (HEIGHT - TOP - BOTTOM)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{_short(i * step)}</text>')
    return "".join(parts)


def _short(value: float) -> str:
    for size, letter in ((1e6, " M"), (1e4, " k")):
        if value >= size:
            return f"{value / (1e6 if letter == ' M' else 1e3):g}{letter}"
    return f"{value:,g}"


def _x_axis(bars: Bars, title: str) -> str:
    parts = []
    for place, label in bars.ticks:
        x = LEFT + place * (WIDTH - LEFT - RIGHT)
        anchor = "end" if place > 0.98 else "middle"
        parts.append(f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="{anchor}">{escape(label)}</text>')
    middle = LEFT + (WIDTH - LEFT - RIGHT) / 2
    parts.append(f'<text class="title" x="{middle}" y="{HEIGHT - 4}" text-anchor="middle">{escape(title)}</text>')
    return "".join(parts)


def _steps(bars: Bars, limit: float, name: str) -> str:
    base = HEIGHT - BOTTOM
    each = (WIDTH - LEFT - RIGHT) / len(bars.heights)
    path = [f"M{LEFT} {base}"]
    for i, height in enumerate(bars.heights):
        y = base - height / limit * (base - TOP)
        if height:
            y = min(y, base - 1.0)  # a bar that is not empty is seen
        path.append(f"V{y:.1f}H{LEFT + (i + 1) * each:.1f}")
    path.append(f"V{base}Z")
    return f'<path class="area {name}" d="{"".join(path)}"/>'
