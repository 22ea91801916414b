"""A score with its interval and signature, and what all that measure text share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from regard.core.errors import DataError

SEED = 12345  # sacreBLEU's own default, so that its command line draws the same samples


@dataclass(frozen=True)
class Score:
    """One metric on one corpus: 0 to 100 (TER may go beyond), its 95 % interval and how it was computed."""

    name: str
    value: float
    low: float | None = None
    high: float | None = None
    signature: str = ""
    details: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        interval = f" [{self.low:.1f}, {self.high:.1f}]" if self.low is not None and self.high is not None else ""
        return f"{self.name} {self.value:.2f}{interval}"

    def to_plain(self) -> dict[str, Any]:
        return asdict(self)


def perplexity(nll_sum: float, tokens: int) -> float:
    """exp of the mean negative log-likelihood (in nats) of a token; infinite where that is too large for a float."""
    if tokens <= 0:
        raise DataError("perplexity", f"it is a mean over tokens, and there are {tokens}", "Give some text")
    try:
        return math.exp(nll_sum / tokens)
    except OverflowError:
        return math.inf


def check_parallel(**texts: Sequence[str]) -> None:
    """Raises a DataError unless the named lists of lines are of one length, and not empty."""
    names = " and ".join(texts)
    for name, lines in texts.items():
        if isinstance(lines, str):
            raise DataError(name, "one text was given where a list of lines is expected", "Split it into lines")
    lengths = [len(lines) for lines in texts.values()]
    if len(set(lengths)) > 1:
        raise DataError(names, f"they differ in length ({', '.join(map(str, lengths))} lines)", "Align them")
    if not lengths[0]:
        raise DataError(names, "there is nothing to score (0 lines)", "Give at least one pair")
