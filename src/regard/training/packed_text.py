"""Sentence pairs in packed batches, where a model is trained by kernels that read them."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from regard.data.batching import ALL, Batch, BatchStream, Part, Place
from regard.data.packing import ROOMS, PackedBatch, PackedPlan, collate_packed, packs
from regard.data.store import TokenStore
from regard.models.base import Writer
from regard.training.config import TrainConfig
from regard.training.progress import Reporter
from regard.training.run_progress import Progress
from regard.training.texts import PairText, TrainingText

WHY_NOT = {
    "text": "only sentence pairs are packed, without augmentation and in batches of like lengths (train.mixed_lengths)",
    "workers": "each of several workers has a part of every batch",
    "twice": "R-Drop (train.consistency) reads everything twice",
    "model": "needs a GPU, and a Transformer whose layers are fused (train.fused), without dropout on attention",
    "size": f"batches of fewer than {ROOMS[0]} tokens have no room for sentences",
}
ALIKE = 0.8  # sides that differ more in their tokens are padded: packed batches have as many places on either
ELSEWHERE = (
    "This run began with packed batches, and its sentences stay together: padded, as they have to be here, its batches take up "
    "to nearly three times as many places as train.batch_tokens. If they do not fit, they are cut."
)


def in_batches(
    text: TrainingText, config: TrainConfig, progress: Progress, several: bool, longest: int, report: Reporter
) -> TrainingText:
    """The text as a run goes through it: packed where its settings allow that and this is possible when it begins.

    `longest` is how long sentences may be for the model's kernels here. A run keeps its order of batches where it goes on.
    """
    begun, why = progress.multiple > 0, ""
    if progress.packed < 0:
        progress.packed, why = (0, "") if begun else longest_to_pack(config, text, several, longest)
    if begun and config.packed is True and not progress.packed:
        why = "this run began with padded batches, and goes on with them"
    if why:
        report.warn(f"setting train.packed: {why}. Batches are padded.")
    if not progress.packed:
        return text
    flat = not several and longest >= progress.packed
    if not flat:
        report.warn(ELSEWHERE)
    return PackedText(cast(PairText, text), progress.packed, flat)


def may_pack(text: TrainingText, config: TrainConfig, progress: Progress, several: bool) -> bool:
    """Whether a run packs if its model's kernels can: else they need not be tried."""
    if progress.packed >= 0:
        return progress.packed > 0 and not several
    return not progress.multiple and longest_to_pack(config, text, several, ROOMS[-1])[0] > 0


def longest_to_pack(config: TrainConfig, text: TrainingText, several: bool, longest: int) -> tuple[int, str]:
    """How long sentences may be that a new run packs, 0 for none; and if the settings ask for it (`True`), why not.

    `longest` is how long the model's kernels allow them to be.
    """
    if not config.packed:
        return 0, ""
    plain = isinstance(text, PairText) and text.change is None and text.growth == 1.0
    reasons = {
        "text": not plain or config.mixed_lengths,
        "workers": several,
        "twice": config.consistency > 0,
        "size": config.batch_tokens < ROOMS[0],
        "model": longest < ROOMS[0],
    }
    why = next((WHY_NOT[name] for name, holds in reasons.items() if holds), "")
    if config.packed is True and why:
        return 0, why
    if why or (config.packed == "auto" and not _alike(cast(PairText, text).store)):
        return 0, ""
    return max(room for room in ROOMS if room <= min(longest, config.batch_tokens)), ""


def _alike(store: TokenStore) -> bool:
    """Whether both sides have about as many tokens."""
    shorter, longer = sorted(int(side.lengths.sum()) + len(side) for side in (store.source, store.target))
    return shorter >= ALIKE * longer


class PackedText:
    """Pairs of up to `longest` tokens in packed batches. With `flat=False`, the same batches padded: for machines that cannot."""

    def __init__(self, text: PairText, longest: int, flat: bool = True):
        self.text, self.longest, self.flat = text, longest, flat

    def multiple(self, model: Writer, on_cuda: bool) -> int:
        return self.text.multiple(model, on_cuda)

    def open(self, config: TrainConfig, place: Place, multiple: int, on_cuda: bool, part: Part = ALL) -> BatchStream:
        lengths = self.text.store.source.lengths, self.text.store.target.lengths
        sizes: dict[str, Any] = {"multiple": multiple, "weights": self.text.store.weights}
        plan = PackedPlan(*lengths, config.batch_tokens, config.seed, self.longest, **sizes)
        return _PackedBatches(self, plan, place, config, multiple, on_cuda, part)


class _PackedBatches(BatchStream):
    def __init__(
        self,
        text: PackedText,
        plan: PackedPlan,
        place: Place,
        config: TrainConfig,
        multiple: int,
        on_cuda: bool,
        part: Part,
    ):
        self._longest = text.longest if text.flat else 0
        self._tokens = config.batch_tokens
        options = {"workers": config.workers, "multiple": multiple, "part": part}
        super().__init__(
            text.text.store, plan, place.epoch, place.position, fill=config.batch_tokens if on_cuda else 0, **options
        )

    def _own(self, rows: np.ndarray, place: Place) -> Batch | PackedBatch:
        if self._longest and packs(self._store, rows, self._longest):
            return collate_packed(self._store.source, self._store.target, rows, self._tokens)
        return super()._own(rows, place)
