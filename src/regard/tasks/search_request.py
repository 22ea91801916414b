"""What a search for translations is asked for, beside the sentences: every engine takes it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from regard.core.search_config import SearchConfig


@dataclasses.dataclass(frozen=True)
class SearchRequest:
    """How to search, what to give with each translation, and who hears of it."""

    settings: SearchConfig
    attention: bool = False  # weights are wanted, too
    batch_tokens: int = 0  # 0: as many as the engine finds right
    progress: Callable[[int], None] | None = None  # hears how many sentences are done
    details: bool = True  # False: log-probabilities of single tokens may be left out where they cost time

    def again(self, settings: SearchConfig) -> SearchRequest:
        """The same for some sentences with other settings, of which nobody hears how many are done."""
        return dataclasses.replace(self, settings=settings, progress=None)
