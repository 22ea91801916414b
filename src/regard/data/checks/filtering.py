"""Findings as filters: which pairs of a text have one of those that the user wants to be without."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence

import numpy as np

from regard.core.errors import ConfigError
from regard.data.checks.check import PairSource, profile_of
from regard.data.checks.duplicates import SeenPairs
from regard.data.checks.lines import LINE_FINDINGS, flag_lines
from regard.data.split import Pairs

REPEATED = ("duplicates", "near-duplicates")


def flagging(reader: PairSource, names: Sequence[str]) -> Callable[[Pairs], dict[str, np.ndarray]]:
    """What finds, chunk by chunk from the beginning of a text, the pairs that have the named findings."""
    known = (*LINE_FINDINGS, *REPEATED)
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            todo = f"Perhaps you mean {near[0]}" if near else f"Known are {', '.join(sorted(known))}"
            raise ConfigError("setting data.filters", f"{name!r} is no finding that single pairs have", todo)
    profile, seen = profile_of(reader), SeenPairs()

    def flag(chunk: Pairs) -> dict[str, np.ndarray]:
        flags = flag_lines(chunk, profile)
        if any(name in REPEATED for name in names):
            flags |= seen.add(chunk)
        return {name: flags[name] for name in names}

    return flag
