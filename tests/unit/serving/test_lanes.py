"""Lanes: a model that searches for several batches at the same time has a thread for each."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest
from models_to_serve import shelf_of
from test_gathered_batches import Word

from regard.core.errors import DataError
from regard.core.search_config import SearchConfig
from regard.serving.batched_tasks import Searching, Translating
from regard.serving.batching import Order, Worker
from regard.serving.limits import Limits
from regard.serving.metrics import Metrics
from regard.serving.service import Service
from regard.serving.shelf import Shelf

SECONDS = 10


class Road:
    """A model with lanes, which remembers its batches and how many of them were computed at the same time."""

    def __init__(self, lanes: int):
        self.lanes, self.batches = lanes, []
        self.now = self.most = 0
        self.lock = threading.Lock()


class Counting:
    """Words in capitals. Batches meet at the barrier, if there is one; `free` says whether they may be beside others."""

    def __init__(self, free: bool = True, barrier: threading.Barrier | None = None):
        self.free, self.barrier = free, barrier

    def beside(self, key: Any) -> bool:
        return self.free

    def cut(self, model: Road, wish: str) -> list[Word]:
        return [Word(word, len(word)) for word in wish.split()]

    def compute(self, model: Road, key: Any, units: Sequence[Word]) -> list[str]:
        with model.lock:
            model.batches.append([unit.text for unit in units])
            model.now += 1
            model.most = max(model.most, model.now)
        try:
            if self.barrier is not None:
                self.barrier.wait(SECONDS)
            if not self.free:
                time.sleep(0.005)  # time for another one to come
            if any(unit.text == "wrong" for unit in units):
                raise DataError("the text", "it is wrong", "Mend it")
            return [unit.text.upper() for unit in units]
        finally:
            with model.lock:
                model.now -= 1

    def join(self, model: Road, wish: str, units: Sequence[Word], found: list[str]) -> str:
        return " ".join(found)


def on_road(use: Callable[[Worker, Road], Coroutine[Any, Any, None]], lanes: int = 2, **limits: Any) -> None:
    road = Road(lanes)
    worker = Worker(next(iter(shelf_of(model=road))), Limits(**limits), Metrics())
    try:
        asyncio.run(use(worker, road))
    finally:
        assert worker.end(SECONDS)
    assert len(worker._threads) == lanes
    assert not any(thread.is_alive() for thread in worker._threads)
    assert worker._computing == worker._busy == 0


async def answers(worker: Worker, kind: Counting, *wishes: str) -> list[Any]:
    orders = [Order(kind, None, wish, len(wish)) for wish in wishes]
    with worker.ready:  # all of them are there before a thread looks
        for order in orders:
            worker.submit(order)
    return await asyncio.gather(*(order.answer for order in orders), return_exceptions=True)


def test_batches_are_computed_at_the_same_time_and_share_the_requests():
    async def use(worker: Worker, road: Road) -> None:
        await answers(worker, Counting(), "warm")  # from here on both lanes are there
        barrier = threading.Barrier(2)  # who is alone there waits in vain, and fails
        found = await answers(worker, Counting(barrier=barrier), *"abcdefgh")
        assert found == list("ABCDEFGH")
        assert sorted(road.batches[1:]) == [list("abcd"), list("efgh")]
        assert road.most == 2

    on_road(use)


def test_what_cannot_be_beside_others_takes_turns():
    async def use(worker: Worker, road: Road) -> None:
        found = await answers(worker, Counting(free=False), *(f"{a}{b}" for a in "abcde" for b in "abcdef"))
        assert found == [f"{a}{b}" for a in "ABCDE" for b in "ABCDEF"]
        assert len(road.batches) > 2
        assert road.most == 1

    on_road(use, lanes=4, batch_texts=3)


def test_a_long_text_is_shared_by_free_lanes_and_answered_in_order():
    async def use(worker: Worker, road: Road) -> None:
        await answers(worker, Counting(), "warm")
        words = [f"{number:020}" for number in range(12)]
        (found,) = await answers(worker, Counting(barrier=threading.Barrier(3)), " ".join(words))
        assert found == " ".join(words)
        assert sorted(map(len, road.batches[1:])) == [4, 4, 4]

    on_road(use, lanes=3)


def test_little_is_not_shared():
    async def use(worker: Worker, road: Road) -> None:
        await answers(worker, Counting(), "warm")
        assert await answers(worker, Counting(), "a b c d") == ["A B C D"]
        assert road.batches[1:] == [["a", "b", "c", "d"]]

    on_road(use, lanes=3)


def test_a_mistake_in_one_lane_is_that_of_its_request():
    async def use(worker: Worker, road: Road) -> None:
        await answers(worker, Counting(), "warm")
        long = " ".join(["fine" * 10] * 5 + ["wrong"])
        found = await answers(worker, Counting(), "a", long, "b")
        assert [found[0], type(found[1]), found[2]] == ["A", DataError, "B"]
        assert await answers(worker, Counting(), "still", "here") == ["STILL", "HERE"]

    on_road(use)


def test_plain_translations_are_searched_for_beside_each_other_and_nothing_else():
    assert Translating.beside(Searching(None, 0, attention=False))
    assert Translating.beside(Searching(4, 2, attention=False))
    assert not Translating.beside(Searching(None, 0, attention=True))


def test_real_lanes_translate_as_one_does(monkeypatch: pytest.MonkeyPatch):
    """The bundled model in float32 with two lanes, and torch for whatever CTranslate2 leaves: here every third sentence."""
    pytest.importorskip("ctranslate2")
    import regard.engines.ctranslate2_engine as engine

    monkeypatch.setattr(engine, "threads", lambda: 2)
    read, seen = engine.CTranslate2Engine._read, []

    def sometimes(self: Any, result: Any, limit: int, settings: SearchConfig, penalty: float) -> Any:
        seen.append(threading.current_thread().name)
        return None if len(seen) % 3 == 0 else read(self, result, limit, settings, penalty)

    shelf = Shelf.open(device="cpu", engine="auto", compute="float32")
    (served,) = shelf
    model = served.load()
    assert model.lanes == 2
    texts = [f"Tom has {number} {what}." for number in range(3, 9) for what in ("dogs", "red cars")]
    expected = model.translate(texts)
    monkeypatch.setattr(engine.CTranslate2Engine, "_read", sometimes)

    async def ask() -> list[Any]:
        service = Service(shelf)
        try:
            return await asyncio.gather(*(service.translate(served, [text]) for text in texts))
        finally:
            assert service.close(SECONDS)

    assert [best for ((best,),) in asyncio.run(ask())] == expected
    assert len(seen) >= len(texts)
