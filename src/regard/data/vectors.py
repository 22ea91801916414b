"""Word vectors in files: word2vec's text and binary formats, and text without a header, as GloVe has it.

The first line is the number of words and the width of their vectors, with a space between. In text, each line that follows is a
word and its numbers; a file without the first line is text too, as wide as its first line says. In the binary format, each word
ends with a space, and its numbers are float32, little-endian; a line feed may stand after them. Words are UTF-8. The usual order
is by frequency.

Where a word stands twice, its first vector is kept. Files are gone through once, and only what is kept takes memory.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from regard.core.errors import DataError
from regard.core.files import whole_file
from regard.core.visible_text import visible
from regard.data.reading.archives import ENDINGS
from regard.data.reading.files import ByteFile
from regard.data.vector_formats import MOST_WORD_BYTES, VectorTable, read_binary, read_header, read_text

_ROWS = 4096  # written at once


class VectorFile(NamedTuple):
    """What a file holds, or what was wanted of it, in its order. `repeated` words had stood in it before."""

    words: list[str]
    matrix: Float[np.ndarray, "N D"]
    repeated: int


def read_vectors(
    path: str | Path, words: Collection[str] | None = None, say: Callable[[str], None] | None = None
) -> VectorFile:
    """The vectors of a file (.gz, .xz and .zst too), or of those of its words that are `words`.

    `say` is told of repeated words; without it, a warning is given.
    """
    file = ByteFile(path)
    header = read_header(file)
    table = VectorTable(file.name, "word" if header.binary else "line", header.width)
    wanted = None if words is None else frozenset(words)
    (read_binary if header.binary else read_text)(file, header, wanted, table)
    if table.repeated:
        what = f"{file.name}: {table.repeated:,} words stand there again; the first vector of each is kept"
        say(what) if say is not None else warnings.warn(what, stacklevel=2)
    return VectorFile(table.words, table.whole(), table.repeated)


def vectors_width(path: str | Path) -> int:
    """How wide the vectors of a file are."""
    return read_header(ByteFile(path)).width


def write_vectors(
    path: str | Path, words: Sequence[str], matrix: Float[np.ndarray, "N D"], binary: bool = False
) -> None:
    """Writes word2vec's text format, or its binary one. Read again, the numbers are the same to the last bit."""
    path = Path(path)
    if path.suffix.lower() in ENDINGS:
        raise DataError(path, "vectors are written as they are, not compressed", f"Leave {path.suffix} out")
    if matrix.ndim != 2 or len(matrix) != len(words) or not matrix.size:
        what = f"{len(words)} words and a matrix of shape {list(matrix.shape)} do not fit together"
        raise DataError(path, what, "Give one vector for each word, and some")
    for number, word in enumerate(words, start=1):
        if (
            not word
            or " " in word
            or "\n" in word
            or "\t" in word
            or len(word.encode(errors="replace")) > MOST_WORD_BYTES
        ):
            what = f"word {number}, {visible(word, 40)!r}, is empty, has a space in it, or is too long"
            raise DataError(path, what, "Leave it out: the format has no way to write it")
    try:
        with whole_file(path) as file:
            file.write(f"{len(words)} {matrix.shape[1]}\n".encode())
            for begin in range(0, len(words), _ROWS):
                rows = np.ascontiguousarray(matrix[begin : begin + _ROWS], dtype="<f4")
                if not np.isfinite(rows).all():
                    raise DataError(path, "a vector has a value that is no finite number", "Mend the vectors")
                part = zip(words[begin : begin + _ROWS], rows, strict=True)
                file.write(b"".join(_entry(word, row, binary) for word, row in part))
    except (OSError, UnicodeEncodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "a word is not valid Unicode"
        raise DataError(path, f"it cannot be written ({reason})", "Check the path and the words") from None


def _entry(word: str, row: Float[np.ndarray, " D"], binary: bool) -> bytes:
    if binary:
        return word.encode() + b" " + row.tobytes() + b"\n"
    return f"{word} {' '.join(map(str, row))}\n".encode()  # str: the shortest that gives the same float32
