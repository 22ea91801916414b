"""Windows around words as matrix products: every word of a text with the few words left and right of it.

M words are taken in C chunks of L. The words around them, with W more on each side, stand in one array of rows, and chunk c
looks at L + 2 W of them: chunks overlap, as views that copy nothing. A word's own window is a row of 2 W + 1 numbers (the
"band"); placed along the diagonal of a matrix [L, L + 2 W] it takes part in a matrix product of a whole chunk.

    place        0 .. W-1 | W .. W+M-1 | W+M .. M+2W-1
    what         before   | the words  | after
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor


def window_rows(window: int) -> Float[Tensor, "codes band"]:
    """The bands of all windows: row (left · (W + 1) + right) is 1 at `left` places before the word and `right` after it."""
    places = torch.arange(-window, window + 1)
    left, right = torch.arange(window + 1)[:, None, None], torch.arange(window + 1)[:, None]
    band = (places >= -left) & (places <= right) & (places != 0)
    return band.reshape((window + 1) ** 2, 2 * window + 1).float()


def window_codes(reach: Int[Tensor, "N"], documents: Int[Tensor, "N"], window: int) -> Int[Tensor, "N"]:
    """The row of `window_rows` for each word: its own reach (1 .. W), but never over the end of its document.

    `documents` are the numbers of the words' documents, which never fall.
    """
    left, right = torch.zeros_like(reach), torch.zeros_like(reach)
    for back in range(1, window + 1):
        same = documents[back:] == documents[:-back]
        left[back:] += same
        right[: max(0, len(reach) - back)] += same
    return torch.minimum(left, reach) * (window + 1) + torch.minimum(right, reach)


def overlapping(rows: Float[Tensor, "R D"], chunks: int, chunk: int, window: int) -> Float[Tensor, "C X D"]:
    """A view of chunks of L rows with 2 W more, each beginning L rows after the one before."""
    size = rows.shape[1]
    return rows.as_strided((chunks, chunk + 2 * window, size), (chunk * size, size, 1), rows.storage_offset())


def diagonal(matrices: Float[Tensor, "C L X"]) -> Float[Tensor, "C L band"]:
    """A view of the band of each matrix [L, L + 2 W]: row l's places l .. l + 2 W."""
    chunks, chunk, size = matrices.shape
    return matrices.as_strided(
        (chunks, chunk, size - chunk + 1), (chunk * size, size + 1, 1), matrices.storage_offset()
    )


class Transpose:
    """Sums over the windows that a place belongs to: Σ_i band[i, place of j in i's window] · row_i, for all M + 2 W places j.

    Seen from place j, the words whose windows may reach it are the 2 W + 1 that end with j: a window again, so the same
    matrix products do it. Words beyond the ends are zeros that stay.
    """

    def __init__(self, chunks: int, chunk: int, window: int, size: int, device: torch.device):
        words, band = chunks * chunk, 2 * window + 1
        more = -(-2 * window // chunk)  # chunks for the 2 W places more
        places = (chunks + more) * chunk
        self.count = words + 2 * window
        bands = torch.zeros(places + 2 * window, band, device=device)
        rows = torch.zeros(places + 2 * window, size, device=device)
        inside = slice(2 * window, 2 * window + words)
        self.bands, self.rows = bands[inside], rows[inside]  # to be filled in
        self._turned = bands.as_strided((chunks + more, chunk, band), (chunk * band, band, band - 1), band - 1)
        self._dense = torch.zeros(chunks + more, chunk, chunk + 2 * window, device=device)
        self._rows = overlapping(rows, chunks + more, chunk, window)
        self._sums = torch.empty(chunks + more, chunk, size, device=device)

    def __call__(self) -> Float[Tensor, "places D"]:
        """The sums, in a tensor that the next call writes anew."""
        diagonal(self._dense).copy_(self._turned)
        torch.bmm(self._dense, self._rows, out=self._sums)
        return self._sums.flatten(0, 1)[: self.count]
