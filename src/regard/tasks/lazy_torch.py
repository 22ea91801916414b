"""A torch engine that is loaded when it is first needed: a first translation by CTranslate2 should not wait for torch."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

from regard.data.tokenizers import TokenizerPair

if TYPE_CHECKING:
    from regard.tasks.torch_translation import TorchEngine


class LazyTorch:
    """The torch engine of a translator and its copies, loaded when it is first needed."""

    def __init__(self, folder: Path | None, tokenizers: TokenizerPair, device: str, engine: TorchEngine | None = None):
        self.folder, self.tokenizers, self.device = folder, tokenizers, device
        self._engine = engine
        self.turn = threading.RLock()  # of several threads, one at a time searches
        self.taken = False  # somebody has the model in hand, and may change it

    @property
    def drafts(self) -> bool:
        """Whether a small model guesses."""
        return self._engine is not None and self._engine.draft is not None

    @property
    def attends(self) -> bool:
        """Whether the model has attention to show: what CTranslate2 runs before torch is needed has."""
        return self._engine is None or "attends" in self._engine.model.capabilities

    @property
    def engine(self) -> TorchEngine:
        if self._engine is None:
            from regard.tasks.torch_translation import TorchEngine

            assert self.folder is not None
            self._engine = TorchEngine.load(self.folder, self.tokenizers, self.device)
        return self._engine
