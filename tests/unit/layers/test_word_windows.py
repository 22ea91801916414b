"""Windows as matrices: bands, where documents end, and sums over the windows that a place is in."""

from __future__ import annotations

import pytest
import torch

from regard.layers.word_windows import Transpose, diagonal, overlapping, window_codes, window_rows


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
    turned = Transpose(3, chunk, window, size, torch.device("cpu"))
    of_words = torch.randn(words, size)
    back = torch.zeros(words + 2 * window, size)
    for i in range(words):
        back[i : i + 2 * window + 1] += bands[i][:, None] * of_words[i]
    for _ in range(2):
        turned.bands.copy_(bands)
        turned.rows.copy_(of_words)
        torch.testing.assert_close(turned(), back)
