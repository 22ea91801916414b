"""What every target of an export gives: how the files are written, and how they are asked afterwards.

A target is a function `plan_TARGET(task, quantise) -> Plan` (exchange/export.py); it refuses at once what it cannot express.
"""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path

from regard.core.errors import ModelError
from regard.exchange.parity import Side
from regard.exchange.parity_sides import Measure

README = "README.md"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """An export that is about to be written.

    `ours` changes regard's side where a target has another vocabulary; `hint` says with what a user opens the folder.
    """

    fill: Callable[[Path], None]
    side: Callable[[Path], Side]
    measure: Measure
    readme: str
    hint: str
    notes: Sequence[str] = ()
    ours: Callable[[Side], Side] = lambda side: side


def need(package: str, target: str, todo: str) -> None:
    """Raises unless a package is installed."""
    if importlib.util.find_spec(package) is None:
        what = f"{package} is not installed, and no export is written that was not compared with the model"
        raise ModelError(f"--to {target}", what, todo)


def batches_of(items: Sequence, size: int) -> list[Sequence]:
    return [items[i : i + size] for i in range(0, len(items), size)]
