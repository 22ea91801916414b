"""Translation of marked-up text: tags stay around what was written from the words they stood around.

Text stops at block tags, and what stands between them is translated as plain text is. Within a sentence the model's attention
says which words belong together (as in `regard align`); of a model without attention, the first words are taken for the first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from regard.data.sentences import split_paragraph
from regard.serving.aligning import Pair
from regard.serving.glossaries import Terms
from regard.serving.html_markup import HTML, Rules, Segment, parts_of
from regard.serving.html_placing import in_step, placed, units_of
from regard.serving.languages import portions
from regard.serving.service import Service
from regard.serving.shelf import Served


class MarkupTranslator:
    """Translates documents with tags through a service."""

    def __init__(self, service: Service):
        self.service = service

    async def translate(
        self,
        served: Served,
        texts: Sequence[str],
        rules: Rules = HTML,
        *,
        beam: int | None = None,
        alternatives: int = 0,
        terms: Terms | None = None,
    ) -> list[list[str]]:
        """Translations of each document: the best, and up to `alternatives` others."""
        documents = [await asyncio.to_thread(parts_of, text, rules) for text in texts]
        sentences = {
            id(part): _sentences(part) for parts in documents for part in parts if isinstance(part, Segment)
        }  # fmt: skip
        asked = list(dict.fromkeys(text for many in sentences.values() for text, _ in many if text.strip()))
        found: dict[str, list[str]] = {}
        for some in portions(asked, self.service.limits):
            answers = await self.service.translate(served, some, beam=beam, alternatives=alternatives, terms=terms)
            found.update(zip(some, answers, strict=True))
        most = max((len(many) for many in found.values()), default=1)
        pairs = [
            (text, translations[min(rank, len(translations) - 1)])
            for parts in documents
            for part in parts
            if isinstance(part, Segment) and part.elements
            for text, _ in sentences[id(part)]
            if (translations := found.get(text))
            for rank in range(most)
        ]
        aligned: dict[Pair, list[int | None]] = {}
        if pairs:
            different = list(dict.fromkeys(pairs))
            aligned = dict(zip(different, await self.service.align(served, different), strict=True))
        return [
            list(dict.fromkeys(_assembled(parts, sentences, found, aligned, rank) for rank in range(most)))
            for parts in documents
        ]


def _sentences(segment: Segment) -> list[tuple[str, str]]:
    """What is translated of a segment, each with the white space behind it; a segment without tags is one text."""
    if not segment.elements:
        return [(segment.text, "")]
    return split_paragraph(segment.text, 0)


def _assembled(
    parts: Sequence[str | Segment],
    sentences: dict[int, list[tuple[str, str]]],
    found: dict[str, list[str]],
    aligned: dict[Pair, list[int | None]],
    rank: int,
) -> str:
    written: list[str] = []
    for part in parts:
        if isinstance(part, str):
            written.append(part)
            continue
        texts: list[str] = []
        sources: list[int | None] = []
        begins: list[tuple[int, int]] = []
        before = 0  # units of the source
        for text, after in sentences[id(part)]:
            many = found.get(text, [text])
            best = many[min(rank, len(many) - 1)]
            texts += [best, after]
            begins.append((before, len(sources)))
            own = aligned.get((text, best)) or in_step(len(units_of(text)), len(units_of(best)))
            sources += [None if s is None else s + before for s in own]
            before += len(units_of(text))
        written.append(placed(part, "".join(texts), sources, begins))
    return "".join(written)
