"""Very many rows in two halves beside each other: while one half attends, which waits for memory, the other can multiply.

Off until measured. On CUDA each half has a stream of its own, which recordings keep as two branches; elsewhere one follows the
other. A half's memory is used by its own stream alone, but for what is given at the end, and each stream first waits for what the
other did before, so that memory which is used again is not read any more.
"""

from __future__ import annotations

import dataclasses
import threading

import torch
from jaxtyping import Float
from torch import Tensor

from regard.layers.attention.cache import CacheState
from regard.layers.decoding.decoder import Decoder, Source

TOGETHER = 16  # sentences; halves begin at multiples of it, so that rows of masks stay aligned


def many_rows(
    decoder: Decoder, x: Float[Tensor, "N D"], source: Source | None, state: CacheState
) -> Float[Tensor, "N D"]:
    """As the decoder's own, in two halves where there are sentences enough."""
    sentences = len(state.positions)
    middle = sentences // 2 // TOGETHER * TOGETHER
    if not middle:
        return decoder.many_rows(x, source, state)
    beams = len(x) // sentences
    parts = slice(0, middle), slice(middle, None)

    def half(part: slice) -> Tensor:
        rows = slice(part.start * beams, None if part.stop is None else part.stop * beams)
        return decoder.many_rows(x[rows], _of_source(source, part), _of_state(state, part))

    if not x.is_cuda:
        return torch.cat([half(part) for part in parts])
    here, beside = torch.cuda.current_stream(x.device), _beside(x.device)
    beside.wait_stream(here)
    try:
        with torch.cuda.stream(beside):
            second = half(parts[1])
        first = half(parts[0])
    finally:  # also where there is no compiler, or no memory: what comes next must not meet what is still going on
        here.wait_stream(beside)
    return torch.cat((first, second))


class _Streams(threading.local):
    """Of each thread its own: another one may be recording."""

    def __init__(self) -> None:
        self.beside: dict[torch.device, torch.cuda.Stream] = {}


_STREAMS = _Streams()


def _beside(device: torch.device) -> torch.cuda.Stream:
    if device not in _STREAMS.beside:
        _STREAMS.beside[device] = torch.cuda.Stream(device)
    return _STREAMS.beside[device]


def _of_source(source: Source | None, part: slice) -> Source | None:
    if source is None:
        return None
    keys, values = (tuple(one[part] for one in many) for many in (source.keys, source.values))
    return Source(keys=keys, values=values, keep=source.keep[part])


def _of_state(state: CacheState, part: slice) -> CacheState:
    """Views: what is written into them is written into the whole."""
    keys, values = (tuple(one[part] for one in many) for many in (state.keys, state.values))
    hidden, positions = state.hidden[part], state.positions[part]
    return dataclasses.replace(state, keys=keys, values=values, hidden=hidden, positions=positions)
