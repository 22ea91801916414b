"""Values in one piece of memory, and looks at them."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from regard.core.tree import Rows
from regard.search.looks import Arriving, Look, Told
from regard.search.one_piece import ALIGNED, in_one_piece

CPU = torch.device("cpu")


@dataclasses.dataclass
class Some(Rows):
    done: torch.Tensor
    numbers: tuple[torch.Tensor, ...]
    broken: torch.Tensor
    nothing: torch.Tensor | None = None


def some(rows: int, width: int) -> Some:
    numbers = torch.arange(rows * width).view(rows, width), torch.rand(rows, 2, width, dtype=torch.float64)
    return Some(torch.arange(rows) % 2 == 0, (*numbers, torch.zeros(rows, 0)), torch.arange(rows) % 3 == 0)


@pytest.mark.parametrize("rows", [1, 5, 300])
def test_a_value_goes_through_bytes(rows: int) -> None:
    value = some(rows, 7)
    one, memory = in_one_piece(value, CPU)
    two, others = in_one_piece(value, CPU)
    assert memory.dtype == torch.uint8
    assert len(memory) % ALIGNED == 0
    for mine, old in zip(one.leaves(), value.leaves(), strict=True):
        assert (mine.shape, mine.dtype, mine.is_contiguous()) == (old.shape, old.dtype, True)
        assert mine.storage_offset() * mine.element_size() % ALIGNED == 0
        mine.copy_(old)
    others.copy_(memory)
    for mine, old in zip(two.leaves(), value.leaves(), strict=True):  # nothing lies over anything else
        assert torch.equal(mine, old)
    assert two.nothing is None


@pytest.mark.parametrize("rows", [3, 30_000])
def test_a_look_is_as_it_was_when_it_was_asked_for(rows: int) -> None:
    told, memory = in_one_piece(Told(some(rows, 2), torch.ones(rows, dtype=torch.bool)), CPU)
    for mine, new in zip(told.leaves(), Told(some(rows, 2), torch.ones(rows, dtype=torch.bool)).leaves(), strict=True):
        mine.copy_(new)
    look = Look(told, memory)
    assert look.whole == (rows == 3)
    before = told.clone()
    look.ask()
    later = Arriving(told.work)
    for tensor in told.leaves():
        tensor.zero_()
    seen = look.get()
    flags = ((seen.fine, before.fine), (seen.done, before.work.done), (seen.broken, before.work.broken))
    assert all(torch.equal(torch.from_numpy(mine), old) for mine, old in flags)
    if look.whole:
        assert all(map(torch.equal, seen.work.leaves(), before.work.leaves()))
    else:
        assert len(look.here) < len(memory) // 4
    assert later.arrived()
    assert all(map(torch.equal, later.get().work.leaves(), before.work.leaves()))
    assert not told.work.done.any()
