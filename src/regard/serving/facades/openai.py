"""OpenAI's interface for language models: /v1/completions with streaming, /v1/models; and its shape of errors."""

from __future__ import annotations

import asyncio
import contextlib
import math
import secrets
import time
from collections.abc import AsyncGenerator, Sequence
from typing import Any

from regard.core.errors import RegardError
from regard.serving.completions import Completed, Piece, TokenFacts, Wishes
from regard.serving.fields import Field, Flag, Kind, ListOf, Number, OneOf, Only, Record, Text, Whole, wrong
from regard.serving.languages import total_characters
from regard.serving.model_names import ModelName
from regard.serving.operations import Asked, EventStream, Facade, Operation, event, refusal_of
from regard.serving.refusals import Refused
from regard.serving.service import Service
from regard.serving.shelf import Served

TYPES = {429: "rate_limit_error", 403: "permission_error", 456: "insufficient_quota"}
CODES = {"unauthorised": "invalid_api_key", "forbidden": "invalid_api_key", "rate": "rate_limit_exceeded"}
MOST_WAITING = 64  # pieces of a stream that the client has not taken yet
STRING: dict[str, Any] = {"type": "string"}
COUNT: dict[str, Any] = {"type": "integer", "minimum": 0}


def error_of(refused: Refused) -> dict[str, Any]:
    code = "model_not_found" if refused.field == "model" and refused.status == 404 else CODES.get(refused.kind)
    kind = "server_error" if refused.status >= 500 else TYPES.get(refused.status, "invalid_request_error")
    return {"error": {"message": refused.message, "type": kind, "param": refused.field, "code": code}}


ERROR_SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "properties": {"message": STRING, "type": STRING},
            "required": ["message", "type", "param", "code"],
        }
    },
}
FACADE = Facade("openai", error_of, ERROR_SCHEMA, statuses=(401, 404))


def operations(service: Service) -> list[Operation]:
    """The table of this interface."""
    limits, shelf = service.limits, service.shelf
    writers = ModelName(shelf, ("language",))
    began = int(time.time())

    def describe(served: Served) -> dict[str, Any]:
        return {"id": served.name, "object": "model", "created": began, "owned_by": "regard", "task": served.task}

    async def list_models(asked: Asked) -> dict[str, Any]:
        return {"object": "list", "data": [describe(served) for served in shelf]}

    async def one_model(asked: Asked) -> dict[str, Any]:
        return describe(asked["model"])

    async def complete(asked: Asked) -> Any:
        served, wishes = asked["model"], _wishes(asked)
        prompts = _prompts(asked["prompt"])
        total_characters([p for p in prompts if isinstance(p, str)], limits.request_characters)
        if wishes.n * len(prompts) > limits.texts:
            raise wrong("n", f"{wishes.n * len(prompts)} texts are asked for", f"Ask for at most {limits.texts}")
        answer = _Answer(served, f"cmpl-{secrets.token_hex(12)}", wishes)
        if asked["stream"]:
            options = asked["stream_options"] or {}
            return await _streamed(service, answer, prompts, options.get("include_usage") is True)
        found = await asyncio.gather(*(service.complete(served, prompt, wishes) for prompt in prompts))
        return answer.whole(found)

    fields = completion_fields(service, writers)
    model = {
        "type": "object",
        "properties": {"id": STRING, "object": {"const": "model"}, "created": COUNT, "owned_by": STRING},
        "required": ["id", "object", "created", "owned_by"],
    }
    everything = ModelName(shelf, ("translation", "language", "classification", "tagging", "masked", "vectors"))
    return [
        Operation(
            facade=FACADE, method="POST", path="/v1/completions", takes=("json",), answer=complete,
            about="Texts that go on from a prompt; with stream=true as server-sent events.",
            fields=Record(fields, closed=True), gives=_completion_schema(), gives_events=True,
        ),
        Operation(
            facade=FACADE, method="GET", path="/v1/models", answer=list_models, about="The models that are served.",
            gives={"type": "object", "required": ["object", "data"], "properties": {"data": {"type": "array", "items": model}}},
        ),
        Operation(
            facade=FACADE, method="GET", path="/v1/models/{model}", answer=one_model, about="One of them.",
            fields=Record((Field("model", everything, required=True),)), gives=model,
        ),
    ]  # fmt: skip


def completion_fields(service: Service, writers: ModelName) -> tuple[Field, ...]:
    limits = service.limits
    vocabulary = max((_vocabulary(served) for served in writers.able), default=1 << 20)
    text, ids = Text(limits.characters), ListOf(Whole(0, vocabulary - 1), limits.characters)
    prompt: Kind = OneOf((text, ListOf(text, limits.texts), ids, ListOf(ids, limits.texts)))
    stop_text = Text(limits.stop_characters, least=1)
    stop: Kind = OneOf((stop_text, ListOf(stop_text, max(1, limits.stops), least=0)))
    choices = Whole(1, limits.choices)
    penalty = Only(0, "the search here has no such penalty", "Leave it out")
    given = (
        Field("prompt", prompt, "a text, several, or tokens", default="", null=True),
        Field("max_tokens", Whole(0, limits.new_tokens), "most that are written", default=min(16, limits.new_tokens), null=True),
        Field("temperature", Number(0, 2), "0: the likeliest token each time", default=1.0, null=True),
        Field("top_p", Number(0, 1), default=1.0, null=True),
        Field("top_k", Whole(0, 1 << 20), "0: all tokens (not OpenAI's)", default=0, null=True),
        Field("min_p", Number(0, 1), "not OpenAI's", default=0.0, null=True),
        Field("n", choices, "texts for each prompt", default=1, null=True),
        Field("best_of", choices, "texts drawn, of which the n likeliest are given", null=True),
        Field("stop", stop, "texts before which a completion ends", null=True),
        Field("seed", Whole(-(1 << 63), (1 << 63) - 1), "the same seed gives the same text", null=True),
        Field("echo", Flag(), "give the prompt back, too", default=False, null=True),
        Field("logprobs", Whole(0, limits.logprobs), "likeliest tokens shown at each place", null=True),
        Field("draft", Flag(), "let a small model guess: the same text, sooner (not OpenAI's)", default=False, null=True),
        Field("stream", Flag(), default=False, null=True),
        Field("stream_options", Record((Field("include_usage", Flag()), Field("include_obfuscation", Flag()))), null=True),
        Field("suffix", Only(None, "text before a given end is not written here", "Leave it out"), null=True),
        Field("presence_penalty", penalty, null=True),
        Field("frequency_penalty", penalty, null=True),
        Field("logit_bias", Only(None, "it is not supported", "Leave it out"), null=True),
        Field("user", Text(1000), "is not used", null=True),
    )  # fmt: skip
    return (Field("model", writers, "a language model", required=True), *given)


def _vocabulary(served: Served) -> int:
    size = served.config.get("vocabulary", {}).get("target")
    return size if isinstance(size, int) and size > 0 else 1 << 20


def _prompts(given: Any) -> list[str | list[int]]:
    if isinstance(given, str) or (given and isinstance(given[0], int)):
        return [given]
    return given


def _wishes(asked: Asked) -> Wishes:
    stop = asked["stop"] or ()
    n, best_of, greedy = asked["n"], asked["best_of"], asked["top_p"] == 0
    if best_of is not None and best_of < n:
        raise wrong("best_of", f"{best_of} is less than n, which is {n}", "Ask for at least as many")
    if asked["stream"] and best_of is not None and best_of > n:
        raise wrong("best_of", "the best texts are known only at the end", "Leave it out, or do not stream")
    return Wishes(
        max_tokens=asked["max_tokens"],
        temperature=0.0 if greedy else asked["temperature"],
        top_p=1.0 if greedy else asked["top_p"],
        top_k=asked["top_k"],
        min_p=asked["min_p"],
        seed=None if asked["seed"] is None else asked["seed"] & ((1 << 63) - 1),
        stop=(stop,) if isinstance(stop, str) else tuple(stop),
        n=n,
        best_of=best_of,
        echo=asked["echo"],
        logprobs=asked["logprobs"],
        draft=asked["draft"],
    )


class _Answer:
    """What all parts of an answer have in common."""

    def __init__(self, served: Served, name: str, wishes: Wishes):
        self.served, self.wishes = served, wishes
        self.head = {"id": name, "object": "text_completion", "created": int(time.time()), "model": served.name}

    def whole(self, found: Sequence[Completed]) -> dict[str, Any]:
        choices = [
            self.choice(number * self.wishes.n + i, one.text, one.tokens, one.finish)
            for number, completed in enumerate(found)
            for i, one in enumerate(completed.choices)
        ]
        usage = _usage(sum(one.prompt_tokens for one in found), sum(one.written_tokens for one in found))
        return {**self.head, "choices": choices, "usage": usage}

    def choice(self, index: int, text: str, tokens: Sequence[TokenFacts], finish: str | None) -> dict[str, Any]:
        logprobs = None if self.wishes.logprobs is None else _logprobs(tokens)
        return {"index": index, "text": text, "logprobs": logprobs, "finish_reason": finish}


def _usage(read: int, written: int) -> dict[str, int]:
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}


def _logprobs(tokens: Sequence[TokenFacts]) -> dict[str, Any]:
    return {
        "tokens": [token.text for token in tokens],
        "token_logprobs": [_finite(token.log_prob) for token in tokens],
        "top_logprobs": [{text: _finite(p) for text, p in token.top} if token.top else None for token in tokens],
        "text_offset": [token.offset for token in tokens],
    }


def _finite(value: float | None) -> float | None:
    """A log-probability for JSON; the first token of a prompt has none."""
    return None if value is None or math.isnan(value) else max(value, -9999.0)


async def _streamed(
    service: Service, answer: _Answer, prompts: Sequence[str | Sequence[int]], usage: bool
) -> EventStream:
    """The answer in events. What is refused before the first piece is an error as usual; later it is an event."""
    pieces = _merged([service.stream(answer.served, prompt, answer.wishes) for prompt in prompts])
    try:
        first = await anext(pieces)
    except BaseException:
        await pieces.aclose()
        raise
    return EventStream(_events(answer, first, pieces, usage))


async def _events(
    answer: _Answer, first: tuple[int, Piece], rest: AsyncGenerator[tuple[int, Piece]], usage: bool
) -> AsyncGenerator[bytes]:
    read: dict[int, int] = {}
    written: dict[tuple[int, int], int] = {}
    nothing = {"usage": None} if usage else {}

    def said(number: int, piece: Piece) -> bytes:
        read[number] = max(read.get(number, 0), piece.prompt_tokens)
        written[number, piece.index] = max(written.get((number, piece.index), 0), piece.written_tokens)
        index = number * answer.wishes.n + piece.index
        return event(
            {**answer.head, "choices": [answer.choice(index, piece.text, piece.tokens, piece.finish)], **nothing}
        )

    try:
        yield said(*first)
        try:
            async for number, piece in rest:
                yield said(number, piece)
        except (Refused, RegardError) as error:
            yield event(error_of(error if isinstance(error, Refused) else refusal_of(error)))
            return
        if usage:
            counts = _usage(sum(read.values()), sum(written.values()))
            yield event({**answer.head, "choices": [], "usage": counts})
        yield b"data: [DONE]\n\n"
    finally:
        await rest.aclose()


async def _merged(streams: Sequence[AsyncGenerator[Piece]]) -> AsyncGenerator[tuple[int, Piece]]:
    """The pieces of several streams as they come, each with its stream's number."""
    queue: asyncio.Queue[tuple[int, Piece | BaseException | None]] = asyncio.Queue(MOST_WAITING)

    async def pump(number: int, stream: AsyncGenerator[Piece]) -> None:
        try:
            async with contextlib.aclosing(stream):
                async for piece in stream:
                    await queue.put((number, piece))
        except Exception as error:
            await queue.put((number, error))
        else:
            await queue.put((number, None))

    tasks = [asyncio.ensure_future(pump(number, stream)) for number, stream in enumerate(streams)]
    try:
        running = len(tasks)
        while running:
            number, piece = await queue.get()
            if isinstance(piece, BaseException):
                raise piece
            if piece is None:
                running -= 1
            else:
                yield number, piece
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _completion_schema() -> dict[str, Any]:
    choice = {
        "type": "object",
        "properties": {"index": COUNT, "text": STRING, "finish_reason": {"enum": ["stop", "length", None]}},
        "required": ["index", "text", "logprobs", "finish_reason"],
    }
    return {
        "type": "object",
        "properties": {
            "id": STRING,
            "object": {"const": "text_completion"},
            "created": COUNT,
            "model": STRING,
            "choices": {"type": "array", "items": choice},
            "usage": {"type": "object", "required": ["prompt_tokens", "completion_tokens", "total_tokens"]},
        },
        "required": ["id", "object", "created", "model", "choices", "usage"],
    }
