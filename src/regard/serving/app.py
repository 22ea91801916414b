"""The application of `regard serve`: all facades, the OpenAPI document, the metrics and the page, over one service."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from importlib import resources
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from regard import __version__
from regard.core.errors import ConfigError
from regard.serving import openapi
from regard.serving.authorising import Doorkeeper
from regard.serving.facades import deepl, libretranslate, openai, plain
from regard.serving.fields import Record
from regard.serving.keys import Keys
from regard.serving.metrics import CONTENT_TYPE
from regard.serving.operations import HEADERS, Asked, Desk, Facade, Operation, as_json
from regard.serving.origins import Origins
from regard.serving.rates import Rates
from regard.serving.refusals import Refused
from regard.serving.service import Service
from regard.serving.shelf import Served
from regard.serving.translating import Translating

PAGE_POLICY = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
}
ASSETS = {
    "/": ("index.html", "text/html"),
    "/page.js": ("page.js", "text/javascript"),
    "/page.css": ("page.css", "text/css"),
}
STYLE = '<link rel="stylesheet" href="page.css"><link rel="icon" href="data:,">'


def make_app(
    service: Service,
    *,
    keys: Keys | None = None,
    page: bool = True,
    proxies: Sequence[str] = (),
    detector: Served | None = None,
    quota: int = 0,
    origins: Sequence[str] = (),
    glossaries: Sequence[str] = (),
) -> Starlette:
    """The application.

    `proxies` are the addresses whose forwarded headers are believed; `detector` is a classifier of languages; `quota` is the
    most characters that DeepL's facade translates until the server ends (0: any number); `origins` are the web pages that
    may ask beside the server's own; `glossaries` are `NAME=FILE` texts.
    """
    if detector is not None and detector.task != "classification":
        what = f"{detector.name} is a model for {detector.task}"
        raise ConfigError("--detector", what, "Give a text classifier whose labels are language codes")
    keys = keys or Keys()
    door = Doorkeeper.with_proxies(keys, proxies)
    desk = Desk(service, door, Rates(service.limits))
    table = all_operations(service, keys=keys, page=page, detector=detector, quota=quota, glossaries=glossaries)

    def route(operation: Operation) -> Route:
        async def endpoint(request: Request) -> Response:
            return await desk.serve(operation, request)

        return Route(operation.path, endpoint, methods=[operation.method], name=operation.name)

    async def missing(request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 500
        refused = Refused(status, *_WORDS.get(status, _FAILED), kind="not_found" if status == 404 else "invalid")
        facade = facade_of(request.url.path)
        service.metrics.answered(facade.name, status, 0.0)
        response = facade.error(refused)
        if isinstance(error, HTTPException) and error.headers:
            response.headers.update(error.headers)
        return response

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        if not service.ready:
            await service.start()
        yield

    routes = [route(operation) for operation in table]
    if page:
        routes += [Route(path, _asset) for path in ASSETS]
    app = Starlette(
        routes=routes,
        exception_handlers={404: missing, 405: missing, 500: missing},
        middleware=[
            Middleware(
                Origins,
                allowed=origins,
                proxies=door.proxies,
                refuse=lambda path, refused: facade_of(path).error(refused),
            )
        ],
        lifespan=lifespan,
    )
    app.router.redirect_slashes = False
    app.state.keys_needed = bool(keys)
    app.state.door = door
    return app


_WORDS = {
    404: ("there is nothing at this address", "See /docs for what can be asked"),
    405: ("the method is not allowed here", "See /docs for what can be asked"),
}
_FAILED = ("the server failed; its log says how", "Try again")


def facade_of(path: str) -> Facade:
    """The interface in whose shape an error at a path is written."""
    if path.startswith("/v1/"):
        return openai.FACADE
    return deepl.FACADE if path.startswith("/v2/") else libretranslate.FACADE


def all_operations(
    service: Service,
    *,
    keys: Keys | None = None,
    page: bool = True,
    detector: Served | None = None,
    quota: int = 0,
    glossaries: Sequence[str] = (),
) -> list[Operation]:
    """Everything that can be asked, in one table."""
    translating = Translating(service, detector, glossaries)
    table = [
        *libretranslate.operations(translating),
        *deepl.operations(translating, quota),
        *openai.operations(service),
        *plain.operations(service),
    ]
    own: list[tuple[str, str, str, Callable[[Asked], Awaitable[Any]]]] = []

    async def spec(asked: Asked) -> Response:
        return as_json(openapi.document(table, version=__version__, keys=bool(keys)))

    async def metrics(asked: Asked) -> Response:
        return Response(service.metrics.text(), headers=HEADERS, media_type=CONTENT_TYPE)

    async def docs(asked: Asked) -> Response:
        text = openapi.page(table, STYLE if page else "")
        return Response(text, headers={**HEADERS, **PAGE_POLICY}, media_type="text/html")

    own.append(("/spec", "This document.", "application/json", spec))
    own.append(("/metrics", "Counts for Prometheus.", "text/plain", metrics))
    own.append(("/docs", "A page that says what can be asked.", "text/html", docs))
    for path, about, kind, answer in own:
        table.append(
            Operation(
                facade=libretranslate.FACADE,
                method="GET",
                path=path,
                about=about,
                answer=answer,
                takes=("query",),
                fields=Record((libretranslate.KEY,)),
                gives={"type": "object" if kind.endswith("json") else "string"},
                gives_type=kind,
            )
        )
    return table


async def _asset(request: Request) -> Response:
    name, kind = ASSETS[request.url.path]
    content = resources.files("regard.serving") / "assets" / name
    return Response(content.read_bytes(), headers={**HEADERS, **PAGE_POLICY}, media_type=kind)
