"""What a server can be asked: a table of operations, by which requests are routed and checked, and the OpenAPI document written."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Any, Literal

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from regard.core.errors import CheckpointError, RegardError
from regard.serving.authorising import Doorkeeper, header_key
from regard.serving.fields import Record
from regard.serving.parsing import (
    File,
    bad,
    media_type,
    merged,
    read_json,
    read_multipart,
    read_urlencoded,
    whole_body,
)
from regard.serving.rates import Rates
from regard.serving.refusals import Refused
from regard.serving.service import Service

Media = Literal["json", "form", "multipart", "query"]
TYPES: dict[Media, str] = {
    "json": "application/json",
    "form": "application/x-www-form-urlencoded",
    "multipart": "multipart/form-data",
}
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
API_POLICY = {"Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'"}
FORM_EXTRA = 1 << 14  # bytes of a form around a file
_log = logging.getLogger("regard.serving")


@dataclasses.dataclass(frozen=True)
class Facade:
    """One interface: how its errors look, and what it answers to those without a key."""

    name: str
    shape: Callable[[Refused], dict[str, Any]]
    schema: Mapping[str, Any]  # of its errors
    missing_key: int = 401
    wrong_key: int = 401
    key_field: str = ""  # the field that holds the key, where it is not in a header
    statuses: tuple[int, ...] = ()  # of its own, beside those of all

    def error(self, refused: Refused) -> Response:
        response = as_json(self.shape(refused), refused.status)
        response.headers.update(refused.headers)
        return response


@dataclasses.dataclass(frozen=True)
class Asked:
    """A request that was read and found in order."""

    request: Request
    values: Mapping[str, Any]
    files: Mapping[str, File]

    def __getitem__(self, name: str) -> Any:
        return self.values[name]


Answer = Callable[[Asked], Awaitable[Any]]
NO_FIELDS = Record()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Operation:
    """One thing that can be asked for. The answer is a value for JSON, or a response."""

    facade: Facade
    method: Literal["GET", "POST"]
    path: str
    about: str
    answer: Answer
    fields: Record = NO_FIELDS
    takes: tuple[Media, ...] = ()
    file: str = ""  # the field of a multipart form that is a file
    gives: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # schema of the answer
    gives_type: str = "application/json"
    gives_events: bool = False  # or server-sent events, where they are asked for
    statuses: tuple[int, ...] = ()  # of its own
    open: bool = False  # without a key

    @property
    def name(self) -> str:
        return (
            f"{self.facade.name}_{self.method.lower()}{self.path.replace('/', '_').replace('{', '').replace('}', '')}"
        )


def as_json(value: Any, status: int = 200) -> Response:
    content = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    return Response(content, status, headers={**HEADERS, **API_POLICY}, media_type="application/json")


def refusal_of(error: RegardError) -> Refused:
    """What a model cannot do with a text is the client's fault; that a model cannot be read is not."""
    if isinstance(error, CheckpointError):
        what = "the model cannot be loaded; the server's log says why"
        return Refused(503, what, "Ask whoever runs this server", kind="busy", retry_after=60)
    return Refused(400, f"{error.where}: {error.what}", error.todo)


@dataclasses.dataclass(frozen=True)
class Desk:
    """Takes requests in: who asks, what for, and the answer, whatever happens on the way."""

    service: Service
    door: Doorkeeper
    rates: Rates

    async def serve(self, operation: Operation, request: Request) -> Response:
        began = time.monotonic()
        facade = operation.facade
        try:
            response = await self._answer(operation, request)
        except Refused as refused:
            response = self._refused(facade, refused)
        except RegardError as error:
            if isinstance(error, CheckpointError):
                _log.error("%s", error)
            response = self._refused(facade, refusal_of(error))
        except ClientDisconnect:
            response = Response(status_code=499)  # nobody reads it
        except Exception:
            _log.exception("%s failed", operation.name)
            refused = Refused(500, "the server failed; its log says how", "Try again", kind="busy")
            response = self._refused(facade, refused)
        self.service.metrics.answered(facade.name, response.status_code, time.monotonic() - began)
        return response

    def _refused(self, facade: Facade, refused: Refused) -> Response:
        if refused.kind not in ("busy", "deadline"):  # which the service has counted
            self.service.metrics.refusals.add(refused.kind)
        return facade.error(refused)

    async def _answer(self, operation: Operation, request: Request) -> Response:
        facade = operation.facade
        _check_head(request)
        in_header = header_key(request)
        known_now = in_header is not None or not facade.key_field
        if known_now:
            self._let_in(operation, request, in_header)
        if operation.method == "POST":
            self.service.check_room()  # who is refused need not be read
        given, files = await self._given(operation, request)
        if not known_now:
            self._let_in(operation, request, _key_in(given, facade.key_field))
        if isinstance(given, Form):
            values = operation.fields.read_form(given.fields)
        else:
            values = operation.fields.read(given, "the request")
        with self.service.visit():
            result = await operation.answer(Asked(request, values, files))
        return result if isinstance(result, Response) else as_json(result)

    def _let_in(self, operation: Operation, request: Request, key: str | None) -> None:
        """Counts the request against its key, or against its address where no right key is shown; and refuses wrong keys."""
        if operation.open:
            return
        number = self.door.keys.number(key) if self.door.keys else None
        if self.rates.size:
            self.rates.check(self.door.client(request) if number is None else f"key {number}")
        self.door.check(key, operation.facade.missing_key, operation.facade.wrong_key)

    async def _given(self, operation: Operation, request: Request) -> tuple[Any, Mapping[str, File]]:
        """The fields of a request: those of its path, and of its JSON or of its form and query."""
        limits = self.service.limits
        most = limits.file_bytes + FORM_EXTRA if operation.file else limits.body_bytes
        body = await whole_body(request.stream(), request.headers.get("content-length"), most)
        path = {name: [str(value)] for name, value in request.path_params.items()}
        kind = media_type(request.headers.get("content-type")) if body else ""
        if kind == TYPES["json"] and "json" in operation.takes:
            return read_json(body), {}
        query = read_urlencoded(request.scope.get("query_string", b""), "the query") if operation.takes else {}
        if not body:
            if operation.method == "POST" and not query and "json" in operation.takes:
                self._check_type(operation, request)
            return Form(merged(path, query)), {}
        if kind == TYPES["form"] and "form" in operation.takes:
            return Form(merged(path, read_urlencoded(body), query)), {}
        if kind == TYPES["multipart"] and "multipart" in operation.takes:
            form = read_multipart(body, request.headers["content-type"])
            return Form(merged(path, form.fields, query)), form.files
        if not operation.takes:
            return Form(path), {}  # a body that nobody asked for
        raise self._unsupported(operation)

    def _check_type(self, operation: Operation, request: Request) -> None:
        kind = media_type(request.headers.get("content-type"))
        if kind and kind not in [TYPES[take] for take in operation.takes if take in TYPES]:
            raise self._unsupported(operation)

    @staticmethod
    def _unsupported(operation: Operation) -> Refused:
        taken = " or ".join(TYPES[take] for take in operation.takes if take in TYPES)
        return bad("the body's Content-Type is not one that is read here", f"Send {taken or 'no body'}", 415)


@dataclasses.dataclass(frozen=True)
class Form:
    """Fields that came as texts."""

    fields: dict[str, list[str]]


def _check_head(request: Request) -> None:
    """Refuses what servers in a row may read differently: two lengths of one body, or a version of HTTP that there is not."""
    if "transfer-encoding" in request.headers and "content-length" in request.headers:
        raise bad("the body has a Content-Length and a Transfer-Encoding", "Send one of them")
    if request.scope.get("http_version", "1.1").split(".")[0] not in ("1", "2", "3"):
        raise bad("there is no such version of HTTP", "Send HTTP/1.1")


def _key_in(given: Any, name: str) -> str | None:
    """The key among fields that nobody has checked yet."""
    value = given.fields.get(name, [None])[0] if isinstance(given, Form) else None
    if isinstance(given, dict):
        value = given.get(name)
    return value if isinstance(value, str) else None


class EventStream(Response):
    """Server-sent events."""

    def __init__(self, events: AsyncGenerator[bytes]):
        super().__init__(headers={**HEADERS, **API_POLICY, "X-Accel-Buffering": "no"}, media_type="text/event-stream")
        del self.headers["content-length"]
        self.events = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Where the client goes away, this is cancelled (attending.py), and the work behind the events is given up."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async with contextlib.aclosing(self.events):
            async for event in self.events:
                await send({"type": "http.response.body", "body": event, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def event(value: Any) -> bytes:
    return b"data: " + json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode() + b"\n\n"
