"""The language of a whole side: recognised by its script and small words, and held against what its name claims."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from regard.data.checks.function_words import ALIKE, BY_SCRIPT, FUNCTION_WORDS, SCRIPTS_OF, code_of

_WORD = re.compile(r"[^\s!-@\[-`{-~«»„“”‘’…–—।،؟]+")
_LEAST_WORDS = 200
_LEAST_SHARE = 0.10  # of the words of a text, that are small words of its language
_LEAST_LONG = 0.06  # likewise, of more than one letter: a text of single letters is in no language
_CLEARLY = 1.25  # times as many as of the next language
_CLEARLY_OTHER = 2.0  # times as many as of the language that a text is said to be in
_KANA_IN_JAPANESE = 0.05
_LINES, _CHARACTERS = 4000, 400  # that are looked at
_LATIN = frozenset({"Latin"})


@dataclass(frozen=True)
class Recognised:
    """The language of a text, "" where it is not known, with the share of its words that speaks for each language."""

    code: str
    shares: Mapping[str, float]

    def contradicts(self, claimed: str) -> bool:
        """Whether a text that is said to be in a language (by its two-letter code) is clearly in another one."""
        if not self.code or not claimed or self.code == claimed or claimed not in {*FUNCTION_WORDS, *SCRIPTS_OF}:
            return False
        if any({self.code, claimed} <= alike for alike in ALIKE):
            return False
        return self.shares.get(self.code, 1.0) >= _CLEARLY_OTHER * self.shares.get(claimed, 0.0)


def recognise(lines: Sequence[str], scripts: Mapping[str, float]) -> Recognised:
    """The language of some lines, whose letters are in these scripts (script -> share of the letters)."""
    main = max(scripts, key=lambda script: scripts[script], default="")
    kana = scripts.get("Hiragana", 0.0) + scripts.get("Katakana", 0.0)
    if main in ("Han", "Hiragana", "Katakana"):
        return Recognised("ja" if kana >= _KANA_IN_JAPANESE else "zh", {})
    if main in BY_SCRIPT:
        return Recognised(BY_SCRIPT[main], {})
    words: Counter[str] = Counter()
    for line in lines[:: max(1, len(lines) // _LINES)]:
        words.update(_WORD.findall(unicodedata.normalize("NFC", line[:_CHARACTERS].lower())))
    total = sum(words.values())
    if total < _LEAST_WORDS:
        return Recognised("", {})
    shares = {
        code: sum(words[word] for word in small) / total
        for code, small in FUNCTION_WORDS.items()
        if main in SCRIPTS_OF.get(code, _LATIN)
    }
    best = max(shares, key=lambda code: shares[code], default="")
    long = sum(words[word] for word in FUNCTION_WORDS.get(best, ()) if len(word) > 1) / total
    if not best or shares[best] < _LEAST_SHARE or long < _LEAST_LONG:
        return Recognised("", shares)
    others = [share for code, share in shares.items() if not any({code, best} <= alike for alike in ALIKE)]
    clear = shares[best] >= _CLEARLY * max((share for share in others if share < shares[best]), default=0.0)
    return Recognised(best if clear else "", shares)


def claimed_by_names(names: Sequence[str]) -> tuple[str, str]:
    """The languages that the names of two files claim, such as corpus.en and corpus.de.gz, as codes; else ("", "")."""
    if len(names) != 2:
        return "", ""  # one file with both sides may be read in either direction
    codes = [_claimed_by_name(name) for name in names]
    return (codes[0], codes[1]) if all(codes) and codes[0] != codes[1] else ("", "")


def _claimed_by_name(name: str) -> str:
    endings = re.split(r"[/\\]", name)[-1].split(".")[1:]
    while endings and endings[-1].lower() in ("gz", "xz", "zst", "txt", "tok", "bpe", "clean", "raw", "norm", "lc"):
        endings.pop()
    return code_of(endings[-1]) if endings and 2 <= len(endings[-1]) <= 5 else ""
