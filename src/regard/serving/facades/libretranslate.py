"""LibreTranslate's interface: /translate, /detect, /languages, files, and what its clients and its page ask for."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from regard.serving.facades.ways import choosing_of, kept_kinds, told, told_schema, way_fields
from regard.serving.fields import Choice, Field, Kind, ListOf, OneOf, Record, Text, Whole, wrong
from regard.serving.html_markup import HTML
from regard.serving.kept_files import KeptFiles
from regard.serving.keys import MOST as MOST_KEY
from regard.serving.languages import name_of, portions, total_characters
from regard.serving.limits import Limits
from regard.serving.model_names import ModelName
from regard.serving.operations import API_POLICY, HEADERS, Asked, Facade, Operation
from regard.serving.refusals import Refused
from regard.serving.shelf import Shelf
from regard.serving.translating import Guessed, Translating

AUTO = "auto"
PAGE_MILLISECONDS = 500  # how long LibreTranslate's page waits while somebody types
ENDINGS = {".txt": "text/plain; charset=utf-8", ".html": "text/html; charset=utf-8", ".htm": "text/html; charset=utf-8"}
STRING: dict[str, Any] = {"type": "string"}
KEY = Field("api_key", Text(MOST_KEY), "the key, where the server wants one")


def _error(refused: Refused) -> dict[str, Any]:
    return {"error": f"Slowdown: {refused.message}" if refused.status == 429 else refused.message}


FACADE = Facade(
    "libretranslate",
    _error,
    {"type": "object", "properties": {"error": STRING}, "required": ["error"]},
    missing_key=400,
    wrong_key=403,
    key_field="api_key",
    statuses=(403,),
)


def operations(translating: Translating, page: bool = True) -> list[Operation]:
    """The table of this interface."""
    service, languages = translating.service, translating.languages
    limits = service.limits
    files = KeptFiles(limits.kept_files)
    text = Text(limits.characters)
    some_text: Kind = OneOf((Text(limits.characters, least=1), ListOf(text, limits.texts)))
    from_field = Field("source", Choice((*languages.sources, AUTO)), "a code of /languages, or auto", required=True)
    to_field = Field("target", Choice(languages.targets), "one of the source's targets", required=True)
    guess = {
        "type": "object",
        "properties": {"confidence": {"type": "number", "minimum": 0, "maximum": 100}, "language": STRING},
        "required": ["confidence", "language"],
    }

    async def translate(asked: Asked) -> dict[str, Any]:
        q, alternatives = asked["q"], asked["alternatives"]
        texts = q if isinstance(q, list) else [q]
        total_characters(texts, limits.request_characters)
        source, target = None if asked["source"] == AUTO else asked["source"], asked["target"]
        choosing, count = choosing_of(asked, isinstance(q, list)), asked["next_words"]
        found = await translating.translate(
            texts,
            source,
            target,
            model=asked["model"],
            rules=HTML if asked["format"] == "html" else None,
            beam=asked["beam"],
            alternatives=alternatives,
            terms=translating.glossaries.choose(asked["glossary"], source, target, "glossary", kept_kinds(asked)),
            choosing=choosing,
            prefix=asked["prefix"],
        )
        answer: dict[str, Any] = {"translatedText": _of_q(q, [one.texts[0] for one in found])}
        if asked["source"] == AUTO:
            answer["detectedLanguage"] = _of_q(q, [_plain(one.source) for one in found])
        if alternatives:
            answer["alternatives"] = _of_q(q, [one.texts[1:] for one in found])
        if choosing.details or choosing.alignment:
            answer["details"] = _of_q(q, [told(one.found, choosing) for one in found])
        if count:
            about = {"model": asked["model"], "beam": asked["beam"]}
            words = await translating.next_words(
                texts[0], found[0].source.language, target, asked["prefix"], count, **about
            )
            answer["nextWords"] = told(words, choosing)
        return answer

    async def detect(asked: Asked) -> list[dict[str, Any]]:
        (guesses,) = await translating.detect([asked["q"]])
        return [_plain(one) for one in guesses if one.confidence > 0] or [_plain(guesses[0])]

    async def list_languages(asked: Asked) -> list[dict[str, Any]]:
        return [{"code": code, "name": name_of(code), "targets": languages.targets_of(code)} for code in languages.all]

    async def settings(asked: Asked) -> dict[str, Any]:
        pair = languages.pairs[0] if languages.pairs else None
        first, second = (pair.source, pair.target) if pair else ("", "")
        return {
            "apiKeys": False,
            "charLimit": limits.characters,
            "filesTranslation": limits.kept_files > 0,
            "frontendTimeout": PAGE_MILLISECONDS,
            "keyRequired": asked.request.app.state.keys_needed,
            "language": {
                "source": {"code": first, "name": name_of(first)},
                "target": {"code": second, "name": name_of(second)},
            },
            "suggestions": False,
            "supportedFilesFormat": list(ENDINGS),
        }

    async def health(asked: Asked) -> dict[str, str]:
        if not service.ready:
            raise Refused(503, "the server is starting or ending", "Try again", kind="busy", retry_after=5)
        return {"status": "ok"}

    async def suggest(asked: Asked) -> dict[str, Any]:
        raise Refused(403, "suggestions are disabled on this server", "Do without", kind="forbidden")

    async def translate_file(asked: Asked) -> dict[str, str]:
        if not limits.kept_files:
            raise Refused(403, "files translation is disabled on this server", "Send the text itself", kind="forbidden")
        file = asked.files.get("file")
        if file is None:
            raise wrong("file", "there is none", "Send a file in a multipart form")
        ending = next((one for one in ENDINGS if file.name.lower().endswith(one)), None)
        if ending is None:
            raise wrong("file", "its format is not supported", f"Send {', '.join(ENDINGS)}")
        if len(file.content) > limits.file_bytes:
            raise wrong("file", f"it has more than {limits.file_bytes:,} bytes", "Send a smaller one", 413)
        try:
            content = file.content.decode("utf-8-sig")
        except UnicodeDecodeError:
            raise wrong("file", "it is not UTF-8", "Save it as UTF-8") from None
        if "\0" in content:
            raise wrong("file", "it has a NUL character: it is no text", "Send a text file")
        chosen = None if asked["source"] == AUTO else asked["source"]
        done = await _file(translating, content, chosen, asked["target"], ending != ".txt")
        name = files.keep(done.encode(), ending, ENDINGS[ending])
        return {"translatedFileUrl": f"{asked.request.app.state.door.address(asked.request)}/download_file/{name}"}

    async def download_file(asked: Asked) -> Response:
        found = files.get(asked["name"])
        if found is None:
            todo = "Translate the file again"
            raise Refused(404, "there is no such file, or it was kept long enough", todo, kind="not_found")
        headers = {**HEADERS, **API_POLICY, "Content-Disposition": 'attachment; filename="translated"'}
        return Response(found[0], headers=headers, media_type=found[1])

    either = OneOf((text, ListOf(text, limits.texts)))  # how /suggest is asked, in its own shape
    every = ("json", "form", "multipart", "query")
    record = Record(
        (
            Field("q", some_text, "a text, or several", required=True),
            from_field,
            to_field,
            KEY,
            *_options(limits, service.shelf),
            *way_fields(limits),
            Field("glossary", translating.glossaries.kind, "terms that must be written (not LibreTranslate's)"),
        )
    )
    return [
        Operation(
            facade=FACADE, method="POST", path="/translate", takes=every, answer=translate, fields=record,
            about="Translates a text or several.", gives=_translated(guess), statuses=(404,),
        ),
        Operation(
            facade=FACADE, method="POST", path="/detect", takes=every, answer=detect,
            about="The language of a text, where the server has a detector.",
            fields=Record((Field("q", Text(limits.characters, least=1), required=True), KEY)),
            gives={"type": "array", "items": guess},
        ),
        Operation(
            facade=FACADE, method="GET", path="/languages", takes=("query", "form"), answer=list_languages,
            about="The languages, and what each is translated to.", fields=Record((KEY,)),
            gives={"type": "array", "items": {"type": "object", "required": ["code", "name", "targets"]}},
        ),
        Operation(
            facade=FACADE, method="GET", path="/frontend/settings", takes=("query", "form"), answer=settings,
            about="What a page needs to know.", fields=Record((KEY,)), gives={"type": "object"},
        ),
        Operation(
            facade=FACADE, method="GET", path="/health", answer=health, open=True, gives={"type": "object"},
            about="Whether the server answers; without a key.",
        ),
        Operation(
            facade=FACADE, method="POST", path="/suggest", takes=every, answer=suggest,
            about="Suggestions of better translations: disabled.",
            fields=Record((*(Field(name, either) for name in ("q", "s", "source", "target")), KEY)),
            gives={"type": "object"},
        ),
        Operation(
            facade=FACADE, method="POST", path="/translate_file", takes=("multipart",), file="file",
            answer=translate_file, fields=Record((from_field, to_field, KEY)),
            about=f"Translates a file ({', '.join(ENDINGS)}) in UTF-8. It is kept for a quarter of an hour.",
            gives={"type": "object", "properties": {"translatedFileUrl": STRING}, "required": ["translatedFileUrl"]},
        ),
        Operation(
            facade=FACADE, method="GET", path="/download_file/{name}", takes=("query",), answer=download_file,
            about="A translated file.", fields=Record((Field("name", Text(200), required=True), KEY)),
            gives={"type": "string"}, gives_type="text/plain", statuses=(404,),
        ),
    ]  # fmt: skip


def _options(limits: Limits, shelf: Shelf) -> tuple[Field, ...]:
    return (
        Field("format", Choice(("text", "html")), "html keeps tags in place", default="text"),
        Field("alternatives", Whole(0, limits.most_alternatives), "other translations", default=0),
        Field("beam", Whole(1, limits.beam), "how widely is searched (not LibreTranslate's)"),
        Field(
            "model", ModelName(shelf, ("translation",)), "where several translate the same pair (not LibreTranslate's)"
        ),
    )


def _translated(guess: dict[str, Any]) -> dict[str, Any]:
    texts, one = {"type": "array", "items": STRING}, told_schema()
    return {
        "type": "object",
        "properties": {
            "translatedText": {"anyOf": [STRING, texts]},
            "detectedLanguage": {"anyOf": [guess, {"type": "array", "items": guess}]},
            "alternatives": {"type": "array", "items": {"anyOf": [STRING, texts]}},
            "details": {"type": "array", "items": {"anyOf": [one, {"type": "array", "items": one}]}},
            "nextWords": {"type": "array", "items": one},
        },
        "required": ["translatedText"],
    }


def _of_q(q: str | list[str], values: list[Any]) -> Any:
    return values if isinstance(q, list) else values[0]


def _plain(guess: Guessed) -> dict[str, Any]:
    return {"confidence": guess.confidence, "language": guess.language}


async def _file(translating: Translating, content: str, source: str | None, target: str, markup: bool) -> str:
    """A whole file: HTML as a document, text line by line. It is asked for in portions that a request could have."""
    limits = translating.service.limits
    if markup:
        (found,) = await translating.translate([content], source, target, rules=HTML)
        return found.texts[0]
    lines = content.splitlines(keepends=True)
    texts = [line.rstrip("\r\n") for line in lines]
    if any(len(text) > limits.characters for text in texts):
        raise wrong("file", f"a line has more than {limits.characters:,} characters", "Break it into lines")
    done: list[str] = []
    for some in portions(texts, limits):
        answers = await translating.translate(some, source, target)
        done += [one.texts[0] for one in answers]
    return "".join(text + line[len(line.rstrip("\r\n")) :] for text, line in zip(done, lines, strict=True))
