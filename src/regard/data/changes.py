"""Augmentation on the way from the store of tokens to the batch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from regard.data.augment import AugmentConfig, Augmenter
from regard.data.batching import Change, Place
from regard.data.store import TokenStore
from regard.data.tokenizers import TokenizerPair

_PROBE = 500  # rows by which the growth is measured


def augmentation(
    config: AugmentConfig, store: TokenStore, tokenizers: TokenizerPair, seed: int, max_length: int
) -> tuple[Change | None, float]:
    """What changes each batch, and by how much rows grow by it, so that batches can be planned; (None, 1) if nothing."""
    if not config.active:
        return None, 1.0
    augmenter = Augmenter(config, tokenizers, seed, max_length)
    repeated = store.weights is not None and bool((store.weights > 1).any())

    def change(
        sources: list[list[int]], targets: list[list[int]], rows: list[int], place: Place, slots: Sequence[int]
    ) -> tuple[list[list[int]], list[list[int]]]:
        # a row that comes twice in an epoch is not to be changed in the same way: its slot in the epoch tells them apart
        copies = [(place.position << 24) + i for i in slots] if repeated else [0] * len(rows)
        return augmenter(sources, targets, rows, copies, place.epoch)

    probe = np.linspace(0, len(store) - 1, min(_PROBE, len(store)), dtype=np.int64).tolist()
    before = [store.source[row] for row in probe], [store.target[row] for row in probe]
    after = change(*before, probe, Place(0, 0), range(len(probe)))
    lengths = [sum(len(row) for side in sides for row in side) for sides in (before, after)]
    return change, max(1.0, round(lengths[1] / max(1, lengths[0]), 2))
