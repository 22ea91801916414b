"""What the facades of translators share: which model is asked, in what language a text is, and plain or marked-up text."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

from regard.serving.choosing import PLAIN, Choosing
from regard.serving.glossaries import Glossaries, Terms
from regard.serving.html_markup import Rules
from regard.serving.html_text import MarkupTranslator
from regard.serving.languages import Languages
from regard.serving.refusals import Refused
from regard.serving.service import Service
from regard.serving.shelf import Served

if TYPE_CHECKING:
    from regard.tasks.lines import Translation


@dataclasses.dataclass(frozen=True)
class Guessed:
    """A language that a text may be in, and how sure that is, from 0 to 100."""

    language: str
    confidence: float


@dataclasses.dataclass(frozen=True)
class Translated:
    """The translations of one text, the best first, and the language it was translated from."""

    texts: list[str]
    source: Guessed
    found: list[Translation] = dataclasses.field(default_factory=list)  # of text without tags


class Translating:
    """Translators by language. `detector` is a text classifier whose labels are language codes; `glossaries`: see there."""

    def __init__(self, service: Service, detector: Served | None = None, glossaries: Sequence[str] = ()):
        self.service, self.detector = service, detector
        self.languages = Languages(service.shelf)
        self.glossaries = Glossaries.read(glossaries, self.languages)
        self.markup = MarkupTranslator(service)

    async def detect(self, texts: Sequence[str]) -> list[list[Guessed]]:
        """The languages of texts, the likeliest first."""
        if self.detector is None:
            what = "languages are not detected here: no detector is configured"
            raise Refused(400, what, "Say which language the text is in, or start the server with --detector")
        top = max(1, min(len(self.detector.labels), self.service.limits.top))
        found = await self.service.classify(self.detector, texts, top=top)
        return [[Guessed(label, round(100 * probability, 1)) for label, probability in guesses] for guesses in found]

    async def translate(
        self,
        texts: Sequence[str],
        source: str | None,
        target: str,
        *,
        model: Served | None = None,
        rules: Rules | None = None,
        beam: int | None = None,
        alternatives: int = 0,
        terms: Terms | None = None,
        choosing: Choosing = PLAIN,
        prefix: str = "",
    ) -> list[Translated]:
        """Translations of texts. Without a source language, it is detected, or is the only one that the target has.

        What was not detected has confidence 0. `choosing` and `prefix` are for text without tags.
        """
        if source is not None:
            sources = [Guessed(source, 100.0)] * len(texts)
        elif self.detector is None:
            sources = [Guessed(self.languages.only_source(target), 0.0)] * len(texts)
        else:
            sources = [self._likeliest(some, target) for some in await self.detect(texts)]
        chosen = {guess.language: self.languages.choose(guess.language, target, model) for guess in sources}
        places = {code: [i for i, guess in enumerate(sources) if guess.language == code] for code in chosen}
        asked = [
            self._translate(
                served, [texts[i] for i in places[code]], rules, beam, alternatives, terms, choosing, prefix
            )
            for code, served in chosen.items()
        ]
        found = [await asked[0]] if len(asked) == 1 else await asyncio.gather(*asked)  # a task costs turns of the loop
        result: dict[int, Translated] = {}
        for code, many in zip(chosen, found, strict=True):
            for place, translations in zip(places[code], many, strict=True):
                result[place] = dataclasses.replace(translations, source=sources[place])
        return [result[place] for place in range(len(texts))]

    def _likeliest(self, guesses: list[Guessed], target: str) -> Guessed:
        """The likeliest of the languages that the target is translated from."""
        able = self.languages.sources_of(target)
        for guess in guesses:
            if guess.language in able:
                return guess
        what = f"a text is in {guesses[0].language if guesses else 'an unknown language'}, and {target} is not translated from it"
        raise Refused(400, what, f"Say the source language: {', '.join(able)}", field="source")

    async def _translate(
        self,
        served: Served,
        texts: list[str],
        rules: Rules | None,
        beam: int | None,
        alternatives: int,
        terms: Terms | None,
        choosing: Choosing,
        prefix: str,
    ) -> list[Translated]:
        unknown = Guessed("", 0.0)
        if rules is not None:
            how = {"beam": beam, "alternatives": alternatives, "terms": terms}
            return [Translated(many, unknown) for many in await self.markup.translate(served, texts, rules, **how)]
        found = await self.service.translations(
            served, texts, beam=beam, alternatives=alternatives, terms=terms, choosing=choosing, prefix=prefix
        )
        return [Translated([one.text for one in many], unknown, many) for many in found]

    async def next_words(
        self, text: str, source: str, target: str, prefix: str, count: int, *, model: Served | None, beam: int | None
    ) -> list[Translation]:
        """What could stand after a prefix: see `Service.next_words`."""
        served = self.languages.choose(source, target, model)
        return await self.service.next_words(served, text, prefix, count, beam=beam)
