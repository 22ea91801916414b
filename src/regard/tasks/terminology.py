"""Translating with a glossary: terms as constraints of the search, and in the place of the words that they are for.

The search sees to it that each term is written, in any one of its forms. But a model that reads "Where is the nearest bank?" and
would never write "Ufer" writes its own word, too. So there is a second search, in which it is shown the term's first form where
the source word stood, which models of subwords copy; what that finds is taken where its score is better by SHOWN_BETTER.

What stays as it is and is no word (an address, a placeholder, a tag), or has characters that the model does not know, is replaced
by a number that is not in the sentence. The number must be in the translation, where the text is put back.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Sequence

from regard.core.search_config import MAX_HYPOTHESES, SearchConfig
from regard.core.specials import UNK
from regard.data.tokenizers import TokenizerPair
from regard.tasks.glossary import Glossary, Wanted
from regard.tasks.glossary_tokens import TermTokens
from regard.tasks.lines import Sentence, Translation

STAND_INS = ("17", "23", "31", "47", "53", "61", "73", "89", "97", "113", "127", "139")
SHOWN_BETTER = 0.5
MORE_BEAM = 4  # a search is wider than the terms have tokens by so many at least

Search = Callable[[list[Sentence], SearchConfig], list[list[Translation]]]


class Terminology:
    """A glossary for one model."""

    def __init__(self, glossary: Glossary, tokenizers: TokenizerPair):
        self.glossary, self.tokenizers = glossary, tokenizers
        self.tokens = TermTokens(tokenizers.target)

    def search(
        self, sentences: Sequence[Sentence], settings: SearchConfig, plainly: Search, with_terms: Search
    ) -> list[list[Translation]]:
        """What is found. Sentences without terms are searched for `plainly`, and so are those in which terms found no place."""
        prepared = [self._prepared(sentence) for sentence in sentences]
        found: list[list[Translation]] = [[] for _ in sentences]
        plain = [row for row, one in enumerate(prepared) if not one.sentence.terms]
        for row, many in zip(plain, plainly([prepared[row].sentence for row in plain], settings), strict=True):
            found[row] = prepared[row].finished(many)
        rows = [row for row, one in enumerate(prepared) if one.sentence.terms]
        asked = [(row, sentence) for row in rows for sentence in prepared[row].asked()]
        lists: dict[int, list[list[Translation]]] = {row: [] for row in rows}
        by_beam: dict[int, list[tuple[int, Sentence]]] = {}
        for row, sentence in asked:
            by_beam.setdefault(_beam(settings, sentence), []).append((row, sentence))
        for beam, some in sorted(by_beam.items()):
            wide = dataclasses.replace(settings, beam=beam)
            for (row, _), many in zip(some, with_terms([sentence for _, sentence in some], wide), strict=True):
                lists[row].append(
                    many
                )  # a row's own comes before what it is shown: sorting is stable, and beams are equal
        lost: list[int] = []
        for row in rows:
            best = _better(lists[row])
            if best:
                found[row] = prepared[row].finished(best)
            else:
                lost.append(row)
        for row, many in zip(lost, plainly([sentences[row] for row in lost], settings), strict=True):
            named = ", ".join(one.source for one in prepared[row].wanted)
            found[row] = _noted(many, f"no text with all terms ended: {named}")
        return found

    def _prepared(self, sentence: Sentence) -> _Prepared:
        wanted = self.glossary.wanted(sentence.text)
        if not wanted:
            return _Prepared(sentence, sentence, [], {}, [])
        stand_ins, written = self._stand_ins(sentence, wanted)
        forms = {one: self._readable(one.forms[0]) for one in wanted if one.forms}
        terms, impossible = self.tokens.of(written)
        changed = dataclasses.replace(self._with(sentence, wanted, stand_ins), terms=terms)
        shown = dataclasses.replace(self._with(sentence, wanted, {**forms, **stand_ins}), terms=terms)
        back = {number: one.source for one, number in stand_ins.items()}
        return _Prepared(changed, shown, wanted, back, impossible)

    def _with(self, sentence: Sentence, wanted: Sequence[Wanted], others: dict[Wanted, str]) -> Sentence:
        """The sentence with other texts in the place of some terms; its own text is kept, its tokens are not."""
        text = sentence.text
        for one in reversed(wanted):
            if others.get(one):
                text = text[: one.begin] + others[one] + text[one.end :]
        if text == sentence.text:
            return sentence
        own, new = self.tokenizers.source.encode([sentence.text, text])
        return dataclasses.replace(sentence, ids=[*sentence.ids[: len(sentence.ids) - len(own)], *new])

    def _stand_ins(self, sentence: Sentence, wanted: Sequence[Wanted]) -> tuple[dict[Wanted, str], list[Wanted]]:
        """What is replaced, by which numbers; and all that must be written."""
        free = [number for number in STAND_INS if number not in sentence.text]
        chosen: dict[Wanted, str] = {}
        written: list[Wanted] = []
        for one in wanted:
            if free and not one.forms and self._needs_one(one):
                chosen[one] = free.pop(0)
                written.append(dataclasses.replace(one, source=chosen[one]))
            else:
                written.append(one)
        return chosen, written

    def _readable(self, form: str) -> str:
        """The form, if the model can read it."""
        return "" if UNK in self.tokenizers.source.encode([form])[0] else form

    def _needs_one(self, one: Wanted) -> bool:
        if one.kind not in ("term", "number"):
            return True
        return not self.tokens.phrases(one) or UNK in self.tokenizers.source.encode([one.source])[0]


@dataclasses.dataclass(frozen=True)
class _Prepared:
    """A sentence as it is searched for, and what is to be done with what is found."""

    sentence: Sentence
    shown: Sentence  # with terms where the source words stood
    wanted: list[Wanted]
    stand_ins: dict[str, str]
    impossible: list[str]  # terms that cannot be written

    def asked(self) -> list[Sentence]:
        return [self.sentence] if self.shown.ids == self.sentence.ids else [self.sentence, self.shown]

    def finished(self, many: list[Translation]) -> list[Translation]:
        if self.stand_ins:
            many = [dataclasses.replace(one, text=self._put_back(one.text)) for one in many]
        if self.impossible:
            what = f"the model's vocabulary cannot write what the glossary wants for: {', '.join(self.impossible)}"
            many = _noted(many, what)
        return many

    def _put_back(self, text: str) -> str:
        for number, source in self.stand_ins.items():
            text = re.sub(rf"(?<!\w){number}(?!\w)", lambda _, source=source: source, text, count=1)
        return text


def _better(lists: list[list[Translation]]) -> list[Translation]:
    """Of what was found for a sentence, and for it with terms shown; nothing, if nothing came to its end."""
    ended = [many if many and many[0].finished else [] for many in lists]
    if len(ended) == 2 and ended[1] and (not ended[0] or ended[1][0].score > ended[0][0].score + SHOWN_BETTER):
        return ended[1]
    return ended[0]


def satisfied(glossary: Glossary, source: str, translation: str) -> tuple[int, int]:
    """How many of a sentence's terms are in a translation, in any form, and how many there are."""
    wanted = glossary.wanted(source)
    forms = [[f for form in one.forms for f in (form, form[:1].upper() + form[1:])] or [one.source] for one in wanted]
    return sum(any(_has(translation, form) for form in some) for some in forms), len(wanted)


def _has(text: str, form: str) -> bool:
    begin, end = (r"(?<!\w)" if form[0].isalnum() else ""), (r"(?!\w)" if form[-1].isalnum() else "")
    return re.search(begin + re.escape(form) + end, text) is not None


def _beam(settings: SearchConfig, sentence: Sentence) -> int:
    """By the sentence's own terms, so that it does not matter with which others it is searched for."""
    tokens = sum(max(map(len, term)) for term in sentence.terms)
    return min(MAX_HYPOTHESES, max(settings.beam, -(-(tokens + MORE_BEAM) // 4) * 4))


def _noted(many: list[Translation], note: str) -> list[Translation]:
    return [dataclasses.replace(one, note=f"{one.note}; {note}" if one.note else note) for one in many]
