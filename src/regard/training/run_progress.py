"""What a run remembers beside weights and optimizer: where it is, and how well it went."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.core.errors import CheckpointError


@dataclass
class Progress:
    """Kept in every checkpoint as plain numbers."""

    step: int = 0
    epoch: int = 0
    position: int = 0
    seconds: float = 0.0
    best: float | None = None
    best_step: int = 0
    worse: int = 0  # validations since the best
    loss: float = 0.0  # sums since the last line of the log
    nll: float = 0.0
    tokens: int = 0
    multiple: int = 0  # what the widths of batches are rounded up to; the order of batches depends on it
    packed: int = -1  # sentences of up to so many tokens are packed, on which it depends, too; -1: not yet known

    @classmethod
    def of(cls, state: dict[str, Any], where: Path) -> Progress:
        """What a checkpoint's state says."""
        try:
            return cls(**state["progress"])
        except (KeyError, TypeError):
            raise CheckpointError(
                where, "its state is not of this version", "Use the version of regard that wrote it"
            ) from None
