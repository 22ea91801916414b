"""Terms that must appear in a text, as tensors that a search follows on the device.

A term is one or several phrases of tokens, any one of which will do (inflections). How far each phrase has been written is what
the automaton of Knuth, Morris and Pratt says, so that "a a b" is found in "a a a b".
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.core.errors import ModelError
from regard.core.tree import Rows, State
from regard.core.types import EOS, UNK

MOST_PHRASES = 64  # of a sentence, all terms together
MOST_TOKENS = 64  # of a phrase

Phrase = tuple[int, ...]
Term = tuple[Phrase, ...]  # any one of them
NO_TERMS: tuple[Term, ...] = ()


class Letters(NamedTuple):
    """Which tokens go on with a word or end within one, so that a term is not found inside of a longer word."""

    inside: Bool[Tensor, "V"]  # begins with a letter or digit, without a space before it
    ending: Bool[Tensor, "V"]  # ends with a letter or digit


class TermSize(NamedTuple):
    """Room for terms in tensors."""

    phrases: int
    tokens: int

    @staticmethod
    def of(sentences: Sequence[Sequence[Term]]) -> TermSize:
        phrases = max((sum(map(len, terms)) for terms in sentences), default=0)
        tokens = max((len(phrase) for terms in sentences for term in terms for phrase in term), default=0)
        return TermSize(phrases, tokens)


def check_terms(terms: Sequence[Sequence[Term]], count: int, vocabulary: int) -> None:
    """Raises where they cannot be searched with."""
    if len(terms) != count:
        what = f"terms for {len(terms)} of {count} sentences"
        raise ModelError("terms", what, "Give them for every sentence, none where there are none")
    for number, some in enumerate(terms, start=1):
        where = f"terms of sentence {number}"
        if sum(map(len, some)) > MOST_PHRASES:
            what = f"they have {sum(map(len, some))} forms in all, more than {MOST_PHRASES}"
            raise ModelError(where, what, "Give fewer terms or forms, or split the sentence")
        for term in some:
            if not term or any(not 0 < len(phrase) <= MOST_TOKENS for phrase in term):
                what = f"a form has no tokens, or more than {MOST_TOKENS}, or a term has no form"
                raise ModelError(where, what, "Shorten it, or leave it out")
            if any(not UNK <= token < vocabulary or token == EOS for phrase in term for token in phrase):
                raise ModelError(where, "a form has a token that no text has", "Give text tokens only")


@dataclasses.dataclass
class TermTable(Rows):
    """The terms of each sentence. A phrase that does not exist has length 0."""

    phrases: Int[Tensor, "B P L"]  # -1 where there is no token
    follow: Int[Tensor, "B P L L"]  # [p, j, i]: what of p is written after its token i, where j of it was before
    length: Int[Tensor, "B P"]
    worth: Int[Tensor, "B P"]  # tokens of its term's longest form
    group: Bool[Tensor, "B P G"]  # whether phrase p is a form of term g

    @classmethod
    def of(cls, sentences: Sequence[Sequence[Term]], size: TermSize, device: torch.device) -> TermTable:
        b, (p, n) = len(sentences), size
        phrases = torch.full((b, p, n), -1)
        follow = torch.zeros((b, p, n, n), dtype=torch.long)
        length = torch.zeros((b, p), dtype=torch.long)
        worth = torch.zeros((b, p), dtype=torch.long)
        group = torch.zeros((b, p, p), dtype=torch.bool)
        for row, terms in enumerate(sentences):
            each = [(g, phrase) for g, term in enumerate(terms) for phrase in term]
            for i, (g, phrase) in enumerate(each):
                phrases[row, i, : len(phrase)] = torch.tensor(phrase)
                follow[row, i, : len(phrase), : len(phrase)] = torch.tensor(_automaton(phrase))
                length[row, i] = len(phrase)
                worth[row, i] = max(map(len, terms[g]))
                group[row, i, g] = True
        return cls(*(tensor.to(device, non_blocking=True) for tensor in (phrases, follow, length, worth, group)))

    def begin(self, hypotheses: int) -> TermState:
        b, p = self.length.shape
        nothing = self.length.new_zeros((b, hypotheses, p))
        return TermState(nothing.bool(), nothing, nothing[..., 0].bool())

    def wanted(self) -> Int[Tensor, "B"]:
        """How many terms each sentence has."""
        return self.group.any(1).sum(-1)

    def missing(self, state: TermState) -> Bool[Tensor, "B C"]:
        return (~state.met & (self.length > 0)[:, None]).any(-1)

    def following(self, state: TermState) -> Int[Tensor, "B C P"]:
        """The token with which each phrase goes on, or begins; -1 where there is no phrase."""
        phrases = self.phrases[:, None].expand(*state.written.shape, -1)
        return phrases.gather(-1, state.written[..., None])[..., 0]

    def opens(
        self, state: TermState, before: Int[Tensor, "B C"], letters: Letters | None
    ) -> Bool[Tensor, "B C P"] | None:
        """Where a phrase may begin or go on: one that begins like the inside of a word only where no word is before it."""
        if letters is None:
            return None
        inside = letters.inside[self.phrases[..., 0].clamp(min=0)][:, None]
        return ~(inside & letters.ending[before][..., None]) | (state.written > 0)

    def write(
        self, state: TermState, before: Int[Tensor, "B C"], tokens: Int[Tensor, "B C"], letters: Letters | None
    ) -> TermState:
        """What has been written after one more token."""
        at = state.written[..., None, None].expand(*state.written.shape, 1, self.follow.shape[-1])
        follow = self.follow[:, None].expand(-1, tokens.shape[1], -1, -1, -1).gather(3, at)[..., 0, :]
        same = self.phrases[:, None] == tokens[..., None, None]
        written = follow.where(same, 0).amax(-1)
        if letters is not None:
            inside = letters.inside[self.phrases[..., 0].clamp(min=0)][:, None]
            written = written.masked_fill(inside & letters.ending[before][..., None] & (written == 1), 0)
        whole = (written == self.length[:, None]) & (written > 0)
        met = state.met | (whole[..., None] & self.group[:, None]).any(2)[..., None, :].logical_and(
            self.group[:, None]
        ).any(-1)
        ends = whole.any(-1) if letters is None else whole.any(-1) & letters.ending[tokens]
        return TermState(met, written.masked_fill(whole, 0), ends)

    def bank(self, state: TermState) -> Int[Tensor, "B C"]:
        """How many tokens of terms have been written; a term that is there counts as its longest form."""
        written = state.written.minimum(self.worth[:, None] - 1).where(~state.met, self.worth[:, None]).clamp(min=0)
        return (written[..., None] * self.group[:, None]).amax(2).sum(-1)


@dataclasses.dataclass
class TermState(State):
    """What of the terms some texts have."""

    met: Bool[Tensor, "B C P"]  # whether the phrase's term has been written
    written: Int[Tensor, "B C P"]  # how many tokens of the phrase stand at the end of the text
    ends: Bool[Tensor, "B C"]  # a term has just ended: the word must end, too

    def of(self, parents: Int[Tensor, "B D"]) -> TermState:
        """Those of some of the texts."""
        wide = parents[..., None].expand(*parents.shape, self.met.shape[-1])
        return TermState(self.met.gather(1, wide), self.written.gather(1, wide), self.ends.gather(1, parents))


def forbid(
    values: Float[Tensor, "B K V"],
    table: TermTable,
    state: TermState,
    free: Bool[Tensor, "B"],
    letters: Letters | None,
) -> None:
    """No end while a term is missing, and no word that only begins with a term, where sentences are `free` to choose. In place."""
    never = float("-inf")
    free = free[:, None]
    values[..., EOS].masked_fill_(table.missing(state) & free, never)
    if letters is None:
        return
    following = table.following(state)
    goes_on = (state.written > 0) & (following >= 0)
    place = following.clamp(min=0).where(goes_on, 0)  # PAD: banned anyway
    own = values.gather(-1, place)
    values.masked_fill_((state.ends & free)[..., None] & letters.inside, never)
    values.scatter_(-1, place, own)  # but another form may be longer than the one that has ended


def _automaton(phrase: Phrase) -> list[list[int]]:
    """[j][i]: the longest beginning of the phrase that ends its first j tokens followed by its token i."""
    rows = []
    for j in range(len(phrase)):
        row = []
        for token in phrase:
            text = (*phrase[:j], token)
            row.append(next((n for n in range(len(text), 0, -1) if text[-n:] == phrase[:n]), 0))
        rows.append(row)
    return rows
