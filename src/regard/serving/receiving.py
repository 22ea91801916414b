"""Connections that come too slowly are closed: a protocol of uvicorn's with deadlines, which uvicorn itself does not have.

From its first byte, a request has `receive_seconds` to arrive whole, head and body. A connection without a request has
`idle_seconds`, and a client that does not read its answer `receive_seconds` to take the next part of it. When there are more than
`connections`, the one that has waited longest without a whole request makes room: slow clients cannot keep others out.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any, ClassVar

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from regard.serving.limits import Limits
from regard.serving.metrics import Metrics

TOO_SLOW = (408, "Request Timeout", "The request did not arrive in time.")
TOO_MANY = (503, "Service Unavailable", "There are too many connections.")
NOT_HTTP = (400, "Bad Request", "This is not a valid HTTP request.")


class TimedProtocol(H11Protocol):
    """One connection. `protocol_with` makes the class for a server's limits."""

    limits: ClassVar[Limits]
    metrics: ClassVar[Metrics]

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.quiet_since = time.monotonic()  # no whole request since then
        self._deadline: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None
        self._receiving = False
        if len(self.connections) > self.limits.connections:
            self._make_room()
        if not transport.is_closing():
            self._wait(self.limits.idle_seconds)

    def _make_room(self) -> None:
        """Closes the connection that has been quiet for longest; if all others are being answered, this one."""
        others = [one for one in self.connections if isinstance(one, TimedProtocol) and one is not self]
        quiet = min((one for one in others if not one.answering), key=lambda one: one.quiet_since, default=None)
        self.metrics.slow.add()
        if quiet is None:
            self._say(*TOO_MANY, more="Retry-After: 1\r\n")
        else:
            quiet.transport.abort()
            self.connections.discard(quiet)

    @property
    def answering(self) -> bool:
        """Whether a whole request has arrived that is not answered yet."""
        cycle = self.cycle
        return cycle is not None and not cycle.response_complete and not self._receiving

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._look()

    def on_response_complete(self) -> None:
        self.quiet_since = time.monotonic()
        super().on_response_complete()
        self._look()

    def _look(self) -> None:
        """Starts the clock at the first byte of a request, and stops it when the request is whole."""
        if self.transport.is_closing():
            self._stop()
            return
        state = self.conn.their_state
        begun = state is h11.SEND_BODY or (state is h11.IDLE and bool(self.conn.trailing_data[0]))
        if begun and not self._receiving:
            self._receiving = True
            self._wait(self.limits.receive_seconds)
        elif not begun:
            self._receiving = False
            self._stop()

    def _wait(self, seconds: float) -> None:
        self._stop()
        self._deadline = self.loop.call_later(seconds, self._too_slow)

    def _stop(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_slow(self) -> None:
        self._deadline = None
        if self.transport.is_closing():
            return
        if self._receiving:
            self.metrics.slow.add()
        if self._receiving and not (self.cycle is not None and self.cycle.response_started):
            self._say(*TOO_SLOW)
        else:
            self.transport.close()

    def _say(self, status: int, phrase: str, message: str, more: str = "") -> None:
        """An answer outside of any facade, after which the connection is closed."""
        body = f'{{"error": "{message}"}}'
        head = f"HTTP/1.1 {status} {phrase}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        self.transport.write(f"{head}{more}Connection: close\r\n\r\n{body}".encode())
        self.transport.close()

    def send_400_response(self, msg: str) -> None:
        """What is not HTTP. Where an answer is under way, it is cut."""
        if self.cycle is not None and self.cycle.response_started and not self.cycle.response_complete:
            self.transport.close()
        else:
            self._say(*NOT_HTTP)

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._stalled is None:
            self._stalled = self.loop.call_later(self.limits.receive_seconds, self._not_read)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._read_on()

    def _read_on(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

    def _not_read(self) -> None:
        self._stalled = None
        self.metrics.slow.add()
        self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop()
        self._read_on()
        super().connection_lost(exc)
        self._unset_keepalive_if_required()


def protocol_with(limits: Limits, metrics: Metrics) -> type[Any]:
    """The protocol of a server with these limits, as `uvicorn.Config(http=...)` takes it."""
    return type("Protocol", (TimedProtocol,), {"limits": limits, "metrics": metrics})
