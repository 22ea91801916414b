"""Which web pages may ask: the server's own, and those whose origin was named. Programs, which say no origin, always may."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from regard.serving.refusals import Refused

MOST_AGE = "600"  # seconds for which a browser remembers what it may


class Origins:
    """Refuses requests that a foreign page makes in somebody's browser, and lets named ones read the answers."""

    def __init__(
        self, app: ASGIApp, allowed: Sequence[str], proxies: frozenset[str], refuse: Callable[[str, Refused], Response]
    ):
        """`refuse` writes a refusal in the shape of a path's facade."""
        self.app, self.proxies, self.refuse = app, proxies, refuse
        self.allowed = frozenset(origin.rstrip("/") for origin in allowed)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope) if scope["type"] == "http" else None
        origin = headers.get("origin") if headers is not None else None
        if headers is None or origin is None or self._is_own(origin, headers, scope):
            await self.app(scope, receive, send)
            return
        if origin not in self.allowed and "*" not in self.allowed:
            what = "the request comes from another page"
            refused = Refused(403, what, "Start the server with --origin to let that page ask", kind="forbidden")
            await self.refuse(scope["path"], refused)(scope, receive, send)
            return
        if scope["method"] == "OPTIONS" and "access-control-request-method" in headers:
            asked = {
                "Access-Control-Allow-Methods": "GET, POST",
                "Access-Control-Allow-Headers": "Authorization, Content-Type",
                "Access-Control-Max-Age": MOST_AGE,
            }
            response = Response(status_code=204, headers=asked)
            await response(scope, receive, self._named(origin, send))
            return
        await self.app(scope, receive, self._named(origin, send))

    def _is_own(self, origin: str, headers: Headers, scope: Scope) -> bool:
        hosts = [headers.get("host", "")]
        if scope.get("client") and scope["client"][0] in self.proxies:
            hosts.append(headers.get("x-forwarded-host", ""))
        return any(host and origin in (f"http://{host}", f"https://{host}") for host in hosts)

    @staticmethod
    def _named(origin: str, send: Send) -> Send:
        async def named(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers["Access-Control-Allow-Origin"] = origin
                headers.add_vary_header("Origin")
            await send(message)

        return named
