"""Whether the client is still there: when it goes away, the work on its request is given up. And the access log."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from regard.core.visible_text import visible

LOG = logging.getLogger("regard.access")
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Any, Receive, Send], Awaitable[None]]
HIDDEN = "/download_file/"  # who knows the rest of such a path may have the file


class Attending:
    """An ASGI application around another, whose task is cancelled when the client goes before the answer is complete.

    With `log`, each request is logged by method, path (without query, in which keys may stand) and status.
    """

    def __init__(self, app: Application, *, log: bool = False):
        self.app, self.log = app, log

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        begin = time.monotonic()
        one = _Request(receive, send)
        try:
            await one.run(self.app, scope)
        finally:
            if self.log:
                status = one.status or ("gone" if one.gone.is_set() else 500)
                passed = (time.monotonic() - begin) * 1000
                LOG.info("%s %s %s %.0f ms", visible(scope["method"], 20), _path(scope["path"]), status, passed)


class _Request:
    def __init__(self, receive: Receive, send: Send):
        self._receive, self._send = receive, send
        self.gone, self.status, self._complete = asyncio.Event(), 0, False
        self._watching: asyncio.Task[None] | None = None
        self._task = asyncio.current_task()

    async def run(self, app: Application, scope: Any) -> None:
        try:
            await app(scope, self.receive, self.send)
        except asyncio.CancelledError:
            if not self.gone.is_set() or self._task is None or self._task.uncancel():
                raise  # somebody else's wish
        finally:
            if self._watching is not None:
                self._watching.cancel()

    async def receive(self) -> Message:
        if self._watching is not None:  # the body was read: nothing can come any more but the end
            await self.gone.wait()
            return {"type": "http.disconnect"}
        message = await self._receive()
        if message["type"] == "http.disconnect":
            self.gone.set()
        elif not message.get("more_body", False):
            self._watching = asyncio.create_task(self._watch())
        return message

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        if not self._complete:
            self.gone.set()
            if self._task is not None:
                self._task.cancel()

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        elif message["type"] == "http.response.body" and not message.get("more_body", False):
            self._complete = True
        await self._send(message)


def _path(path: str) -> str:
    shown = f"{HIDDEN}..." if path.startswith(HIDDEN) else path
    return visible(shown, 100)
