"""Files of columns: words and their tags, in CoNLL's formats.

A line is a word and its tag, a blank line ends a sentence. Two formats are known:

- CoNLL columns: the word is the first column and the tag the last, with tabs or spaces between them. Lines that begin with
  "-DOCSTART-" are left out, and so are comments: lines that begin with "#", before the first word of a sentence, and have
  another number of columns than words have ("# # B-NP" is a word).
- CoNLL-U: ten columns with tabs between them, by the ending .conllu or by what stands in the first line. The tag is the fourth
  column (UPOS). Comments, words of several syntactic words (3-4) and empty nodes (5.1) are left out.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from regard.core.errors import ConfigError, DataError
from regard.core.visible_text import visible
from regard.data.addresses import is_path
from regard.data.bundle import PREFIX, TAGGED, bundled_path
from regard.data.reading import archives
from regard.data.reading.files import ByteFile
from regard.data.reading.lines import MAX_WHOLE_BYTES, line_blocks
from regard.data.split import draws_of

MOST_TAG_CHARACTERS = 200
MOST_WORDS = 10_000  # of a sentence
CONLLU_COLUMNS = 10
FORM, UPOS, XPOS = 2, 4, 5  # columns of CoNLL-U, from 1
_NAMED = {"upos": UPOS, "xpos": XPOS}
_NODE = re.compile(r"\d+(-\d+|\.\d+)?", re.ASCII)
_OTHER_FORMATS = (".csv", ".json", ".jsonl", ".ndjson", ".parquet", ".xlsx", ".zip")


@dataclass
class TaggedSentences:
    """Sentences: their words, and a tag for each word."""

    words: list[list[str]] = field(default_factory=list)
    tags: list[list[str]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.words)

    @property
    def size(self) -> int:
        """The number of words."""
        return sum(map(len, self.words))

    def take(self, places: Sequence[int]) -> TaggedSentences:
        return TaggedSentences([self.words[i] for i in places], [self.tags[i] for i in places])

    def draws(self, seed: int) -> np.ndarray:
        """A number for each sentence by (seed, words): equal ones have equal numbers."""
        return draws_of((" ".join(sentence) for sentence in self.words), seed)


class TaggedFile(NamedTuple):
    """What a file holds, and the line of each word."""

    part: TaggedSentences
    lines: list[list[int]]


def read_tagged(path: str | Path, column: str = "") -> TaggedFile:
    """The sentences of a file. `column` says which column is the tag: upos, xpos, or a number from 1."""
    name = str(path)
    if name.startswith(PREFIX):
        bundled_path(name, (TAGGED,))
    elif not is_path(name):
        raise DataError(name, "tagged text is read from files only", "Give a file")
    plain = Path(name.lower())
    ending = (plain.with_suffix("") if plain.suffix in archives.ENDINGS else plain).suffix
    if ending in _OTHER_FORMATS:
        todo = "Unpack it first" if ending == ".zip" else "Convert it to columns: word, tag"
        raise DataError(name, "tagged text is read from columns only", todo)
    lines = [line for block in line_blocks(ByteFile(name, limit=MAX_WHOLE_BYTES)) for line in block]
    first = next((line for line in lines if line.strip() and not line.startswith(("#", "-DOCSTART-"))), None)
    if first is None:
        raise DataError(name, "no word stands in it", "Give a file of columns: word, tag")
    cells = first.split("\t")
    unlike = len(cells) != CONLLU_COLUMNS or not _NODE.fullmatch(cells[0])
    if ending == ".conllu" or not unlike:
        return _Reading(name, lines, _conllu_column(name, column), CONLLU_COLUMNS, tabs=True, conllu=True).sentences()
    tabs = "\t" in first
    columns = len(cells) if tabs else len(first.split())
    number = lines.index(first) + 1
    if columns < 2:
        what = f"a word and its tag are expected, got {visible(first, 40)!r} alone"
        raise DataError(f"{name}, line {number}", what, "Give a file of columns: word, tag")
    return _Reading(name, lines, _plain_column(name, column, columns), columns, tabs=tabs, conllu=False).sentences()


def _conllu_column(name: str, column: str) -> int:
    if not column:
        return UPOS
    if column.lower() in _NAMED:
        return _NAMED[column.lower()]
    return _number(name, column, CONLLU_COLUMNS, FORM)


def _plain_column(name: str, column: str, columns: int) -> int:
    if column.lower() in _NAMED:
        what = f"{column} is a column of CoNLL-U, and {name} is none"
        raise ConfigError("setting data.tag_column", what, "Give the column's number, from 1")
    return _number(name, column, columns, 1) if column else columns


def _number(name: str, column: str, columns: int, word: int) -> int:
    known = column.isascii() and column.isdecimal() and len(column) < 6
    if not known or not 1 <= int(column) <= columns or int(column) == word:
        what = f"{column!r} is no column of tags: {name} has {columns} columns, and words stand in column {word}"
        raise ConfigError("setting data.tag_column", what, "Give upos or xpos of CoNLL-U, or a number from 1")
    return int(column)


class _Reading:
    """Goes through the lines of a file."""

    def __init__(self, name: str, lines: list[str], column: int, columns: int, *, tabs: bool, conllu: bool):
        self.name, self.lines, self.column, self.columns, self.tabs, self.conllu = (
            name, lines, column, columns, tabs, conllu
        )  # fmt: skip
        self.found = TaggedFile(TaggedSentences(), [])
        self._words: list[str] = []
        self._tags: list[str] = []
        self._places: list[int] = []
        self._begun = 0  # the line of the first thing of a sentence that is no word

    def sentences(self) -> TaggedFile:
        for number, line in enumerate(self.lines, start=1):
            if not line.strip():
                self._end()
            else:
                self._line(number, line)
        self._end()
        if not self.found.part.words:
            raise DataError(self.name, "no word stands in it", "Give a file of columns: word, tag")
        return self.found

    def _end(self) -> None:
        if self._words:
            self.found.part.words.append(self._words)
            self.found.part.tags.append(self._tags)
            self.found.lines.append(self._places)
        elif self._begun and self.conllu:
            what = "the sentence that begins here has no words"
            raise DataError(f"{self.name}, line {self._begun}", what, "Write some, or leave it out")
        self._words, self._tags, self._places, self._begun = [], [], [], 0

    def _line(self, number: int, line: str) -> None:
        where = f"{self.name}, line {number}"
        if "\0" in line:
            raise DataError(where, "a null character stands there: it is not a text file", "Give plain text")
        if not self.conllu and line.startswith("-DOCSTART-"):
            self._end()
            return
        cells = [cell.strip() for cell in line.split("\t")] if self.tabs else line.split()
        if line.startswith("#") and not self._words and (self.conllu or len(cells) != self.columns):
            self._begun = self._begun or number
            return
        if len(cells) != self.columns:
            between = "tab-separated " if self.tabs else ""
            what = f"{self.columns} {between}columns are expected, got {len(cells)}"
            raise DataError(where, what, "Mend that line, or put a blank line between sentences")
        if self.conllu and not self._is_word(where, number, cells[0]):
            return
        word, tag = cells[FORM - 1 if self.conllu else 0], cells[self.column - 1]
        self._check(where, word, tag)
        self._words.append(word)
        self._tags.append(tag)
        self._places.append(number)

    def _is_word(self, where: str, number: int, node: str) -> bool:
        if not _NODE.fullmatch(node):
            raise DataError(
                where, f"the number of a word is expected in its first column, got {node[:40]!r}", "Mend it"
            )
        if "-" in node or "." in node:
            self._begun = self._begun or number
            return False
        if node != str(len(self._words) + 1):
            what = f"word {len(self._words) + 1} of the sentence is expected, got {node[:40]}"
            raise DataError(where, what, "Mend its number, or put a blank line between sentences")
        return True

    def _check(self, where: str, word: str, tag: str) -> None:
        if not word or not tag:
            missing = (
                f"the word {visible(word, 40)!r} has no tag" if word else f"the tag {visible(tag, 40)!r} has no word"
            )
            raise DataError(where, missing, "Mend that line")
        if self.conllu and tag == "_":
            what = f"the word {visible(word, 40)!r} has no tag (_) in column {self.column}"
            raise DataError(where, what, "Choose another column with data.tag_column, or mend the line")
        if len(tag) > MOST_TAG_CHARACTERS:
            what = f"its tag has {len(tag)} characters: {visible(tag, 40)!r}"
            raise DataError(where, what, "Choose the column of tags with data.tag_column")
        if len(self._words) == MOST_WORDS:
            what = f"the sentence has more than {MOST_WORDS:,} words"
            raise DataError(where, what, "Put a blank line between sentences")
