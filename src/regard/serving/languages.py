"""The languages that a server translates between, as its models say, under the codes and names that clients know."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from regard.serving.limits import Limits
from regard.serving.refusals import Refused
from regard.serving.shelf import Served, Shelf

UNKNOWN = "und"  # ISO 639: undetermined
NAMES = {
    "af": "Afrikaans", "ar": "Arabic", "az": "Azerbaijani", "be": "Belarusian", "bg": "Bulgarian", "bn": "Bengali",
    "bs": "Bosnian", "ca": "Catalan", "cs": "Czech", "cy": "Welsh", "da": "Danish", "de": "German", "el": "Greek",
    "en": "English", "eo": "Esperanto", "es": "Spanish", "et": "Estonian", "eu": "Basque", "fa": "Persian",
    "fi": "Finnish", "fr": "French", "ga": "Irish", "gl": "Galician", "he": "Hebrew", "hi": "Hindi",
    "hr": "Croatian", "hu": "Hungarian", "hy": "Armenian", "id": "Indonesian", "is": "Icelandic", "it": "Italian",
    "ja": "Japanese", "ka": "Georgian", "kk": "Kazakh", "ko": "Korean", "la": "Latin", "lb": "Luxembourgish",
    "lt": "Lithuanian", "lv": "Latvian", "mk": "Macedonian", "ms": "Malay", "mt": "Maltese", "nb": "Norwegian",
    "nl": "Dutch", "nn": "Nynorsk", "no": "Norwegian", "pl": "Polish", "pt": "Portuguese", "ro": "Romanian",
    "ru": "Russian", "sk": "Slovak", "sl": "Slovenian", "sq": "Albanian", "sr": "Serbian", "sv": "Swedish",
    "sw": "Swahili", "ta": "Tamil", "th": "Thai", "tl": "Tagalog", "tr": "Turkish", "uk": "Ukrainian", "ur": "Urdu",
    "vi": "Vietnamese", "zh": "Chinese",
}  # fmt: skip
# The targets under which DeepL's clients ask for a language that it has in several variants.
VARIANTS = {
    "en": {"EN-GB": "English (British)", "EN-US": "English (American)"},
    "pt": {"PT-PT": "Portuguese (European)", "PT-BR": "Portuguese (Brazilian)"},
    "zh": {"ZH-HANS": "Chinese (simplified)", "ZH-HANT": "Chinese (traditional)"},
}


def name_of(code: str) -> str:
    if code == UNKNOWN:
        return "Unknown"
    return NAMES.get(code.split("-")[0].split("_")[0].lower(), code)


@dataclasses.dataclass(frozen=True)
class Pair:
    """A translator and its languages."""

    source: str
    target: str
    served: Served


class Languages:
    """The translators of a shelf by language. Where two have the same pair, the first is asked, unless one is named.

    A translator whose run does not say its languages reads `und`, and writes what is called as the model is.
    """

    def __init__(self, shelf: Shelf):
        self.pairs = [
            Pair(served.source_language or UNKNOWN, served.target_language or served.name, served)
            for served in shelf.of("translation")
        ]

    @property
    def sources(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(pair.source for pair in self.pairs))

    @property
    def targets(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(pair.target for pair in self.pairs))

    def targets_of(self, source: str) -> list[str]:
        return list(dict.fromkeys(pair.target for pair in self.pairs if pair.source == source))

    def sources_of(self, target: str) -> list[str]:
        return list(dict.fromkeys(pair.source for pair in self.pairs if pair.target == target))

    @property
    def all(self) -> list[str]:
        return list(dict.fromkeys([*self.sources, *self.targets]))

    def choose(self, source: str, target: str, model: Served | None = None) -> Served:
        """The translator for a pair of languages."""
        of_pair = [pair.served for pair in self.pairs if (pair.source, pair.target) == (source, target)]
        chosen = [served for served in of_pair if model is None or served is model]
        if chosen:
            return chosen[0]
        if of_pair:
            names = ", ".join(served.name for served in of_pair)
            raise Refused(
                400,
                f"`model`: {model.name if model else None} does not translate {source} to {target}",
                f"Ask {names}",
                field="model",
            )
        known = "; ".join(f"{pair.source} to {pair.target}" for pair in self.pairs[:20]) or "nothing"
        what = f"{source} to {target} is not supported"
        raise Refused(400, what, f"This server translates {known}", field="target")

    def only_source(self, target: str) -> str:
        """The one language that a target is translated from; several are an error."""
        sources = self.sources_of(target)
        if len(sources) != 1:
            what = f"the source language is not given, and {target} is translated from {', '.join(sources) or 'none'}"
            raise Refused(400, what, "Say which it is: this server cannot detect languages", field="source")
        return sources[0]

    # --- DeepL's codes

    def deepl_sources(self) -> dict[str, str]:
        """Our codes by DeepL's."""
        return {code.upper(): code for code in self.sources}

    def deepl_targets(self) -> dict[str, str]:
        found = {code.upper(): code for code in self.targets}
        for code in self.targets:
            for variant in VARIANTS.get(code.lower(), {}):
                found.setdefault(variant, code)
        return found

    def deepl_list(self, kind: str) -> list[dict[str, object]]:
        if kind == "source":
            return [{"language": code, "name": name_of(ours)} for code, ours in self.deepl_sources().items()]
        return [
            {"language": code, "name": name, "supports_formality": False}
            for ours in self.targets
            for code, name in VARIANTS.get(ours.lower(), {ours.upper(): name_of(ours)}).items()
        ]


def portions(texts: Sequence[str], limits: Limits) -> Iterator[list[str]]:
    """Many texts in as many as one request may have at a time."""
    some: list[str] = []
    size = 0
    for text in texts:
        if some and (len(some) >= limits.texts or size + len(text) > limits.request_characters):
            yield some
            some, size = [], 0
        some.append(text)
        size += len(text)
    if some:
        yield some


def total_characters(texts: Sequence[str], most: int) -> int:
    """How many characters texts have together; too many are refused."""
    total = sum(map(len, texts))
    if total > most:
        what = f"the texts have {total:,} characters together, and at most {most:,} are taken"
        raise Refused(413, what, "Send them in several requests", kind="too_long")
    return total
