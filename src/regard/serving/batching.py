"""Batches of requests: while one is computed, the next gathers.

Each served model has one thread. Requests come in, are cut into units (sentences, texts), and units of several requests with the
same settings are computed together, within a budget of tokens, the requests taking turns: a long text does not hold up short ones.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Protocol

from regard.core.errors import RegardError
from regard.serving.limits import Limits
from regard.serving.metrics import Metrics
from regard.serving.refusals import Refused
from regard.serving.shelf import Served

LOG = logging.getLogger("regard.serving")


class Unit(Protocol):
    """What a request is cut into: computed as a whole, in any company."""

    tokens: int


class Kind(Protocol):
    """What is done with one sort of requests. `model` is what `regard.load` gives."""

    def cut(self, model: Any, wish: Any) -> Sequence[Any]:
        """The units of a request."""
        ...

    def compute(self, model: Any, key: Any, units: Sequence[Any]) -> list[Any]:
        """What each unit gives. All of them have the same key."""
        ...

    def join(self, model: Any, wish: Any, units: Sequence[Any], found: list[Any]) -> Any:
        """The answer to a request from what its units gave."""
        ...


class Order:
    """One request on its way through a model's thread. `key`: only orders with equal ones are computed together."""

    def __init__(self, kind: Kind, key: Hashable, wish: Any, tokens: int):
        self.kind, self.key, self.wish, self.tokens = kind, key, wish, tokens
        self.loop = asyncio.get_running_loop()
        self.answer: asyncio.Future[Any] = self.loop.create_future()
        self.given_up = False  # nobody waits for it any more
        self.came = time.monotonic()
        self.units: Sequence[Any] = ()
        self.next = 0  # the first unit that is not computed yet
        self.found: list[Any] = []


class Worker:
    """The thread of one served model."""

    def __init__(self, served: Served, limits: Limits, metrics: Metrics):
        self.served, self.limits, self.metrics = served, limits, metrics
        self._inbox: deque[Order] = deque()
        self._open: deque[Order] = deque()  # cut, and not computed whole
        self._ready = threading.Condition()
        self._ended = False
        self._company = False  # requests came close together lately
        self._free_since = 0.0  # when the last batch was answered
        self._expected = 1  # requests that were there then: answered just now, or waiting
        self._thread: threading.Thread | None = None

    def submit(self, order: Order) -> None:
        with self._ready:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=f"regard-{self.served.name}", daemon=True)
                self._thread.start()
            self._inbox.append(order)
            self._ready.notify()

    def end(self, seconds: float | None = None) -> bool:
        """Ends the thread after what it computes at the moment. False: it did not end within so many seconds."""
        with self._ready:
            self._ended = True
            self._ready.notify()
        if self._thread is not None:
            self._thread.join(seconds)
        return self._thread is None or not self._thread.is_alive()

    @property
    def waiting(self) -> int:
        return len(self._inbox) + len(self._open)

    def _run(self) -> None:
        while True:
            with self._ready:
                while not (self._inbox or self._open or self._ended):
                    self._ready.wait()
                if self._ended:
                    return
                if not self._open:
                    self._gather()
                fresh, self._inbox = list(self._inbox), deque()
            try:
                self._serve([order for order in fresh if not order.given_up])
            except Exception as error:  # a fault of ours: the requests fail, the thread goes on
                LOG.exception("%s: the batch failed", self.served.name)
                for order in [*fresh, *self._open]:
                    self._tell([(order, None, error)])
                self._open.clear()
            self._free_since = time.monotonic()

    def _gather(self) -> None:
        """Waits for company where there was some lately: for as many as were there before, at most `wait_ms`.

        Those who were just answered often ask again at once. Without the wait they would take turns with those who came while
        they were being answered, in two batches of half the size.
        """
        self._company = self._company or len(self._inbox) > 1
        end = max(self._inbox[0].came, self._free_since) + self.limits.wait_ms / 1000
        while self._company and not self._ended and not self._enough():
            left = end - time.monotonic()
            if left <= 0 or not self._ready.wait(left):
                break

    def _enough(self) -> bool:
        return sum(order.tokens for order in self._inbox) >= self.limits.batch_tokens or len(self._inbox) >= min(
            self._expected, self.limits.batch_texts
        )

    def _serve(self, fresh: list[Order]) -> None:
        """Cuts what came, and computes one batch."""
        if not fresh and not self._open:
            return
        try:
            model = self.served.load()
        except Exception as error:
            LOG.error("%s cannot be loaded: %s", self.served.name, error)
            what = f"the model {self.served.name} cannot be loaded"
            refused = Refused(503, what, "Tell whoever runs the server", kind="busy", retry_after=30)
            self._tell([(order, None, refused) for order in [*fresh, *self._open]])
            self._open.clear()
            return
        for order in fresh:
            self._cut(model, order)
        batch = self._pick()
        if batch:
            self._compute(model, batch)

    def _cut(self, model: Any, order: Order) -> None:
        try:
            order.units = order.kind.cut(model, order.wish)
            order.found = [None] * len(order.units)
            self.metrics.tokens_in.add(self.served.name, by=sum(unit.tokens for unit in order.units))
            if order.units:
                self._open.append(order)
            else:
                self._finish(model, [order])
        except Exception as error:
            self._tell([(order, None, error)])

    def _pick(self) -> list[tuple[Order, list[int]]]:
        """Units of orders with the same key, each order giving one in turn, until the budget is used up."""
        self._open = deque(order for order in self._open if not order.given_up)
        if not self._open:
            return []
        first = self._open[0]
        alike = [one for one in self._open if one.key == first.key and type(one.kind) is type(first.kind)]
        chosen: dict[int, list[int]] = {}
        tokens = count = 0
        while alike:
            turn, alike = alike, []
            for order in turn:
                size = order.units[order.next].tokens
                if count and (tokens + size > self.limits.batch_tokens or count >= self.limits.batch_texts):
                    return self._batch(chosen)
                chosen.setdefault(id(order), []).append(order.next)
                tokens, count, order.next = tokens + size, count + 1, order.next + 1
                if order.next < len(order.units):
                    alike.append(order)
        return self._batch(chosen)

    def _batch(self, chosen: dict[int, list[int]]) -> list[tuple[Order, list[int]]]:
        batch = [(order, chosen[id(order)]) for order in self._open if id(order) in chosen]
        left = [order for order in self._open if order.next < len(order.units)]
        # whoever got nothing comes first the next time
        self._open = deque(sorted(left, key=lambda order: id(order) in chosen))
        self._company = len(batch) > 1
        return batch

    def _compute(self, model: Any, batch: list[tuple[Order, list[int]]]) -> None:
        self.metrics.batches.see(self.served.name, sum(len(places) for _, places in batch))
        kind, key = batch[0][0].kind, batch[0][0].key
        try:
            found = kind.compute(model, key, [order.units[i] for order, places in batch for i in places])
        except Exception as error:
            if len(batch) > 1:  # the fault of one of them: each by itself
                for one in batch:
                    self._compute(model, [one])
                return
            order = batch[0][0]
            self._open = deque(one for one in self._open if one is not order)
            self._tell([(order, None, explained(error))])
            return
        self._expected = len(batch) + len(self._inbox)
        results = iter(found)
        for order, places in batch:
            for i in places:
                order.found[i] = next(results)
        self._finish(model, [order for order, places in batch if places[-1] == len(order.units) - 1])

    def _finish(self, model: Any, orders: list[Order]) -> None:
        told: list[tuple[Order, Any, BaseException | None]] = []
        for order in orders:
            try:
                told.append((order, order.kind.join(model, order.wish, order.units, order.found), None))
            except Exception as error:
                told.append((order, None, error))
        self._tell(told)

    def _tell(self, told: list[tuple[Order, Any, BaseException | None]]) -> None:
        """Answers, with one call into each event loop."""
        loops: dict[asyncio.AbstractEventLoop, list[tuple[Order, Any, BaseException | None]]] = {}
        for one in told:
            loops.setdefault(one[0].loop, []).append(one)
        for loop, some in loops.items():
            call_in(loop, _answer, some)


def _answer(told: list[tuple[Order, Any, BaseException | None]]) -> None:
    for order, value, error in told:
        if order.answer.done():
            continue
        if error is None:
            order.answer.set_result(value)
        else:
            order.answer.set_exception(error)


def call_in(loop: asyncio.AbstractEventLoop, function: Callable[..., None], *values: Any) -> None:
    """Calls a function in an event loop, unless that has been closed meanwhile."""
    try:
        loop.call_soon_threadsafe(function, *values)
    except RuntimeError:
        if not loop.is_closed():
            raise


def explained(error: Exception) -> Exception:
    """Too little memory is a matter of how much is going on; all other errors stay as they are."""
    if isinstance(error, RegardError | Refused):
        return error
    if isinstance(error, MemoryError) or "OutOfMemory" in type(error).__name__ or "can't allocate" in str(error):
        what = "there is not enough memory for this request now"
        return Refused(503, what, "Send less at once, or try again later", kind="busy", retry_after=5)
    return error
