"""Settings of search. They are defined in `core.search_config`, where they can be had without torch."""

from __future__ import annotations

from regard.core.search_config import MAX_HYPOTHESES, UNBOUNDED, SearchConfig

__all__ = ["MAX_HYPOTHESES", "UNBOUNDED", "SearchConfig"]
