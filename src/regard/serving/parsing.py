"""The bytes of a request as plain values: JSON, forms and queries, read strictly and within bounds before anything is kept."""

from __future__ import annotations

import json
import logging
import math
import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote_to_bytes

from regard.serving.fields import has_halves
from regard.serving.refusals import Refused

MOST_DEPTH = 16  # of JSON: no request here needs more than 3
MOST_DIGITS = 20  # of a whole number, its sign counted
MOST_FIELDS = 1000  # of a form
MOST_NAME = 200  # characters of a form's name, bytes of a part's headers times 10
# A text. One without an end runs to the end of the body, so that reading never starts over.
_TEXT = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_ESCAPE = re.compile(rb"%(?![0-9A-Fa-f]{2})")


def bad(what: str, todo: str, status: int = 400) -> Refused:
    return Refused(status, what, todo, kind="too_long" if status == 413 else "invalid")


async def whole_body(stream: AsyncIterator[bytes], said: str | None, most: int) -> bytes:
    """The body of a request of at most so many bytes, whatever its Content-Length said."""
    too_long = bad(f"the body has more than {most:,} bytes", "Send less at once", 413)
    if said is not None:
        if not (said.isascii() and said.isdecimal() and len(said) < 20):
            raise bad("Content-Length is not a number", "Send the number of bytes of the body")
        if int(said) > most:
            raise too_long
    parts, size = [], 0
    async for part in stream:
        size += len(part)
        if size > most:
            raise too_long
        parts.append(part)
    return b"".join(parts)


def read_json(body: bytes) -> Any:
    """A JSON value in UTF-8: nothing too deep, no key twice, no NaN. Numbers beyond all bounds are infinite."""
    _check_depth(body)
    try:
        text = body.decode()
    except UnicodeDecodeError:
        raise bad("the body is not UTF-8", "Send JSON in UTF-8") from None
    try:
        return json.loads(text, parse_constant=_no_number, parse_int=_whole, object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        what = f"the body is not JSON ({error})" if isinstance(error, json.JSONDecodeError) else "the body is not JSON"
        raise bad(what, "Send a JSON object") from None


def _check_depth(body: bytes) -> None:
    """Refuses what is nested too deeply before it is parsed. Each round takes away the innermost brackets."""
    if body.count(b"[") + body.count(b"{") <= MOST_DEPTH:
        return
    brackets = _TEXT.sub(b"", body).translate(None, _NO_BRACKETS)
    for _ in range(MOST_DEPTH):
        brackets = brackets.replace(b"[]", b"").replace(b"{}", b"")
    if brackets:
        raise bad(
            f"the JSON is nested more than {MOST_DEPTH} deep, or its brackets do not match", "Send a plain object"
        )


def _no_number(name: str) -> Any:
    raise bad(f"the JSON has {name}, which is no number", "Send finite numbers")


def _whole(text: str) -> int | float:
    """A whole number; one that is too long to be right anywhere is infinite, which no field takes."""
    return int(text) if len(text) <= MOST_DIGITS else math.copysign(math.inf, -1 if text[0] == "-" else 1)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise bad("the JSON has a key twice in an object", "Send each key once")
    if any(has_halves(key) for key in found):
        raise bad("the JSON has a key with half a character", "Send whole characters")
    return found


def read_urlencoded(body: bytes, what: str = "the form") -> dict[str, list[str]]:
    """The fields of application/x-www-form-urlencoded, or of a query."""
    found: dict[str, list[str]] = {}
    if not body:
        return found
    pairs = body.split(b"&", MOST_FIELDS + 1)
    if len(pairs) > MOST_FIELDS:
        raise bad(f"{what} has more than {MOST_FIELDS} fields", "Send fewer")
    for pair in pairs:
        if not pair:
            continue
        name, _, value = pair.partition(b"=")
        _put(found, _unquoted(name, what), _unquoted(value, what))
    return found


def _unquoted(part: bytes, what: str) -> str:
    if _ESCAPE.search(part):
        raise bad(f"{what} has a % without two hexadecimal digits", "Write % as %25")
    return _decoded(unquote_to_bytes(part.replace(b"+", b" ")), what)


def _decoded(content: bytes, what: str) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise bad(f"{what} is not UTF-8", "Send UTF-8") from None


def _put(found: dict[str, list[str]], name: str, value: str) -> None:
    if len(name) > MOST_NAME:
        raise bad("a field's name is too long", "Use the names that are documented")
    found.setdefault(name, []).append(value)


@dataclass
class File:
    """A file of a form."""

    name: str
    content: bytes


@dataclass
class Form:
    """What a multipart form holds."""

    fields: dict[str, list[str]] = field(default_factory=dict)
    files: dict[str, File] = field(default_factory=dict)


@dataclass
class _Part:
    headers: dict[bytes, bytes] = field(default_factory=dict)
    content: bytearray = field(default_factory=bytearray)


def read_multipart(body: bytes, content_type: str) -> Form:
    """The fields and files of multipart/form-data. The body is in memory, within bounds, so parts need none of their own."""
    from python_multipart.exceptions import FormParserError
    from python_multipart.multipart import MultipartParser, parse_options_header

    logging.getLogger("python_multipart").setLevel(logging.ERROR)  # what clients do wrong is theirs to read
    boundary = parse_options_header(content_type.encode("latin-1"))[1].get(b"boundary", b"")
    if not 1 <= len(boundary) <= 70:
        raise bad("the form has no boundary", "Name it in Content-Type")
    if body.count(b"--" + boundary) > MOST_FIELDS + 2:
        raise bad(f"the form has more than {MOST_FIELDS} fields", "Send fewer")
    parts: list[_Part] = []
    name, value = bytearray(), bytearray()
    ended: list[bool] = []

    def header_end() -> None:
        if len(parts[-1].headers) > 20 or len(name) + len(value) > 10 * MOST_NAME:
            raise bad("a part of the form has too long a head", "Send plain fields")
        parts[-1].headers[bytes(name).lower()] = bytes(value)
        name.clear()
        value.clear()

    callbacks: Any = {
        "on_part_begin": lambda: parts.append(_Part()),
        "on_part_data": lambda data, start, end: parts[-1].content.extend(data[start:end]),
        "on_header_field": lambda data, start, end: name.extend(data[start:end]),
        "on_header_value": lambda data, start, end: value.extend(data[start:end]),
        "on_header_end": header_end,
        "on_end": lambda: ended.append(True),
    }
    try:
        parser = MultipartParser(boundary, callbacks)
        parser.write(body)
        parser.finalize()
    except FormParserError:
        raise bad("the form is not multipart/form-data", "Send parts between boundaries") from None
    if not ended:
        raise bad("the form has no end", "Send all of it")
    return _form_of(parts)


def _form_of(parts: list[_Part]) -> Form:
    from python_multipart.multipart import parse_options_header

    form = Form()
    for part in parts:
        kind, options = parse_options_header(part.headers.get(b"content-disposition", b""))
        if kind != b"form-data" or b"name" not in options:
            raise bad("a part of the form has no name", "Give it one")
        name = _decoded(options[b"name"], "the form")
        if b"filename" not in options:
            _put(form.fields, name, _decoded(bytes(part.content), "the form"))
        elif name in form.files:
            raise bad("the form has two files of one name", "Send one")
        else:
            form.files[name] = File(_decoded(options[b"filename"], "the form"), bytes(part.content))
    return form


def media_type(header: str | None) -> str:
    """The type of a Content-Type without its parameters, in small letters. UTF-8 is the only charset."""
    if header is None:
        return ""
    kind, _, rest = header.partition(";")
    charset = re.search(r"charset\s*=\s*\"?([^\s\";]+)", rest, re.IGNORECASE)
    if charset and charset[1].lower() not in ("utf-8", "utf8", "us-ascii"):
        raise bad("the body's charset is not UTF-8", "Send UTF-8", 415)
    return kind.strip().lower()


def merged(*many: Mapping[str, list[str]]) -> dict[str, list[str]]:
    """The fields of a form and of a query; those of the first win."""
    found: dict[str, list[str]] = {}
    for fields in many:
        for name, values in fields.items():
            found.setdefault(name, values)
    return found
