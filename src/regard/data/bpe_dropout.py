"""BPE dropout (Provilkov et al., 2020): text cut anew by byte pair encoding that skips merges at random.

The paper's Algorithm 1: a unit (what lies between the tokenizer's cuts) starts as its characters; at each step, of all
merges that apply, each is dropped with probability p, and the best of the rest is made; it ends where none is left.
Here one number is drawn for each step instead of one for each merge: how many of the best merges in a row are dropped,
which is n or more with probability p^n. The distribution is the same. All units of a batch take their steps together.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import chain, pairwise
from typing import NamedTuple

import numpy as np
import tokenizers as hf

from regard.core.errors import ConfigError
from regard.core.specials import SPECIALS
from regard.data.draws import GAMMA, shares
from regard.data.tokenizers import SPACE, Tokenizer

_PLACE_BITS = 32  # a merge's priority is its rank above the place of its left symbol: of equals, the first is made
_PLACE = (1 << _PLACE_BITS) - 1
_NEVER = np.iinfo(np.int64).max


class BpeDropout:
    """Cuts rows of tokens anew, skipping merges. It has no state: rows, p and keys say what comes out."""

    def __init__(self, tokenizer: Tokenizer):
        about = json.loads(tokenizer.to_json())
        model = about["model"]
        if (about["pre_tokenizer"] or {}).get("type") == "ByteLevel" and model.get("merges"):
            raise ConfigError(
                "setting augment.bpe_dropout",
                "it works on characters, and this tokenizer merges bytes",
                "Set tokenizer.kind=bpe, or augment.bpe_dropout=0",
            )
        if model["type"] != "BPE" or not model["merges"]:
            raise ConfigError(
                "setting augment.bpe_dropout",
                "it skips merges, and this tokenizer has none",
                "Set tokenizer.kind=bpe, or augment.bpe_dropout=0",
            )
        vocabulary: dict[str, int] = model["vocab"]
        self._size = tokenizer.size  # no token's id: what stands beside the first and the last symbol of a unit
        merges = [merge.split(" ", 1) if isinstance(merge, str) else merge for merge in model["merges"]]
        pairs = np.array([[vocabulary[left], vocabulary[right]] for left, right in merges])
        self._products = np.array([vocabulary[left + right] for left, right in merges])
        self._ranks = _Ranks(pairs[:, 0] * (self._size + 1) + pairs[:, 1])
        self._read_spelling(tokenizer, vocabulary)

    def _read_spelling(self, tokenizer: Tokenizer, vocabulary: dict[str, int]) -> None:
        """The characters of every token, and which tokens begin or end a unit."""
        cuts = hf.Tokenizer.from_str(tokenizer.to_json()).pre_tokenizer
        alone = {c for c in {c for token in vocabulary for c in token} if len(cuts.pre_tokenize_str(f"a{c}a")) == 3}
        special = {*range(len(SPECIALS)), *tokenizer.tags.values()}
        self._opens, self._closes = np.ones((2, self._size), dtype=bool)
        spelling = [[number] for number in range(self._size)]  # what is not written in characters is never cut
        for token, number in vocabulary.items():
            if number not in special and all(c in vocabulary for c in token):
                spelling[number] = [vocabulary[c] for c in token]
                self._opens[number] = token[0] == SPACE or token[0] in alone
                self._closes[number] = token[-1] in alone
        self._lengths = np.array([len(characters) for characters in spelling])
        self._begins = np.cumsum(self._lengths) - self._lengths
        self._spelling = np.array([*chain.from_iterable(spelling)])

    def __call__(self, rows: Sequence[Sequence[int]], p: float, keys: np.ndarray) -> list[list[int]]:
        """The rows, as the tokenizer wrote them, cut anew with the random numbers of one key for each."""
        layout = self._lay_out(rows)
        count = len(layout.characters)
        if not count:
            return [[] for _ in rows]
        lengths = np.diff(layout.rows)
        # A unit takes one number for each step, never more than it has characters.
        drawn = shares(np.repeat(keys, lengths), np.arange(count) - np.repeat(layout.rows[:-1], lengths))
        skips = _skips(drawn, p, int(np.diff(layout.units).max()))
        written = np.full(count, -1)
        written[layout.tokens] = layout.ids
        # Where the best merge is made at every step, the tokens stay what they are: all other units are merged again.
        sizes = np.diff(layout.units)
        within = np.arange(count) - np.repeat(layout.units[:-1], sizes)
        skipping = (skips > 0) & (within < np.repeat(layout.merges, sizes))
        again = np.logical_or.reduceat(skipping, layout.units[:-1])
        if again.any():
            places = np.repeat(again, sizes)
            begins = np.cumsum(sizes[again]) - sizes[again]
            written[places] = self._merge(layout.characters[places], begins, skips[places])
        kept = written >= 0
        ends = np.concatenate([[0], np.cumsum(kept)])[layout.rows].tolist()
        flat = written[kept].tolist()
        return [flat[begin:end] for begin, end in pairwise(ends)]

    def _lay_out(self, rows: Sequence[Sequence[int]]) -> _Layout:
        sizes = np.fromiter(map(len, rows), dtype=np.int64, count=len(rows))
        ids = np.fromiter(chain.from_iterable(rows), dtype=np.int64, count=int(sizes.sum()))
        lengths = self._lengths[ids]
        tokens = np.concatenate([[0], np.cumsum(lengths)])
        characters = self._spelling[np.repeat(self._begins[ids] - tokens[:-1], lengths) + np.arange(tokens[-1])]
        ends = np.concatenate([[0], np.cumsum(sizes)])
        first = self._opens[ids]
        first[1:] |= self._closes[ids[:-1]]
        first[ends[:-1][sizes > 0]] = True
        begins = np.append(np.flatnonzero(first), len(ids))
        units = tokens[begins]
        return _Layout(ids, tokens[:-1], characters, units, np.diff(units) - np.diff(begins), tokens[ends])

    def _merge(self, characters: np.ndarray, begins: np.ndarray, skips: np.ndarray) -> np.ndarray:
        """Merges the units that begin at `begins`; -1 stands where a character went into the token before it.

        `skips` says of a unit's first, second, ... step how many of the best merges it passes over.
        """
        count = len(characters)  # also the place that stands for none, before the first symbol and after the last
        symbols = np.append(characters, self._size)
        ends = np.append(begins[1:], count)
        before, after = np.arange(-1, count), np.arange(1, count + 2)
        before[begins] = after[ends - 1] = after[count] = count
        priorities = self._priorities(symbols, np.arange(count + 1), after)
        for step in range(int((ends - begins).max())):
            best = _best(priorities, begins, ends, skips[begins + step])
            going = best != _NEVER
            if not going.any():
                break
            begins, ends, best = begins[going], ends[going], best[going]
            left = best & _PLACE
            right = after[left]
            symbols[left] = self._products[best >> _PLACE_BITS]
            symbols[right] = -1
            priorities[right] = _NEVER
            after[left] = after[right]
            before[after[left]] = left
            changed = np.concatenate([left, before[left]])
            priorities[changed] = self._priorities(symbols, changed, after[changed])
        return symbols[:count]

    def _priorities(self, symbols: np.ndarray, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """The priorities of merging the symbols at the places `left` with those at `right`: the smallest comes first."""
        codes = symbols[left] * (self._size + 1) + symbols[right]
        ranks = self._ranks.of(codes)
        return np.where(ranks >= 0, (ranks << _PLACE_BITS) | left, _NEVER)


class _Ranks:
    """The places of numbers in a list, found for many at a time: a hash table whose next slot takes what collides."""

    def __init__(self, codes: np.ndarray):
        self._codes = codes
        bits = (8 * len(codes)).bit_length()
        self._shift, self._last = np.uint64(64 - bits), (1 << bits) - 1
        self._slots = np.full(1 << bits, -1)
        slots, homeless = self._hash(codes), np.arange(len(codes))
        while len(homeless):
            free = homeless[self._slots[slots[homeless]] < 0]
            self._slots[slots[free]] = free  # of those that want one slot, one gets it
            homeless = homeless[self._slots[slots[homeless]] != homeless]
            slots[homeless] = (slots[homeless] + 1) & self._last

    def _hash(self, codes: np.ndarray) -> np.ndarray:
        return ((codes.astype(np.uint64) * np.uint64(GAMMA)) >> self._shift).astype(np.int64)

    def of(self, codes: np.ndarray) -> np.ndarray:
        """Where each number stands in the list; -1 for those that are not in it."""
        slots = self._hash(codes)
        ranks = self._slots[slots]
        others = np.flatnonzero((ranks >= 0) & (self._codes[ranks] != codes))
        while len(others):
            slots[others] = (slots[others] + 1) & self._last
            ranks[others] = found = self._slots[slots[others]]
            others = others[(found >= 0) & (self._codes[found] != codes[others])]
        return ranks


class _Layout(NamedTuple):
    """Rows of tokens, character by character."""

    ids: np.ndarray  # of all tokens
    tokens: np.ndarray  # where each token begins, in characters
    characters: np.ndarray  # the token ids of all characters
    units: np.ndarray  # where each unit begins, and where the last one ends
    merges: np.ndarray  # how many merges each unit went through
    rows: np.ndarray  # where each row begins, and where the last one ends


def _skips(drawn: np.ndarray, p: float, most: int) -> np.ndarray:
    """How many merges in a row are dropped: n or more where a number is below p^n."""
    skips = np.zeros(len(drawn), dtype=np.int64)
    limit = p
    for _ in range(most):
        below = drawn < limit
        if not below.any():
            break
        skips += below
        limit *= p
    return skips


def _best(priorities: np.ndarray, begins: np.ndarray, ends: np.ndarray, skips: np.ndarray) -> np.ndarray:
    """The priority that stands first in each unit once as many as it skips are left out."""
    best = _least(priorities, begins, ends)
    hidden = []
    skipping = np.flatnonzero((skips > 0) & (best != _NEVER))
    while len(skipping):
        hidden.append(best[skipping])
        priorities[hidden[-1] & _PLACE] = _NEVER
        best[skipping] = _least(priorities, begins[skipping], ends[skipping])
        skips[skipping] -= 1
        skipping = skipping[(skips[skipping] > 0) & (best[skipping] != _NEVER)]
    for values in hidden:
        priorities[values & _PLACE] = values
    return best


def _least(priorities: np.ndarray, begins: np.ndarray, ends: np.ndarray) -> np.ndarray:
    spans = np.empty(2 * len(begins), dtype=np.int64)
    spans[::2], spans[1::2] = begins, ends
    return np.minimum.reduceat(priorities, spans)[::2]
