"""Which word each token of a text belongs to, words being what stands between white space."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import tokenizers as hf

from regard.data.tokenizers import Tokenizer

_WORD = re.compile(r"\S+")  # the same words as str.split


@dataclass(frozen=True)
class WordTokens:
    """A text's tokens, how many words it has, and the number of each token's word: `count` where it belongs to none."""

    ids: list[int]
    words: list[int]
    count: int


class WordTokenizer:
    """A tokenizer that says of each token which word it is of.

    It asks where in the text a token comes from, since tokens themselves do not tell: normalisation adds and removes
    spaces, text may hold "▁", and bytes have no mark. White space belongs to the word after it (as "▁" does), and at
    the end of a text to none. A token across several words belongs to the first; the others may get no token.
    `words` says what a word is, where that is not all that stands between white space.
    """

    def __init__(self, tokenizer: Tokenizer, words: re.Pattern[str] = _WORD):
        self._tokenizer, self._words = tokenizer, words
        self._inner = hf.Tokenizer.from_str(tokenizer.to_json())
        self._inner.encode_special_tokens = True
        self._inner.no_truncation()
        self._inner.no_padding()

    def encode(self, texts: Sequence[str]) -> list[WordTokens]:
        """What the tokenizer's own `encode` gives, with words."""
        try:
            found = self._inner.encode_batch(list(texts), add_special_tokens=False)
        except TypeError:
            self._tokenizer.encode(texts)  # says which text is no text
            raise
        return [_numbered(text, encoding, self._words) for text, encoding in zip(texts, found, strict=True)]


def _numbered(text: str, encoding: hf.Encoding, words: re.Pattern[str]) -> WordTokens:
    ends = [match.end() for match in words.finditer(text)]
    return WordTokens(encoding.ids, [bisect_right(ends, start) for start, _ in encoding.offsets], len(ends))
