"""Writes standard input to a file, so that it can be read more than once."""

from __future__ import annotations

import os
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from regard.core.errors import DataError
from regard.data.reading.archives import packing

NAME = "standard input"
MAX_INPUT_BYTES = 64 << 30
ENDINGS = {"text": ".txt", "tsv": ".tsv", "csv": ".csv", "jsonl": ".jsonl", "tmx": ".tmx", "parquet": ".parquet"}
_BLOCK = 1 << 20


def spool_input(folder: Path, format: str) -> Path:
    """Writes all of standard input to a new file in `folder`, named after its format and its packing.

    The file gets its name when it is complete; nothing is left behind otherwise.
    """
    stream = None if sys.stdin is None or sys.stdin.closed else sys.stdin
    if stream is None:
        raise DataError(NAME, "it is closed", "Pipe text into the command, or name a file")
    if stream.isatty():
        raise DataError(NAME, "it is a terminal, not a pipe or a file", "Pipe text into the command, or name a file")
    part = ""
    try:
        handle, part = tempfile.mkstemp(prefix="stdin-", suffix=".part", dir=folder)
        size, begin = 0, b""
        with open(handle, "wb") as file:
            while block := stream.buffer.read(_BLOCK):
                begin = begin or block[:16]
                size += len(block)
                if size > MAX_INPUT_BYTES:
                    raise DataError(
                        NAME, f"it holds more than {MAX_INPUT_BYTES >> 20} MiB", "Write it to a file and give that"
                    )
                file.write(block)
        if not size:
            raise DataError(NAME, "it is empty", "Pipe text into the command, or name a file")
        place = Path(part).with_suffix(f"{ENDINGS.get(format, '.txt')}{packing(begin)}")
        os.replace(part, place)
        part = ""
        return place
    except OSError as error:
        raise DataError(
            NAME, f"it cannot be kept in {folder} ({error.strerror or error})", "Make room there, or name a file"
        ) from None
    finally:
        if part:
            with suppress(OSError):
                os.unlink(part)
