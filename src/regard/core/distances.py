"""How relative positions sort and weigh distances: rules in plain Python, which layers and converters share."""

from __future__ import annotations

import math


def bucket_starts(buckets: int, distance: int) -> list[int]:
    """T5: the first distance of every bucket but bucket 0, which starts at 0."""
    exact = buckets // 2
    # b = exact + log(n / exact) / log(distance / exact) · (buckets - exact), solved for n; whole results stay whole
    large = [exact * (distance / exact) ** ((b - exact) / (buckets - exact)) for b in range(exact + 1, buckets)]
    return [*range(1, exact + 1), *(math.ceil(n - 1e-9) for n in large)]


def slopes(heads: int) -> list[float]:
    """ALiBi: m_h of every head."""
    power = 1 << (heads.bit_length() - 1)  # the largest power of two that is not more than `heads`
    steep = [2.0 ** (-8 * h / power) for h in range(1, power + 1)]
    between = [2.0 ** (-8 * h / (2 * power)) for h in range(1, 2 * power, 2)]
    return steep + between[: heads - power]
