"""Lines as arrays, against the slow and plain way of doing the same."""

from __future__ import annotations

import random
import unicodedata

import numpy as np
import pytest
from invented_corpus import invented

from regard.data.checks import characters as kind
from regard.data.checks.block import Block, PairBlock, blocks_of
from regard.data.split import Pairs, sentence_key

LINES = [
    "Plain words, and a comma.",
    "",
    "   ",
    "Größe und Spaß: ÄÖÜ ß ẞ",
    "tab\tand\u00a0no-break\u3000wide",
    "ﬁne ½ … ² Ⅷ",
    "İstanbul ıssız ΣΊΣΥΦΟΣ",
    "e\u0301 and é, क्षत्रिय, ไทย",
    "가각 \u1100\u1161\u11a8",
    "ｶﾞ ガ",
    "?!",
    "\udc80 \ud800 \0",
    "2 + 2 = ٤",
    "\r",
]


def test_characters_words_and_letters_are_counted_as_python_does():
    block = Block(LINES)
    assert block.characters.tolist() == [len(line) for line in LINES]
    assert block.words.tolist() == [len(line.split()) for line in LINES]
    assert block.empty.tolist() == [not line.strip() for line in LINES]
    letters = [sum(unicodedata.category(c)[0] == "L" for c in line) for line in LINES]
    assert block.letters.tolist() == letters
    assert block.digits.tolist() == [any(c.isdecimal() for c in line) for line in LINES]


def test_keys_are_those_of_the_split_for_any_text():
    draw = random.Random(7)
    every = [chr(c) for c in range(0x110000) if c != 10 and unicodedata.category(chr(c)) not in ("Cn", "Co")]
    marks = [c for c in every if unicodedata.category(c)[0] == "M"]
    odd = list("abXYZ ß.ẞéÉİıΣςσ´…½ﬁﾞｶ가\u1100\u1161\u11a8\u212b\u2126")
    lines = [
        "".join(draw.choice(draw.choice([every, marks, odd, odd])) for _ in range(draw.randrange(9)))
        for _ in range(4000)
    ]
    lines += LINES + draw.sample(every, 6000)
    assert Block(lines).folded_lines == [sentence_key(line) for line in lines]


def test_equal_words_have_equal_hashes_wherever_they_stand():
    words = ["boat", "a", "boats", "tab", "ab", "Boat", "aa", "aaa", "ba", "Öl", "中文"]
    lines = [" ".join(words), "x " + " ".join(words[::-1]), "", "  boat\u2003a\tboats "]
    hashes: dict[str, set[int]] = {}
    block = Block(lines)
    for word, number in zip([w for line in lines for w in line.split()], block.word_hashes.tolist(), strict=True):
        hashes.setdefault(word, set()).add(number)
    assert all(len(numbers) == 1 for numbers in hashes.values())
    assert len(set.union(*hashes.values())) == len(hashes)


def test_a_corpus_has_as_many_word_hashes_as_words():
    lines = invented(900).targets
    assert len(set(Block(lines).word_hashes.tolist())) == len({word for line in lines for word in line.split()})


def test_lines_are_found_by_kinds_of_characters():
    block = Block(["a<b", "", "5 %", "\0\0", "x"])
    assert block.having(kind.MARKUP).tolist() == [True, False, True, False, False]
    assert block.having(kind.NULL | kind.DIGIT).tolist() == [False, False, True, True, False]
    assert block.having(kind.LETTER).tolist() == [True, False, False, False, True]
    assert block.per_line(block.places(kind.NULL)).tolist() == [0, 0, 0, 2, 0]


def test_line_breaks_inside_a_line_do_not_shift_the_lines_after_it():
    block = Block(["one\ntwo", "three"])
    assert len(block.ends) == 2
    assert block.words.tolist() == [2, 1]
    assert block.having(kind.SEPARATOR).tolist() == [True, False]


def test_no_lines_make_an_empty_block():
    block = Block([])
    assert (len(block), block.words.tolist(), block.letters.tolist(), block.folded_lines) == (0, [], [], [])
    assert block.word_hashes.tolist() == []


def test_decomposed_letters_are_found_and_marks_without_a_composed_form_are_not():
    lines = ["Muller", "Mu\u0308ller", "Müller", "q\u0301", "क\u093c", "\u0958\u093f", "하", "\u1112\u1161"]
    assert Block(lines).decomposed.tolist() == [False, True, False, False, False, False, False, True]


def test_numbers_are_taken_for_the_same_only_beside_letters():
    one = Block(["Meeting number 12 is over", "12 34", "Meeting number 12 is over"])
    other = Block(["Meeting, number 345 is over!", "12 35", "Meeting number x is over"])
    assert (one.keys_without_digits == other.keys_without_digits).tolist() == [True, False, False]
    assert not (one.keys == other.keys).any()


def test_blocks_hold_all_pairs_in_order_and_none_without_a_partner():
    pairs = invented(2_300)
    chunk = Pairs([*pairs.sources, "alone"], pairs.targets)
    blocks = list(blocks_of(chunk))
    assert len(blocks) > 2
    assert [line for block in blocks for line in block.source.lines] == pairs.sources
    assert [line for block in blocks for line in block.target.lines] == pairs.targets


def test_blocks_are_small():
    chunk = Pairs(["x" * 100_000] * 5, ["y"] * 5)
    assert [len(block) for block in blocks_of(chunk)] == [2, 2, 1]
    assert [len(block) for block in blocks_of(Pairs(["x"] * 2_100, ["y"] * 2_100))] == [1_000, 1_000, 100]
    assert list(blocks_of(Pairs())) == []


@pytest.mark.parametrize(("source", "target", "same"), [("A", "b", True), ("a!", "B", True), ("b", "a", False)])
def test_pair_keys_tell_the_sides_apart(source, target, same):
    one, other = PairBlock(["a"], ["b"]), PairBlock([source], [target])
    assert np.array_equal(one.keys, other.keys) == same
    assert not np.array_equal(one.exact, other.exact)
