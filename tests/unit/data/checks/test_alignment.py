"""Damage is found and named exactly, and clean text is not refused."""

from __future__ import annotations

import lzma
import random
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from invented_languages import Languages

from regard.data.bundle import bundled_path
from regard.data.checks import alignment_search
from regard.data.checks.alignment import AlignmentFeatures, AlignmentVerdict, Misaligned, judge
from regard.data.checks.alignment_evidence import far_pairs
from regard.data.checks.alignment_search import threshold
from regard.data.split import Pairs


def check(pairs: Pairs, **settings) -> AlignmentVerdict:
    features = AlignmentFeatures(**settings)
    for begin in range(0, max(len(pairs.sources), len(pairs.targets)), 1_000):
        features.add(Pairs(pairs.sources[begin : begin + 1_000], pairs.targets[begin : begin + 1_000]))
    return judge(features)


@cache
def tatoeba() -> Pairs:
    """The bundled corpus, which is sorted by length."""
    with lzma.open(bundled_path("tatoeba-en-de"), "rt", encoding="utf-8", newline="\n") as file:
        rows = [line.rstrip("\n").split("\t") for line in file]
    return Pairs([row[0] for row in rows], [row[1] for row in rows])


def sorted_sample(seed: int, lines: int = 2_000) -> Pairs:
    begin = random.Random(seed).randrange(len(tatoeba()) - lines)
    return tatoeba().take(list(range(begin, begin + lines)))


def shuffled_sample(seed: int, lines: int = 2_000) -> Pairs:
    return tatoeba().take(random.Random(seed).sample(range(len(tatoeba())), lines))


@cache
def invented(seed: int = 0, spaces: bool = True, repeated: bool = True, lines: int = 2_000) -> Pairs:
    return Languages(seed, spaces, repeated).pairs(lines)


CORPORA = {
    "shuffled Tatoeba": lambda: shuffled_sample(1),
    "invented": invented,
    "invented, without spaces": lambda: invented(1, spaces=False),
}
every_corpus = pytest.mark.parametrize("pairs", list(CORPORA.values()), ids=list(CORPORA))
two_corpora = pytest.mark.parametrize("pairs", list(CORPORA.values())[::2], ids=list(CORPORA)[::2])


def without(pairs: Pairs, begin: int, end: int | None = None) -> Pairs:
    """Without some target lines."""
    return Pairs(pairs.sources, pairs.targets[:begin] + pairs.targets[end or begin + 1 :])


def doubled(pairs: Pairs, line: int) -> Pairs:
    return Pairs(pairs.sources, pairs.targets[: line + 1] + pairs.targets[line:])


def merged(pairs: Pairs, line: int) -> Pairs:
    both = f"{pairs.targets[line]} {pairs.targets[line + 1]}"
    return Pairs(pairs.sources, [*pairs.targets[:line], both, *pairs.targets[line + 2 :]])


def reordered(pairs: Pairs, begin: int, order: list[int]) -> Pairs:
    targets = [pairs.targets[i] for i in order]
    return Pairs(pairs.sources, pairs.targets[:begin] + targets + pairs.targets[begin + len(order) :])


def shifted(verdict: AlignmentVerdict) -> list[Misaligned]:
    """The damage, without a line or two at a border that have lost their partners."""
    return [found for found in verdict.damage if found.shift is not None or found.end - found.begin > 2]


def is_near(found: Misaligned, begin: int, end: int, shift: int | None, within: int = 4) -> bool:
    return found.shift == shift and abs(found.begin - begin) <= within and abs(found.end - end) <= within


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("sample", [sorted_sample, shuffled_sample])
def test_clean_samples_are_not_refused(sample, seed):
    verdict = check(sample(seed))
    assert verdict.judged
    assert verdict.damage == ()
    assert verdict.information > 2


@pytest.mark.parametrize("lines", [60, 150, 400, 3_000])
@pytest.mark.parametrize("spaces", [True, False])
def test_clean_invented_text_is_not_refused(spaces, lines):
    verdict = check(invented(3, spaces, lines=lines))
    assert verdict.damage == verdict.doubtful == ()


@every_corpus
def test_deleted_line(pairs):
    verdict = check(without(pairs(), 1_950))
    assert [is_near(found, 1_950, 2_000, -1) for found in shifted(verdict)] == [True]
    assert verdict.nats == shifted(verdict)[0].nats > 150


@two_corpora
def test_deleted_source_line(pairs):
    whole = pairs()
    verdict = check(Pairs(whole.sources[:700] + whole.sources[701:], whole.targets))
    assert [is_near(found, 700, 1_999, 1) for found in shifted(verdict)] == [True]


@two_corpora
def test_doubled_line(pairs):
    verdict = check(doubled(pairs(), 1_950))
    assert [is_near(found, 1_951, 2_000, 1) for found in shifted(verdict)] == [True]


@every_corpus
def test_merged_lines(pairs):
    verdict = check(merged(pairs(), 1_500))
    assert [is_near(found, 1_501, 2_000, -1) for found in shifted(verdict)] == [True]


@every_corpus
def test_damage_that_is_compensated_later(pairs):
    whole = pairs()
    verdict = check(reordered(whole, 900, [*range(901, 960), 959]))
    assert [is_near(found, 900, 959, -1) for found in shifted(verdict)] == [True]
    first, last = shifted(verdict)[0].begin_range
    assert 895 <= first <= 901 <= last + 1 <= 910


@every_corpus
def test_two_swapped_lines_are_doubtful(pairs):
    verdict = check(reordered(pairs(), 1_200, [1_201, 1_200]))
    assert verdict.damage == ()
    assert [(found.begin, found.end, found.shift) for found in verdict.doubtful] == [
        (1_200, 1_201, 1),
        (1_201, 1_202, -1),
    ]


def test_many_swapped_lines_are_damage():
    whole = shuffled_sample(2)
    pairs = whole
    for line in range(100, 2_000, 100):
        pairs = reordered(Pairs(whole.sources, pairs.targets), line, [line + 1, line])
        pairs.targets[line : line + 2] = [whole.targets[line + 1], whole.targets[line]]
    verdict = check(pairs)
    swapped = {found.begin for found in verdict.damage}
    assert len(swapped & {line for place in range(100, 2_000, 100) for line in (place, place + 1)}) >= 30
    assert all(found.begin % 100 <= 1 for found in verdict.damage)


@two_corpora
def test_block_that_moved(pairs):
    order = [*range(812, 824), *range(800, 812)]
    verdict = check(reordered(pairs(), 800, order))
    there, back = shifted(verdict)
    assert is_near(there, 800, 812, 12)
    assert is_near(back, 812, 824, -12)


@two_corpora
def test_missing_block(pairs):
    verdict = check(without(pairs(), 600, 900))
    lost, rest = shifted(verdict)
    assert is_near(lost, 600, 900, None)
    assert is_near(rest, 900, 2_000, -300)


def test_blocks_missing_at_two_places():
    verdict = check(without(without(shuffled_sample(11), 1_200, 1_400), 500, 650))
    expected = [(500, 650, None), (650, 1_200, -150), (1_200, 1_400, None), (1_400, 2_000, -350)]
    for found, place in zip(shifted(verdict), expected, strict=True):
        assert is_near(found, *place)


@pytest.mark.parametrize("shift", [1, -1, 3, -20, 700, -700])
def test_off_from_the_first_line(shift):
    whole = shuffled_sample(3)
    pairs = Pairs(whole.sources[max(0, shift) :], whole.targets[max(0, -shift) :])
    verdict = check(pairs)
    assert [(found.begin, found.shift) for found in verdict.damage] == [(0, shift)]


def test_sorted_file_off_from_the_middle():
    verdict = check(without(sorted_sample(1), 1_000))
    assert [is_near(found, 1_000, 2_000, -1, within=20) for found in shifted(verdict)] == [True]


def test_sorted_file_off_from_the_first_line():
    pairs = sorted_sample(2)
    verdict = check(Pairs(pairs.sources[1:], pairs.targets))
    assert [is_near(found, 0, 1_999, 1, within=20) for found in shifted(verdict)] == [True]


def test_several_damages_are_all_found():
    whole = invented(5, lines=3_000)
    targets = list(whole.targets)
    for line in (2_700, 2_000, 1_500, 1_400, 500):
        del targets[line]
    targets[900:902] = [targets[901], targets[900]]
    verdict = check(Pairs(whole.sources, targets))
    borders = [500, 1_400, 1_500, 2_000, 2_700, 3_000]
    for k, (found, (begin, end)) in enumerate(zip(shifted(verdict), pairwise(borders), strict=True)):
        assert is_near(found, begin, end, -k - 1)


def test_deletion_in_a_short_file():
    verdict = check(without(shuffled_sample(4, 300), 200))
    assert [is_near(found, 200, 300, -1) for found in shifted(verdict)] == [True]


def test_without_words_in_common_lengths_marks_and_numbers_tell():
    pairs = invented(7, spaces=False, repeated=False)
    clean = check(pairs)
    assert clean.damage == ()
    assert clean.information < 0.7 * check(invented(7, spaces=False)).information  # hardly a word is repeated
    verdict = check(without(pairs, 1_500))
    assert [is_near(found, 1_500, 2_000, -1, within=10) for found in shifted(verdict)] == [True]


@two_corpora
def test_part_that_is_shuffled(pairs):
    rest = list(range(1_400, 2_000))
    random.Random(0).shuffle(rest)
    verdict = check(reordered(pairs(), 1_400, rest))
    assert [is_near(found, 1_400, 2_000, None) for found in shifted(verdict)] == [True]


@two_corpora
def test_shuffled_side(pairs):
    order = list(range(2_000))
    random.Random(0).shuffle(order)
    verdict = check(reordered(pairs(), 0, order))
    assert [(found.begin, found.end, found.shift) for found in verdict.damage] == [(0, 2_000, None)]
    assert verdict.information < 0.3


def test_sorted_side():
    pairs = shuffled_sample(5)
    verdict = check(Pairs(pairs.sources, sorted(pairs.targets)))
    assert [(found.begin, found.end, found.shift) for found in verdict.damage] == [(0, 2_000, None)]


def test_wrong_file():
    verdict = check(Pairs(invented(0).sources, invented(1).targets))
    assert [(found.begin, found.end, found.shift) for found in verdict.damage] == [(0, 2_000, None)]


def test_extra_lines_at_the_end_are_not_misaligned():
    pairs = shuffled_sample(6)
    assert check(Pairs(pairs.sources, pairs.targets[:1_200])).damage == ()
    assert check(Pairs(pairs.sources[:1_200], pairs.targets)).damage == ()


def test_text_of_another_kind_in_between_is_not_unrelated():
    mine, other = invented(8), invented(9, spaces=False)
    pairs = Pairs(
        mine.sources[:1_000] + other.sources[:200] + mine.sources[1_000:],
        mine.targets[:1_000] + other.targets[:200] + mine.targets[1_000:],
    )
    assert check(pairs).damage == ()


def test_text_that_looks_odd_but_is_aligned_is_not_unrelated():
    mine, other = shuffled_sample(12), invented(9, spaces=False, repeated=False)
    targets = [target[: len(target) // 3 + 1] for target in other.targets]  # far shorter than elsewhere
    pairs = Pairs(
        mine.sources[:900] + other.sources[:60] + mine.sources[900:],
        mine.targets[:900] + targets[:60] + mine.targets[900:],
    )
    assert check(pairs).damage == ()


def test_a_line_that_is_repeated_counts_once():
    pairs = invented(13)
    odd = Pairs(["Ba de."] * 60, [f"{' '.join(['Vorn weyin pforn'] * 12)}?"] * 60)
    with_odd = Pairs(
        pairs.sources[:700] + odd.sources + pairs.sources[700:], pairs.targets[:700] + odd.targets + pairs.targets[700:]
    )
    verdict = check(with_odd)
    assert verdict.damage == verdict.doubtful == ()


def test_numbers_alone_tell():
    rng = random.Random(0)
    numbers = [rng.randint(1_000, 9_999) for _ in range(1_000)]
    pairs = Pairs([f"Item {n} is sold." for n in numbers], [f"Posten {n} ist weg." for n in numbers])
    assert check(pairs).damage == ()
    verdict = check(without(pairs, 900))
    assert [is_near(found, 900, 1_000, -1) for found in shifted(verdict)] == [True]


def test_noisy_text_is_not_misaligned():
    pairs, rng = invented(10), random.Random(0)
    noisy = set(rng.sample(range(2_000), 400))
    targets = [rng.choice(pairs.targets) if i in noisy else target for i, target in enumerate(pairs.targets)]
    assert check(Pairs(pairs.sources, targets)).damage == ()


@pytest.mark.parametrize("lines", [0, 1, 2, 3, 49])
def test_too_few_lines_are_not_judged(lines):
    numbered = [f"{i * i} things" for i in range(60)]
    verdict = check(Pairs(numbered[:lines], numbered[1 : lines + 1]))
    assert not verdict.judged
    assert verdict.damage == verdict.doubtful == ()
    assert verdict.lines == lines


def test_few_shuffled_lines_are_not_judged():
    pairs = shuffled_sample(8, 100)
    verdict = check(Pairs(pairs.sources, pairs.targets[::-1]))
    assert not verdict.judged
    assert verdict.damage == ()


@pytest.mark.parametrize(
    "pairs",
    [
        Pairs([""] * 600, [""] * 600),
        Pairs(["the same line."] * 600, ["dieselbe Zeile."] * 600),
        Pairs([f"review {i}" for i in range(600)], ["good", "bad", "fair"] * 200),
        Pairs(["line"] * 600, []),
    ],
    ids=["empty", "same", "labels", "one side"],
)
def test_lines_that_cannot_be_told_apart_are_not_judged(pairs):
    verdict = check(pairs)
    assert not verdict.judged
    assert verdict.damage == ()


def test_blocks_say_the_same_as_the_whole():
    pairs = without(without(shuffled_sample(9, 9_000), 8_000), 1_500)
    for block_lines in (2_000, 100_000):
        verdict = check(pairs, max_shift=3, block_lines=block_lines)
        assert verdict.lines == 9_000
        first, second = shifted(verdict)
        assert is_near(first, 1_500, 8_000, -1)
        assert is_near(second, 8_000, 9_000, -2)


def test_greatest_shift_is_a_setting(monkeypatch):
    monkeypatch.setattr(alignment_search, "_search", lambda *arguments: None)  # does not find others
    pairs = reordered(shuffled_sample(10), 800, [*range(820, 840), *range(800, 820)])
    assert [found.shift for found in shifted(check(pairs, max_shift=20))] == [20, -20]
    assert [found.shift for found in shifted(check(pairs, max_shift=19))] == [None]


def test_thresholds_rise_where_chance_can_do_more():
    usual = threshold(30.0, 4_000)
    assert usual == pytest.approx(30.0)
    assert threshold(30.0, 1_000_000) > usual + 5
    assert threshold(30.0, 100) > 2 * usual
    assert threshold(30.0, 1_000) < 1.2 * usual


def test_far_pairs_are_far_and_in_the_same_window():
    ids = np.arange(10, 3_990)
    sources, targets = far_pairs((ids, ids + 2), 4_000, window=1_000)
    apart = np.abs(targets - (sources + 2))
    assert len(sources) > 2.5 * len(ids)
    assert apart.min() >= 50
    assert apart.max() <= 500
    assert np.mean((sources + 2) // 1_000 != targets // 1_000) == 0


def test_the_same_text_gets_the_same_verdict():
    pairs = without(sorted_sample(5), 900)
    features = AlignmentFeatures()
    features.add(pairs)
    assert judge(features) == judge(features)
    features.add(Pairs(["One more."], ["Noch einer."]))
    assert judge(features).lines == 2_001


@pytest.mark.parametrize("lines", [200, 1000, 5000])
def test_text_that_repeats_itself_is_not_refused(lines):
    """Sentences from a template, in turn: the next line is as good a partner as the line's own."""
    places = [(i % 3, i % 7 % 3, i % 5 % 3) for i in range(lines)]
    words = (("cat", "dog", "bird"), ("sees", "eats", "likes"), ("fish", "mouse", "man"))
    others = (("katze", "hund", "vogel"), ("sieht", "isst", "mag"), ("fisch", "maus", "mann"))
    sources = [f"the {words[0][a]} {words[1][b]} the {words[2][c]} ." for a, b, c in places]
    targets = [f"die {others[0][a]} {others[1][b]} den {others[2][c]} ." for a, b, c in places]
    features = AlignmentFeatures()
    features.add(Pairs(sources, targets))
    assert judge(features).damage == ()


@pytest.mark.parametrize("kept", [30, 300, 3_000])
@pytest.mark.parametrize("side", ["sources", "targets"])
def test_a_side_that_ends_long_before_the_other_is_no_accident(kept, side, monkeypatch):
    """A file cut off, or another file: the check goes to its end, and the lines that are there fit."""
    monkeypatch.setattr(alignment_search, "_MOST_REACH", 2_000)  # as 50,000 for a corpus of 170,000 lines
    pairs = tatoeba().take(list(range(0, 160_000, 8)))
    cut = Pairs(
        pairs.sources[: kept if side == "sources" else None], pairs.targets[: kept if side == "targets" else None]
    )
    for found in check(cut).damage:
        assert found.begin >= kept - 100, "where both sides are there, nothing is wrong"
