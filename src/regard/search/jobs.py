"""Sentences to search for, many of them, as arrays of the host: any number of them is taken at once."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.core.types import PAD, Padded
from regard.search.terms import Term


class Jobs(NamedTuple):
    """Sentences by their numbers."""

    tokens: NDArray[np.int64]  # of each source, padded
    lengths: NDArray[np.int64]
    limits: NDArray[np.int64]  # most tokens of each text, EOS not counted
    forced: Sequence[list[int]]  # how each text must begin
    forced_lengths: NDArray[np.int64]
    terms: Sequence[tuple[Term, ...]]  # what each must have; of no sentence, if empty

    @staticmethod
    def of(
        sources: Padded | Sequence[Sequence[int]],
        limits: Sequence[int],
        forced: Sequence[list[int]],
        terms: Sequence[tuple[Term, ...]] = (),
    ) -> Jobs:
        """`sources` padded at the right, on the host, or as lists."""
        if isinstance(sources, Padded):
            tokens, lengths = sources.tokens.numpy(), sources.keep.numpy().sum(1)
        else:
            lengths = sizes(sources)
            tokens = rectangle(sources, int(lengths.max(initial=0)), PAD)
        terms = terms if any(terms) else ()
        return Jobs(tokens, lengths, np.asarray(limits, np.int64), forced, sizes(forced), terms)

    def within(self, width: int) -> Jobs:
        """The same, with sources padded to a width that they all fit into."""
        tokens = np.full((len(self.tokens), width), PAD, np.int64)
        columns = min(width, self.tokens.shape[1])
        kept = np.arange(columns) < self.lengths[:, None]
        np.copyto(tokens[:, :columns], self.tokens[:, :columns], where=kept)
        return self._replace(tokens=tokens)

    def sources(self, numbers: NDArray[np.int64]) -> Padded:
        keep = np.arange(self.tokens.shape[1]) < self.lengths[numbers, None]
        return Padded(torch.from_numpy(self.tokens[numbers]), torch.from_numpy(keep))


def sizes(rows: Sequence[Sequence[int]]) -> NDArray[np.int64]:
    return np.fromiter(map(len, rows), np.int64, len(rows))


def rectangle(rows: Sequence[Sequence[int]], width: int, fill: int) -> NDArray[np.int64]:
    """Lists of numbers as one array of a width that they all fit into."""
    lengths = sizes(rows)
    found = np.full((len(rows), width), fill, np.int64)
    if lengths.any():
        found[np.arange(width) < lengths[:, None]] = np.fromiter(
            itertools.chain.from_iterable(rows), np.int64, lengths.sum()
        )
    return found


def on_host(source: Padded) -> Padded:
    """A batch's tensors on the host. Waits for the device once."""
    if source.tokens.device.type == "cpu":
        return source
    keep: Tensor = source.keep.to("cpu", non_blocking=True)
    return Padded(source.tokens.cpu(), keep)
