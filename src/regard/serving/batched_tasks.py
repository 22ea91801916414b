"""How each kind of model answers batches: cut a request into units, compute units of many requests at once, join them."""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from regard.core.search_config import SearchConfig
from regard.serving.admission import guess_tokens
from regard.tasks.lines import Sentence, Translation, join_line

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

    def settings(self, own: SearchConfig) -> SearchConfig:
        """The model's own settings with what was asked for. As many hypotheses are kept as are given back."""
        beam = max(self.beam or own.beam, self.alternatives + 1)
        return dataclasses.replace(own, method="beam", beam=beam, nbest=self.alternatives + 1)


class Translating:
    """Texts into the n-best translations of each. The units are sentences, split as `regard translate` splits them."""

    def __init__(self) -> None:
        self._with_terms: weakref.WeakKeyDictionary[Translator, dict[Terms, Translator]] = weakref.WeakKeyDictionary()

    def cut(self, model: Translator, wish: Sequence[str]) -> list[Counted]:
        return [Counted(one, len(one.ids) + 1, one.line) for one in model.split(wish)]

    def compute(self, model: Translator, key: Searching, units: Sequence[Counted]) -> list[list[Translation]]:
        settings = key.settings(model.search)
        if key.terms is not None:  # made ready once for each model
            known = self._with_terms.setdefault(model, {})
            if key.terms not in known:
                known[key.terms] = model.with_glossary(key.terms.glossary)
            model = known[key.terms]
        sentences = [dataclasses.replace(unit.what, line=i) for i, unit in enumerate(units)]
        return model.search_sentences(sentences, settings, attention=key.attention, details=key.attention)

    def join(
        self, model: Translator, wish: Sequence[str], units: Sequence[Counted], found: list[list[Translation]]
    ) -> list[list[Translation]]:
        lines: list[list[tuple[Sentence, list[Translation]]]] = [[] for _ in wish]
        for unit, many in zip(units, found, strict=True):
            lines[unit.line].append((unit.what, many))
        return [join_line(text, parts) for text, parts in zip(wish, lines, strict=True)]


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
