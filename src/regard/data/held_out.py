"""Holds out parts of a text that comes as units (labelled texts, tagged sentences) without a leak."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, Self, TypeVar

import numpy as np

from regard.core.errors import DataError
from regard.data.addresses import is_path
from regard.data.bundle import PREFIX, bundled_path
from regard.data.corpus_config import DataConfig
from regard.data.prepared import from_home
from regard.data.split import automatic_size, divide

NAMES = {"train": "training", "valid": "validation", "test": "test"}


class Units(Protocol):
    """Texts that are held out one by one."""

    def __len__(self) -> int: ...
    def take(self, places: Sequence[int]) -> Self: ...
    def draws(self, seed: int) -> np.ndarray:
        """A number for each text by (seed, text): equal ones have equal numbers."""
        ...


U = TypeVar("U", bound=Units)


def place_of(config: DataConfig, given: str, setting: str, kind: str, ending: str) -> str:
    """The path of a file that a setting names, or the address of a bundled one of this ending; `kind` is for messages."""
    if given.startswith(PREFIX):
        bundled_path(given, (ending,))
        return given
    if not is_path(given):
        what = f"{kind} text is read from files only, got {given!r}"
        raise DataError(f"data.{setting}", what, "Give a file")
    return str(from_home(config.folder) / from_home(given))


def sizes_to_hold_out(config: DataConfig, given: Mapping[str, Units]) -> tuple[int, int]:
    """How many texts to hold out for validation and for testing; as for pairs, 0 chooses, -1 holds out none."""
    chosen = automatic_size(len(np.unique(given["train"].draws(config.split_seed))))
    valid = 0 if "valid" in given or config.valid_size < 0 else config.valid_size or chosen
    test = config.test_size or (-1 if "valid" in given else 0)
    return valid, 0 if "test" in given or test < 0 else test or chosen


def hold_out_units(name: str, whole: U, valid: int, test: int, seed: int, unit: str = "texts") -> tuple[U, U, U]:
    """Texts drawn by a hash of (seed, text). Texts with the same letters and digits never stand on two sides."""
    draws = whole.draws(seed)
    distinct = len(np.unique(draws))
    if valid + test >= distinct:
        what = f"nothing is left to train on: {valid} validation and {test} test {unit} of {distinct} different ones"
        raise DataError(name, what, "Make data.valid_size and data.test_size smaller, or give more text")
    division = divide(draws, None, valid, test)
    train = np.flatnonzero(division.train).tolist()
    return whole.take(train), whole.take(division.valid.tolist()), whole.take(division.test.tolist())


def count_repeated(train: Units, part: Units) -> int:
    """How many texts of a part are trained on too."""
    return int(np.isin(part.draws(0), train.draws(0)).sum())
