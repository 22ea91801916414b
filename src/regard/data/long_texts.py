"""Takes long texts apart, and short ones together, so that much text is worked on a little at a time."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

PART = 1 << 16  # characters of a part, about
CHUNK = 1 << 20  # characters of the documents of a chunk, at most, unless it is one document
# Between a word and the space after it. Every Unicode space counts as one before the cut, but only these two behind it.
_PLACE = re.compile(r"(?<=\S)[ \n]")


def parts_of(text: str, size: int = PART) -> Iterator[str]:
    """The text in parts of at least so many characters (but the last), each but the first beginning with white space.

    A part goes on to the next end of a word, however far that is.
    """
    begin = 0
    while len(text) - begin > size:
        place = _PLACE.search(text, begin + size)
        if place is None:
            break
        yield text[begin : place.start()]
        begin = place.start()
    yield text[begin:] if begin else text


def chunks_of(documents: Iterable[str], size: int = CHUNK) -> Iterator[list[str]]:
    """Documents in their order, so many at a time that they hold at most so many characters; a longer one is alone."""
    chunk: list[str] = []
    total = 0
    for document in documents:
        if chunk and total + len(document) > size:
            yield chunk
            chunk, total = [], 0
        chunk.append(document)
        total += len(document) + 1
    if chunk:
        yield chunk
