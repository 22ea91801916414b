"""What a step of training takes, by a log of when steps were done."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any


def step_seconds(rows: Sequence[Mapping[str, Any]]) -> float | None:
    """What a step takes, by the lines of a trial's log, without its first quarter, which is slower. None if unknown."""
    points = [
        (row["step"], row["seconds"])
        for row in rows
        if type(row.get("step")) is int and isinstance(row.get("seconds"), (int, float))
    ]
    if not points:
        return None
    last_step, last_seconds = points[-1]
    first_step, first_seconds = next(p for p in points if p[0] >= last_step / 4)
    if first_step == last_step:
        first_step, first_seconds = 0, 0.0
    took = (last_seconds - first_seconds) / (last_step - first_step)
    return took if took > 0 and math.isfinite(took) else None
