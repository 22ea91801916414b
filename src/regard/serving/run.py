"""A server that runs: its socket, its signals, and how it ends."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Generator

import uvicorn

from regard.core.errors import ConfigError
from regard.serving.attending import Application, Attending
from regard.serving.receiving import protocol_with
from regard.serving.service import Service

BACKLOG = 1024
LAST_SECONDS = 2  # for what is still being sent when all work is done
LOG = logging.getLogger("regard.serving")


class Server(uvicorn.Server):
    """Serves until a signal comes; then it takes nothing new, finishes what was accepted, and ends.

    A second signal ends it at once. `failed` says whether accepted requests were cut at the end.
    """

    def __init__(self, app: Application, service: Service, *, log: bool = False):
        limits = service.limits
        config = uvicorn.Config(
            Attending(app, log=log),
            http=protocol_with(limits, service.metrics),
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,  # forwarded headers are the application's business, which knows the proxies
            timeout_keep_alive=max(1, round(limits.idle_seconds)),
            timeout_graceful_shutdown=LAST_SECONDS,
            backlog=BACKLOG,
        )
        super().__init__(config)
        self.service = service
        self.failed = False

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """Unlike uvicorn's: a signal that was obeyed is not raised again, so that the process ends with 0."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        names = (signal.SIGINT, signal.SIGTERM)
        before = {name: signal.signal(name, self._signalled) for name in names}
        try:
            yield
        finally:
            for name, handler in before.items():
                signal.signal(name, handler)

    def _signalled(self, number: int, frame: object) -> None:
        if self.should_exit:
            _end_now(128 + number)
        self.service.admission.closed = True  # from this moment on: the loop looks at should_exit a little later
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await self.service.start()
        await super().startup(sockets)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Connections that are kept alive stay until all that was accepted is answered: what they ask meanwhile is refused."""
        for server in self.servers:
            server.close()
        if not await self.service.drain():
            LOG.warning("%s requests were not answered in time", self.service.admission.requests)
            self.failed = True
        await super().shutdown(sockets)
        ended = await asyncio.to_thread(self.service.close, LAST_SECONDS)
        self.failed = self.failed or not ended


def _end_now(code: int) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens; a port of 0 is any free one."""
    if not 0 <= port < 1 << 16:
        raise ConfigError("--port", f"{port} is not a port", "Give 1 to 65535, or 0 for any that is free")
    try:
        family, _, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError) as error:
        what = f"{host!r} is no address of this machine ({getattr(error, 'strerror', None) or error})"
        raise ConfigError("--host", what, "Give for example 127.0.0.1") from None
    found = socket.socket(family, socket.SOCK_STREAM, protocol)  # named, or asyncio does not switch Nagle's delay off
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(address)
        found.listen(BACKLOG)
    except OSError as error:
        found.close()
        reason = error.strerror or str(error)
        if error.errno == 98 or "in use" in reason.lower():
            what = f"port {port} of {host} is in use"
            raise ConfigError("--port", what, "Give another one, or 0 for any that is free") from None
        raise ConfigError(
            "--host", f"{host} port {port} cannot be listened on ({reason})", "Give another one"
        ) from None
    return found


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def address_of(listening: socket.socket) -> str:
    """The address at which it can be asked from this machine."""
    host, port = listening.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, str(host))
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"
