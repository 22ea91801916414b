"""Chooses the reader for a file or a pair of files."""

from __future__ import annotations

import difflib
import shutil
import tempfile
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path

from regard.core.errors import DataError
from regard.data.bundle import PREFIX as BUNDLED
from regard.data.bundle import bundled_path
from regard.data.reading import archives, dataset_pairs, standard_input
from regard.data.reading.csv_pairs import CsvPairs
from regard.data.reading.dataset_pairs import DatasetPairs
from regard.data.reading.files import ByteFile
from regard.data.reading.jsonl_pairs import JsonlPairs
from regard.data.reading.parquet_pairs import ParquetPairs
from regard.data.reading.reader import PairReader
from regard.data.reading.text_pairs import TextPairs
from regard.data.reading.tmx_pairs import TmxPairs
from regard.data.reading.tsv_pairs import TsvPairs

FORMATS = ("auto", "text", "tsv", "csv", "jsonl", "tmx", "parquet", "datasets")
_ENDINGS = {".tsv": "tsv", ".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".tmx": "tmx", ".parquet": "parquet"}
_READERS: dict[str, Callable[[ByteFile, Sequence[str | int]], PairReader]] = {
    "tsv": TsvPairs,
    "csv": CsvPairs,
    "jsonl": JsonlPairs,
    "tmx": TmxPairs,
    "parquet": ParquetPairs,
}
_STANDARD_INPUT = "-"


def open_pairs(paths: Sequence[str | Path], format: str = "auto", columns: Sequence[str | int] = ()) -> PairReader:
    """The reader of one file that holds both sides, or of two aligned plain-text files (source, target).

    The format follows from the file's ending, that of a packing (.gz, .xz, .zst) set aside. A path may also be
    `bundled:NAME`, `hf:FOLDER_OR_NAME[:SPLIT]`, or `-`: standard input, which is copied to a private temporary file that
    lives as long as the reader. `columns` name the two columns, keys or languages; numbers count from 0.
    """
    if isinstance(paths, str | Path):
        paths = [paths]
    places = [str(path) for path in paths]
    if format not in FORMATS:
        near = difflib.get_close_matches(format, FORMATS, n=1)
        todo = f"Did you mean {near[0]}? " if near else ""
        raise DataError(f"format {format}", "there is no such format", f"{todo}Known: {', '.join(FORMATS)}")
    if not 1 <= len(places) <= 2:
        raise DataError("data", f"one or two files are expected, got {len(places)}", "Give a source and a target file")
    found = [_format_of(place) for place in places] if format == "auto" else [format]
    if len(places) == 2:
        return _open_two(places, found, columns)
    if found[0] == "datasets":
        return DatasetPairs(places[0], columns)
    if found[0] == "text":
        unknown = places[0] == _STANDARD_INPUT and format == "auto"
        if places[0] != _STANDARD_INPUT:
            ByteFile(places[0])  # what is no file at all is said first
        raise DataError(
            standard_input.NAME if places[0] == _STANDARD_INPUT else places[0],
            "its format is not known" if unknown else "a single file of plain text holds only one side",
            f"Give two files, or name the format of this one ({', '.join(FORMATS[2:])})",
        )
    (file,), folder = _files(places, found[0])
    return _owning(_READERS[found[0]](file, columns), folder)


def _open_two(places: Sequence[str], found: Sequence[str], columns: Sequence[str | int]) -> PairReader:
    for place, kind in zip(places, found, strict=False):
        if kind != "text":
            raise DataError(
                place,
                f"two files are given, and one file of the format {kind} holds both sides",
                "Give it alone, or set the format to text if it is plain text",
            )
    if columns:
        raise DataError(places[0], "plain text has no columns to choose from", "Leave the columns away")
    if list(places) == [_STANDARD_INPUT] * 2:
        raise DataError(standard_input.NAME, "it is given for both sides", "Give a file for one of them")
    files, folder = _files(places, "text")
    return _owning(TextPairs(files), folder)


def _files(places: Sequence[str], format: str) -> tuple[list[ByteFile], str]:
    """The files, a copy of standard input among them, and the temporary folder that holds it."""
    files = [ByteFile(place) for place in places if place != _STANDARD_INPUT]
    if _STANDARD_INPUT not in places:
        return files, ""
    folder = tempfile.mkdtemp(prefix="regard-stdin-")
    try:
        spooled = standard_input.spool_input(Path(folder), format)
        files.insert(places.index(_STANDARD_INPUT), ByteFile(spooled, standard_input.NAME))
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return files, folder


def _owning(reader: PairReader, folder: str) -> PairReader:
    """The reader, with which its folder is removed."""
    if folder:
        weakref.finalize(reader, shutil.rmtree, folder, ignore_errors=True)
    return reader


def _format_of(place: str) -> str:
    """The format that a path's ending stands for."""
    if place.startswith(dataset_pairs.PREFIX):
        return "datasets"
    path = bundled_path(place) if place.startswith(BUNDLED) else Path(place)
    if path.suffix.lower() in archives.ENDINGS:
        path = path.with_suffix("")
    return _ENDINGS.get(path.suffix.lower(), "text")
