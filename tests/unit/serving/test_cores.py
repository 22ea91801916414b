"""Threads that compute by torch on a CPU share its cores."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import regard
from regard.serving import batching, cores, writing
from regard.serving.completions import Wishes
from regard.serving.cores import Cores, on_cpu
from regard.serving.service import Service
from regard.serving.shelf import Shelf

CPU, GPU = SimpleNamespace(device=torch.device("cpu")), SimpleNamespace(device=torch.device("cuda"))


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch):
    """A clock that is set by hand; torch has as many threads afterwards as before."""
    before, clock = torch.get_num_threads(), SimpleNamespace(seconds=100.0)
    monkeypatch.setattr(cores.time, "monotonic", lambda: clock.seconds)
    yield clock
    torch.set_num_threads(before)


class Member:
    """A thread of its own, and how many threads torch has in it after it took its share."""

    def __init__(self, shared: Cores):
        self.shared, self._thread = shared, ThreadPoolExecutor(1)

    def takes(self, model: Any = CPU) -> int:
        def take() -> int:
            with self.shared.share(model):
                return torch.get_num_threads()

        return self._thread.submit(take).result()


def test_who_computes_at_the_same_time_has_an_equal_share(now):
    shared = Cores(4)
    first, second, third = (Member(shared) for _ in range(3))
    assert first.takes() == 4
    assert second.takes() == 2
    assert first.takes() == 2
    assert [third.takes(), first.takes(), second.takes()] == [1, 1, 1]
    now.seconds += cores.LATELY + 0.1
    assert second.takes() == 4  # the others have not computed lately
    assert first.takes() == 2


def test_who_computes_for_long_keeps_its_share(now):
    shared = Cores(4)
    first, second = Member(shared), Member(shared)
    with shared.share(CPU):
        now.seconds += 10 * cores.LATELY
        assert first.takes() == 2
    assert second.takes() == 1  # all three have computed lately
    now.seconds += cores.LATELY + 0.1
    assert second.takes() == 4


def test_models_elsewhere_take_nothing(now):
    shared = Cores(4)
    first, second = Member(shared), Member(shared)
    first.takes()
    before = Member(shared)._thread.submit(torch.get_num_threads).result()
    assert second.takes(GPU) == before
    assert first.takes() == 4
    assert on_cpu(SimpleNamespace(torch_device=None, device=torch.device("cpu"))) is False  # CTranslate2 searches
    assert on_cpu(regard.load(device="cpu", engine="torch"))
    assert not on_cpu(object())


def test_served_models_take_their_share_before_they_compute(folders, monkeypatch):
    took: Counter[str] = Counter()

    @contextlib.contextmanager
    def share(model: Any) -> Iterator[None]:
        assert on_cpu(model)
        took[threading.current_thread().name] += 1
        yield

    for module in (batching, writing):
        monkeypatch.setattr(module, "CORES", SimpleNamespace(share=share))
    service = Service(Shelf.open([f"{name}={folder}" for name, folder in folders.items()], device="cpu"))

    async def ask() -> None:
        models = service.shelf.models
        await service.complete(models["writer"], "the cat", Wishes(max_tokens=3, temperature=0))
        await service.classify(models["sorter"], ["the cat"])

    try:
        asyncio.run(ask())
    finally:
        assert service.close(10)
    assert took == {"regard-writer": 3, "regard-sorter": 1}
