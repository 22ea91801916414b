"""Models that neither translate nor write: labels, tags, hidden words and vectors of texts. Vectors have OpenAI's shape."""

from __future__ import annotations

import base64
import struct
from typing import Any

from regard.serving.facades.openai import COUNT, ERROR_SCHEMA, STRING, error_of
from regard.serving.fields import Choice, Field, ListOf, OneOf, Only, Record, Text, Whole, wrong
from regard.serving.languages import total_characters
from regard.serving.model_names import ModelName
from regard.serving.operations import Asked, Facade, Operation
from regard.serving.service import Service
from regard.serving.shelf import Served, Task

FACADE = Facade("plain", error_of, ERROR_SCHEMA, statuses=(401, 404))
PROBABILITY: dict[str, Any] = {"type": "number", "minimum": 0, "maximum": 1.000001}


def operations(service: Service) -> list[Operation]:
    """The table of these interfaces."""
    limits = service.limits
    text = Text(limits.characters, least=1)
    texts = OneOf((text, ListOf(text, limits.texts)))

    def given(asked: Asked, name: str = "input") -> list[str]:
        value = asked[name]
        found = value if isinstance(value, list) else [value]
        total_characters(found, limits.request_characters)
        return found

    def fields(*tasks: Task) -> tuple[ModelName, Field, Field]:
        names = ModelName(service.shelf, tasks)
        model = Field("model", names, "may be left out where there is one for this", null=True)
        return names, model, Field("input", texts, "a text, or several", required=True)

    sorters, *classify_fields = fields("classification")
    taggers, *tag_fields = fields("tagging")
    fillers, *fill_fields = fields("masked")
    readers, *embed_fields = fields("masked", "vectors")

    async def classify(asked: Asked) -> dict[str, Any]:
        served = sorters.only(asked["model"])
        first = given(asked)
        second = None if asked["second"] is None else given(asked, "second")
        if served.two_texts != (second is not None):
            what = "the model reads two texts at once" if served.two_texts else "the model reads one text at once"
            raise wrong("second", what, "Send a second text" if served.two_texts else "Leave it out")
        if second is not None and len(second) != len(first):
            raise wrong("second", f"{len(second)} texts for {len(first)}", "Send one for each")
        found = await service.classify(served, first, second, top=asked["top"])
        return _listed(
            served,
            [
                {
                    "label": guesses[0].label,
                    "probability": guesses[0].probability,
                    "labels": [guess._asdict() for guess in guesses],
                }
                for guesses in found
            ],
        )

    async def tag(asked: Asked) -> dict[str, Any]:
        served = taggers.only(asked["model"])
        found = await service.tag(served, given(asked))
        return _listed(served, [{"words": [word._asdict() for word in words]} for words in found])

    async def fill(asked: Asked) -> dict[str, Any]:
        served = fillers.only(asked["model"])
        found = await service.fill(served, given(asked), top=asked["top"])
        return _listed(served, [{"masks": [[word._asdict() for word in words] for words in masks]} for masks in found])

    async def embed(asked: Asked) -> dict[str, Any]:
        served = readers.only(asked["model"])
        asked_for = given(asked)
        found = await service.embed(served, asked_for)
        count = sum(await service.count_tokens(served, asked_for))
        packed = asked["encoding_format"] == "base64"
        data = [
            {"object": "embedding", "index": i, "embedding": _packed(vector) if packed else vector}
            for i, vector in enumerate(found)
        ]
        usage = {"prompt_tokens": count, "total_tokens": count}
        return {"object": "list", "model": served.name, "data": data, "usage": usage}

    top = Field("top", Whole(1, limits.top), "how many, the likeliest first", default=min(5, limits.top), null=True)
    two = any(served.two_texts for served in sorters.able)
    pairs = texts if two else Only(None, "the models here read one text at once", "Leave it out")
    second = Field("second", pairs, "the second text of each, for models that read two", null=True)
    vector_fields = Record(
        (
            *embed_fields,
            Field("encoding_format", Choice(("float", "base64")), default="float", null=True),
            Field("dimensions", Only(None, "a model's vectors have one size", "Leave it out"), null=True),
            Field("user", Text(1000), "is not used", null=True),
        ),
        closed=True,
    )
    labels = {"type": "object", "required": ["label", "probability"]}
    found = [
        ("/v1/classify", "Labels of texts.", classify, Record((*classify_fields, second, top), closed=True), {
            "label": STRING, "probability": PROBABILITY, "labels": {"type": "array", "items": labels},
        }),
        ("/v1/tag", "The words of texts with tags.", tag, Record(tuple(tag_fields), closed=True), {
            "words": {"type": "array", "items": {"type": "object", "required": ["word", "tag", "probability"]}},
        }),
        ("/v1/fill", "Words for each [MASK] or <mask> of texts.", fill, Record((*fill_fields, top), closed=True), {
            "masks": {"type": "array", "items": {"type": "array"}},
        }),
        ("/v1/embed", "Texts as vectors.", embed, vector_fields, {"object": STRING, "embedding": {}}),
        ("/v1/embeddings", "The same, as OpenAI calls it.", embed, vector_fields, {"object": STRING, "embedding": {}}),
    ]  # fmt: skip
    return [
        Operation(
            facade=FACADE,
            method="POST",
            path=path,
            takes=("json",),
            about=about,
            answer=answer,
            fields=record,
            gives=_list_schema(of_each),
        )
        for path, about, answer, record, of_each in found
    ]


def _listed(served: Served, rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {"object": "list", "model": served.name, "data": [{"index": i, **row} for i, row in enumerate(rows)]}


def _list_schema(of_each: dict[str, Any]) -> dict[str, Any]:
    row = {"type": "object", "properties": {"index": COUNT, **of_each}, "required": ["index", *of_each]}
    return {
        "type": "object",
        "properties": {"object": {"const": "list"}, "model": STRING, "data": {"type": "array", "items": row}},
        "required": ["object", "model", "data"],
    }


def _packed(vector: list[float]) -> str:
    """A vector as OpenAI's clients ask for it: little-endian float32, in base64."""
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()
