"""Batches: what is computed together, who takes turns, and whose mistake is whose."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest
from models_to_serve import shelf_of

from regard.core.errors import DataError
from regard.serving.batching import Order, Worker
from regard.serving.limits import Limits
from regard.serving.metrics import Metrics
from regard.serving.refusals import Refused


@dataclasses.dataclass
class Word:
    text: str
    tokens: int = 1


class Shouting:
    """Words in capitals. The model is a list that remembers the batches; `go` holds them up."""

    def __init__(self, go: threading.Event | None = None):
        self.go = go

    def cut(self, model: list, wish: str) -> list[Word]:
        if wish == "unreadable":
            raise DataError("text 1", "it cannot be read", "Mend it")
        return [Word(word, len(word)) for word in wish.split()]

    def compute(self, model: list, key: Any, units: Sequence[Word]) -> list[str]:
        model.append((key, [unit.text for unit in units]))
        if self.go is not None:
            assert self.go.wait(10)
        for unit in units:
            if unit.text == "wrong":
                raise DataError("the text", "it is wrong", "Mend it")
            if unit.text == "large":
                raise MemoryError
        return [unit.text.upper() for unit in units]

    def join(self, model: list, wish: str, units: Sequence[Word], found: list[str]) -> str:
        return " ".join(found)


def in_batches(use: Callable[[Worker, list], Coroutine[Any, Any, None]], **limits: Any) -> None:
    """Runs a test with a worker, and the list of the batches that it computes."""
    batches: list = []
    worker = Worker(next(iter(shelf_of(model=batches))), Limits(**limits), Metrics())
    try:
        asyncio.run(use(worker, batches))
    finally:
        assert worker.end(10)


def order(worker: Worker, kind: Shouting, wish: str, key: Any = None) -> Order:
    one = Order(kind, key, wish, len(wish))
    worker.submit(one)
    return one


def test_what_comes_while_a_batch_is_computed_goes_into_the_next():
    async def use(worker, batches):
        go = threading.Event()
        kind = Shouting(go)
        first = order(worker, kind, "a")
        while not batches:
            await asyncio.sleep(0.001)
        others = [order(worker, kind, f"b{i} c{i}") for i in range(3)]
        go.set()
        assert await first.answer == "A"
        assert [await one.answer for one in others] == ["B0 C0", "B1 C1", "B2 C2"]
        assert batches == [(None, ["a"]), (None, ["b0", "c0", "b1", "c1", "b2", "c2"])]

    in_batches(use)


def test_batches_keep_their_budget_and_requests_take_turns():
    """A long request does not hold up a short one that came later; one unit alone may be beyond the budget."""

    async def use(worker, batches):
        go = threading.Event()
        kind = Shouting(go)
        orders = [order(worker, kind, "x")]
        while not batches:
            await asyncio.sleep(0.001)
        orders += [order(worker, kind, "aaa aab aac aad"), order(worker, kind, "bbb"), order(worker, kind, "1234567")]
        go.set()
        assert [await one.answer for one in orders] == ["X", "AAA AAB AAC AAD", "BBB", "1234567"]
        assert [units for _, units in batches] == [["x"], ["aaa", "bbb"], ["1234567"], ["aab", "aac"], ["aad"]]

    in_batches(use, batch_tokens=6)


def test_the_number_of_texts_of_a_batch_is_bounded():
    async def use(worker, batches):
        assert await order(worker, Shouting(), "a b c d e").answer == "A B C D E"
        assert [len(units) for _, units in batches] == [2, 2, 1]

    in_batches(use, batch_texts=2)


def test_other_settings_go_into_other_batches():
    async def use(worker, batches):
        go = threading.Event()
        kind = Shouting(go)
        first = order(worker, kind, "x")
        while not batches:
            await asyncio.sleep(0.001)
        orders = [order(worker, kind, word, key) for word, key in (("a", 1), ("b", 2), ("c", 1), ("d", 2))]
        go.set()
        assert [await one.answer for one in [first, *orders]] == ["X", "A", "B", "C", "D"]
        assert batches[1:] == [(1, ["a", "c"]), (2, ["b", "d"])]

    in_batches(use)


def test_the_mistake_of_one_is_not_that_of_the_others():
    async def use(worker, batches):
        go = threading.Event()
        kind = Shouting(go)
        first = order(worker, kind, "x")
        while not batches:
            await asyncio.sleep(0.001)
        orders = [order(worker, kind, wish) for wish in ("a", "fine wrong", "unreadable", "large", "b", "")]
        go.set()
        found = await asyncio.gather(first.answer, *(one.answer for one in orders), return_exceptions=True)
        assert [found[0], found[1], found[5], found[6]] == ["X", "A", "B", ""]
        assert [type(found[i]) for i in (2, 3, 4)] == [DataError, DataError, Refused]
        assert (found[4].status, found[4].kind) == (503, "busy")
        assert await order(worker, kind, "still here").answer == "STILL HERE"

    in_batches(use)


def test_who_gave_up_is_not_computed():
    async def use(worker, batches):
        go = threading.Event()
        kind = Shouting(go)
        first = order(worker, kind, "x")
        while not batches:
            await asyncio.sleep(0.001)
        gone, there = order(worker, kind, "gone"), order(worker, kind, "there")
        gone.given_up = True
        go.set()
        assert [await first.answer, await there.answer] == ["X", "THERE"]
        assert batches[1:] == [(None, ["there"])]
        half = order(worker, kind, "first second")
        go.clear()
        while len(batches) < 3:
            await asyncio.sleep(0.001)
        half.given_up = True
        go.set()
        assert await order(worker, kind, "z").answer == "Z"
        assert not any("second" in units for _, units in batches)

    in_batches(use, batch_texts=1)


def test_a_lone_request_does_not_wait_and_company_is_waited_for():
    async def use(worker, batches):
        kind = Shouting()
        await order(worker, kind, "warm").answer
        begin = time.monotonic()
        assert await order(worker, kind, "alone").answer == "ALONE"
        assert time.monotonic() - begin < 1
        worker._expected, worker._free_since = 3, time.monotonic()
        begin = time.monotonic()
        one = order(worker, kind, "a")
        await asyncio.sleep(0.05)
        other = order(worker, kind, "b")
        assert [await one.answer, await other.answer] == ["A", "B"]
        assert batches[-1] == (None, ["a", "b"])
        assert 1.0 < time.monotonic() - begin < 5

    in_batches(use, wait_ms=1200)


def test_who_was_just_answered_is_waited_for_and_nobody_else():
    """Clients that ask again at once stay in one batch with those who came meanwhile."""

    async def use(worker, batches):
        kind, begin = Shouting(), time.monotonic()
        worker._expected, worker._free_since = 4, time.monotonic()
        await asyncio.gather(*(order(worker, kind, name).answer for name in "abcd"))
        again = [order(worker, kind, "e"), order(worker, kind, "f")]
        await asyncio.sleep(0.1)
        again += [order(worker, kind, "g"), order(worker, kind, "h")]
        await asyncio.gather(*(one.answer for one in again))
        assert [units for _, units in batches] == [list("abcd"), list("efgh")]
        assert time.monotonic() - begin < 8  # all are there: nobody waits any longer

    in_batches(use, wait_ms=9_000)


def test_a_full_batch_does_not_wait():
    async def use(worker, batches):
        worker._expected, worker._free_since = 2, time.monotonic()
        begin = time.monotonic()
        assert await order(worker, Shouting(), "abcdef").answer == "ABCDEF"
        assert time.monotonic() - begin < 5

    in_batches(use, wait_ms=10_000, batch_tokens=6)


def test_a_model_that_cannot_be_loaded_is_a_refusal(caplog):
    def broken(_: Any) -> Any:
        raise DataError("the folder", "it is gone", "Look for it")

    async def use(worker, batches):
        worker.served.shelf._read = broken
        with pytest.raises(Refused) as caught:
            await order(worker, Shouting(), "a").answer
        assert (caught.value.status, caught.value.kind) == (503, "busy")
        assert "it is gone" not in caught.value.message
        assert "it is gone" in caplog.text

    in_batches(use)
