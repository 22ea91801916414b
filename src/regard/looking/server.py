"""The viewer's server: the page, and what it asks for. On loopback, for one person; nothing is asked of any other machine."""

from __future__ import annotations

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


def make_app(session: Session, hosts: frozenset[str] | None = None) -> Starlette:
    """The application. `hosts` are the names under which it may be asked; others (a page elsewhere that guesses) are refused."""

    def guarded(answer: Answer) -> Answer:
        async def safe(request: Request) -> Response:
            host, origin = request.headers.get("host", ""), request.headers.get("origin")
            try:
                if hosts is not None and host.rsplit(":", 1)[0] not in hosts:
                    raise Refused("the address", "it is not this viewer's", "Open the address that was printed", 403)
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
