"""The viewer's server: the page, and what it asks for. On loopback, for one person; nothing is asked of any other machine."""

from __future__ import annotations

import dataclasses
import ipaddress
from collections.abc import Awaitable, Callable
from importlib import resources

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from regard.core.errors import RegardError
from regard.looking.model_routes import model_routes
from regard.looking.requests import Refused
from regard.looking.session import Session
from regard.looking.trace_routes import trace_routes

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
ASSETS = {
    "/": ("index.html", "text/html"),
    "/app.js": ("app.js", "text/javascript"),
    "/app.css": ("app.css", "text/css"),
}
Answer = Callable[[Request], Awaitable[Response]]


@dataclasses.dataclass(frozen=True)
class Hosts:
    """The names under which a viewer may be asked; `addresses`: under any IP address, too.

    A page elsewhere can let its own name point to this machine, and would then be the viewer's own page to a browser. It cannot do
    so with a bare address.
    """

    names: frozenset[str]
    addresses: bool = False

    def allow(self, header: str) -> bool:
        """Whether a Host header names this viewer."""
        name = host_name(header)
        return name in self.names or (self.addresses and is_address(name))


def host_name(header: str) -> str:
    """A Host header without its port, as names are compared: "[::1]:80" is "[::1]", "Box.LAN.:80" is "box.lan"."""
    name = header[: header.find("]") + 1] if header.startswith("[") else header.split(":")[0]
    return name.lower().removesuffix(".")


def is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
        return True
    except ValueError:
        return False


def make_app(session: Session, hosts: Hosts | None = None) -> Starlette:
    """The application. `hosts`: under which names it may be asked; None: any (where nobody else can ask)."""

    def guarded(answer: Answer) -> Answer:
        async def safe(request: Request) -> Response:
            host, origin = request.headers.get("host", ""), request.headers.get("origin")
            try:
                if hosts is not None and not hosts.allow(host):
                    todo = "Open the address that was printed, or start it with --allow-host NAME"
                    raise Refused("the address", "it is not this viewer's", todo, 403)
                if origin not in (None, f"http://{host}", f"https://{host}"):
                    raise Refused("the request", "it comes from another page", "Use the viewer's own page", 403)
                response = await answer(request)
            except Refused as error:
                response = JSONResponse({"error": error.plain}, error.status)
            except RegardError as error:
                plain = {"where": error.where, "what": error.what, "todo": error.todo}
                response = JSONResponse({"error": plain}, 422)
            response.headers.update(HEADERS)
            return response

        return safe

    async def missing(request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 500
        what = "there is no such thing" if status < 500 else "the viewer failed; its terminal says how"
        plain = {"where": request.url.path, "what": what, "todo": "Go back to the start"}
        return JSONResponse({"error": plain}, status, headers=HEADERS)

    async def asset(request: Request) -> Response:
        name, kind = ASSETS[request.url.path]
        content = resources.files("regard.looking") / "assets" / name
        return Response(content.read_bytes(), media_type=kind)

    routes = [
        *(Route(path, asset) for path in ASSETS),
        *trace_routes(session),
        *model_routes(session),
    ]
    safe = [Route(route.path, guarded(route.endpoint), methods=list(route.methods or ())) for route in routes]
    return Starlette(routes=safe, exception_handlers={404: missing, 405: missing, 500: missing})
