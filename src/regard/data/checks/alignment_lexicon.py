"""Which words of two languages go together, learned from the corpus that is judged, as sets of bits per line."""

from __future__ import annotations

import numpy as np

from regard.data.checks.alignment_lines import BUCKETS, SideArrays

# Kinds of shared words, each with its words of 64 bits: the same word on both sides (rare, less rare),
# and words that the corpus shows to be translations of each other (rare, less rare).
SLOTS = ((0, 1), (1, 2), (2, 4), (4, 6))
SAME_SLOTS = SLOTS[:2]
_WIDTH = 6
_SAME_RARE, _SAME_MOST = 0.001, 0.02  # share of the lines in which such a word may stand
_TRANSLATED_RARE = 0.005
_MOST_COUNTED = 4_000_000  # pairs of words counted for one fold
_LEAST_TOGETHER = 2  # lines
_LEAST_SURPRISE = 4.0  # nats by which two words stand together more often than chance would have them
_LEAST_STRENGTH = 0.1  # the cosine of two words' lines
_TRANSLATIONS = 2  # of a word, at most
_BLOCK = 1 << 14  # lines
_COUNTED = 1 << 19  # words at once


class Lexicon:
    """The bits of each word.

    Lines are divided into folds, and the bits of a target word depend on its line's fold: they are learned from the
    other folds, so that no pair is judged by what it taught. A shifted pairing never had the chance to teach.
    """

    def __init__(self, source_bits: np.ndarray, target_bits: np.ndarray, slots: tuple[tuple[int, int], ...]):
        self._source_bits = source_bits  # [64-bit words, 1, BUCKETS]
        self._target_bits = target_bits  # [64-bit words, folds, BUCKETS]
        self.slots = slots

    @classmethod
    def same_words(cls, source: SideArrays, target: SideArrays, folds: int) -> Lexicon:
        """Only words that are written alike on both sides and are about as frequent."""
        bits = np.zeros((_WIDTH, 1, BUCKETS), dtype=np.uint64)
        in_source, in_target = _frequency(source), _frequency(target)
        alike = (in_source < 3 * in_target + 3) & (in_target < 3 * in_source + 3) & (in_source > 0) & (in_target > 0)
        share = in_source / max(1, source.lines)
        rare, less_rare = share <= _SAME_RARE, (share > _SAME_RARE) & (share <= _SAME_MOST)
        for (slot, _), chosen in zip(SAME_SLOTS, (rare, less_rare), strict=True):
            words = np.flatnonzero(alike & chosen)
            bits[slot, 0, words] = _bit(np.arange(words.size))
        return cls(bits, np.repeat(bits, folds, axis=1), SAME_SLOTS)

    def with_translations(
        self, source: SideArrays, target: SideArrays, pairs: tuple[np.ndarray, np.ndarray], folds: np.ndarray
    ) -> Lexicon:
        """Adds the translations that the given pairs of lines show; `folds` are those of the target lines."""
        sides = [_words_of(side, ids) for side, ids in zip((source, target), pairs, strict=True)]
        pair_folds = folds[pairs[1]]
        found = [
            _translations(*(_rows(*side, pair_folds != fold) for side in sides))
            for fold in range(self._target_bits.shape[1])
        ]
        source_bits, target_bits = self._source_bits.copy(), self._target_bits.copy()
        known = np.unique(np.concatenate([words for words, _ in found]))
        frequency = _frequency(source)[known]
        order = np.argsort(-frequency, kind="stable")
        known, rare = known[order], frequency[order] <= _TRANSLATED_RARE * source.lines
        for (slot, end), words in zip(SLOTS[2:], (known[rare], known[~rare]), strict=True):
            place = np.arange(words.size) % (64 * (end - slot))  # the most frequent words share no bit
            source_bits[slot + place // 64, 0, words] = _bit(place)
        for fold, (words, translations) in enumerate(found):
            for k in range(SLOTS[2][0], _WIDTH):
                np.bitwise_or.at(target_bits[k, fold], translations, source_bits[k, 0, words])
        return Lexicon(source_bits, target_bits, SLOTS)

    def source_sets(self, side: SideArrays) -> np.ndarray:
        """The bits of each source line's words, [64-bit words, lines]."""
        return _sets(self._source_bits, side, np.zeros(side.lines, dtype=np.uint8))

    def target_sets(self, side: SideArrays, folds: np.ndarray) -> np.ndarray:
        """The bits of the source words that the words of each target line stand for."""
        return _sets(self._target_bits, side, folds)


def _frequency(side: SideArrays) -> np.ndarray:
    """How often each word stands on a side; in parts, since counting makes each word an integer of eight bytes."""
    total = np.zeros(BUCKETS, dtype=np.int64)
    for begin in range(0, side.words.size, _COUNTED):
        total += np.bincount(side.words[begin : begin + _COUNTED], minlength=BUCKETS)
    return total


def _bit(places: np.ndarray) -> np.ndarray:
    return np.uint64(1) << (places % 64).astype(np.uint64)


def _sets(bits: np.ndarray, side: SideArrays, folds: np.ndarray) -> np.ndarray:
    bits = bits.reshape(_WIDTH, -1)
    sets = np.zeros((_WIDTH, side.lines), dtype=np.uint64)
    first = 0
    for begin in range(0, side.lines, _BLOCK):
        lines = slice(begin, begin + _BLOCK)
        counts = side.counts[lines].astype(np.int64)
        ends = np.cumsum(counts)
        words = side.words[first : first + int(ends[-1])] + np.repeat(folds[lines].astype(np.int64) * BUCKETS, counts)
        words = np.append(words, 0)  # for empty lines at the end
        for k in range(_WIDTH):
            sets[k, lines] = np.where(counts > 0, np.bitwise_or.reduceat(bits[k][words], ends - counts), 0)
        first += int(ends[-1])
    return sets


def _words_of(side: SideArrays, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The words of the given lines one after the other, and how many each line has."""
    counts = side.counts[ids].astype(np.int64)
    begins = (np.cumsum(side.counts, dtype=np.int64) - side.counts)[ids]
    return side.words[np.repeat(begins - (np.cumsum(counts) - counts), counts) + np.arange(counts.sum())], counts


def _rows(words: np.ndarray, counts: np.ndarray, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return words[np.repeat(chosen, counts)], counts[chosen]


def _recurring(words: np.ndarray, counts: np.ndarray, frequency: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Without the words that cannot stand together with another often enough."""
    kept = frequency[words] >= _LEAST_TOGETHER
    before = np.concatenate(([0], np.cumsum(kept)))
    return words[kept], np.diff(before[np.cumsum(counts)], prepend=0)


def _translations(
    source: tuple[np.ndarray, np.ndarray], target: tuple[np.ndarray, np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Source and target words that stand together in paired lines: the best few source words of each target word."""
    (source_words, source_counts), (target_words, target_counts) = source, target
    lines = int(np.searchsorted(np.cumsum(source_counts * target_counts), _MOST_COUNTED))
    source_counts, target_counts = source_counts[:lines], target_counts[:lines]
    source_words, target_words = source_words[: source_counts.sum()], target_words[: target_counts.sum()]
    in_source, in_target = (np.bincount(words, minlength=BUCKETS) for words in (source_words, target_words))
    source_words, source_counts = _recurring(source_words, source_counts, in_source)
    target_words, target_counts = _recurring(target_words, target_counts, in_target)
    # each source word with each target word of its line
    partners = np.repeat(target_counts, source_counts)
    begins = np.repeat(np.cumsum(target_counts) - target_counts, source_counts)
    places = np.repeat((begins - (np.cumsum(partners) - partners)).astype(np.int32), partners)
    places += np.arange(places.size, dtype=np.int32)
    keys = np.repeat(source_words.astype(np.uint32) << np.uint32(16), partners) | target_words[places]
    keys.sort()
    first = np.flatnonzero(np.concatenate((np.ones(min(1, keys.size), dtype=bool), keys[1:] != keys[:-1])))
    together = np.diff(first, append=keys.size)
    keys, together = keys[first][together >= _LEAST_TOGETHER], together[together >= _LEAST_TOGETHER]
    words, translations = (keys >> np.uint32(16)).astype(np.int64), (keys & np.uint32(0xFFFF)).astype(np.int64)
    expected = in_source[words] * in_target[translations] / max(1, lines)
    surprise = together * np.log(together / expected) - together + expected
    strength = together / np.sqrt(in_source[words] * in_target[translations])
    good = np.flatnonzero((together > 2 * expected) & (surprise > _LEAST_SURPRISE) & (strength > _LEAST_STRENGTH))
    good = good[np.lexsort((-strength[good], translations[good]))]
    first = np.flatnonzero(np.diff(translations[good], prepend=-1))
    rank = np.arange(good.size) - np.repeat(first, np.diff(first, append=good.size))
    best = good[rank < _TRANSLATIONS]
    return words[best], translations[best]
