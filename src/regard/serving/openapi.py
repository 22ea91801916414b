"""The OpenAPI document of a server, and a page to read it, both written from the table of operations that requests go through."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

from regard.serving.fields import FLAGS, Field, Record
from regard.serving.operations import TYPES, Operation

ALWAYS = (400, 413, 429, 503)
WORDS = {
    400: "The request is wrong; the message says what.",
    401: "The key is missing or wrong.",
    403: "The key is wrong, or this is not allowed.",
    404: "There is no such thing.",
    413: "Too much at once.",
    415: "The body's Content-Type is not read here.",
    429: "Too many requests; Retry-After says when to come back.",
    456: "The quota is used up.",
    503: "Too busy; Retry-After says when to come back.",
}


def document(operations: Sequence[Operation], *, version: str, keys: bool) -> dict[str, Any]:
    """The OpenAPI 3.1 document."""
    paths: dict[str, dict[str, Any]] = {}
    schemas: dict[str, Any] = {}
    for operation in operations:
        schemas[f"{operation.facade.name}Error"] = dict(operation.facade.schema)
        paths.setdefault(operation.path, {})[operation.method.lower()] = _described(operation, keys)
    schemes = {
        "key": {"type": "http", "scheme": "bearer", "description": "Authorization: Bearer KEY"},
        "deepl": {"type": "apiKey", "in": "header", "name": "Authorization", "description": "DeepL-Auth-Key KEY"},
    }
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "regard serve",
            "version": version,
            "description": "Trained models behind the interfaces of LibreTranslate, DeepL and OpenAI.",
            "license": {"name": "Apache-2.0"},
        },
        "paths": paths,
        "components": {"schemas": schemas, **({"securitySchemes": schemes} if keys else {})},
    }


def _described(operation: Operation, keys: bool) -> dict[str, Any]:
    in_path = [field for field in operation.fields.fields if f"{{{field.name}}}" in operation.path]
    others = tuple(field for field in operation.fields.fields if field not in in_path)
    has_body = operation.method == "POST"
    in_query = () if has_body else others
    parameters = [_parameter(field, "path") for field in in_path] + [_parameter(field, "query") for field in in_query]
    own = (*operation.facade.statuses, *operation.statuses, *((415,) if has_body else ()))
    shape = {"$ref": f"#/components/schemas/{operation.facade.name}Error"}
    failed = {
        str(status): {"description": WORDS[status], "content": {TYPES["json"]: {"schema": shape}}}
        for status in sorted({*ALWAYS, *own})
    }
    done: dict[str, Any] = {
        "description": "Done.",
        "content": {operation.gives_type: {"schema": dict(operation.gives)}},
    }
    if operation.gives_events:
        done["content"]["text/event-stream"] = {"schema": {"description": "data: and JSON, event by event"}}
    found: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.about,
        "tags": [operation.facade.name],
        "responses": {"200": done, **failed},
    }
    if parameters:
        found["parameters"] = parameters
    if has_body:
        found["requestBody"] = {
            "required": True,
            "content": _bodies(operation, Record(others, operation.fields.closed)),
        }
    if keys and not operation.open:
        found["security"] = [{"deepl" if operation.facade.name == "deepl" else "key": []}]
    return found


def _parameter(field: Field, place: str) -> dict[str, Any]:
    schema = dict(field.schema())
    about = schema.pop("description", None)
    required = place == "path" or field.required
    return {
        "name": field.name,
        "in": place,
        "required": required,
        "schema": schema,
        **({"description": about} if about else {}),
    }


def _bodies(operation: Operation, record: Record) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for take in operation.takes:
        if take == "json":
            found[TYPES[take]] = {"schema": record.schema()}
        elif take in TYPES:
            found[TYPES[take]] = {"schema": _form_schema(record, operation.file)}
    return found


def _form_schema(record: Record, file: str) -> dict[str, Any]:
    """The same as a form has it: it cannot say null, and it can hold a file."""
    fields = tuple(field for field in record.fields if field.kind.schema().get("type") != "null")
    schema = Record(fields, record.closed).schema()
    for name, own in schema["properties"].items():
        if own.get("type") == "boolean":
            about = {key: own[key] for key in ("description", "default") if key in own}
            schema["properties"][name] = {"enum": [True, False, *FLAGS, 0, 1], **about}
    if file:
        schema["properties"][file] = {"type": "string", "contentMediaType": "application/octet-stream"}
        schema["required"] = [*schema.get("required", []), file]
    return schema


def page(operations: Sequence[Operation], head: str) -> str:
    """A page that says what can be asked; `head` links its style."""
    parts = [
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>regard serve: interface</title>{head}</head>',
        "<body><main><h1>What can be asked</h1><p>The same for programs: <a href='spec'>the OpenAPI document</a>.</p>",
    ]
    for name in dict.fromkeys(operation.facade.name for operation in operations):
        parts.append(f"<h2>{html.escape(name)}</h2>")
        for operation in operations:
            if operation.facade.name == name:
                parts.append(_section(operation))
    return "".join([*parts, "</main></body></html>"])


def _section(operation: Operation) -> str:
    title = html.escape(f"{operation.method} {operation.path}")
    rows = "".join(
        f"<tr><td><code>{html.escape(field.name)}</code></td><td>{html.escape(field.kind.words)}</td>"
        f"<td>{'yes' if field.required else 'no'}</td><td>{html.escape(field.about)}</td></tr>"
        for field in operation.fields.fields
    )
    table = (
        f"<table><thead><tr><th>field</th><th>type</th><th>needed</th><th>about</th></tr></thead><tbody>{rows}</tbody></table>"
        if rows
        else ""
    )
    takes = ", ".join(TYPES.get(take, take) for take in operation.takes)
    takes = f"<p>Takes {html.escape(takes)}.</p>" if takes else ""
    return f"<section><h3><code>{title}</code></h3><p>{html.escape(operation.about)}</p>{takes}{table}</section>"
