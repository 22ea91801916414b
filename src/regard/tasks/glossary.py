"""Glossaries: words of the source that must become certain words of the target, or stay as they are.

A glossary is a text file (UTF-8), one term a line: forms of the source, a tab, forms of the target, any one of which will do.

    bank|banks<TAB>Bank|Banken|Ufer
    regard<TAB>=

`|` stands between forms; `=`, or nothing, says that the term stays as it is in the source. Lines that begin with # are comments.
Source terms are found as whole words, in capitals or not, longer ones first.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from pathlib import Path

from regard.core.errors import ConfigError, DataError

MOST_BYTES = 16 << 20
MOST_ENTRIES = 200_000
MOST_CHARACTERS = 200  # of a form
MOST_FORMS = 32
MOST_TERMS = 12  # of a sentence: each takes a part of the beam
COMMENT, SAME = "#", ("=", "")
# Scripts without spaces between words: each letter counts as a word.
SINGLE = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_WORD = re.compile(rf"[{SINGLE}]|[^\W{SINGLE}]+|[^\w\s]")
KEPT = {
    "url": r"(?:https?|ftp)://[^\s<>\"]*[\w/]|www\.[\w-]+\.[^\s<>\"]*[\w/]",
    "email": r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+",
    "placeholder": r"\$?\{\{?[^{}\s]{1,60}\}\}?|%\([^()\s]{1,60}\)[a-z]|%[sdifx]\b|\$[A-Za-z_]\w*|__\w+?__",
    "tag": r"</?[A-Za-z][^<>]{0,200}>",
    "number": r"\d+(?:[.,:]\d+)*",
}


@dataclasses.dataclass(frozen=True)
class Wanted:
    """A term of one sentence: where it stands, and what must be written for it, in any one of these forms."""

    begin: int
    end: int
    source: str
    forms: tuple[str, ...]  # none: it stays as it is
    kind: str = "term"  # or one of KEPT


@dataclasses.dataclass(frozen=True)
class Glossary:
    """Terms by the words of their source forms, and kinds of text that stay as they are (see KEPT)."""

    terms: dict[tuple[str, ...], tuple[str, ...]]  # no forms: the term stays
    keep: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for kind in self.keep:
            if kind not in KEPT:
                raise ConfigError("keep", f"{kind!r} is not one of {', '.join(KEPT)}", "Choose among them")
        object.__setattr__(self, "_longest", max(map(len, self.terms), default=0))
        pattern = "|".join(f"(?P<{kind}>{KEPT[kind]})" for kind in KEPT if kind in self.keep)
        object.__setattr__(self, "_kept", re.compile(pattern) if pattern else None)

    @classmethod
    def of(cls, pairs: Sequence[tuple[str, str]], keep: Sequence[str] = ()) -> Glossary:
        """From pairs as they stand in a file: ("bank|banks", "Bank|Banken")."""
        terms: dict[tuple[str, ...], tuple[str, ...]] = {}
        for number, (source, target) in enumerate(pairs, start=1):
            _add(terms, source, target, f"term {number}")
        return cls(terms, tuple(keep))

    @classmethod
    def load(cls, path: Path | str, keep: Sequence[str] = ()) -> Glossary:
        """From a file."""
        path = Path(path)
        try:
            if path.stat().st_size > MOST_BYTES:
                raise DataError(path, f"it is larger than {MOST_BYTES >> 20} MiB", "Give fewer terms")
            text = path.read_bytes().decode("utf-8-sig")
        except OSError as error:
            what = f"it cannot be read ({error.strerror or error})"
            raise DataError(path, what, "Give a text file: source, a tab, target") from None
        except UnicodeDecodeError as error:
            line = error.object[: error.start].count(b"\n") + 1
            raise DataError(f"{path}, line {line}", "it is not UTF-8", "Convert the file to UTF-8") from None
        terms: dict[tuple[str, ...], tuple[str, ...]] = {}
        for number, line in enumerate(text.splitlines(), start=1):
            if not line.strip() or line.lstrip().startswith(COMMENT):
                continue
            where = f"{path}, line {number}"
            source, *rest = line.split("\t")
            if len(rest) > 1:
                raise DataError(where, f"it has {len(rest)} tabs", "Write the source, one tab, the target")
            if not rest and " " in source.strip():
                what = "it has no tab"
                raise DataError(where, what, "Write the source, a tab, the target (= where the term stays as it is)")
            _add(terms, source, rest[0] if rest else "=", where)
            if len(terms) > MOST_ENTRIES:
                raise DataError(path, f"it has more than {MOST_ENTRIES:,} forms", "Give fewer terms")
        if not terms:
            raise DataError(path, "it has no terms", "Write one a line: the source, a tab, the target")
        return cls(terms, tuple(keep))

    def wanted(self, text: str) -> list[Wanted]:
        """The terms of a sentence, in its order; they do not overlap."""
        found: list[Wanted] = []
        taken = [False] * len(text)
        kept: re.Pattern[str] | None = self._kept  # type: ignore[attr-defined]
        if kept is not None:
            for match in kept.finditer(text):
                kind = match.lastgroup or "term"
                found.append(Wanted(match.start(), match.end(), match[0], (), kind))
                taken[match.start() : match.end()] = [True] * len(match[0])
        longest: int = self._longest  # type: ignore[attr-defined]
        words = list(_WORD.finditer(text)) if longest else []
        folded = [match[0].casefold() for match in words]
        i = 0
        while i < len(words):
            for n in range(min(longest, len(words) - i), 0, -1):
                forms = self.terms.get(tuple(folded[i : i + n]))
                begin, end = words[i].start(), words[i + n - 1].end()
                if forms is not None and not any(taken[begin:end]):
                    found.append(Wanted(begin, end, text[begin:end], forms))
                    i += n
                    break
            else:
                i += 1
        found.sort(key=lambda one: one.begin)
        return found[:MOST_TERMS]


def _add(terms: dict[tuple[str, ...], tuple[str, ...]], source: str, target: str, where: str) -> None:
    forms = [] if target.strip() in SAME else [" ".join(form.split()) for form in target.split("|")]
    if any(not form for form in forms) or len(forms) > MOST_FORMS:
        raise DataError(where, f"a form is empty, or there are more than {MOST_FORMS}", "Write bank|banks, a tab, Bank")
    for name in source.split("|"):
        words = tuple(match[0].casefold() for match in _WORD.finditer(name))
        if not words:
            raise DataError(where, "a source form has no letters", "Write bank|banks, a tab, Bank")
        if max(map(len, (name, *forms))) > MOST_CHARACTERS:
            raise DataError(where, f"a form has more than {MOST_CHARACTERS} characters", "Shorten it")
        if words in terms and terms[words] != tuple(forms):
            raise DataError(
                where, f"{name.strip()!r} is there twice", "Write all its forms in one line, with | between"
            )
        terms[words] = tuple(forms)
