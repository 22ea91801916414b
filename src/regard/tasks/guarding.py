"""A guard against translations that are none: loops, nothing, copies of the source, far too long or too short.

Models of few or foreign words do this now and then. Each sentence whose best translation looks so gets the next of its n-best
list that does not, else a second search that may not repeat itself, else the least bad one; `note` says what happened.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from regard.core.errors import ConfigError
from regard.core.search_config import SearchConfig
from regard.tasks.lines import Translation

LOOP_WORDS = 4  # of the longest group of words that is looked for
WIDER = 5  # beam of the second search, at least

Again = Callable[[list[int], SearchConfig], list[list[Translation]]]  # searches for some of the sentences once more


@dataclasses.dataclass(frozen=True, kw_only=True)
class Guard:
    """What is no translation. Names, numbers and single words may well be copied: only sentences count as copies."""

    loops: int = 4  # a group of up to 4 words that stands there more than so often in a row, and not in the source
    longest: float = 3.0  # tokens of the translation by tokens of the source, beyond ...
    shortest: float = 0.2  # ... and below
    from_tokens: int = 12  # shorter texts may have any ratio, and translations up to so many tokens any length
    copied_words: int = 5  # so many words or more of the source, letter by letter

    def __post_init__(self) -> None:
        if self.loops < 1 or self.from_tokens < 1 or self.copied_words < 1:
            raise ConfigError("guard", "loops, from_tokens and copied_words are 1 or more", "Use such numbers")
        if not 0 <= self.shortest < 1 < self.longest:
            raise ConfigError("guard", "ratios are below and above 1", "Use shortest < 1 < longest")

    def fault(self, source: str, one: Translation) -> str:
        """What is wrong with a translation, in a word or two; empty where it may be one."""
        if source.strip() and any(map(str.isalnum, source)) and not one.text.strip():
            return "nothing was written"
        words, given = one.text.split(), source.split()
        if _loops(words, self.loops) and not _loops(given, self.loops):
            return "it repeats itself"
        letters = [word for word in given if any(map(str.isalpha, word))]
        if len(letters) >= self.copied_words and [w.casefold() for w in words] == [w.casefold() for w in given]:
            return "it copies the source"
        read, written = len(one.source_tokens), len(one.tokens)
        if written > max(self.from_tokens, self.longest * read):
            return "it is far longer than the source"
        if read > self.from_tokens and written < self.shortest * read:
            return "it is far shorter than the source"
        return ""

    def keep(
        self, sources: Sequence[str], lists: Sequence[list[Translation]], settings: SearchConfig, again: Again
    ) -> list[list[Translation]]:
        """The lists, with what passes in front."""
        kept = list(lists)
        faults = [self.fault(source, many[0]) if many else "" for source, many in zip(sources, kept, strict=True)]
        faulty = [row for row, fault in enumerate(faults) if fault]
        left = [row for row in faulty if not self._promote(kept, row, sources[row], faults[row], "another of its beam")]
        if left:
            careful = dataclasses.replace(
                settings,
                method="beam",
                beam=max(WIDER, settings.beam if settings.method == "beam" else 1),
                nbest=max(WIDER, settings.nbest),
                groups=1,
                no_repeat_ngram=3,
                min_length=min(1, settings.max_length),
            )
            for row, many in zip(left, again(left, careful), strict=True):
                wanted, before = len(kept[row]), kept[row]
                kept[row] = many
                if not self._promote(kept, row, sources[row], faults[row], "a second search"):
                    kept[row] = [dataclasses.replace(before[0], note=faults[row]), *before[1:]]
                kept[row] = kept[row][:wanted]
        return kept

    def _promote(self, kept: list[list[Translation]], row: int, source: str, fault: str, how: str) -> bool:
        """Puts the first one that passes in front."""
        many = kept[row]
        for i, one in enumerate(many):
            if not self.fault(source, one):
                noted = dataclasses.replace(one, note=f"{how} was taken: of the best one, {fault}")
                kept[row] = [noted, *many[:i], *many[i + 1 :]]
                return True
        return False


def _loops(words: Sequence[str], most: int) -> bool:
    """Whether some group of words stands there more than `most` times in a row."""
    for size in range(1, LOOP_WORDS + 1):
        same = 0
        for i in range(size, len(words)):
            same = same + 1 if words[i] == words[i - size] else 0
            if same >= size * most:
                return True
    return False
