"""Which kernels a step is made of, by its rows, its model and its GPU: the one place where that is decided, as it was measured.

On an H200 (docs/lab/2026-11-decoding-kernels.md): kernels that start early pay with few rows and not with many; kernels of whole
sub-layers pay with a source and the rows of one beam, and not with a single row, nor for a GPT. The vocabulary is best met by
tensor cores from two rows on, and where rows are a crowd by a product that looks at its logits. Narrow programs of attention pay
where many texts have one hypothesis each, and not with beams.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator
from contextvars import ContextVar
from functools import cache
from typing import NamedTuple

import torch

FEW = 8  # rows up to here: kernels start early
FEWEST_WHOLE = 2  # rows from here on: whole sub-layers
FEWEST_NARROW = 64  # texts of one hypothesis from here on: narrow programs of attention
FEWEST_LOOKING = 2048  # rows from here on: the product with the vocabulary looks at its logits
FORCED: dict[str, bool] = {}  # for benchmarks and tests: parts of a choice that are not left to the rule


class Kernels(NamedTuple):
    """What can be chosen of a step."""

    early: bool = False  # a kernel may start while the one before it ends: programmatic dependent launch, from sm_90 on
    whole: bool = False  # one kernel for each sub-layer (whole_layers)
    ahead: bool = False  # programs of these ask for matrices before they wait for states: from sm_90 on
    tiles: bool = False  # few rows, but not one, meet the vocabulary in tensor cores
    narrow: bool = False  # many short texts of one hypothesis: attention by programs of a warp
    aligned: bool = False  # many rows, tokens that are no multiple of 8: see many_logits
    looks: bool = False  # a crowd of rows: the product with the vocabulary looks at its logits, from sm_90 on


def choose(rows: int, device: torch.device, *, source: bool, beams: int = 1, without: Collection[str] = ()) -> Kernels:
    """For steps of so many rows, of a model with a source or without; `without` what is known not to work for them."""
    whole = source and FEWEST_WHOLE <= rows <= FEW and holds_sub_layers(device)
    wanted = Kernels(
        early=rows <= FEW, whole=whole, ahead=whole, tiles=True, narrow=True, aligned=rows > FEW, looks=True
    )
    wanted = wanted._replace(**FORCED)
    impossible = set(without) | (set() if starts_early(device) else {"early", "ahead"})
    impossible |= set() if 1 < rows <= FEW else {"tiles"}
    impossible |= set() if rows >= FEWEST_NARROW and beams == 1 else {"narrow"}
    impossible |= set() if rows >= FEWEST_LOOKING and copies_tiles(device) else {"looks"}
    return wanted._replace(**dict.fromkeys(impossible, False))


@cache
def _capability(device: torch.device) -> tuple[int, int]:
    return torch.cuda.get_device_capability(device)


def starts_early(device: torch.device) -> bool:
    """Whether a device has what `early` and `ahead` need."""
    return device.type == "cuda" and _capability(device) >= (9, 0)


def copies_tiles(device: torch.device) -> bool:
    """Whether a device has an engine that copies tiles, as far as that is known: references need none."""
    return device.type != "cuda" or _capability(device) >= (9, 0)


def holds_sub_layers(device: torch.device) -> bool:
    """Whether programs have memory enough for whole sub-layers, as far as that is known: references need none."""
    return device.type != "cuda" or (9, 0) <= _capability(device) < (12, 0)


_NOW: ContextVar[Kernels] = ContextVar("kernels", default=Kernels())  # noqa: B039


def chosen() -> Kernels:
    """The choice that holds here."""
    return _NOW.get()


@contextlib.contextmanager
def using(kernels: Kernels) -> Iterator[None]:
    """All kernels that are started in it are of this choice."""
    before = _NOW.set(kernels)
    try:
        yield
    finally:
        _NOW.reset(before)
