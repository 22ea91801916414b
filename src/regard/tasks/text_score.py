"""How probable a language model finds a text, counted in tokens, words and bytes."""

from __future__ import annotations

import dataclasses
import math
from typing import Any


@dataclasses.dataclass(frozen=True)
class TextScore:
    """How probable a text is.

    Words are what stands between white space, and one end per document (as Mikolov counts: 82,430 in the Penn Treebank's test
    text). Bytes are those of UTF-8, and one per document for its end. Perplexities per word and per byte compare models with
    different tokenizers, as long as `unknown` is 0 or the same: a text's unknown parts are all one and the same token, which is
    easier to write than they are. White space that a tokenizer does not keep is not predicted, but counted.
    """

    nll: float  # -log P of all tokens, natural logarithm
    tokens: int  # EOS of every document included
    words: int
    bytes: int
    documents: int
    unknown: int = 0  # tokens that stand for what the vocabulary lacks

    @property
    def perplexity(self) -> float:
        """Per token of the model's own tokenizer."""
        return _exp(self.nll / self.tokens)

    @property
    def word_perplexity(self) -> float:
        return _exp(self.nll / self.words)

    @property
    def byte_perplexity(self) -> float:
        return _exp(self.nll / self.bytes)

    @property
    def bits_per_byte(self) -> float:
        return self.nll / self.bytes / math.log(2)

    def to_plain(self) -> dict[str, Any]:
        names = ("perplexity", "word_perplexity", "byte_perplexity", "bits_per_byte")
        return {**dataclasses.asdict(self), **{name: getattr(self, name) for name in names}}


def _exp(value: float) -> float:
    return math.exp(value) if value < 700 else math.inf
