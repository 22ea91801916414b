"""Vocabularies of other programs beside regard's: which row of their tables each of regard's tokens has.

regard's first four tokens are padding, BOS, EOS and UNK. Theirs are anywhere, and a decoder may start from padding (Marian in
Hugging Face), from EOS (fairseq), from nothing (Marian itself) or from a token of its own (OpenNMT-py). BOS here is what their
decoder starts from: where that is a token which also has another task, or nothing, BOS is a copy that can never be written, and
has no part in the softmax. No row of theirs is lost, since the softmax is over all of them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import torch
from torch import Tensor

from regard.core.errors import TokenizerError
from regard.core.specials import SPECIALS
from regard.layers.output import SILENCE

NONE = -1  # no row: zeros in a table, silence in the output
MOST_TOKENS = 1 << 22


@dataclasses.dataclass(frozen=True, kw_only=True)
class Foreign:
    """A vocabulary of another program: its tokens by number, and which of them are special."""

    tokens: Sequence[str]
    unknown: int
    end: int | None = None  # a source may have none
    start: int | None = None  # what the decoder reads first; None: a vector of zeros
    padding: int | None = None

    def check(self, where: object) -> None:
        size = len(self.tokens)
        if not 2 <= size <= MOST_TOKENS or len(set(self.tokens)) < size or not all(self.tokens):
            what = f"its {size} tokens are too few, too many, empty or there twice"
            raise TokenizerError(where, what, "Give the vocabulary that belongs to the model")
        for name in ("end", "unknown", "start", "padding"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < size:
                raise TokenizerError(where, f"its token for {name} is not in the vocabulary", "Check the files")


@dataclasses.dataclass
class Rows:
    """regard's tokens after the special ones, and for all of its tokens their rows."""

    names: list[str]
    read: list[int]  # of embeddings
    written: list[int]  # of the output layer

    def add(self, name: str, read: int) -> None:
        """A token that texts may hold and that the model never writes."""
        self.names.append(name)
        self.read.append(read)
        self.written.append(NONE)


def target_rows(foreign: Foreign) -> Rows:
    """All tokens of a vocabulary, the special ones where regard has them."""
    taken = {foreign.end, foreign.unknown, foreign.padding}
    own_start = None if foreign.start in taken else foreign.start
    taken.add(own_start)
    rest = [i for i in range(len(foreign.tokens)) if i not in taken]
    padding, start, end = (NONE if i is None else i for i in (foreign.padding, foreign.start, foreign.end))
    others = [end, foreign.unknown, *rest]
    known = {*foreign.tokens, *SPECIALS}
    names = [_free(foreign.tokens[i], known) if foreign.tokens[i] in SPECIALS else foreign.tokens[i] for i in rest]
    return Rows(names, [padding, start, *others], [padding, NONE if own_start is None else own_start, *others])


def source_rows(foreign: Foreign, names: Sequence[str]) -> list[int]:
    """The rows of special tokens and of the named ones; those that the model does not know are unknown to it."""
    places = {token: i for i, token in enumerate(foreign.tokens)}
    padding, start, end = (NONE if i is None else i for i in (foreign.padding, foreign.start, foreign.end))
    return [padding, start, end, foreign.unknown, *(places.get(name, foreign.unknown) for name in names)]


def _free(token: str, known: set[str]) -> str:
    """Another name for a token that has the name of one of regard's special ones."""
    number = 1
    while f"{token}#{number}" in known:
        number += 1
    known.add(f"{token}#{number}")
    return f"{token}#{number}"


def taken_rows(table: Tensor, rows: Sequence[int], absent: float = 0.0) -> Tensor:
    """The rows of a table, or the numbers of a vector; `absent` where there is none."""
    order = torch.tensor(rows)
    found = table[order.clamp(min=0)]
    found[order == NONE] = absent
    return found


def written_bias(bias: Tensor, rows: Sequence[int]) -> Tensor:
    return taken_rows(bias, rows, SILENCE)
