"""Who is let in: a bounded number of requests and of tokens at a time, and for others a guess of when there will be room."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import dataclasses
import math
import time
from collections.abc import Callable, Iterator, Sequence

from regard.serving.limits import Limits
from regard.serving.refusals import Refused

TOKEN_CHARACTERS = 4  # a token is taken for so many characters before a text is read
LONGEST_WAIT = 60.0  # that is ever advised
FEW = 16  # requests; how fast so few are worked off says little about how fast many are, in larger batches
MEMORY = 10.0  # seconds over which the rate of work is looked at


def guess_tokens(texts: Sequence[str]) -> int:
    return sum(1 + len(text) // TOKEN_CHARACTERS for text in texts)


@dataclasses.dataclass(eq=False)
class Visit:
    """One request of a client. It may ask the engine several times, and keeps its places until it ends."""

    deadline: float  # of the event loop's clock
    places: int = 0
    used: int = 0  # of its places, at the moment
    ended: bool = False


_VISIT: contextvars.ContextVar[Visit | None] = contextvars.ContextVar("visit", default=None)


def deadline_of_visit() -> float | None:
    """When the request that is being answered must be; None outside of one."""
    visit = _VISIT.get()
    return None if visit is None else visit.deadline


class Admission:
    """Counts what was accepted and is not answered yet. For one event loop."""

    def __init__(self, limits: Limits, clock: Callable[[], float] = time.monotonic):
        self.limits, self.clock = limits, clock
        self.requests = self.tokens = 0
        self.closed = False
        self._idle = asyncio.Event()
        self._idle.set()
        self._done, self._busy, self._seen = 0.0, 0.0, clock()  # tokens worked off and seconds at work, both fading

    @contextlib.contextmanager
    def visit(self, seconds: float) -> Iterator[None]:
        """One request of a client, to be answered within so many seconds. What it asks after it was admitted once is not
        refused in the middle, also while the server is being stopped, unless it asks for more at the same time.
        """
        one = Visit(asyncio.get_running_loop().time() + seconds)
        before = _VISIT.set(one)
        try:
            yield
        finally:
            _VISIT.reset(before)
            one.ended = True
            self._free(one.places - one.used)

    @contextlib.contextmanager
    def admitted(self, tokens: int, seconds: float | None = None) -> Iterator[None]:
        """Holds a place for a request of about so many tokens. Refuses (503) where there is none, or where those before
        it are likely to take longer than so many seconds.
        """
        visit = _VISIT.get()
        visit = None if visit is None or visit.ended else visit
        has_place = visit is not None and visit.used < visit.places
        if not has_place:
            self.check(tokens, seconds)
        self._pass_time()
        self.requests, self.tokens = self.requests + (not has_place), self.tokens + tokens
        self._idle.clear()
        if visit is not None:
            visit.places, visit.used = visit.places + (not has_place), visit.used + 1
        worked_off = False
        try:
            yield
            worked_off = True
        except (asyncio.CancelledError, GeneratorExit):  # its client went: it keeps nobody waiting any more
            worked_off = True
            raise
        finally:
            self._pass_time()
            self.tokens -= tokens
            if worked_off:
                self._done += tokens
            if visit is not None:
                visit.used -= 1
            if visit is None or visit.ended:
                self._free(1)

    def _free(self, places: int) -> None:
        self._pass_time()
        self.requests -= places
        if not self.requests:
            self._idle.set()

    def check(self, tokens: int, seconds: float | None) -> None:
        """Refuses a request of so many tokens where there is no place for it now."""
        limits = self.limits
        if self.closed:
            raise Refused(503, "the server is being stopped", "Try again later", kind="busy", retry_after=5)
        full = self.requests >= limits.queue or (self.requests and self.tokens + tokens > limits.queue_tokens)
        if full:
            what = f"{self.requests} requests are being worked on already"
            raise Refused(503, what, "Try again later", kind="busy", retry_after=self.wait(self.tokens / 2))
        if seconds is not None and self.requests >= FEW and (wait := self.wait(self.tokens)) > seconds:
            what = f"the requests before this one will take about {wait:.0f} seconds"
            raise Refused(503, what, "Try again later", kind="busy", retry_after=wait)

    def forget(self) -> None:
        """What was seen until now says nothing: a model was being loaded."""
        self._done, self._busy, self._seen = 0.0, 0.0, self.clock()

    def _pass_time(self) -> None:
        now = self.clock()
        passed, self._seen = now - self._seen, now
        faded = math.exp(-passed / MEMORY)
        self._done, self._busy = self._done * faded, self._busy * faded + (passed if self.requests else 0.0)

    @property
    def rate(self) -> float:
        """Tokens per second of work lately; 0 where nothing is known."""
        return self._done / self._busy if self._busy > 0.2 and self._done else 0.0

    def wait(self, tokens: float) -> float:
        """In how many seconds so many tokens are likely to be worked off; 0 where nothing is known."""
        return min(LONGEST_WAIT, tokens / self.rate) if self.rate else 0.0

    async def idle(self) -> None:
        """Waits until everything accepted is answered."""
        await self._idle.wait()
