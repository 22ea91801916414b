"""DeepL's interface: /v2/translate, /v2/languages, /v2/usage, /v2/glossaries."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from regard.serving.fields import Choice, Field, Flag, ListOf, OneOf, Only, Record, Text
from regard.serving.glossaries import Terms
from regard.serving.html_markup import Rules
from regard.serving.languages import total_characters
from regard.serving.operations import API_POLICY, HEADERS, Asked, Facade, Operation
from regard.serving.refusals import Refused
from regard.serving.translating import Translating

TABBED = "text/tab-separated-values"
NO_LIMIT = 10**12  # what DeepL says where there is none
STRING: dict[str, Any] = {"type": "string"}
FACADE = Facade(
    "deepl",
    lambda refused: {"message": refused.message},
    {"type": "object", "properties": {"message": STRING}, "required": ["message"]},
    missing_key=403,
    wrong_key=403,
    statuses=(403,),
)


class Usage:
    """How many characters were translated since the start, and how many may be (0: any number)."""

    def __init__(self, limit: int = 0):
        self.limit, self.count = limit, 0

    def take(self, characters: int) -> None:
        """Counts characters; more than are left are refused (456)."""
        if self.limit and self.count + characters > self.limit:
            what = f"the quota of {self.limit:,} characters is used up"
            raise Refused(456, what, "Ask whoever runs this server for more", kind="quota")
        self.count += characters

    def give_back(self, characters: int) -> None:
        self.count -= characters


def operations(translating: Translating, quota: int = 0) -> list[Operation]:
    """The table of this interface."""
    languages, limits = translating.languages, translating.service.limits
    usage = Usage(quota)
    sources, targets = languages.deepl_sources(), languages.deepl_targets()

    glossaries = translating.glossaries

    async def translate(asked: Asked) -> dict[str, Any]:
        given = asked["text"] if isinstance(asked["text"], list) else [asked["text"]]
        texts = given if asked["split_sentences"] == "1" else [" ".join(text.splitlines()) for text in given]
        characters = total_characters(texts, limits.request_characters)
        source = None if asked["source_lang"] is None else sources[asked["source_lang"]]
        target = targets[asked["target_lang"]]
        terms = glossaries.choose(asked["glossary_id"], source, target, "glossary_id")
        usage.take(characters)
        try:
            found = await translating.translate(texts, source, target, rules=_rules(asked), terms=terms)
        except BaseException:
            usage.give_back(characters)
            raise
        return {
            "translations": [
                {
                    "detected_source_language": one.source.language.upper(),
                    "text": one.texts[0],
                    "billed_characters": len(text),
                }
                for text, one in zip(given, found, strict=True)
            ]
        }

    async def list_languages(asked: Asked) -> list[dict[str, object]]:
        return languages.deepl_list(asked["type"])

    async def list_glossaries(asked: Asked) -> dict[str, Any]:
        return {"glossaries": [glossaries.described(one) for one in glossaries]}

    async def list_pairs(asked: Asked) -> dict[str, Any]:
        pairs = dict.fromkeys((pair.source.lower(), pair.target.lower()) for pair in languages.pairs)
        return {"supported_languages": [{"source_lang": a, "target_lang": b} for a, b in pairs]}

    def of(asked: Asked) -> Terms:
        found = glossaries.found.get(asked["name"])
        if found is None:
            raise Refused(404, "there is no such glossary", "See /v2/glossaries", kind="not_found")
        return found

    async def one_glossary(asked: Asked) -> dict[str, Any]:
        return glossaries.described(of(asked))

    async def entries(asked: Asked) -> Response:
        return Response(of(asked).entries(), headers={**HEADERS, **API_POLICY}, media_type=TABBED)

    async def show_usage(asked: Asked) -> dict[str, int]:
        return {"character_count": usage.count, "character_limit": usage.limit or NO_LIMIT}

    tags = OneOf((Text(1000), ListOf(Text(100), 100, least=0)))
    fields = (
        Field("text", OneOf((Text(limits.characters), ListOf(Text(limits.characters), limits.texts))), required=True),
        Field("target_lang", Choice(tuple(targets), fold=True), "a target of /v2/languages", required=True),
        Field("source_lang", Choice(tuple(sources), fold=True), "a source of /v2/languages"),
        Field("split_sentences", Choice(("0", "1", "nonewlines")), "1: lines are translated apart", default="1"),
        Field("preserve_formatting", Flag(), "white space is always kept", default=False),
        Field("formality", Choice(("default", "prefer_more", "prefer_less")), "there is one tone", default="default"),
        Field("glossary_id", glossaries.kind, "one of /v2/glossaries; needs source_lang", null=len(glossaries) == 0),
        Field("tag_handling", Choice(("html", "xml")), "tags stay in place"),
        Field("tag_handling_version", Choice(("v1", "v2"))),
        Field("outline_detection", Flag(), "of XML: find out which tags end a text", default=True),
        Field("splitting_tags", tags, "tags that end a text", default=[]),
        Field("non_splitting_tags", tags, "tags that do not", default=[]),
        Field("ignore_tags", tags, "tags around what is not translated", default=[]),
        Field("context", Text(limits.characters), "is not used"),
        Field(
            "model_type",
            Choice(("quality_optimized", "prefer_quality_optimized", "latency_optimized")),
            "there is one model",
        ),
        Field("show_billed_characters", Flag(), "they are always shown", default=True),
        *(Field(name, Only(None, "it is not supported", "Leave it out"), "not supported") for name in _NOT_THERE),
        Field("enable_beta_languages", Flag(), default=False),
    )
    translation = {
        "type": "object",
        "properties": {
            "detected_source_language": STRING,
            "text": STRING,
            "billed_characters": {"type": "integer", "minimum": 0},
        },
        "required": ["detected_source_language", "text", "billed_characters"],
    }
    count = {"type": "integer", "minimum": 0}
    name = Field("name", Text(200, least=1), "the glossary_id", required=True)
    kind = Field("type", Choice(("source", "target")), default="source")
    return [
        Operation(
            facade=FACADE, method="POST", path="/v2/translate", takes=("json", "form"), answer=translate,
            about="Translates texts.", fields=Record(fields), statuses=(456,),
            gives={
                "type": "object", "required": ["translations"],
                "properties": {"translations": {"type": "array", "items": translation}},
            },
        ),
        Operation(
            facade=FACADE, method="GET", path="/v2/languages", takes=("query", "form"), answer=list_languages,
            about="The source or target languages.", fields=Record((kind,)),
            gives={"type": "array", "items": {"type": "object", "required": ["language", "name"]}},
        ),
        Operation(
            facade=FACADE, method="GET", path="/v2/usage", answer=show_usage,
            about="The characters translated since the start.",
            gives={
                "type": "object", "required": ["character_count", "character_limit"],
                "properties": {"character_count": count, "character_limit": count},
            },
        ),
        Operation(
            facade=FACADE, method="GET", path="/v2/glossaries", answer=list_glossaries,
            about="The glossaries, which whoever runs the server has named.",
            gives={"type": "object", "required": ["glossaries"]},
        ),
        Operation(
            facade=FACADE, method="GET", path="/v2/glossaries/{name}", answer=one_glossary, about="One of them.",
            fields=Record((name,)), gives={"type": "object", "required": ["glossary_id", "name"]}, statuses=(404,),
        ),
        Operation(
            facade=FACADE, method="GET", path="/v2/glossaries/{name}/entries", answer=entries, about="Its entries.",
            fields=Record((name,)), gives={"type": "string"}, gives_type=TABBED, statuses=(404,),
        ),
        Operation(
            facade=FACADE, method="GET", path="/v2/glossary-language-pairs", answer=list_pairs,
            about="The languages between which there may be glossaries.",
            gives={"type": "object", "required": ["supported_languages"]},
        ),
    ]  # fmt: skip


_NOT_THERE = (
    "glossary_ids",
    "style_id",
    "translation_memory_id",
    "translation_memory_threshold",
    "custom_instructions",
)


def _rules(asked: Asked) -> Rules | None:
    if asked["tag_handling"] is None:
        return None
    return Rules(
        xml=asked["tag_handling"] == "xml",
        outline=asked["outline_detection"],
        splitting=_tags(asked["splitting_tags"]),
        inline=_tags(asked["non_splitting_tags"]),
        untouched=_tags(asked["ignore_tags"]),
    )


def _tags(given: str | list[str]) -> frozenset[str]:
    names = ",".join([given] if isinstance(given, str) else given).split(",")
    return frozenset(name.strip() for name in names if name.strip())
