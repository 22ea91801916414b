"""Distributions counted again for drawing: few bars, round borders, and the long tail in the last bar."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from regard.data.checks.report import Distribution


@dataclass(frozen=True)
class Bars:
    """Heights of bars of equal width. `ticks` are (place from 0 to 1, label)."""

    heights: tuple[float, ...]
    ticks: tuple[tuple[float, str], ...]
    low: float  # in the units of the axis, which may be logarithms
    high: float


def length_bars(distribution: Distribution, most: int, top: float | None = None) -> Bars:
    """Lengths from 0 up, in at most `most` bars a whole number of words wide; the last one has all that are longer."""
    width = max(1, math.ceil((top or length_top(distribution)) / most))
    count = max(1, math.ceil((top or length_top(distribution)) / width))
    high = float(width * count)
    heights = _counted(distribution, 0.0, high, count, lambda x: x)
    step = _round_step(high / 5)
    ticks = [(value / high, f"{value:g}") for value in (step * i for i in range(int(high / step) + 1))]
    return Bars(heights, tuple(ticks), 0.0, high)


def length_top(*distributions: Distribution) -> float:
    """Where an axis of lengths ends: past nearly all lines, and not at the one that is ten times longer."""
    return max(8.0, *(min(d.most + 1, math.ceil(d.percentile_99) + 2) for d in distributions))


def ratio_bars(distribution: Distribution, most: int) -> Bars:
    """Ratios on a logarithmic axis, which shows half and double alike; the outer bars have all that are beyond."""
    low = min(-1, math.floor(_log(distribution.percentile_1) - 0.25))
    high = max(1, math.ceil(_log(distribution.percentile_99) + 0.25))
    each = max(1, most // (high - low))
    heights = _counted(distribution, low, high, each * (high - low), _log)
    powers = range(low, high + 1)
    ticks = [((p - low) / (high - low), f"{2**p:g}" if p >= 0 else f"1/{2**-p:g}") for p in powers]
    return Bars(heights, tuple(ticks), low, high)


def _log(value: float) -> float:
    return math.log2(min(max(value, 2.0**-6), 2.0**6))


def _round_step(least: float) -> float:
    power = 10.0 ** math.floor(math.log10(max(least, 1)))
    return next(power * m for m in (1, 2, 5, 10) if power * m >= max(least, 1) * 0.999)


def _counted(
    distribution: Distribution, low: float, high: float, bars: int, scale: Callable[[float], float]
) -> tuple[float, ...]:
    """The counts spread over bars between low and high, after `scale`; what lies outside goes to the outer bars."""
    heights = [0.0] * bars
    edges: Sequence[float] = [scale(edge) for edge in distribution.edges]
    for begin, end, count in zip(edges, edges[1:], distribution.counts, strict=False):
        first = (begin - low) / (high - low) * bars
        last = (end - low) / (high - low) * bars
        if last - first < 1e-9:  # both ends beyond the axis, or no width at all
            heights[_clamp(first, bars)] += count
            continue
        left, right = _clamp(first, bars), _clamp(last - 1e-9, bars)
        for i in range(left, right + 1):
            lower = first if i == left else max(first, i)
            upper = last if i == right else min(last, i + 1)
            heights[i] += count * (upper - lower) / (last - first)
    return tuple(heights)


def _clamp(place: float, bars: int) -> int:
    return min(max(int(place), 0), bars - 1)
