"""One HTML file that opens offline: the page with a trace inside, for notebooks, lectures and mail.

The file holds the answers that the server would give, by their addresses (viewer/src/data/embedded.ts reads them). It runs only
its own script, which its policy names by checksum, and asks nobody for anything.
"""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import hashlib
import itertools
import json
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from importlib import resources
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from regard.core.errors import ModelError
from regard.core.files import write_bytes
from regard.looking.frames import MEDIA_TYPE
from regard.looking.server import make_app
from regard.looking.session import Session

MOST_BYTES = 64 << 20  # of a file; a page of 512 tokens, 6 layers and 8 heads has 50 MB of weights
MOST_STEPS = 24  # tokens whose steps are kept where no row is chosen
UNESCAPED = "!~*'()"  # what the page's encodeURIComponent leaves as it is, besides letters, digits and -_.


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepsKept:
    """Whose steps a page keeps, counted from 0: by default those of the last layer's first head, of the first tokens.

    A part that has fewer layers, heads or rows keeps its last one. `everything`: those of all layers, heads and rows, if there
    is room for them.
    """

    layer: int | None = None
    head: int | None = None
    row: int | None = None
    everything: bool = False

    @property
    def chosen(self) -> dict[str, int]:
        found = {"layer": self.layer, "head": self.head, "row": self.row}
        return {name: value for name, value in found.items() if value is not None}

    def check(self, parts: list[dict[str, Any]]) -> None:
        """Refuses what no part has."""
        most = {
            "layer": max((part["layers"] for part in parts), default=0),
            "head": max((part["heads"] for part in parts), default=0),
            "row": max((part["shape"][0] for part in parts), default=0),
        }
        for name, value in self.chosen.items():
            if not 0 <= value < most[name]:
                todo = f"Give 1 to {most[name]}" if most[name] else "Leave it out"
                raise ModelError(f"the {name}", f"there is no {name} {value + 1} in this sentence", todo)

    def places(self, part: dict[str, Any]) -> Iterable[tuple[int, int, int]]:
        """Layer, head and row, of a part, that are kept."""
        layers, heads, rows = part["layers"], part["heads"], part["shape"][0]
        if self.everything:
            return itertools.product(range(layers), range(heads), range(rows))
        layer = layers - 1 if self.layer is None else min(self.layer, layers - 1)
        head = min(self.head or 0, heads - 1)
        chosen = range(min(rows, MOST_STEPS)) if self.row is None else [min(self.row, rows - 1)]
        return ((layer, head, row) for row in chosen)


def save_page(
    session: Session,
    path: Path,
    text: str,
    target: str | None = None,
    beam: int | None = None,
    steps: StepsKept | None = None,
) -> None:
    """Writes the page of one sentence under the session's first model."""
    write_bytes(path, page_of(session, text, target, beam, steps).encode())


def page_of(
    session: Session, text: str, target: str | None = None, beam: int | None = None, steps: StepsKept | None = None
) -> str:
    """The page of one sentence. Made in a thread of its own: in a notebook's an event loop is running already."""
    with ThreadPoolExecutor(1) as beside:
        return beside.submit(_made, session, text, target, beam, steps or StepsKept()).result()


def _made(session: Session, text: str, target: str | None, beam: int | None, steps: StepsKept) -> str:
    app = make_app(session)
    answers: dict[str, Any] = {}
    model = session.models[0].id
    body = {"model": model, "text": text, "target": target, "beam": beam}
    header = _asked(app, "POST", "/api/traces", body)
    if "json" not in header or "error" in header["json"]:
        error = header["json"]["error"]
        raise ModelError(error["where"], error["what"], error["todo"])
    answers["POST /api/traces"] = header
    steps.check(header["json"]["parts"])
    size = 0

    def keep(method: str, address: str, body: Any = None) -> dict[str, Any]:
        """Asks and keeps the answer, which is given; an error is not kept: the page says that it was not saved."""
        nonlocal size
        answer = _asked(app, method, address, body)
        found = answer.get("json") or {}
        if "error" in found:
            return {}
        size += len(answer.get("base64", "")) or len(json.dumps(answer))
        if size > MOST_BYTES:
            raise ModelError("the page", f"it would have more than {MOST_BYTES:,} bytes", "Give a shorter sentence")
        answers[f"{method} {address}"] = answer
        return found

    for one in keep("GET", "/api/models").get("models", []):
        one["sentence"] = text  # the page begins with it
    for address in _addresses(header["json"], model):
        found = keep("GET", address)
        for table in found.get("tables", []):
            keep("GET", f"{address}/{_escaped(table['name'])}")
        gated = found.get("layers" if address.endswith("/recurrent") else "gates", [])
        for layer in gated:
            for gate in layer["gates"]:
                keep("GET", f"{address}/{_escaped(layer['name'])}?gate={_escaped(gate)}")
    for address in ("/api/next", "/api/fill"):
        keep("POST", address, {"model": model, "text": text})
    wanted = list(_steps(header["json"], steps))
    for number, address in enumerate(wanted):
        before = size
        keep("GET", address)
        if steps.everything and size + (len(wanted) - number - 1) * (size - before) > MOST_BYTES:  # said at once
            what = f"the steps of all layers, heads and words would have more than {MOST_BYTES:,} bytes"
            raise ModelError("the page", what, "Give --layer, --head or --row, or a shorter sentence")
    start = {"start": f"#{urlencode({'view': 'steps', **steps.chosen})}"} if steps.chosen else {}
    return _page({"answers": answers, **start})


def _escaped(name: str) -> str:
    return quote(name, safe=UNESCAPED)


def _steps(trace: dict[str, Any], steps: StepsKept) -> Iterable[str]:
    for part in trace["parts"]:
        for layer, head, row in steps.places(part):
            query = {"head": head, "layer": layer, "part": part["name"], "row": row}
            yield f"/api/traces/{trace['id']}/steps?{urlencode(query)}"


def _addresses(trace: dict[str, Any], model: str) -> Iterable[str]:
    """What the views of a sentence ask for; queries are in the order of their names."""
    here = f"/api/traces/{trace['id']}"
    if trace["alignment"]:
        for merge in ("tokens", "words"):
            yield f"{here}/alignment?{urlencode({'merge': merge, 'type': 'f32'})}"
    for part in trace["parts"]:
        name = part["name"]
        yield f"{here}/overview?{urlencode({'part': name, 'size': 48})}"
        for layer in range(part["layers"]):
            for head in range(part["heads"]):
                query = {"head": head, "layer": layer, "part": name, "type": "f32"}
                yield f"{here}/weights?{urlencode(query)}"
    sides = ("ponder?side=input", "ponder?side=source")
    yield from (f"{here}/{what}" for what in ("beam", "recurrent", "ponder", *sides, "local", "convolution"))
    yield f"/api/models/{quote(model)}/positions"
    yield f"/api/models/{quote(model)}/curves"


def _asked(app: Any, method: str, address: str, body: Any = None) -> dict[str, Any]:
    """An answer of the application, without a server: JSON as it is, binary ones as base64."""
    kind, content = asyncio.run(_call(app, method, address, b"" if body is None else json.dumps(body).encode()))
    if kind == MEDIA_TYPE:
        return {"base64": base64.b64encode(content).decode()}
    return {"json": json.loads(content)}


async def _call(app: Any, method: str, address: str, body: bytes) -> tuple[str, bytes]:
    path, _, query = address.partition("?")
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "scheme": "http",
        "headers": [],
        "client": None,
        "server": None,
    }
    kind, parts = "", []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        nonlocal kind
        if message["type"] == "http.response.start":
            kind = dict(message["headers"]).get(b"content-type", b"").decode()
        else:
            parts.append(message.get("body", b""))

    await app(scope, receive, send)
    return kind, b"".join(parts)


def _page(data: dict[str, Any]) -> str:
    assets = resources.files("regard.looking") / "assets"
    script, style = ((assets / name).read_text(encoding="utf-8") for name in ("app.js", "app.css"))
    script = script.replace("</script", "<\\/script")
    policy = (
        f"default-src 'none'; script-src '{_checksum(script)}'; style-src '{_checksum(style)}'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )
    inside = json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n<title>regard: look inside a model</title>\n'
        f'<link rel="icon" href="data:,">\n<style>{style}</style>\n</head>\n<body>\n'
        '<div id="page"><noscript>This page needs JavaScript.</noscript></div>\n'
        f'<script type="application/json" id="regard-embedded">{inside}</script>\n'
        f"<script>{script}</script>\n</body>\n</html>\n"
    )


def _checksum(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
