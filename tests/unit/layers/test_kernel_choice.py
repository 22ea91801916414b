"""Which kernels a step gets: by rows, kind of model and GPU, as it was measured."""

from __future__ import annotations

import threading

import pytest
import torch

from regard.layers.decoding import kernel_choice, vocabulary
from regard.layers.decoding.kernel_choice import Kernels, choose, chosen, using

GPU = torch.device("cuda", 0)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Its capability, which can be changed: an H200's at first."""
    found = [(9, 0)]
    monkeypatch.setattr(kernel_choice, "_capability", lambda device: found[-1])
    return found


def test_the_rule(gpu) -> None:
    one, few, many = Kernels(early=True), Kernels(early=True, tiles=True), Kernels(aligned=True)
    whole = few._replace(whole=True, ahead=True)
    with_source = {1: one, 2: whole, 4: whole, 8: whole, 9: many, 63: many, 64: many._replace(narrow=True)}
    assert {rows: choose(rows, GPU, source=True) for rows in with_source} == with_source
    for rows, expected in {1: one, 4: few, 8: few, 9: many}.items():
        assert choose(rows, GPU, source=False) == expected
    assert choose(64, GPU, source=True, beams=4) == many


def test_older_and_smaller_gpus(gpu) -> None:
    few = Kernels(tiles=True)
    for capability, expected in {(8, 0): few, (8, 9): few, (12, 0): few._replace(early=True)}.items():
        gpu.append(capability)
        assert choose(4, GPU, source=True) == expected
    gpu.append((8, 0))
    kernel_choice.FORCED |= {"early": True, "ahead": True}  # even if somebody asks for it
    try:
        assert choose(4, GPU, source=True) == few
    finally:
        kernel_choice.FORCED.clear()


@pytest.mark.parametrize(("rows", "looks"), [(64, False), (1024, False), (2047, False), (2048, True), (4096, True)])
def test_a_crowd_of_rows_has_a_product_that_looks_where_gpus_copy_tiles(gpu, rows: int, looks: bool) -> None:
    for capability, here in {(9, 0): looks, (8, 9): False}.items():
        gpu.append(capability)
        assert choose(rows, GPU, source=True, beams=4) == Kernels(aligned=True, looks=here)


def test_without_a_gpu_nothing_starts_early() -> None:
    assert choose(1, torch.device("cpu"), source=True) == Kernels()
    assert choose(4, torch.device("cpu"), source=True) == Kernels(whole=True, tiles=True)


def test_what_does_not_work_is_left_out(gpu, monkeypatch) -> None:
    assert choose(4, GPU, source=True, without={"whole"}) == Kernels(early=True, ahead=True, tiles=True)
    monkeypatch.setitem(kernel_choice.FORCED, "whole", True)
    assert choose(1, GPU, source=False).whole
    assert not choose(1, GPU, source=False, without={"whole"}).whole


def test_parts_can_be_forced(gpu, monkeypatch) -> None:
    for name in Kernels._fields:
        monkeypatch.setitem(kernel_choice.FORCED, name, False)
    assert choose(4, GPU, source=True) == Kernels()
    monkeypatch.setitem(kernel_choice.FORCED, "tiles", True)
    assert choose(4, GPU, source=True) == Kernels(tiles=True)
    assert choose(1, GPU, source=True) == choose(9, GPU, source=True) == Kernels()
    for name in ("narrow", "aligned"):
        monkeypatch.setitem(kernel_choice.FORCED, name, True)
    assert choose(64, GPU, source=True) == Kernels(narrow=True, aligned=True)
    assert choose(63, GPU, source=True) == choose(64, GPU, source=True, beams=2) == Kernels(aligned=True)


def test_a_choice_holds_where_it_is_used_and_in_that_thread() -> None:
    seen: list[Kernels] = []
    with using(Kernels(early=True)):
        with using(Kernels(whole=True)):
            other = threading.Thread(target=lambda: seen.append(chosen()))
            other.start()
            other.join()
            seen.append(chosen())
        seen.append(chosen())
    assert [*seen, chosen()] == [Kernels(), Kernels(whole=True), Kernels(early=True), Kernels()]
    with pytest.raises(KeyError), using(Kernels(early=True)):
        raise KeyError
    assert chosen() == Kernels()


def test_rows_meet_the_vocabulary_one_by_one_or_in_tensor_cores() -> None:
    assert [vocabulary.group_of(rows, 512) for rows in (1, 4, 5)] == [32, 16, 64]
    with using(Kernels(tiles=True)):
        assert [vocabulary.group_of(rows, 512) for rows in (4, 5)] == [64, 64]
