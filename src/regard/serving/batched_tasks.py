"""How each kind of model answers batches: cut a request into units, compute units of many requests at once, join them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from regard.core.search_config import SearchConfig
from regard.serving.admission import guess_tokens
from regard.serving.choosing import PLAIN, Choosing, Variants
from regard.serving.companions import NONE, Companions
from regard.tasks.lines import Sentence, Translation, join_line
from regard.tasks.search_request import SearchRequest

if TYPE_CHECKING:
    from regard.serving.glossaries import Terms
    from regard.tasks.classification import Guess, TextClassifier
    from regard.tasks.masked import FilledWord, MaskedText
    from regard.tasks.tagging import Tagged, TextTagger
    from regard.tasks.translation import Translator


@dataclasses.dataclass(frozen=True)
class Counted:
    """A unit: something to compute, and about how many tokens it is."""

    what: Any
    tokens: int
    line: int = 0  # of a sentence: which text of the request it belongs to


@dataclasses.dataclass(frozen=True)
class Searching:
    """The key of translations: those with other settings are searched for in other batches."""

    beam: int | None
    alternatives: int
    attention: bool
    terms: Terms | None = None
    choosing: Choosing = PLAIN
    companions: Companions = NONE  # where they are needed

    def settings(self, own: SearchConfig) -> SearchConfig:
        """The model's own settings with what was asked for. As many hypotheses are kept as are given back."""
        return self.choosing.settings(own, self.beam, self.alternatives)


@dataclasses.dataclass(frozen=True)
class ToTranslate:
    texts: Sequence[str]
    prefix: str = ""  # how the translation of a single text must begin

    @property
    def prefixes(self) -> list[str] | None:
        return [self.prefix] * len(self.texts) if self.prefix else None


class Translating:
    """Texts into the n-best translations of each. The units are sentences, split as `regard translate` splits them."""

    def __init__(self) -> None:
        self._variants = Variants()

    def cut(self, model: Translator, wish: ToTranslate) -> list[Counted]:
        return [Counted(one, len(one.ids) + 1, one.line) for one in model.split(wish.texts, wish.prefixes)]

    def compute(self, model: Translator, key: Searching, units: Sequence[Counted]) -> list[list[Translation]]:
        choosing = key.choosing
        details = key.attention or choosing.details
        request = SearchRequest(key.settings(model.search), key.attention, details=details)
        model = self._variants.of(model, choosing, key.terms, key.companions)
        sentences = [dataclasses.replace(unit.what, line=i) for i, unit in enumerate(units)]
        return model.search_sentences(sentences, request, alignment=choosing.alignment)

    @staticmethod
    def beside(key: Searching) -> bool:
        """Whether such a batch may be searched for while another is: nothing special is asked for."""
        return key == Searching(key.beam, key.alternatives, attention=False)

    def join(
        self, model: Translator, wish: ToTranslate, units: Sequence[Counted], found: list[list[Translation]]
    ) -> list[list[Translation]]:
        lines: list[list[tuple[Sentence, list[Translation]]]] = [[] for _ in wish.texts]
        for unit, many in zip(units, found, strict=True):
            lines[unit.line].append((unit.what, many))
        return [join_line(text, parts) for text, parts in zip(wish.texts, lines, strict=True)]


@dataclasses.dataclass(frozen=True)
class NextWords:
    """What could stand after a prefix: see tasks/alternatives.py."""

    text: str
    prefix: str
    count: int


class FindingNextWords:
    """The likeliest next words, each with its translation. The key is the beam."""

    def cut(self, model: Translator, wish: NextWords) -> list[Counted]:
        return [Counted(wish, guess_tokens([wish.text, wish.prefix]))]

    def compute(self, model: Translator, key: int | None, units: Sequence[Counted]) -> list[list[Translation]]:
        settings = PLAIN.settings(model.search, key, 0)
        wishes = [unit.what for unit in units]
        return [model.alternatives(one.text, one.prefix, one.count, search=settings) for one in wishes]

    def join(self, model: Translator, wish: NextWords, units: Sequence[Counted], found: list[Any]) -> list[Translation]:
        return found[0]


@dataclasses.dataclass(frozen=True)
class ToClassify:
    texts: Sequence[str]
    second: Sequence[str] | None
    top: int


class Classifying:
    """Texts into labels. A text that is longer than the model reads is cut, as by `regard classify`."""

    def cut(self, model: TextClassifier, wish: ToClassify) -> list[Counted]:
        return [Counted(row, len(row)) for row in model.rows(wish.texts, wish.second).rows]

    def compute(self, model: TextClassifier, key: None, units: Sequence[Counted]) -> list[Any]:
        return list(model.log_probs([unit.what for unit in units]))

    def join(
        self, model: TextClassifier, wish: ToClassify, units: Sequence[Counted], found: list[Any]
    ) -> list[list[Guess]]:
        import numpy as np

        from regard.tasks.classification import Guess

        answers = []
        for row in found:
            best = np.argsort(-row, kind="stable")[: wish.top]
            answers.append([Guess(model.labels[i], float(np.exp(row[i]))) for i in best])
        return answers


class Tagging:
    """Texts into words with tags."""

    def cut(self, model: TextTagger, wish: Sequence[str]) -> list[Counted]:
        return [Counted((text, number), guess_tokens([text])) for number, text in enumerate(wish, start=1)]

    def compute(self, model: TextTagger, key: None, units: Sequence[Counted]) -> list[list[Tagged]]:
        first = units[0].what[1]
        return model.tag([unit.what[0] for unit in units], first=first)

    def join(
        self, model: TextTagger, wish: Sequence[str], units: Sequence[Counted], found: list[list[Tagged]]
    ) -> list[list[Tagged]]:
        return found


class Filling:
    """Texts with masks into words for them. The key is how many words."""

    def cut(self, model: MaskedText, wish: Sequence[str]) -> list[Counted]:
        rows = [model.masked_row(text, f"text {number}") for number, text in enumerate(wish, start=1)]
        return [Counted(row, len(row.ids)) for row in rows]

    def compute(self, model: MaskedText, key: int, units: Sequence[Counted]) -> list[list[list[FilledWord]]]:
        return model.fill_rows([unit.what for unit in units], key)

    def join(self, model: MaskedText, wish: Sequence[str], units: Sequence[Counted], found: list[Any]) -> list[Any]:
        return found


class Embedding:
    """Texts into vectors: the mean of a masked model's states, or of the vectors of a text's words."""

    def cut(self, model: Any, wish: Sequence[str]) -> list[Counted]:
        return [Counted((text, number), guess_tokens([text])) for number, text in enumerate(wish, start=1)]

    def compute(self, model: Any, key: None, units: Sequence[Counted]) -> list[list[float]]:
        texts, first = [unit.what[0] for unit in units], units[0].what[1]
        if hasattr(model, "embed"):
            return model.embed(texts, first=first).tolist()
        return [model.mean(text)[0].tolist() for text in texts]

    def join(self, model: Any, wish: Sequence[str], units: Sequence[Counted], found: list[Any]) -> list[Any]:
        return found
