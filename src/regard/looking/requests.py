"""What the page sends, read within bounds: everything wrong is refused with a reason before anything is computed."""

from __future__ import annotations

import json
from typing import Any

from starlette.requests import Request

from regard.looking.frames import Kind

MOST_BODY = 1 << 20  # bytes
MOST_CHARACTERS = 20_000  # of a sentence
MOST_DIGITS = 6


class Refused(Exception):
    """A request that asks for something impossible: place, what is wrong, what to do."""

    def __init__(self, where: str, what: str, todo: str, status: int = 400):
        super().__init__(where, what, todo)
        self.plain, self.status = {"where": where, "what": what, "todo": todo}, status


async def body_of(request: Request) -> dict[str, Any]:
    """The JSON object of a request."""
    content = b""
    async for part in request.stream():
        content += part
        if len(content) > MOST_BODY:
            raise Refused("the request", f"it has more than {MOST_BODY:,} bytes", "Send less", 413)
    try:
        body = json.loads(content)
    except (ValueError, RecursionError):
        raise Refused("the request", "it is not JSON", "Send an object") from None
    if not isinstance(body, dict):
        raise Refused("the request", "it is not a JSON object", "Send an object")
    return body


def text_of(body: dict[str, Any], name: str) -> str:
    value = body.get(name)
    if not isinstance(value, str):
        raise Refused(name, "it is not a text", "Send a text")
    if len(value) > MOST_CHARACTERS:
        what = f"it has {len(value):,} characters, and at most {MOST_CHARACTERS:,} can be looked at"
        raise Refused(name, what, "Give a shorter one")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise Refused(name, "it has half a character", "Type it again") from None
    return value


def optional_text(body: dict[str, Any], name: str) -> str | None:
    return None if body.get(name) is None else text_of(body, name)


def count_of(body: dict[str, Any], name: str, default: int | None, most: int) -> int | None:
    value = body.get(name)
    value = default if value is None else value
    if value is not None and (type(value) is not int or not 1 <= value <= most):
        raise Refused(name, f"it is not a number from 1 to {most}", "Give such a number")
    return value


def number(request: Request, name: str, default: int = 0, most: int = 10**MOST_DIGITS) -> int:
    """A whole number of the query, from 0."""
    value = request.query_params.get(name, str(default))
    if not value.isascii() or not value.isdecimal() or len(value) > MOST_DIGITS:
        raise Refused(name, f"{value[:20]!r} is not a number", "Give one")
    if int(value) > most:
        raise Refused(name, f"{value} is more than {most}", "Give a smaller number")
    return int(value)


def choice(request: Request, name: str, choices: tuple[str, ...]) -> str:
    """One of some words; the first is the default."""
    value = request.query_params.get(name, choices[0])
    if value not in choices:
        raise Refused(name, f"{value[:20]!r} is not {' or '.join(choices)}", "Give one of them")
    return value


def kind_of(request: Request) -> Kind:
    return "u8" if choice(request, "type", ("f32", "u8")) == "u8" else "f32"
