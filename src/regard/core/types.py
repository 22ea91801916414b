"""Types and constants that every part shares: special token ids and padded batches of token sequences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from regard.core.specials import BOS, EOS, PAD, SPECIALS, UNK

__all__ = ["BOS", "EOS", "PAD", "SPECIALS", "UNK", "Packed", "Padded", "Spans", "Unpadded", "pad_rows"]


class Padded(NamedTuple):
    """A batch of token sequences, padded at the right. `keep` is True at real tokens, everywhere in regard."""

    tokens: Int[Tensor, "B S"]
    keep: Bool[Tensor, "B S"]

    @property
    def lengths(self) -> Int[Tensor, "B"]:
        return self.keep.sum(1)

    @property
    def mask(self) -> Bool[Tensor, "B 1 1 S"] | None:
        """Which keys attention may look at; None where all: fused kernels are faster without a mask."""
        return self.keep[:, None, None, :]

    def to(self, device: torch.device | str) -> Padded:
        return Padded(self.tokens.to(device, non_blocking=True), self.keep.to(device, non_blocking=True))

    def take(self, rows: Int[Tensor, "N"]) -> Padded:
        """The given rows, without the columns that only the other rows needed."""
        tokens, keep = self.tokens[rows], self.keep[rows]
        width = max(1, int(keep.sum(1).max())) if len(rows) else 1
        return Padded(tokens[:, :width], keep[:, :width])


class Unpadded(Padded):
    """A batch without padding, known as such without asking the device."""

    @property
    def mask(self) -> None:
        return None

    def to(self, device: torch.device | str) -> Unpadded:
        return Unpadded(*super().to(device))


class Spans(NamedTuple):
    """Sentences one behind the other: that of number i has the tokens from `starts[i]` to `starts[i + 1]`; some may have none."""

    starts: Int[Tensor, "R1"]  # int32; the last one is where all end
    places: Int[Tensor, "N"]  # int32: of each token in its own sentence
    longest: int  # no sentence has more tokens

    @property
    def sentences(self) -> int:
        return len(self.starts) - 1

    def to(self, device: torch.device | str) -> Spans:
        starts, places = (tensor.to(device, non_blocking=True) for tensor in (self.starts, self.places))
        return Spans(starts, places, self.longest)


class Packed(NamedTuple):
    """The sources of sentence pairs in one row, without padding between them, and where they and their targets lie."""

    tokens: Int[Tensor, "1 N"]
    spans: Spans
    target: Spans


def pad_rows(rows: Sequence[Sequence[int]], multiple: int = 1) -> Padded:
    """Pads lists of token ids to one rectangle, its width rounded up to a multiple."""
    width = max((len(row) for row in rows), default=1)
    width = max(1, -(-width // multiple) * multiple)
    tokens = torch.full((len(rows), width), PAD, dtype=torch.long)
    keep = torch.zeros((len(rows), width), dtype=torch.bool)
    for i, row in enumerate(rows):
        tokens[i, : len(row)] = torch.as_tensor(row, dtype=torch.long)
        keep[i, : len(row)] = True
    return Padded(tokens, keep)
