"""`regard translate --input FILE --output FILE`: a file of any size, by one process or by many."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from regard.cli.outputs import check_outputs
from regard.core.errors import ConfigError, DataError
from regard.core.files import MANIFEST, sha256_of
from regard.core.launcher import launched
from regard.tasks.big_files import Made, Work, joined_lines, parts_folder, work_through
from regard.tasks.sentences import MAX_LINE_CHARACTERS
from regard.tasks.translation import Translator

Lines = Callable[[int, str, Any], list[str]]  # of (number, source, translations): what is written


def check_files(texts: list[str] | None, source: Path | None, output: Path | None) -> tuple[Path, Path]:
    """The two files, if both are given, and nothing else is."""
    if source is None or output is None:
        given, missing = ("--input", "--output") if output is None else ("--output", "--input")
        raise ConfigError(given, f"it goes with {missing}", f"Give {missing} too")
    if texts:
        raise ConfigError("--input", "text is given, too", "Leave one of them out")
    check_outputs([output], [source])
    return source, output


def own_device(device: str) -> str:
    """Each worker of a machine takes a GPU of its own."""
    this = launched()
    if device != "auto" or this.local_size == 1:
        return device
    import torch

    if not torch.cuda.is_available():
        return device
    return f"cuda:{this.local_rank % torch.cuda.device_count()}"


def translate_file(
    translator: Translator, source: Path, output: Path, asked: dict[str, Any], settings: Any, prefix: str, as_json: bool,
    written: Lines,
) -> dict[str, int]:  # fmt: skip
    """Writes the translations of a file into another, and says how it goes on. Gives counts: see `work_through`."""
    this, began = launched(), time.monotonic()
    if translator.folder is not None and (translator.folder / MANIFEST).exists():
        asked = {**asked, "model": sha256_of(translator.folder / MANIFEST)}
    if (parts_folder(output)).is_dir() and not this.rank:
        print(f"Going on with what is in {parts_folder(output)}.", file=sys.stderr)

    def work() -> Work:
        return lambda first, lines: _translate(translator, first, lines, settings, prefix, as_json, written)

    def progress(lines: int) -> None:
        if not this.rank:
            print(f"{lines:,} lines, {time.monotonic() - began:.0f} s", file=sys.stderr)

    return work_through(source, output, asked, this, work, progress)


def _translate(
    translator: Translator, first: int, lines: list[str], settings: Any, prefix: str, as_json: bool, written: Lines
) -> Made:
    for number, line in enumerate(lines, start=first + 1):
        if len(line) > MAX_LINE_CHARACTERS:
            what = f"the line has {len(line):,} characters, more than {MAX_LINE_CHARACTERS:,}"
            raise DataError(f"line {number}", what, "Break it into lines")
    prefixes = [prefix] * len(lines) if prefix else None
    found = translator.hypotheses(
        lines,
        search=settings,
        attention=as_json and translator.attends,
        alignment=as_json,
        prefixes=prefixes,
        first_line=first + 1,
        details=as_json,
    )
    rows = [row for i, many in enumerate(found) for row in written(first + i, lines[i], many)]
    counts = {"cut": sum(not many[0].finished for many in found), "guarded": sum(bool(m[0].note) for m in found)}
    return Made(joined_lines(rows), counts)
