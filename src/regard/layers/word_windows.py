"""Windows around words: every word of a text with the few words left and right of it, as matrix products or as sums of rows.

M words are taken in C chunks of L. The words around them, with W more on each side, stand in one array of rows, and chunk c
looks at L + 2 W of them: chunks overlap, as views that copy nothing. A word's own window is a row of 2 W + 1 numbers (the
"band"); placed along the diagonal of a matrix [L, L + 2 W] it takes part in a matrix product of a whole chunk.

    place        0 .. W-1 | W .. W+M-1 | W+M .. M+2W-1
    what         before   | the words  | after
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from regard.layers.sparse_rows import met_sums


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
    left, right = torch.zeros_like(reach, dtype=torch.uint8), torch.zeros_like(reach, dtype=torch.uint8)
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


def turned(bands: Shaped[Tensor, "padded band"]) -> Shaped[Tensor, "places band"]:
    """A view of bands as places see them: row j's entry t is that of place j in the window of word i = j - 2 W + t.

    The bands are given with 2 W more rows before and after them, which are 0.
    """
    rows, size = bands.shape
    return bands.as_strided((rows - size + 1, size), (size, size - 1), bands.storage_offset() + size - 1)


def told_from_places(codes: Int[Tensor, "M"], window: int) -> tuple[Int[Tensor, "N"], Int[Tensor, "N"], Tensor]:
    """The pairs of a place and a word in whose window it is, place after place: places, words, and where each place's begin."""
    rows = window_rows(window).to(codes.device).bool()
    bands = rows.new_zeros(len(codes) + 4 * window, 2 * window + 1)
    bands[2 * window : 2 * window + len(codes)] = rows.index_select(0, codes)
    seen = turned(bands).contiguous()
    found = seen.view(-1).nonzero()[:, 0]
    places = found.div(seen.shape[1], rounding_mode="floor")
    ends = seen.sum(1).cumsum(0)
    return places, found - (seen.shape[1] - 1) * places - 2 * window, torch.cat((ends.new_zeros(1), ends))


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
        self._turned = turned(bands).unflatten(0, (chunks + more, chunk))
        self._dense = torch.zeros(chunks + more, chunk, chunk + 2 * window, device=device)
        self._rows = overlapping(rows, chunks + more, chunk, window)
        self._sums = torch.empty(chunks + more, chunk, size, device=device)

    def __call__(self) -> Float[Tensor, "places D"]:
        """The sums, in a tensor that the next call writes anew."""
        diagonal(self._dense).copy_(self._turned)
        torch.bmm(self._dense, self._rows, out=self._sums)
        return self._sums.flatten(0, 1)[: self.count]


class WindowSums:
    """Weighted sums over the windows of M words, with no matrices: the rows of each window are added up, one by one."""

    def __init__(self, words: int, window: int, device: torch.device):
        band = torch.arange(2 * window + 1)
        self._words = words
        around = torch.arange(words)[:, None] + band
        seen_from = (torch.arange(-2 * window, words)[:, None] + band).clamp(0, words - 1)
        begins = torch.arange(words + 2 * window + 1) * len(band)
        # 32 bits: half as much to read
        self._around, self._from, self._begins = (
            x.view(-1).to(device, torch.int32) for x in (around, seen_from, begins)
        )
        self._bands = torch.zeros(words + 4 * window, len(band), device=device)
        self._inside = self._bands[2 * window : 2 * window + words]

    def over(self, rows: Float[Tensor, "places D"], bands: Float[Tensor, "M band"]) -> Float[Tensor, "M D"]:
        """Of each word, the sum over its window."""
        return met_sums(rows, self._begins[: self._words + 1], self._around, bands.view(-1))

    def back(self, rows: Float[Tensor, "M D"], bands: Float[Tensor, "M band"]) -> Float[Tensor, "places D"]:
        """Of each place, the sum over the words whose windows it is in."""
        self._inside.copy_(bands)
        return met_sums(rows, self._begins, self._from, turned(self._bands).reshape(-1))
