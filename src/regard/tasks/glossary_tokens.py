"""A glossary's terms as tokens of a model's own vocabulary."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from regard.core.specials import SPECIALS, UNK
from regard.data.tokenizers import Tokenizer
from regard.search.terms import MOST_PHRASES, MOST_TOKENS, Letters, Term
from regard.tasks.glossary import SINGLE, Wanted

OPENING = "("  # after this a word begins without a space
SPACES = "▁Ġ "
JOINING = "-‐\N{NON-BREAKING HYPHEN}"  # make one word of two
INSIDE = "##"  # of word pieces
_SINGLE = [(ord(pair[0]), ord(pair[2])) for pair in (SINGLE[i : i + 3] for i in range(0, len(SINGLE), 3))]


class TermTokens:
    """Makes tokens of terms, for one tokenizer."""

    def __init__(self, tokenizer: Tokenizer):
        self.tokenizer = tokenizer
        pieces = tokenizer.pieces(range(tokenizer.size))
        pieces[: len(SPECIALS)] = [""] * len(SPECIALS)
        self.letters = Letters(torch.tensor([_goes_on(p) for p in pieces]), torch.tensor([_ends(p) for p in pieces]))
        self.opening = tokenizer.encode([OPENING])[0]

    def of(self, wanted: Sequence[Wanted]) -> tuple[tuple[Term, ...], list[str]]:
        """The terms, and those of the source that cannot be written with this vocabulary."""
        terms: list[Term] = []
        impossible: list[str] = []
        room = MOST_PHRASES
        for one in wanted:
            phrases = self.phrases(one)[:room]
            if phrases and tuple(phrases) not in terms:
                terms.append(tuple(phrases))
                room -= len(phrases)
            elif not phrases:
                impossible.append(one.source)
        return tuple(terms), impossible

    def phrases(self, one: Wanted) -> list[tuple[int, ...]]:
        """Each form as it is written after a space, at the beginning of a sentence, and after a bracket or a quotation mark."""
        texts = [f for form in one.forms for f in dict.fromkeys((form, form[:1].upper() + form[1:]))] or [one.source]
        alone = self.tokenizer.encode(texts)
        after = self.tokenizer.encode([OPENING + text for text in texts])
        begin = len(self.opening)
        cut = [ids[begin:] if ids[:begin] == self.opening else [] for ids in after]
        found = dict.fromkeys(tuple(ids) for ids in (*alone, *cut))
        return [ids for ids in found if 0 < len(ids) <= MOST_TOKENS and UNK not in ids]


def _letter(character: str) -> bool:
    return character.isalnum() and not any(low <= ord(character) <= high for low, high in _SINGLE)


def _goes_on(piece: str) -> bool:
    if piece.startswith(INSIDE) and len(piece) > len(INSIDE):
        return True
    return bool(piece) and piece[0] not in SPACES and (_letter(piece[0]) or piece[0] in JOINING)


def _ends(piece: str) -> bool:
    return bool(piece) and piece[-1] not in SPACES and _letter(piece[-1])
