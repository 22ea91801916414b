"""Searches a corpus for lines that belong to others: shifted stretches, swapped lines, unrelated text."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from regard.data.checks.alignment_evidence import Comparison, halves, independence
from regard.data.checks.alignment_learning import fold_of, learn, length_residuals
from regard.data.checks.alignment_lines import SideArrays
from regard.data.checks.alignment_verdict import AlignmentVerdict, Misaligned

_LEARN_SHIFT = 3  # the greatest that is tried while learning
_MOST_SHIFT = 50  # lines
_MOST_TRIED = 3_500_000  # lines, all shifts one way together
_LEAST_LINES = 50  # fewer cannot be judged
_FEW_LINES = 200  # so few must be overwhelming to be judged damaged
# Nats above which a stretch is refused, or warned of, in a corpus of _USUAL_LINES. Chance finds more in a larger corpus.
# Clean samples of that size reached 13 by shifts up to _LEARN_SHIFT, 9 by swaps and 42 by all else where the corpus is
# sorted by length, and 12 at most where it is not; a million lines of Europarl 11, 170,000 sorted ones of Tatoeba 21.
_USUAL_LINES = 4_000
_REFUSE, _WARN = 30.0, 20.0
_REFUSE_UNUSUAL, _WARN_UNUSUAL = 60.0, 40.0  # unrelated text, and shifts above _LEARN_SHIFT
_WARN_SWAPPED = 9.0  # two lines next to each other; not refused
_MANY_SWAPS, _MANY_SWAPS_SHARE = 5, 0.001  # are refused: so many, and such a share of the lines
_PER_LOG_LINES = 1.0  # nats more for each time that the corpus is e times larger
# A corpus that cannot be told from chance: nats that a pair says less than this, and as much again for few lines
_LEAST_INFORMATION, _LEAST_INFORMATION_LINES = 0.2, 180.0
_LEAST_TOLD, _LEAST_REFUSED = 200, 500  # lines of which that can be said, and for which they are refused
_LEAST_VARIETY = 0.2  # share of different lines on either side without which nothing can be told
_REACH, _MOST_REACH = 2_000, 50_000  # lines either way within which a stretch is searched
_LEAST_SEARCHED = 5  # lines
_SEARCH_LINES = 32  # of an unrelated stretch at a time
_SEARCH_PLACES = 5  # of a stretch
_MOST_SEARCHED = 40_000_000  # pairs of lines
_MOST_FOUND = 40  # new shifts in a round
_SEARCH_ROUNDS = 4
_FOUND = 20.0  # nats by which a shift found in a search is better than chance
_LEAST_FIT = 10.0  # nats by which a small shift must be better than chance
_RELATED = 0.25  # of the usual information: more than this and a stretch is not unrelated
_LENGTHS_RELATED = 0.5  # correlation above which the lengths of a stretch show the same
_CLEAR = 3.3  # standard deviations
_MOST_RELATED = 20_000  # lines of a stretch for which this is seen
_SWAPPED_LINES = 4  # of a stretch that two swapped lines can explain
_BORDER_NATS = 5.0  # a border may lie wherever it is so much less likely at most
_BORDER_LINES = 100
_BLOCK = 1 << 16


def judge_lines(source: SideArrays, target: SideArrays, max_shift: int | None = None) -> AlignmentVerdict:
    """Finds all stretches in which the given pairing is worse than a shifted one, or than chance.

    All shifts up to `max_shift` are tried everywhere (None: 3 in a corpus of a million lines, up to 50 in a small one);
    greater ones are searched for where nothing fits.
    """
    lines = min(source.lines, target.lines)
    if lines < _LEAST_LINES:
        return AlignmentVerdict((), (), 0.0, source.lines, 0.0, judged=False)
    reach = min(max(_REACH, abs(source.lines - target.lines) + _REACH // 2), _MOST_REACH)
    learned = learn(source, target, _LEARN_SHIFT, reach)
    if learned.evidence.information < _LEAST_INFORMATION + _LEAST_INFORMATION_LINES / lines:
        return _chance(source, target, learned.evidence.information)
    folds = fold_of(np.arange(target.lines), learned.folds)
    compared = halves(learned.evidence.lexicon, source, target, folds)
    comparison = Comparison(learned.evidence, *compared, independence(source, target))
    if max_shift is None:
        max_shift = max(_LEARN_SHIFT, min(_MOST_SHIFT, _MOST_TRIED // lines, lines // 40))
    small = range(-max_shift, max_shift + 1)
    shifts = [*sorted(small, key=abs), *(shift for shift in learned.shifts if shift not in small)]
    stretches = _stretches(comparison, shifts, reach)
    found = _measured(comparison, stretches)
    swapped = _swapped(comparison, threshold(_WARN_SWAPPED, lines))
    found, swapped = _apart(found, swapped)
    damage, doubtful = _weighed(found, lines)
    many = len(swapped) // 2 >= max(_MANY_SWAPS, _MANY_SWAPS_SHARE * lines)
    (damage if many else doubtful).extend(swapped)
    # Text that repeats itself may fit by many shifts, unless it is numbers that tell its lines apart.
    numbered = np.mean(source.numbers != 0) > 0.5
    if damage and not numbered and min(_variety(source), _variety(target)) < _LEAST_VARIETY:
        damage, doubtful = [], damage + doubtful
    return AlignmentVerdict(
        damage=tuple(sorted(damage, key=lambda one: one.begin)),
        doubtful=tuple(sorted(doubtful, key=lambda one: one.begin)),
        nats=max((one.nats for one in (*found, *swapped)), default=0.0),
        lines=source.lines,
        information=learned.evidence.information,
    )


def _chance(source: SideArrays, target: SideArrays, information: float) -> AlignmentVerdict:
    """The verdict on sides that look as if they had met by chance: unrelated, if their lines can be told apart."""
    lines = min(source.lines, target.lines)
    whole, nats = (), 0.0
    if lines >= _LEAST_TOLD and min(_variety(source), _variety(target)) >= _LEAST_VARIETY:
        nats = float(lines)  # related text says that much at least
        whole = (Misaligned(0, lines, None, nats, (0, 0), (lines, lines)),)
    damage, doubtful = (whole, ()) if lines >= _LEAST_REFUSED else ((), whole)
    return AlignmentVerdict(damage, doubtful, nats, source.lines, information, judged=bool(whole))


def threshold(nats: float, lines: int) -> float:
    """Chance finds more in a larger corpus, and little can be known in a small one."""
    more = math.log(max(lines, _USUAL_LINES) / _USUAL_LINES)
    return (nats + _PER_LOG_LINES * more) * max(1.0, 0.95 + _FEW_LINES / lines)


def _weighed(found: Sequence[Misaligned], lines: int) -> tuple[list[Misaligned], list[Misaligned]]:
    """What is damage, and what is doubtful. Stretches that adjoin have one cause and are weighed together."""
    damage, doubtful = [], []
    groups: list[list[Misaligned]] = []
    for one in found:
        if groups and groups[-1][-1].end == one.begin:
            groups[-1].append(one)
        else:
            groups.append([one])
    for group in groups:
        usual = all(one.shift is not None and abs(one.shift) <= _LEARN_SHIFT for one in group)
        refuse, warn = (_REFUSE, _WARN) if usual else (_REFUSE_UNUSUAL, _WARN_UNUSUAL)
        nats = sum(one.nats for one in group)
        if nats > threshold(refuse, lines):
            damage += group
        elif nats > threshold(warn, lines):
            doubtful += group
    return damage, doubtful


@dataclass(frozen=True)
class _Stretch:
    """Source lines in a row with one shift."""

    begin: int
    end: int
    shift: int | None


def _stretches(comparison: Comparison, shifts: Sequence[int | None], reach: int) -> list[_Stretch]:
    """The corpus cut where the shift changes; shifts beyond the given ones are searched where nothing fits."""
    shifts, budget = list(shifts), _MOST_SEARCHED
    stretches = _cut(comparison, shifts)
    for _ in range(_SEARCH_ROUNDS):
        votes: Counter[int | None] = Counter()
        unrelated = [one for one in stretches if one.shift is None and one.end - one.begin >= _LEAST_SEARCHED]
        for one in sorted(unrelated, key=lambda one: one.begin - one.end):
            size = min(_SEARCH_LINES, -(-(one.end - one.begin) // 2))
            for begin in np.linspace(one.begin, one.end - size, _SEARCH_PLACES).astype(int).tolist():
                budget -= size * (2 * reach + 1)
                if budget >= 0:
                    votes[_search(comparison, begin, begin + size, reach)] += 1
        new = [shift for shift, _ in votes.most_common() if shift not in shifts][:_MOST_FOUND]
        if not new:
            break
        shifts[-1:] = [*new, None]
        stretches = _cut(comparison, shifts)
    return stretches


def _cut(comparison: Comparison, shifts: Sequence[int | None]) -> list[_Stretch]:
    path = comparison.path(shifts)
    borders = (np.flatnonzero(np.diff(path)) + 1).tolist()
    stretches = []
    for begin, end in zip([0, *borders], [*borders, path.size], strict=True):
        one = _Stretch(begin, end, shifts[path[begin]])
        if one.shift and comparison.nats(begin, end, one.shift).sum() < _LEAST_FIT:
            one = replace(one, shift=None)  # not better than chance
        if one.shift is None and _related(comparison, begin, end):
            one = replace(one, shift=0)
        if stretches and stretches[-1].shift == one.shift:
            one = replace(one, begin=stretches.pop().begin)
        stretches.append(one)
    return stretches


def _related(comparison: Comparison, begin: int, end: int) -> bool:
    """Whether the given pairing of a stretch is clearly better than other pairings of the same lines.

    A stretch of another kind of text than the rest may look worse than chance by the tables and still be aligned.
    """
    size = min(end, comparison.target.lines, begin + _MOST_RELATED) - begin
    if size < _LEAST_SEARCHED:
        return False
    lines = np.arange(size)
    source = comparison.source.at(slice(begin, begin + size))
    given, *others = (
        comparison.evidence.nats(source, comparison.target.at(begin + (lines + size * k // 5) % size)) for k in range(5)
    )
    gain = (given - np.mean(others, axis=0)) * comparison.weights[begin : begin + size]
    clear = gain.mean() * math.sqrt(size) > _CLEAR * gain.std()
    if clear and gain.mean() > _RELATED * comparison.evidence.information:
        return True
    # the tables may be wrong for this stretch; lengths that go up and down together need none
    ours, theirs = (
        length_residuals(side[begin : begin + size]) for side in (comparison.source.lengths, comparison.target.lengths)
    )
    together = float(ours @ theirs) / size
    return together > _LENGTHS_RELATED and together * math.sqrt(size) > _CLEAR


def _search(comparison: Comparison, begin: int, end: int, reach: int) -> int | None:
    """The shift under which some source lines fit better than chance, if there is one."""
    total = np.zeros(2 * reach + 1)
    for line in range(begin, end):
        low, high = max(0, line - reach), min(comparison.target.lines, line + reach + 1)
        if low < high:
            source, target = comparison.source.at(slice(line, line + 1)), comparison.target.at(slice(low, high))
            fit = comparison.evidence.nats(source, target) * comparison.weights[line]
            total[low - line + reach : high - line + reach] += fit
    best = int(np.argmax(total))
    return best - reach if total[best] > _FOUND else None


def _measured(comparison: Comparison, stretches: Sequence[_Stretch]) -> list[Misaligned]:
    """The stretches that are not as given, with their nats and the ranges of their borders."""
    ranges = [(0, 0)]
    ranges += [_border_range(comparison, left, right) for left, right in pairwise(stretches)]
    ranges += [(comparison.source.lines, comparison.source.lines)]
    return [
        Misaligned(
            begin=one.begin,
            end=one.end,
            shift=one.shift,
            nats=float((comparison.nats(one.begin, one.end, one.shift) - comparison.nats(one.begin, one.end, 0)).sum()),
            begin_range=begin_range,
            end_range=end_range,
        )
        for one, (begin_range, end_range) in zip(stretches, pairwise(ranges), strict=True)
        if one.shift != 0
    ]


def _border_range(comparison: Comparison, left: _Stretch, right: _Stretch) -> tuple[int, int]:
    """The first and the last line before which the border of two stretches may lie."""
    begin, end = max(left.begin, right.begin - _BORDER_LINES), min(right.end, right.begin + _BORDER_LINES)
    better = comparison.nats(begin, end, left.shift) - comparison.nats(begin, end, right.shift)
    likelihood = np.concatenate(([0.0], np.cumsum(better)))  # of a border before each line
    places = np.flatnonzero(likelihood >= likelihood.max() - _BORDER_NATS)
    return begin + int(places[0]), begin + int(places[-1])


def _swapped(comparison: Comparison, least: float) -> list[Misaligned]:
    """Lines next to each other that fit crosswise, each swap as two stretches of one line."""
    found = []
    for begin in range(0, comparison.source.lines - 1, _BLOCK):
        end = min(comparison.source.lines, begin + _BLOCK + 1)
        given, onward, back = (comparison.nats(begin, end, shift) for shift in (0, 1, -1))
        gain = onward[:-1] + back[1:] - given[:-1] - given[1:]
        around = np.concatenate(([0.0], gain, [0.0]))
        best = (gain > least) & (gain >= around[:-2]) & (gain > around[2:])
        for k in np.flatnonzero(best).tolist():
            for line, shift in ((begin + k, 1), (begin + k + 1, -1)):
                found.append(Misaligned(line, line + 1, shift, float(gain[k]), (line, line), (line + 1, line + 1)))
    return found


def _apart(found: Sequence[Misaligned], swapped: Sequence[Misaligned]) -> tuple[list[Misaligned], list[Misaligned]]:
    """A stretch of few lines with a swap in it is that swap; a swap in a longer stretch is part of it."""
    lines = np.array([one.begin for one in swapped], dtype=np.int64)
    first = np.searchsorted(lines, [one.begin for one in found]).tolist()
    last = np.searchsorted(lines, [one.end for one in found]).tolist()
    short = [one.end - one.begin <= _SWAPPED_LINES and a < b for one, a, b in zip(found, first, last, strict=True)]
    inside = {k for is_short, a, b in zip(short, first, last, strict=True) if not is_short for k in range(a, b)}
    inside |= {k ^ 1 for k in inside}  # both lines of a swap
    kept = [one for one, is_short in zip(found, short, strict=True) if not is_short]
    return kept, [one for k, one in enumerate(swapped) if k not in inside]


def _variety(side: SideArrays) -> float:
    """The share of different lines, numbers left out."""
    values = side.prints.astype(np.uint64) << np.uint64(16)
    values |= side.lengths.astype(np.uint64) << np.uint64(8) | side.marks
    return np.unique(values).size / side.lines
