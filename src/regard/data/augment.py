"""Training text changed on the fly: BPE dropout, case and noise, a pure function of (seed, epoch, row, copy).

Nothing is remembered between calls, so that batches may be made in any order, by any thread, and after a restart.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import takewhile
from typing import Any

import numpy as np

from regard.core.errors import ConfigError
from regard.core.types import UNK
from regard.data import noise
from regard.data.bpe_dropout import BpeDropout
from regard.data.draws import Draws, row_keys, shares
from regard.data.tokenizers import Tokenizer, TokenizerPair

CASES: dict[str, Callable[[str], str]] = {
    "upper": noise.in_capitals,
    "lower": noise.in_small_letters,
    "title": noise.as_headline,
}
_SOURCE_CUTS, _TARGET_CUTS, _CASE, _TYPOS, _SWAPS = range(5)  # what numbers are drawn for


@dataclass(frozen=True, kw_only=True)
class AugmentConfig:
    """How training text is changed anew in every epoch. All are shares from 0 (never) to 1 (always)."""

    bpe_dropout: float = 0.0  # chance that a merge is skipped, on both sides (0.1 in the paper)
    upper: float = 0.0  # of pairs: both sides in capitals
    lower: float = 0.0  # of pairs: the source in small letters, the target as it is
    title: float = 0.0  # of pairs: the words of the source with capital letters, the target as it is
    typos: float = 0.0  # of source words: one typing error
    swap_words: float = 0.0  # of source words: changes places with the next

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not 0 <= value <= 1:
                raise ConfigError(f"setting augment.{field.name}", f"it is {value}", "Use a share from 0 to 1")
        if sum(getattr(self, case) for case in CASES) > 1 + 1e-9:
            raise ConfigError(
                "setting augment.upper",
                f"together with augment.lower and augment.title it is more than 1 "
                f"({self.upper} + {self.lower} + {self.title}), and a pair gets at most one of the three",
                "Make them smaller",
            )

    @property
    def active(self) -> bool:
        """Whether there is anything to do."""
        return any(getattr(self, field.name) > 0 for field in fields(self))


class Augmenter:
    """Changes rows of token ids (without BOS and EOS) as the settings say.

    A pair stays as it is where it would become longer than `max_length` tokens on a side (0 sets no limit), where the
    tokens are not those of their text (it has an unknown character), and where the new text has unknown characters.
    """

    def __init__(self, config: AugmentConfig, tokenizers: TokenizerPair, seed: int, max_length: int = 0):
        self._config, self._tokenizers, self._seed, self._max_length = config, tokenizers, seed, max_length
        _check_tokenizers(config, tokenizers)
        self._bounds = np.cumsum([getattr(config, case) for case in CASES])
        self._noisy = config.typos > 0 or config.swap_words > 0
        self._cutters: tuple[BpeDropout, BpeDropout] | None = None
        if config.bpe_dropout:
            source = BpeDropout(tokenizers.source)
            self._cutters = source, source if tokenizers.joint else BpeDropout(tokenizers.target)

    def __call__(
        self,
        sources: list[list[int]],
        targets: list[list[int]],
        rows: Sequence[int],
        copies: Sequence[int],
        epoch: int,
    ) -> tuple[list[list[int]], list[list[int]]]:
        """The pairs at their turn in an epoch. `copies` numbers the times that a row comes in it."""

        def keys(purpose: int) -> np.ndarray:
            return row_keys(self._seed, purpose, epoch, np.asarray(rows), np.asarray(copies))

        if self._noisy or self._bounds[-1] > 0:
            sources, targets = self._rewritten(sources, targets, keys)
        if self._cutters is not None:
            sources = self._cut(self._cutters[0], sources, keys(_SOURCE_CUTS))
            targets = self._cut(self._cutters[1], targets, keys(_TARGET_CUTS))
        return sources, targets

    def _cut(self, cutter: BpeDropout, rows: list[list[int]], keys: np.ndarray) -> list[list[int]]:
        cut = cutter(rows, self._config.bpe_dropout, keys)
        return [new if self._fits(new) else old for old, new in zip(rows, cut, strict=True)]

    def _fits(self, row: Sequence[int]) -> bool:
        return not self._max_length or len(row) <= self._max_length

    def _rewritten(
        self, sources: list[list[int]], targets: list[list[int]], keys: Callable[[int], np.ndarray]
    ) -> tuple[list[list[int]], list[list[int]]]:
        """The rows with the case and the noise that were drawn for them."""
        drawn = shares(keys(_CASE), np.zeros(len(sources)))
        names = [*CASES, ""]
        cases = [names[i] for i in np.searchsorted(self._bounds, drawn, side="right")]
        typos, swaps = (keys(purpose).tolist() for purpose in (_TYPOS, _SWAPS))
        capitals: set[int] = set()  # pairs whose target has to follow

        def change(i: int, text: str) -> str:
            if cases[i]:
                text = CASES[cases[i]](text)
            if cases[i] == "upper" and text != text.lower():  # a source without case could not tell of capitals
                capitals.add(i)
            if self._config.swap_words:
                text = noise.with_swaps(text, self._config.swap_words, Draws(swaps[i]))
            if self._config.typos:
                text = noise.with_typos(text, self._config.typos, Draws(typos[i]))
            return text

        wanted = {i: row for i, row in enumerate(sources) if cases[i] or self._noisy}
        new_sources = self._rewrite(self._tokenizers.source, wanted, change)
        both = {i: targets[i] for i in sorted(capitals & new_sources.keys())}
        new_targets = self._rewrite(self._tokenizers.target, both, lambda _, text: noise.in_capitals(text))
        for i in both.keys() - new_targets.keys():
            del new_sources[i]
        return (
            [new_sources.get(i, row) for i, row in enumerate(sources)],
            [new_targets.get(i, row) for i, row in enumerate(targets)],
        )

    def _rewrite(
        self, tokenizer: Tokenizer, rows: Mapping[int, list[int]], change: Callable[[int, str], str]
    ) -> dict[int, list[int]]:
        """The rows whose text can be changed, with their new tokens."""
        tags = set(tokenizer.tags.values())  # they are no text, and stay where they are
        known = {i: row for i, row in rows.items() if UNK not in row}
        old = dict(zip(known, tokenizer.decode([*known.values()]), strict=True))
        new = {i: change(i, text) for i, text in old.items()}
        differ = [i for i in known if new[i] != old[i]]
        ids = tokenizer.encode([texts[i] for texts in (old, new) for i in differ])
        for i, before, after in zip(differ, ids[: len(differ)], ids[len(differ) :], strict=True):
            head = [*takewhile(tags.__contains__, known[i])]
            faithful = head + before == known[i]
            if faithful and UNK not in after and self._fits(head + after):
                known[i] = head + after
            else:
                del known[i]
        return known


def _check_tokenizers(config: AugmentConfig, tokenizers: TokenizerPair) -> None:
    """Refuses settings that could never do anything with these tokenizers."""
    parts = [json.loads(tokenizer.to_json()) for tokenizer in (tokenizers.source, tokenizers.target)]
    for case in CASES:
        if getattr(config, case) and any(_lowercases(part.get("normalizer")) for part in parts):
            raise ConfigError(
                f"setting augment.{case}",
                f"it is {getattr(config, case)}, but the tokenizer writes everything in small letters",
                f"Set augment.{case}=0 or tokenizer.lowercase=false",
            )
    if config.typos and parts[0]["model"]["type"] == "WordLevel":
        raise ConfigError(
            "setting augment.typos",
            f"it is {config.typos}, but the tokenizer knows whole words only, and none with a typing error",
            "Set augment.typos=0 or another tokenizer.kind, such as bpe",
        )


def _lowercases(normalizer: Any) -> bool:
    if not isinstance(normalizer, dict):
        return False
    return normalizer.get("type") == "Lowercase" or any(map(_lowercases, normalizer.get("normalizers", [])))
