"""Rows of tokens in batches that models read at once: similar lengths together, so that there is little padding."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

BATCH_TOKENS = {"cpu": 4096}
BATCH_TOKENS_ELSEWHERE = 65536


def row_batches(lengths: Sequence[int], device: torch.device) -> Iterator[list[int]]:
    """The numbers of the rows of each batch, at most so many tokens with their padding, the shortest rows first."""
    budget = BATCH_TOKENS.get(device.type, BATCH_TOKENS_ELSEWHERE)
    order = sorted(range(len(lengths)), key=lambda i: lengths[i])
    begin = 0
    while begin < len(order):
        end = begin + 1
        while end < len(order) and (end - begin + 1) * lengths[order[end]] <= budget:
            end += 1
        yield order[begin:end]
        begin = end
