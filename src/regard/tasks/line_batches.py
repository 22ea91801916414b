"""Batches of lines: rows of similar length together, and lines of a stream as they come."""

from __future__ import annotations

from collections.abc import Iterator, Sequence


def chunks(lines: Iterator[str | None], most: int) -> Iterator[list[str]]:
    """Up to `most` lines at a time; a None among them says that no more are there yet, and nothing waits longer."""
    waiting: list[str] = []
    for line in lines:
        if line is not None:
            waiting.append(line)
        if waiting and (line is None or len(waiting) >= most):
            yield waiting
            waiting = []
    if waiting:
        yield waiting


def batches(lengths: Sequence[int], batch_tokens: int, most_rows: int = 1 << 30) -> Iterator[list[int]]:
    """Rows of similar length together, the longest first, each batch within a budget of padded tokens."""
    order = sorted(range(len(lengths)), key=lambda row: (-lengths[row], row))
    while order:
        size = min(most_rows, max(1, batch_tokens // lengths[order[0]]))
        yield order[:size]
        order = order[size:]
