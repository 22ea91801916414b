"""A text as one flat array of tokens that knows where its sentences and documents begin, for models that fill in words.

A sentence ends with its line, and behind ".", "!" or "?" (and closing quotes or brackets) before white space; "。！？" need no
white space. Where every line is a document (data.documents=line), lines that follow each other are taken as running text: they
are joined to documents of about `BLOCK` tokens (of a small text, an eighth of it), so that there is something before and behind
a short line.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import Self

import numpy as np

from regard.core.errors import DataError
from regard.data.addresses import is_path
from regard.data.corpus_config import DataConfig
from regard.data.long_texts import chunks_of
from regard.data.tokenizers import Tokenizer

BLOCK = 1024  # tokens of a document made of lines, about
_CLOSING = "[\"'”’)\\]»]*"
_END = re.compile(rf"[.!?]{_CLOSING}(?=\s+\S)|[。！？][”’」』]*(?=\S)|\S(?=[^\S\n]*\n\s*\S)")


class SentenceStream:
    """The tokens of sentences in one array: sentence i is tokens[begins[i]:begins[i + 1]].

    `documents` are the numbers of their first sentences, and behind the last the number of all sentences.
    """

    def __init__(self, tokens: np.ndarray, begins: np.ndarray, documents: np.ndarray):
        self.tokens, self.begins, self.documents = tokens, begins, documents

    @classmethod
    def from_documents(cls, documents: Iterable[str], tokenizer: Tokenizer, *, most: int, lines: bool = False) -> Self:
        """Encodes documents, a little text at a time. A sentence of more than `most` tokens is cut into equal parts.

        `lines` says that documents are lines, to be joined.
        """
        dtype = np.dtype(np.uint16 if tokenizer.size <= 1 << 16 else np.int32)
        between = _between(tokenizer)
        mark = "\n" if lines and between is None else ""  # a line's end, where it is a token
        parts: list[np.ndarray] = []
        lengths: list[int] = []
        firsts: list[int] = [0]
        size = 0  # tokens since there is no space before the next
        for chunk in chunks_of(documents):
            cut = [sentences_of(mark + document) for document in chunk]
            encoded = iter(tokenizer.encode_many([sentence for sentences in cut for sentence in sentences]))
            flat: list[int] = []
            for sentences in cut:
                for _ in sentences:
                    ids = next(encoded)
                    if not ids:
                        continue
                    if between and size:
                        ids = [*between, *ids]
                    flat += ids
                    lengths += _cut(len(ids), most)
                    size += len(ids)
                if len(lengths) > firsts[-1]:
                    firsts.append(len(lengths))
                if not lines:
                    size = 0
            parts.append(np.array(flat, dtype=dtype))
        tokenizer.forget_words()
        if not lengths:
            raise DataError("the text", "no token stands in it", "Give a text with words in it")
        begins = np.concatenate([[0], np.cumsum(lengths)])
        documents = np.array(firsts)
        return cls(np.concatenate(parts), begins, _joined(begins, documents) if lines else documents)

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def sentences(self) -> int:
        return len(self.begins) - 1


def sentences_of(document: str) -> list[str]:
    """The sentences of a text; the white space between two begins the second, as bytes need it."""
    ends = [match.end() for match in _END.finditer(document)]
    return [document[begin:end] for begin, end in zip([0, *ends], [*ends, len(document)], strict=True)]


def documents_are_lines(config: DataConfig) -> bool:
    """Whether the documents that `load_text` gives are lines of a file."""
    if config.documents != "auto":
        return config.documents == "line"
    name = os.path.join(os.path.expanduser(config.folder), os.path.expanduser(config.text))
    return not (is_path(config.text) and os.path.isdir(name))


def _cut(length: int, most: int) -> list[int]:
    """The lengths of the parts of a sentence."""
    if length <= most:
        return [length]
    count = -(-length // most)
    return [length * (i + 1) // count - length * i // count for i in range(count)]


def _joined(begins: np.ndarray, lines: np.ndarray) -> np.ndarray:
    """The beginnings of documents made of lines that follow each other."""
    block = max(1, min(BLOCK, int(begins[-1]) // 8))
    found = [0]
    for line, place in zip(lines.tolist(), begins[lines].tolist(), strict=True):
        if place - begins[found[-1]] >= block:
            found.append(line)
    if found[-1] != lines[-1]:
        found.append(int(lines[-1]))
    return np.array(found)


def _between(tokenizer: Tokenizer) -> list[int] | None:
    """What stands between the tokens of two sentences: nothing, or the space, where that is a token of its own.

    None: white space at the ends of a text is kept, so that each sentence brings its own.
    """
    one, kept, two = tokenizer.encode(["a", " a", "a a"])
    if one != kept:
        return None
    inner = two[len(one) : len(two) - len(one)]
    return inner if two == [*one, *inner, *one] else []
