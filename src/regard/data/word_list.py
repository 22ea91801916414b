"""A list of words in a file, one on each line, which a vocabulary shall hold."""

from __future__ import annotations

import itertools
import os

from regard.core.errors import ConfigError, DataError
from regard.data.addresses import is_path
from regard.data.prepared import from_home
from regard.data.reading.files import ByteFile
from regard.data.reading.lines import line_blocks

MAX_LIST_BYTES = 16 << 20
_TODO = "Give a UTF-8 file with one word on each line"


def read_word_list(address: str) -> list[str]:
    """The words of a file (.gz, .xz and .zst too), in its order; empty lines are left out.

    A relative path starts in the working folder.
    """
    if not is_path(address) or "\0" in address:
        raise ConfigError("setting tokenizer.words", f"{address!r} is no file", _TODO)
    place = from_home(address)
    if place.is_file() and not os.path.getsize(place):
        raise DataError(place, "there are no words in it", _TODO)
    words: list[str] = []
    blocks = line_blocks(ByteFile(place, limit=MAX_LIST_BYTES))
    for number, line in enumerate(itertools.chain.from_iterable(blocks), start=1):
        parts = line.split()
        if len(parts) > 1:
            raise DataError(f"{place}, line {number}", f"{len(parts)} words stand there", _TODO)
        if "\0" in line:
            raise DataError(f"{place}, line {number}", "a null character stands there: it is no text file", _TODO)
        words += parts
    if not words:
        raise DataError(place, "there are no words in it", _TODO)
    return words
