"""Learns from a corpus, damaged or not, how its lines fit each other, and by what shift most of it is aligned."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from regard.data.checks.alignment_evidence import Comparison, Evidence, Half, halves, independence
from regard.data.checks.alignment_lexicon import Lexicon
from regard.data.checks.alignment_lines import SideArrays

_WINDOW = 8_192  # lines in a row
_WINDOWS = 12  # of a large corpus, from which it is learned
_ROUNDS = 4
_FOLD_LINES = 128  # lines next to each other share a fold
_SETTLED = 0.001  # share of the lines whose shift a round may change when no other is needed
_TRIED_PAIRS = 20_000  # for each shift that most of the corpus may have
_CORRELATED_LINES = 4_096  # at a time
_CORRELATED = 8.0  # standard deviations: a shift beyond the small ones that is worth trying


class Learned(NamedTuple):
    """What a corpus taught."""

    evidence: Evidence
    shifts: list[int | None]  # 0 first, None (unrelated) last
    folds: int


def fold_of(lines: np.ndarray, folds: int) -> np.ndarray:
    """The folds of lines by their numbers in the whole corpus."""
    return (lines // _FOLD_LINES % folds).astype(np.uint8)


def learn(source: SideArrays, target: SideArrays, max_shift: int, reach: int) -> Learned:
    """Starts from the shift under which pairs differ most from chance, then learns on what fits, in rounds."""
    lines = min(source.lines, target.lines)
    large = lines > 2 * _WINDOW * _WINDOWS
    folds = 2 if lines > 20_000 else 5
    same = Lexicon.same_words(source, target, folds)
    window, numbers = max(source.lines, target.lines), np.arange(target.lines)
    if large:
        begins = np.linspace(0, lines - _WINDOW, _WINDOWS).astype(np.int64)
        window, numbers = _WINDOW, (begins[:, None] + np.arange(_WINDOW)).reshape(-1)
        source, target = _windows(source, begins), _windows(target, begins)
    line_folds = fold_of(numbers, folds)
    compared = halves(same, source, target, line_folds)
    weights = independence(source, target)
    shifts: list[int | None] = [*sorted(range(-max_shift, max_shift + 1), key=abs)]
    tried = {}
    for shift in {*range(-max_shift, max_shift + 1), *_correlated_shifts(*compared, reach, window)}:
        tried[shift] = Evidence.learn(same, *compared, _pairs(*compared, shift), window)
    base = max(tried, key=lambda shift: (tried[shift].information, -abs(shift)))
    if base not in shifts:
        shifts.append(base)
    shifts.append(None)
    evidence = tried[base]
    path = Comparison(evidence, *compared, weights).path(shifts)
    for _ in range(_ROUNDS):
        pairs = _pairs_on(path, shifts, target.lines)
        lexicon = same.with_translations(source, target, pairs, line_folds)
        compared = halves(lexicon, source, target, line_folds)
        evidence = Evidence.learn(lexicon, *compared, pairs, window)
        before, path = path, Comparison(evidence, *compared, weights).path(shifts)
        if np.mean(before != path) <= _SETTLED:
            break
    return Learned(evidence, shifts, folds)


def _windows(side: SideArrays, begins: np.ndarray) -> SideArrays:
    """Windows of a side, one after the other."""
    ids = (begins[:, None] + np.arange(_WINDOW)).reshape(-1)
    ends = np.cumsum(side.counts, dtype=np.int64)
    words = [side.words[ends[b] - side.counts[b] : ends[b + _WINDOW - 1]] for b in begins.tolist()]
    lengths, marks, numbers, prints, counts = (values[ids] for values in side[:-1])
    return SideArrays(lengths, marks, numbers, prints, counts, np.concatenate(words))


def _pairs(source: Half, target: Half, shift: int) -> tuple[np.ndarray, np.ndarray]:
    """Enough pairs of the given shift, from all over the corpus."""
    begin, end = max(0, -shift), min(source.lines, target.lines - shift)
    ids = np.arange(begin, max(begin, end), max(1, (end - begin) // _TRIED_PAIRS))
    return ids, ids + shift


def _pairs_on(path: np.ndarray, shifts: list[int | None], target_lines: int) -> tuple[np.ndarray, np.ndarray]:
    """The pairs that a path makes, without unrelated lines."""
    beyond = path.size + target_lines
    others = np.arange(path.size) + np.array([beyond if shift is None else shift for shift in shifts])[path]
    ids = np.flatnonzero((others >= 0) & (others < target_lines))
    return ids, others[ids]


def _correlated_shifts(source: Half, target: Half, reach: int, window: int) -> list[int]:
    """The shifts, however large, by which the sides resemble each other most, from cross-correlations."""
    size = min(_CORRELATED_LINES, window, source.lines)
    found = []
    for begin in sorted({0, (source.lines - size) // 2, source.lines - size}):
        low = max(0, begin - reach)
        if low >= target.lines:  # the other side ends long before
            continue
        ours = _channels(source.at(slice(begin, begin + size)))
        theirs = _channels(target.at(slice(low, begin + size + reach)))
        length = 1 << int(np.ceil(np.log2(ours[0].shape[1] + theirs[0].shape[1])))
        total = np.zeros(length)
        for one, two in zip(ours, theirs, strict=True):
            product = np.conj(np.fft.rfft(one, length)) * np.fft.rfft(two, length)
            total += np.fft.irfft(product.sum(axis=0), length) / np.sqrt(max(1, len(one)))
        places = np.arange(length)
        places[places > length // 2] -= length
        offsets = places + low - begin  # target line less source line
        overlap = np.minimum(begin + size, low + theirs[0].shape[1] - offsets) - np.maximum(begin, low - offsets)
        score = np.where(overlap > size // 4, total / np.sqrt(np.maximum(overlap, 1) * len(ours)), 0.0)
        best = int(np.argmax(score))
        if score[best] > _CORRELATED:
            found.append(int(offsets[best]))
    return found


def _channels(lines: Half) -> list[np.ndarray]:
    """Kinds of sequences [channels, lines] that go up and down together where sides belong together."""
    marks = np.stack([lines.marks % 8 == mark for mark in range(4)])
    numbers = np.bitwise_count(lines.numbers)[None]
    words = np.unpackbits(np.ascontiguousarray(lines.sets[:2].T).view(np.uint8), axis=1).T
    return [length_residuals(lines.lengths)[None], *(_standard(values) for values in (marks, numbers, words))]


def length_residuals(lengths: np.ndarray) -> np.ndarray:
    """Lengths against those of the lines around, with a variance of 1."""
    span = np.ones(min(101, lengths.size))
    around = np.convolve(lengths, span, mode="same") / np.convolve(np.ones(lengths.size), span, mode="same")
    return _standard((lengths - around)[None])[0]


def _standard(values: np.ndarray) -> np.ndarray:
    values = values - values.mean(axis=1, keepdims=True)
    deviation = values.std(axis=1, keepdims=True)
    return np.divide(values, deviation, out=np.zeros_like(values), where=deviation > 0)
