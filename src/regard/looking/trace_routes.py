"""What the page asks of a trace."""

from __future__ import annotations

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from regard.looking.frames import MEDIA_TYPE, framed
from regard.looking.requests import body_of, choice, count_of, kind_of, number, optional_text, text_of
from regard.looking.session import Session
from regard.looking.steps import to_frame
from regard.looking.trace import Trace

LARGEST_PICTURE = 256
MOST_BEAM = 64


def trace_routes(session: Session) -> list[Route]:
    def trace_of(request: Request) -> Trace:
        return session.trace(request.path_params["trace"])

    async def make(request: Request) -> Response:
        body = await body_of(request)
        text, target = text_of(body, "text"), optional_text(body, "target")
        beam = count_of(body, "beam", None, MOST_BEAM)
        header = await run_in_threadpool(session.make, str(body.get("model", "0")), text, target, beam)
        return JSONResponse(header)

    async def weights(request: Request) -> Response:
        part = request.query_params.get("part", "")
        head = trace_of(request).head(part, number(request, "layer"), number(request, "head"))
        return _frame(framed(head, kind_of(request)))

    async def overview(request: Request) -> Response:
        size = max(1, number(request, "size", 48, LARGEST_PICTURE))
        return _frame(framed(trace_of(request).overview(request.query_params.get("part", ""), size), "u8"))

    async def alignment(request: Request) -> Response:
        words = choice(request, "merge", ("tokens", "words")) == "words"
        found, rows, columns = trace_of(request).aligned("words" if words else "tokens")
        return _frame(framed(found, kind_of(request), {"rows": rows, "columns": columns}))

    async def steps(request: Request) -> Response:
        trace, name = trace_of(request), request.query_params.get("part", "")
        layer, head, row = (number(request, what) for what in ("layer", "head", "row"))

        header, numbers = to_frame(await session.alone(trace.steps, name, layer, head, row))
        part = trace.part(name)
        labels = {"row": row, "row_label": trace.text(part.rows).tokens[row]}
        labels["key_labels"] = trace.text(part.columns).tokens
        return _frame(framed(numbers, "f32", {**header, **labels}))

    async def ponder(request: Request) -> Response:
        side = "input" if choice(request, "side", ("source", "input")) == "input" else "source"
        trace = trace_of(request)
        found = await session.alone(trace.pondered, side)
        return _frame(framed(found.numbers(), "f32", {**found.to_plain(), "tokens": trace.text(side).tokens}))

    async def recurrent(request: Request) -> Response:
        layers = await session.alone(trace_of(request).recurrent)
        return JSONResponse({"layers": [layer.to_plain() for layer in layers.values()]})

    async def gate(request: Request) -> Response:
        name, gate = request.path_params["layer"], request.query_params.get("gate", "state")
        return _frame(framed(await session.alone(trace_of(request).gate, name, gate)))

    async def convolution(request: Request) -> Response:
        return JSONResponse(await session.alone(trace_of(request).convolutions))

    async def convolution_gate(request: Request) -> Response:
        name, gate = request.path_params["layer"], request.query_params.get("gate", "")
        return _frame(framed(await session.alone(trace_of(request).convolution_gate, name, gate)))

    async def beam(request: Request) -> Response:
        return JSONResponse(await session.alone(trace_of(request).beam))

    async def local(request: Request) -> Response:
        return JSONResponse(await session.alone(trace_of(request).local))

    return [
        Route("/api/traces", make, methods=["POST"]),
        Route("/api/traces/{trace}/weights", weights),
        Route("/api/traces/{trace}/overview", overview),
        Route("/api/traces/{trace}/alignment", alignment),
        Route("/api/traces/{trace}/steps", steps),
        Route("/api/traces/{trace}/ponder", ponder),
        Route("/api/traces/{trace}/recurrent", recurrent),
        Route("/api/traces/{trace}/recurrent/{layer}", gate),
        Route("/api/traces/{trace}/convolution", convolution),
        Route("/api/traces/{trace}/convolution/{layer}", convolution_gate),
        Route("/api/traces/{trace}/local", local),
        Route("/api/traces/{trace}/beam", beam),
    ]


def _frame(content: bytes) -> Response:
    return Response(content, media_type=MEDIA_TYPE)
