"""What is known of a line: its length, last mark, numbers and words."""

from __future__ import annotations

import numpy as np
import pytest

from regard.data.checks.alignment_lines import BUCKETS, MARKS, SideArrays, SideFeatures


def look(*lines: str) -> SideArrays:
    side = SideFeatures()
    side.add(lines)
    return side.arrays()


def words(line: str) -> list[int]:
    return look(line).words.tolist()


@pytest.mark.parametrize(
    ("ascii_line", "other"),
    [
        ("a.", "あ。"),
        ("a.", "क।"),
        ("a.", "a.  \r"),
        ("a?", "あ？"),
        ("a?", "ا؟"),
        ("a!", "あ！"),
        ("a:", "あ："),
        ("a;", "あ；"),
        ("a,", "あ、"),
        ("a-", "a…"),
        ('"a."', "„a.“"),
        ('"a."', "「あ。」"),
        ('"a."', "« a. »"),
        ("(a?)", "（あ？）"),
        ("a", "あ"),
        ("a", "é"),
        ("", " \t\r"),
    ],
)
def test_marks_of_other_scripts_are_the_same_as_ours(ascii_line, other):
    marks = look(ascii_line, other).marks
    assert marks[0] == marks[1] < MARKS


def test_marks_are_told_apart():
    marks = look("a", "a.", "a?", "a!", "a:", "a;", "a,", "a-", 'a"', 'a."', 'a?"', 'a!"', 'a:"').marks.tolist()
    assert len(set(marks)) == len(marks)
    assert look(".", "", "?").marks.tolist() == look("a.", "a", "a?").marks.tolist()  # nothing of the line before


@pytest.mark.parametrize(
    ("one", "same"),
    [
        ("room 12, floor 3", "etage 3, zimmer 12"),
        ("1,000,000 people", "1.000.000 menschen"),
        ("in 1999", "１９９９年"),
        ("in 1999", "في ١٩٩٩"),
        ("in 1999", "सन १९९९"),
        ("no number", "keine zahl"),
        ("x123456789", "y 123456789."),
    ],
)
def test_same_numbers(one, same):
    numbers = look(one, same).numbers
    assert numbers[0] == numbers[1]


def test_other_numbers():
    numbers = look("in 1999", "in 1998", "in 199", "in", "19 99").numbers.tolist()
    assert len(set(numbers)) == len(numbers)
    assert numbers[3] == 0
    assert np.bitwise_count(look("7 days, 24 hours, 60 minutes").numbers)[0] == 3


def test_words_are_compared_by_their_beginning_and_without_case():
    assert words("Nation") == words("NATIONAL") == words("nationality")
    assert words("nation") != words("native")
    assert words("the cat") == words("“The”—cat!") == words("«the» cat…") == words("the1cat")
    assert len(words("ab abc abcd abcde abcdef")) == 5
    assert len(set(words("ab abc abcd abcde abcdef"))) == 4
    assert words("здравствуйте") == words("здравница")  # four letters of two bytes
    assert words("здравствуйте") != words("здание")


def test_scripts_without_spaces_have_a_word_at_every_sign():
    assert len(words("我在学西班牙语。")) == 7
    assert words("我在学。我") == words("我 在 学 我")
    assert len(words("ありがとう")) == 5
    assert words("Tomは行く")[0] == words("tom")[0]
    assert len(words("สวัสดี")) == 6
    assert len(words("안녕하세요 여러분")) == 2  # Korean has spaces


def test_lengths_are_logarithmic_and_in_characters():
    lengths = look("", "abc", "äöü", "我在学", "x" * 127, "x" * 255, "x" * 1_000_000).lengths.tolist()
    assert lengths[0] == 0
    assert lengths[1] == lengths[2] == lengths[3] == 32
    assert (lengths[4], lengths[5]) == (112, 128)
    assert lengths[6] == 255


def test_bad_lines_do_not_move_others():
    lines = ["", "a\nb", "lone \ud800 surrogate", "\x00", "x " * 100_000 + "end?", "\udc80", "last one."]
    side = look(*lines)
    assert side.lines == len(lines)
    assert side.counts.sum() == side.words.size
    assert side.counts[0] == 0
    assert side.counts[1] == 2
    assert side.counts[4] == 255
    assert side.marks[4] == look("a?").marks[0]
    assert side.words[-2:].tolist() == words("last one")
    assert look().lines == 0


def test_equal_lines_have_equal_prints():
    prints = look("a red house", "a red horse", "a red house", "house red a b", "").prints.tolist()
    assert prints[0] == prints[2]
    assert len(set(prints)) == 4


def test_chunks_do_not_matter():
    lines = [f"line {i} of {'many ' * (i % 7)}words, {i * 37 % 101}?" for i in range(500)]
    whole, parts = look(*lines), SideFeatures()
    for begin in range(0, 500, 7):
        parts.add(lines[begin : begin + 7])
    for one, other in zip(whole, parts.arrays(), strict=True):
        np.testing.assert_array_equal(one, other)


def test_very_common_words_are_not_kept():
    lines = [f"the {chr(97 + i % 23)}w and ofx{chr(97 + i % 26)}" for i in range(6_000)]
    side = SideFeatures()
    for begin in range(0, 6_000, 100):
        side.add(lines[begin : begin + 100])
    arrays = side.arrays()
    assert not np.isin(words("the and"), arrays.words).any()
    assert np.isin(words("ofxa"), arrays.words).all()
    assert arrays.counts.sum() == arrays.words.size
    assert set(arrays.counts.tolist()) == {2}
    assert arrays.words.max() < BUCKETS


def test_first_lines_can_be_taken_and_dropped():
    lines = [f"{chr(97 + i % 26)}lpha beta{i}" for i in range(100)]
    side, rest = SideFeatures(), look(*lines[30:])
    side.add(lines)
    head = side.arrays().head(30)
    for one, other in zip(head, look(*lines[:30]), strict=True):
        np.testing.assert_array_equal(one, other)
    del head, one, other
    side.drop(30)
    for one, other in zip(side.arrays(), rest, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_line_needs_few_bytes():
    side = SideFeatures()
    line = "a sentence of fifteen words is about as long as those that most texts have"
    side.add([line] * 1_000)
    assert sum(values.nbytes for values in side.arrays()) <= 1_000 * (11 + 2 * 15)
