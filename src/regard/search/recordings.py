"""Recordings of steps, kept with their tensors for the next batch of the same shape.

Some per model, the last used ones, as long as the model's weights stay where they are.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import threading
import weakref
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import nn

from regard.search.config import SearchConfig
from regard.search.replay import CAPTURES, CannotReplay, Replayed
from regard.search.terms import TermSize
from regard.search.weight_places import WeightPlaces

MOST_SHAPES = 16  # of which recordings are kept, per model
MOST_BYTES = 16 << 30  # of what goes with them,
MOST_MEMORY = 1 / 16  # and of a GPU's memory


class Shape(NamedTuple):
    """What has to be equal for a recording to be used again."""

    rows: int
    width: int  # of sources
    tokens: int  # of each text, EOS included
    prefix: int
    terms: TermSize
    words: bool  # whether terms are whole words
    planned: bool
    rule: SearchConfig
    numbers: tuple[torch.device, torch.dtype, torch.dtype | None]  # where, of the weights, of autocast


@functools.lru_cache(maxsize=64)
def rule(config: SearchConfig, terms: bool = False) -> SearchConfig:
    """The settings without those that do not change a step (of searches for texts with terms, if so)."""
    usual = SearchConfig()
    names = ("seed", "max_ratio", "max_extra", "lengths", "capture")
    same = {name: getattr(usual, name) for name in names}
    same |= {"max_length": max(usual.max_length, config.min_length)}
    if config.method == "beam" and not terms:
        same["nbest"] = 1
    return dataclasses.replace(config, **same)


@dataclasses.dataclass
class _Kept:
    """The recordings of one model."""

    places: WeightPlaces  # where its weights are: a recording reads them there
    refused: bool = False
    shapes: collections.OrderedDict[Shape, Replayed] = dataclasses.field(default_factory=collections.OrderedDict)


_KEPT: weakref.WeakKeyDictionary[nn.Module, _Kept] = weakref.WeakKeyDictionary()
_LOCK = threading.Lock()


def can_replay(model: nn.Module, config: SearchConfig, device: torch.device) -> bool:
    """Whether steps are to be recorded: on a kind of device where that can be done, unless it failed with this model before."""
    if not config.capture or device.type not in CAPTURES:
        return False
    with _LOCK:
        kept = _KEPT.get(model)
        return kept is None or not kept.refused or not _kept(model).refused


@dataclasses.dataclass
class Loan:
    """Recordings for the use of one search; None until it makes its own."""

    replayed: Replayed | None


@contextlib.contextmanager
def borrow(model: nn.Module, shape: Shape) -> Iterator[Loan]:
    """Recordings of this shape, if there are any; kept for the next search of this shape, unless this one fails."""
    with _LOCK:
        kept = _kept(model)
        loan = Loan(kept.shapes.pop(shape, None))
    try:
        yield loan
    except CannotReplay:
        kept.refused = True
        raise
    if loan.replayed is None:
        return
    with _LOCK:
        shapes = kept.shapes  # if the weights were moved meanwhile, nobody will ask for these
        shapes[shape] = loan.replayed
        most = _most_bytes(shape.numbers[0])
        while len(shapes) > MOST_SHAPES or sum(one.bytes for one in shapes.values()) > most:
            shapes.popitem(last=False)


def forget(model: nn.Module) -> None:
    """Drops what is kept of a model, and so frees its memory."""
    with _LOCK:
        _KEPT.pop(model, None)


def _most_bytes(device: torch.device) -> int:
    if device.type != "cuda":
        return MOST_BYTES
    return min(MOST_BYTES, int(MOST_MEMORY * torch.cuda.get_device_properties(device).total_memory))


def _kept(model: nn.Module) -> _Kept:
    kept = _KEPT.get(model)
    if kept is None or not kept.places.stayed():
        kept = _KEPT[model] = _Kept(WeightPlaces(model))
    return kept
