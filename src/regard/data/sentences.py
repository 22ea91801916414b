"""Splits a paragraph into sentences by rules, so that joining them gives the paragraph back exactly.

The rules are for European languages and for Chinese and Japanese full stops. Where they are unsure they do not split:
a sentence too long is translated well enough, half a sentence is not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_CJK = r"\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_WIDE_CLOSERS = r"[\"'”’」』）》】)\]]*"  # without “, which opens what follows
_CLOSERS = r"[\"'”’“‘»«›‹)\]}」』）》】]*(?:[ \u00a0\u202f]»)?"
# A stop: a line break, a full-width stop with what closes after it, or a stop followed by white space or the end.
_STOP = re.compile(rf"\n|[。！？｡]+{_WIDE_CLOSERS}|(?P<mark>[.!?…؟۔।॥]+){_CLOSERS}(?=\s|$)")
_FIRST_LETTER = re.compile(r"[^\w\n]*(\w)")
_LAST_WORD = re.compile(r"[^\s(\[{\"'“„‚«‹]*$")
_NEXT_WORD = re.compile(r"\s+[\"'“„‚«‹(\[]*([^\W\d_]+)")
_DOTTED = re.compile(r"(?:[^\W\d_]{1,3}\.)+[^\W\d_]{1,3}$")  # e.g, z.B, U.S, i.d.R
_GAP = re.compile(r"\s*")
_UNIT = re.compile(rf"[{_CJK}](?:[^\w\s])*|[^\s{_CJK}]+")


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Never the end of a sentence, since a name, a number or an example follows.
_OPEN = _words(
    "mr mrs ms messrs dr prof st mt ft gen col capt lt sgt rev hon sen rep gov pres no nos nr vol vols fig figs eq eqs "
    "sec chap ed eds vs cf ca approx viz al pp art abs bzw bspw vgl evtl ggf inkl exkl zzgl hl hr fr frl str tel "
    "bd kap abb tab dipl ing mag sog jan feb mar apr jun jul aug sep sept oct okt nov dec dez "
    "mme mlle mm mgr av ex env sra srta sr dña avda núm pág sig dott avv ing bsp z.b d.h i.e e.g u.a"
)
# Words as well: "The answer is no. We left."
_ALSO_WORDS = _words("no art mag tab fig")
# May end a sentence: they do where a capital letter follows.
_MAYBE = _words("etc usw usf ff inc ltd co corp jr bros dept est ave blvd rd a.m p.m u.ä o.ä u.s.w s.o s.u")
# Words that begin a sentence but follow no ordinal number: "It was 12. He left.", but "am 3. Mai".
_STARTERS = _words(
    "the a an he she it i we you they this that these those there then but and so when if what who how why his her my "
    "our ich er sie es wir ihr du der die das ein eine dann aber und doch wenn als was wer wie warum mein sein "
    "il elle nous vous ils elles je tu le la les un une mais et puis el ella los las pero y entonces"
)


def split_paragraph(text: str, limit_words: int = 60) -> list[tuple[str, str]]:
    """(sentence, separator that follows) for each sentence; all of them joined are exactly the text.

    A sentence of more than `limit_words` words (0: no limit) is cut at ; or : or , and failing these at a space. White
    space at the beginning of the text is the separator of a first, empty sentence.
    """
    result: list[tuple[str, str]] = []
    begin = len(text) - len(text.lstrip())
    if begin:
        result.append(("", text[:begin]))
    for end in [*_sentence_ends(text), len(text)]:
        sentence = text[begin:end].rstrip()
        following = begin + len(sentence)
        if not sentence:
            continue
        gap = _GAP.match(text, following)
        assert gap is not None
        result.extend(_cut(sentence, gap.group(), limit_words))
        begin = gap.end()
    return result


def _sentence_ends(text: str) -> Iterator[int]:
    for stop in _STOP.finditer(text):
        if stop["mark"] is None or _ends_sentence(text, stop):
            yield stop.end()


def _ends_sentence(text: str, stop: re.Match[str]) -> bool:
    after = _FIRST_LETTER.match(text, stop.end())
    if after is not None and after[1].islower():
        return False
    if stop["mark"] != ".":
        return True
    word = _word_before(text, stop.start())
    lowered = word.lower()
    following = _NEXT_WORD.match(text, stop.end())
    starts = following is not None and following[1].lower() in _STARTERS
    if stop.end() > stop.end("mark") and not word.isdigit():
        return lowered not in _OPEN  # a closing quote or bracket stands behind the stop
    if lowered in _MAYBE:
        return True  # no small letter follows
    if lowered in _OPEN:
        return lowered in _ALSO_WORDS and starts
    if len(word) == 1 and word.isalpha():
        return _is_pronoun(text, stop.start())
    if _DOTTED.fullmatch(word):
        return False
    if word.isdigit() and len(word) <= 2:
        numbering = not text[: stop.start() - len(word)].strip()
        return not numbering and starts
    return True


def _word_before(text: str, end: int) -> str:
    found = _LAST_WORD.search(text, max(0, end - 40), end)
    return found.group() if found is not None else ""


def _is_pronoun(text: str, end: int) -> bool:
    """Whether the single letter before a stop is the English "I" after a word in small letters, not an initial."""
    before = text[max(0, end - 40) : end - 1].split()
    return text[end - 1] == "I" and bool(before) and before[-1].islower()


def _cut(sentence: str, separator: str, limit: int) -> Iterator[tuple[str, str]]:
    """A sentence in parts of at most `limit` words (a Chinese or Japanese character counts as a word)."""
    units = list(_UNIT.finditer(sentence)) if limit > 0 else []
    first = 0
    while len(units) - first > max(limit, 1):
        last = _best_cut([unit.group() for unit in units[first : first + limit]])
        end, begin = units[first + last].end(), units[first + last + 1].start()
        yield sentence[units[first].start() : end], sentence[end:begin]
        first += last + 1
    yield (sentence[units[first].start() :] if units else sentence), separator


def _best_cut(words: list[str]) -> int:
    """The word after which to cut: the last with a strong mark, or else a comma, but not near the beginning."""
    for marks in (";:；：", ",，、"):
        for i in range(len(words) - 1, len(words) // 4 - 1, -1):
            if words[i].rstrip("\"'”’»)」』）")[-1:] in set(marks):
                return i
    return len(words) - 1
