"""How many requests a client may send: a bucket for each, which fills up as time passes."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable

from regard.serving.limits import Limits
from regard.serving.refusals import Refused


class Rates:
    """Buckets by client. Clients that were not heard for longest are forgotten first: their buckets are the fullest."""

    def __init__(self, limits: Limits, clock: Callable[[], float] = time.monotonic):
        self.size, self.most, self.clock = limits.requests_per_minute, limits.clients, clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()  # requests left, and when

    def check(self, client: str, requests: int = 1) -> None:
        """Counts requests of a client; raises (429) if they are too many."""
        if not self.size:
            return
        now, each = self.clock(), 60 / self.size
        left, then = self._buckets.pop(client, (float(self.size), now))
        left = min(float(self.size), left + (now - then) / each)
        enough = left >= min(requests, self.size)
        self._buckets[client] = (left - min(requests, self.size) if enough else left, now)
        while len(self._buckets) > self.most:
            self._buckets.popitem(last=False)
        if not enough:
            what = f"more than {self.size} requests in a minute"
            wait = (min(requests, self.size) - left) * each
            raise Refused(429, what, "Send fewer, or wait", kind="rate", retry_after=wait)
