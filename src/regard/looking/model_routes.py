"""What the page asks of a model: its curves, its tables, its words."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from regard.core.errors import DataError, ModelError
from regard.core.types import EOS, pad_rows
from regard.looking import language, words
from regard.looking.curves import Follower, as_stream, curves_of
from regard.looking.evaluation import evaluation_of
from regard.looking.frames import MEDIA_TYPE, framed
from regard.looking.positions import position_table, position_tables
from regard.looking.requests import Refused, body_of, count_of, text_of
from regard.looking.session import Looked, Session
from regard.looking.tracing import source_of
from regard.search.search import search
from regard.tasks.translation import Translator

GLANCE = 1.0  # seconds between two looks at a log
MOST_ROWS = 100
MOST_WORDS = 500  # on a map
MOST_PREFIX = 1000  # tokens


def model_routes(session: Session) -> list[Route]:
    def asked(request: Request) -> Looked:
        return session.model(request.path_params["model"])

    async def models(request: Request) -> Response:
        return JSONResponse({"models": await run_in_threadpool(lambda: [m.to_plain() for m in session.models])})

    async def curves(request: Request) -> Response:
        return JSONResponse(await run_in_threadpool(curves_of, asked(request)))

    async def live_curves(request: Request) -> Response:
        following = Follower(asked(request))

        async def events() -> AsyncIterator[str]:
            while not (session.ended or await request.is_disconnected()):
                if found := await run_in_threadpool(following.look):
                    yield as_stream(found)
                await asyncio.sleep(GLANCE)

        return StreamingResponse(events(), media_type="text/event-stream")

    async def positions(request: Request) -> Response:
        tables = await session.alone(position_tables, _model(asked(request)))
        plain = [{"name": name, "title": name, "shape": list(table.shape)} for name, table in tables.items()]
        return JSONResponse({"tables": plain})

    async def position(request: Request) -> Response:
        table = await session.alone(position_table, _model(asked(request)), request.path_params["name"])
        return Response(framed(table), media_type=MEDIA_TYPE)

    async def evaluation(request: Request) -> Response:
        looked = asked(request)
        if looked.evaluation is None:
            looked.evaluation = await session.alone(evaluation_of, looked.task)
        return JSONResponse(looked.evaluation)

    async def next_tokens(request: Request) -> Response:
        body = await body_of(request)
        task, text = session.model(str(body.get("model", "0"))).task, text_of(body, "text")
        return JSONResponse(await session.alone(language.next_tokens, task, text, count_of(body, "top", 10, MOST_ROWS)))

    async def fill(request: Request) -> Response:
        body = await body_of(request)
        task, text = session.model(str(body.get("model", "0"))).task, text_of(body, "text")
        return JSONResponse(await session.alone(language.filled, task, text, count_of(body, "top", 10, MOST_ROWS)))

    async def translations(request: Request) -> Response:
        body = await body_of(request)
        task = session.model(str(body.get("model", "0"))).task
        if not isinstance(task, Translator):
            raise ModelError("the model", "it does not translate", "Choose a translator")
        text, prefix = text_of(body, "text"), body.get("prefix")
        if not isinstance(prefix, list) or len(prefix) > MOST_PREFIX or not all(isinstance(one, str) for one in prefix):
            raise Refused("prefix", "it is not a list of tokens", f"Send at most {MOST_PREFIX} tokens")
        return JSONResponse(await session.alone(_from_prefix, task, text, prefix))

    async def near(request: Request) -> Response:
        body = await body_of(request)
        vectors = await session.alone(session.model(str(body.get("model", "0"))).word_vectors)
        return JSONResponse(
            await session.alone(words.near, vectors, text_of(body, "word"), count_of(body, "top", 10, MOST_ROWS))
        )

    async def analogy(request: Request) -> Response:
        body = await body_of(request)
        vectors = await session.alone(session.model(str(body.get("model", "0"))).word_vectors)
        three = [text_of(body, name) for name in ("a", "b", "c")]
        return JSONResponse(await session.alone(words.analogy, vectors, *three, count_of(body, "top", 5, MOST_ROWS)))

    async def in_context(request: Request) -> Response:
        body = await body_of(request)
        task, texts = session.model(str(body.get("model", "0"))).task, body.get("texts")
        if not isinstance(texts, list) or not 1 <= len(texts) <= 2:
            raise Refused("texts", "they are not one or two texts", "Send a list of them")
        read = [text_of({"text": text}, "text") for text in texts]
        return JSONResponse(await session.alone(words.in_context, task, text_of(body, "word"), read))

    async def word_map(request: Request) -> Response:
        vectors = await session.alone(session.model(request.query_params.get("model", "0")).word_vectors)
        asked_for = request.query_params.get("words", "").split()
        if not 2 <= len(asked_for) <= MOST_WORDS:
            raise Refused("words", f"{len(asked_for)} words are given", f"Give 2 to {MOST_WORDS}, with spaces between")
        return JSONResponse(await session.alone(words.word_map, vectors, asked_for))

    return [
        Route("/api/models", models),
        Route("/api/models/{model}/curves", curves),
        Route("/api/models/{model}/curves/live", live_curves),
        Route("/api/models/{model}/positions", positions),
        Route("/api/models/{model}/positions/{name}", position),
        Route("/api/models/{model}/evaluation", evaluation),
        Route("/api/next", next_tokens, methods=["POST"]),
        Route("/api/fill", fill, methods=["POST"]),
        Route("/api/translations", translations, methods=["POST"]),
        Route("/api/words/near", near, methods=["POST"]),
        Route("/api/words/analogy", analogy, methods=["POST"]),
        Route("/api/words/context", in_context, methods=["POST"]),
        Route("/api/words/map", word_map),
    ]


def _model(looked: Looked) -> Any:
    model = getattr(looked.task, "model", None)
    if model is None:
        raise ModelError(looked.name, "it is a table of words alone", "Choose another view")
    return model


def _from_prefix(task: Translator, text: str, prefix: list[str]) -> dict[str, Any]:
    """What the model writes after the given tokens: as many texts as it followed, best first."""
    known = {piece: i for i, piece in enumerate(task.tokenizers.target.pieces(range(task.tokenizers.target.size)))}
    unknown = [piece for piece in prefix if piece not in known]
    if unknown:
        raise DataError("the prefix", f"{unknown[0][:40]!r} is no token of the target", "Take tokens of the beam")
    source = pad_rows([[*source_of(task, text), EOS]]).to(task.device)
    settings = dataclasses.replace(task.search, nbest=task.search.hypotheses)
    task.model.eval()
    found = search(task.model, source, settings, prefix=[[known[piece] for piece in prefix]])[0]
    texts = task.tokenizers.target.decode([h.tokens for h in found])
    pieces = task.tokenizers.target.pieces
    rows = [
        {"text": written, "tokens": pieces(h.tokens), "score": h.score, "log_prob": h.log_prob}
        for written, h in zip(texts, found, strict=True)
    ]
    return {"hypotheses": rows}
