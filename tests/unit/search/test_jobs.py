"""Sentences as arrays of the host are what lists of them are."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from regard.core.types import EOS, Padded, pad_rows
from regard.search.hypothesis import firsts
from regard.search.jobs import Jobs, on_host, rectangle

TEXTS = [[4, 5, EOS], [EOS], [6, 7, 8, 9, EOS], [5, EOS]]


@pytest.mark.parametrize("rows", [TEXTS, [[], []], [[], [3]], []])
def test_rectangle(rows: list[list[int]]) -> None:
    found = rectangle(rows, 6, -1)
    assert found.shape == (len(rows), 6)
    for mine, row in zip(found.tolist(), rows, strict=True):
        assert mine == row + [-1] * (6 - len(row))


def test_rectangle_without_columns() -> None:
    assert rectangle([[], [], []], 0, -1).shape == (3, 0)


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("width", [5, 8])
def test_sources_by_their_numbers(padded: bool, width: int) -> None:
    source = pad_rows(TEXTS, 7)
    spoilt = Padded(source.tokens.masked_fill(~source.keep, 22), source.keep)  # what stands in padding means nothing
    jobs = Jobs.of(spoilt if padded else TEXTS, [3, 4, 5, 6], [[], [4], [], [5, 6]]).within(width)
    numbers = np.array([2, 0, 0, 1])
    found, expected = jobs.sources(numbers), pad_rows([TEXTS[i] for i in numbers], width)
    assert torch.equal(found.tokens, expected.tokens)
    assert torch.equal(found.keep, expected.keep)
    assert jobs.limits[numbers].tolist() == [5, 3, 3, 4]
    assert jobs.forced_lengths.tolist() == [0, 1, 0, 2]


def test_terms_are_there_only_if_some_sentence_has_one() -> None:
    term = ((4, 5),)
    assert Jobs.of(TEXTS[:2], [3, 3], [[], []], [(), ()]).terms == ()
    assert list(Jobs.of(TEXTS[:2], [3, 3], [[], []], [(), (term,)]).terms) == [(), (term,)]


def test_what_is_on_the_host_stays_there() -> None:
    source = pad_rows(TEXTS)
    assert on_host(source) is source


def test_the_first_numbers_of_each_row() -> None:
    rows = np.arange(12, dtype=np.float32).reshape(3, 2, 2).transpose(1, 0, 2)  # not as it lies in memory
    assert firsts(rows, [2, 0, 1, 2, 1, 0]) == [[0, 1], [], [8], [2, 3], [6], []]
    assert firsts(np.zeros((2, 0)), [0, 0]) == [[], []]
