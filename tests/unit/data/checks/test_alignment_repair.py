"""The pairs that a repair keeps."""

from __future__ import annotations

import random

import pytest
from invented_languages import Languages

from regard.data.checks.alignment import AlignmentFeatures, AlignmentVerdict, Misaligned, Piece, judge, repair
from regard.data.split import Pairs


def verdict(*damage: Misaligned) -> AlignmentVerdict:
    return AlignmentVerdict(damage, (), 0.0, 100, 5.0)


def stretch(begin: int, end: int, shift: int | None, slack: int = 0) -> Misaligned:
    """Damage whose borders may be `slack` lines off either way."""
    ranges = ((begin - slack, begin + slack), (end - slack, end + slack))
    return Misaligned(begin, end, shift, 99.0, *ranges)


def test_undamaged_text_is_kept_whole():
    assert repair(verdict(), 100, 100) == [Piece(0, 0, 100)]
    assert repair(verdict(), 100, 90) == [Piece(0, 0, 90)]
    assert repair(verdict(), 0, 0) == []


def test_a_deleted_line_costs_the_lines_around_it():
    found = Misaligned(50, 100, -1, 99.0, (49, 51), (100, 100))
    # target line 51 would be claimed by source line 52 only, 48 to 51 are uncertain
    assert repair(verdict(found), 100, 99) == [Piece(0, 0, 48), Piece(52, 51, 48)]


def test_a_doubled_line():
    found = Misaligned(50, 100, 1, 99.0, (50, 50), (100, 100))
    assert repair(verdict(found), 100, 101) == [Piece(0, 0, 49), Piece(51, 52, 49)]


def test_off_from_the_first_line():
    assert repair(verdict(stretch(0, 100, 1)), 100, 101) == [Piece(0, 1, 100)]
    assert repair(verdict(stretch(0, 100, -1)), 100, 99) == [Piece(1, 0, 99)]


def test_unrelated_lines_are_dropped():
    assert repair(verdict(stretch(40, 60, None)), 100, 100) == [Piece(0, 0, 39), Piece(61, 61, 39)]
    assert repair(verdict(stretch(0, 100, None)), 100, 100) == []


def test_target_lines_that_two_would_claim_are_left_out():
    pieces = repair(verdict(stretch(50, 100, -20)), 100, 100)
    assert pieces == [Piece(0, 0, 31), Piece(69, 49, 31)]
    claimed = [piece.target_begin + i for piece in pieces for i in range(piece.length)]
    assert len(claimed) == len(set(claimed))


def test_stretches_that_adjoin():
    damage = (stretch(20, 60, -1, 1), stretch(60, 80, None, 0), stretch(80, 100, -21, 0))
    assert repair(verdict(*damage), 100, 79) == [Piece(0, 0, 18), Piece(22, 21, 36), Piece(81, 60, 19)]


def test_a_stretch_within_its_own_doubt_is_dropped():
    assert repair(verdict(stretch(50, 54, 2, 3)), 100, 100) == [Piece(0, 0, 46), Piece(58, 58, 42)]


def test_doubtful_stretches_stay():
    doubtful = AlignmentVerdict((), (stretch(50, 51, 1), stretch(51, 52, -1)), 12.0, 100, 5.0)
    assert repair(doubtful, 100, 100) == [Piece(0, 0, 100)]


@pytest.mark.parametrize("seed", range(3))
def test_repair_gives_back_the_true_pairs(seed):
    pairs, rng = Languages(seed).pairs(3_000), random.Random(seed)
    targets: list[tuple[int, str]] = list(enumerate(pairs.targets))
    places = [*rng.sample(range(2_400, 2_900, 20), 4), rng.randrange(100, 1_000), rng.randrange(1_500, 2_000)]
    for k, place in enumerate(sorted(places, reverse=True)):
        if k % 3 == 0:
            del targets[place]
        elif k % 3 == 1:
            targets.insert(place, targets[place])
        else:
            targets[place : place + 2] = [(-1, targets[place][1] + " " + targets[place + 1][1])]
    del targets[1_100:1_130]
    features = AlignmentFeatures()
    features.add(Pairs(pairs.sources, [text for _, text in targets]))
    pieces = repair(judge(features), 3_000, len(targets))
    kept = [(piece.source_begin + i, piece.target_begin + i) for piece in pieces for i in range(piece.length)]
    assert all(targets[target][0] == source for source, target in kept)
    true = {number for number, _ in targets} - {-1}
    assert len(kept) > 0.98 * len(true)
