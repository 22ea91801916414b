"""Batches of requests: while one is computed, the next gathers.

Requests come in, are cut into units (sentences, texts), and units of several requests with the same settings are computed together,
within a budget of tokens, the requests taking turns: a long text does not hold up short ones.

A served model has one thread, or several lanes where it can search for several batches at the same time (its `lanes`). One
at a time gathers a batch, its share of all that is there; the others compute theirs, and requests are read and answered meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Hashable, Sequence
from typing import Any, Protocol

from regard.core.errors import RegardError
from regard.serving.cores import CORES
from regard.serving.limits import Limits
from regard.serving.metrics import Metrics
from regard.serving.refusals import Refused
from regard.serving.shelf import Served
from regard.serving.threads import Crew, call_in

LOG = logging.getLogger("regard.serving")
LATELY = 1.0  # seconds for which those who were answered are expected to ask again
LEAST_TOKENS = 48  # that are worth a lane of their own


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
    """One request on its way through a model's threads. `key`: only orders with equal ones are computed together."""

    def __init__(self, kind: Kind, key: Hashable, wish: Any, tokens: int):
        self.kind, self.key, self.wish, self.tokens = kind, key, wish, tokens
        self.loop = asyncio.get_running_loop()
        self.answer: asyncio.Future[Any] = self.loop.create_future()
        self.given_up = False  # nobody waits for it any more
        self.came = time.monotonic()
        self.units: Sequence[Any] = ()
        self.next = 0  # the first unit that nobody computes yet
        self.left = 0  # units that are not computed
        self.found: list[Any] = []


Batch = list[tuple[Order, list[int]]]  # orders, and which units of each


class Worker(Crew[Order]):
    """The threads of one served model."""

    def __init__(self, served: Served, limits: Limits, metrics: Metrics):
        super().__init__(served.name)
        self.served, self.limits, self.metrics = served, limits, metrics
        self._open: deque[Order] = deque()  # cut, with units that nobody computes yet; of whoever has `_leading`
        self._leading = threading.Lock()  # who has it gathers the next batch
        self._alone = threading.RLock()  # for what cannot be computed beside something else
        self._lanes = 1
        self._busy = 0  # lanes that compute
        self._computing = 0  # orders that they compute
        self._free_since = 0.0  # when the last batch was answered
        self._expected = 1  # requests that were there then: answered just now, waiting or being computed

    @property
    def waiting(self) -> int:
        return len(self.inbox) + len(self._open)

    def run(self) -> None:
        while self._turn():
            pass

    def _turn(self) -> bool:
        """Gathers a batch, computes it and answers. False: it is over."""
        with self._leading:
            with self.ready:
                while not (self.inbox or self._open or self.ended):
                    self.ready.wait()
                if self.ended:
                    return False
                if not self._open:
                    self._gather()
                share = -(-(len(self.inbox) + self._computing) // self._lanes)
                fresh = [self.inbox.popleft() for _ in range(min(len(self.inbox), max(share, self._target)))]
            try:
                model, batch = self._prepared([order for order in fresh if not order.given_up])
            except Exception as error:  # a fault of ours: the requests fail, the thread goes on
                self._failed(error, [*fresh, *self._open])
                self._open.clear()
                return True
            with self.ready:
                self._busy, self._computing = self._busy + 1, self._computing + len(batch)
        whole: list[Order] = []
        try:
            whole = self._computed(model, batch) if batch else []
        except Exception as error:
            self._failed(error, [order for order, _ in batch])
        with self.ready:  # before anybody is answered, who may ask again at once
            self._expected = self._computing + len(self.inbox)
            self._busy, self._computing = self._busy - 1, self._computing - len(batch)
            self._free_since = time.monotonic()
        self._finish(model, whole)
        return True

    def _failed(self, error: Exception, orders: Sequence[Order]) -> None:
        LOG.error("%s: the batch failed", self.served.name, exc_info=error)
        self._tell([(order, None, error) for order in orders])

    def _gather(self) -> None:
        """Waits for company where there was some lately: for a lane's share of as many as were there, at most `wait_ms`.

        Those who were just answered often ask again at once. Without the wait they would take turns with those who came while
        they were being answered, in two batches of half the size.
        """
        end = max(self.inbox[0].came, self._free_since) + self.limits.wait_ms / 1000
        while not self.ended and not self._enough():
            left = end - time.monotonic()
            if left <= 0 or not self.ready.wait(left):
                break

    @property
    def _target(self) -> int:
        """How many requests a batch is waited for to have."""
        lately = time.monotonic() - self._free_since < LATELY + self.limits.wait_ms / 1000
        return min(-(-self._expected // self._lanes), self.limits.batch_texts) if lately else 1

    def _enough(self) -> bool:
        return len(self.inbox) >= self._target or sum(order.tokens for order in self.inbox) >= self.limits.batch_tokens

    def _prepared(self, fresh: list[Order]) -> tuple[Any, Batch]:
        """The model and a batch of what came and what was left, all of it cut."""
        if not fresh and not self._open:
            return None, []
        try:
            model = self.served.load()
        except Exception as error:
            LOG.error("%s cannot be loaded: %s", self.served.name, error)
            what = f"the model {self.served.name} cannot be loaded"
            refused = Refused(503, what, "Tell whoever runs the server", kind="busy", retry_after=30)
            self._tell([(order, None, refused) for order in [*fresh, *self._open]])
            self._open.clear()
            return None, []
        self._lanes = getattr(model, "lanes", 1)
        self.grow(self._lanes)
        for order in fresh:
            self._cut(model, order)
        return model, self._pick()

    def _cut(self, model: Any, order: Order) -> None:
        try:
            order.units = order.kind.cut(model, order.wish)
            order.found, order.left = [None] * len(order.units), len(order.units)
            self.metrics.tokens_in.add(self.served.name, by=sum(unit.tokens for unit in order.units))
            if order.units:
                self._open.append(order)
            else:
                self._finish(model, [order])
        except Exception as error:
            self._tell([(order, None, error)])

    def _pick(self) -> Batch:
        """Units of orders with the same key, each order giving one in turn, until the budget is used up."""
        self._open = deque(order for order in self._open if not order.given_up)
        if not self._open:
            return []
        first = self._open[0]
        alike = [one for one in self._open if one.key == first.key and type(one.kind) is type(first.kind)]
        most = self._budget(alike)
        chosen: dict[int, list[int]] = {}
        tokens = count = 0
        while alike:
            turn, alike = alike, []
            for order in turn:
                size = order.units[order.next].tokens
                if count and (tokens + size > most or count >= self.limits.batch_texts):
                    return self._batch(chosen)
                chosen.setdefault(id(order), []).append(order.next)
                tokens, count, order.next = tokens + size, count + 1, order.next + 1
                if order.next < len(order.units):
                    alike.append(order)
        return self._batch(chosen)

    def _budget(self, orders: Sequence[Order]) -> int:
        """The most tokens of a batch: lanes that have nothing to do get their share of a long text."""
        most, free = self.limits.batch_tokens, self._lanes - self._busy
        if free <= 1:
            return most
        there = sum(unit.tokens for order in orders for unit in order.units[order.next :])
        return min(most, max(LEAST_TOKENS, -(-there // free)))

    def _batch(self, chosen: dict[int, list[int]]) -> Batch:
        batch = [(order, chosen[id(order)]) for order in self._open if id(order) in chosen]
        left = [order for order in self._open if order.next < len(order.units)]
        # whoever got nothing comes first the next time
        self._open = deque(sorted(left, key=lambda order: id(order) in chosen))
        return batch

    def _computed(self, model: Any, batch: Batch) -> list[Order]:
        """Computes a batch; gives the orders of which nothing is left to compute."""
        self.metrics.batches.see(self.served.name, sum(len(places) for _, places in batch))
        kind, key = batch[0][0].kind, batch[0][0].key
        try:
            with self._turn_of(model, kind, key), CORES.share(model):
                found = kind.compute(model, key, [order.units[i] for order, places in batch for i in places])
        except Exception as error:
            if len(batch) > 1:  # the fault of one of them: each by itself
                return [order for one in batch for order in self._computed(model, [one])]
            batch[0][0].given_up = True
            self._tell([(batch[0][0], None, explained(error))])
            return []
        results = iter(found)
        with self.ready:
            for order, places in batch:
                order.left -= len(places)
                for i in places:
                    order.found[i] = next(results)
            return [order for order, _ in batch if not order.left]

    def _turn_of(self, model: Any, kind: Kind, key: Any) -> contextlib.AbstractContextManager[Any]:
        """For what can be computed beside others nothing; all else waits for its turn."""
        beside = getattr(kind, "beside", None)
        if beside is not None and beside(key):
            return contextlib.nullcontext()
        return getattr(model, "turn", self._alone)

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


def explained(error: Exception) -> Exception:
    """Too little memory is a matter of how much is going on; all other errors stay as they are."""
    if isinstance(error, RegardError | Refused):
        return error
    if isinstance(error, MemoryError) or "OutOfMemory" in type(error).__name__ or "can't allocate" in str(error):
        what = "there is not enough memory for this request now"
        return Refused(503, what, "Send less at once, or try again later", kind="busy", retry_after=5)
    return error
