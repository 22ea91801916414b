"""The run's log: metrics.jsonl always, TensorBoard where it is installed."""

from __future__ import annotations

import contextlib
import json
import math
import os
import warnings
from pathlib import Path
from typing import Any

from regard.core.files import write_bytes


class MetricsLog:
    """Appends one JSON object per line. On resume, what was logged after the checkpoint is dropped: it will come again."""

    def __init__(self, path: Path, from_step: int, tensorboard: Path | None = None):
        self.path = path
        kept = [row for row in read_metrics(path) if row.get("step", 0) <= from_step]
        write_bytes(path, "".join(json.dumps(row) + "\n" for row in kept).encode())
        self.file = open(path, "a", encoding="utf-8")  # noqa: SIM115 (closed by close)
        try:
            self.board = _tensorboard(tensorboard, from_step) if tensorboard is not None else None
        except BaseException:
            self.file.close()
            raise

    def add(self, step: int, values: dict[str, Any]) -> None:
        row = {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in values.items()
        }
        self.file.write(json.dumps({"step": step, **row}) + "\n")  # NaN is not JSON
        self.file.flush()
        if self.board is not None:
            for name, value in values.items():
                if isinstance(value, (int, float)):
                    self.board.add_scalar(name, value, step)

    def sync(self) -> None:
        """What was added is on the disk, whatever happens to the power."""
        os.fsync(self.file.fileno())

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.sync()
        self.file.close()
        if self.board is not None:
            self.board.close()


class NoLog:
    """Of workers whose numbers another one writes down: they are the same."""

    def add(self, step: int, values: dict[str, Any]) -> None: ...
    def sync(self) -> None: ...
    def close(self) -> None: ...


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The rows of a metrics.jsonl; a line torn by a crash is left out."""
    rows = []
    if path.exists():
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            with contextlib.suppress(ValueError, RecursionError):  # not JSON, or a number or a depth beyond all sense
                row = json.loads(line)
                if isinstance(row, dict):
                    rows.append(row)
    return rows


def _tensorboard(folder: Path, from_step: int) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    return SummaryWriter(str(folder), purge_step=from_step + 1)
