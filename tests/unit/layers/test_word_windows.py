"""Windows as matrices: bands, where documents end, and sums over the windows that a place is in."""

from __future__ import annotations

import pytest
import torch

from regard.layers.word_windows import (
    Transpose,
    WindowSums,
    diagonal,
    overlapping,
    told_from_places,
    window_codes,
    window_rows,
)


def test_a_code_is_how_far_a_window_reaches_on_both_sides():
    rows = window_rows(2)
    assert rows.shape == (9, 5)
    assert rows[0].tolist() == [0, 0, 0, 0, 0]
    assert rows[1 * 3 + 2].tolist() == [0, 1, 0, 1, 1]
    assert rows[2 * 3 + 0].tolist() == [1, 1, 0, 0, 0]


def test_windows_end_with_the_document():
    documents = torch.tensor([0, 0, 0, 0, 2, 3, 3], dtype=torch.int32)
    codes = window_codes(torch.tensor([3, 1, 3, 2, 3, 2, 3]), documents, 3)
    assert [divmod(code, 4) for code in codes.tolist()] == [(0, 3), (1, 1), (2, 1), (2, 0), (0, 0), (0, 1), (1, 0)]


def test_a_text_shorter_than_its_windows():
    assert window_codes(torch.tensor([5]), torch.tensor([0]), 5).tolist() == [0]
    assert window_codes(torch.tensor([], dtype=torch.long), torch.tensor([], dtype=torch.long), 5).tolist() == []


@pytest.mark.parametrize(("chunk", "window"), [(4, 2), (2, 3), (8, 1)])
def test_products_of_chunks_are_sums_over_windows(chunk, window):
    torch.manual_seed(0)
    words, size = 3 * chunk, 5
    rows, bands = torch.randn(words + 2 * window, size), torch.randn(words, 2 * window + 1)
    dense = torch.zeros(3, chunk, chunk + 2 * window)
    diagonal(dense).copy_(bands.view(3, chunk, -1))
    sums = torch.bmm(dense, overlapping(rows, 3, chunk, window)).view(words, size)
    expected = torch.stack([bands[i] @ rows[i : i + 2 * window + 1] for i in range(words)])
    torch.testing.assert_close(sums, expected)
    one_by_one = WindowSums(words, window, torch.device("cpu"))
    torch.testing.assert_close(one_by_one.over(rows, bands), expected)
    turned = Transpose(3, chunk, window, size, torch.device("cpu"))
    of_words = torch.randn(words, size)
    back = torch.zeros(words + 2 * window, size)
    for i in range(words):
        back[i : i + 2 * window + 1] += bands[i][:, None] * of_words[i]
    for _ in range(2):
        turned.bands.copy_(bands)
        turned.rows.copy_(of_words)
        torch.testing.assert_close(turned(), back)
        torch.testing.assert_close(one_by_one.back(of_words, bands), back)


def test_pairs_of_places_and_words():
    window, codes = 2, torch.tensor([2, 3 + 1, 0, 6 + 2, 6])  # left * 3 + right
    places, words, begins = told_from_places(codes, window)
    expected = []
    for word, code in enumerate(codes.tolist()):
        left, right = divmod(code, window + 1)
        expected += [(word + window + i, word) for i in range(-left, right + 1) if i]
    found = list(zip(places.tolist(), words.tolist(), strict=True))
    assert found == sorted(expected)
    counts = [sum(place == j for place, _ in expected) for j in range(len(codes) + 2 * window)]
    assert begins.diff().tolist() == counts
    assert int(begins[0]) == 0
