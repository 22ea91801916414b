"""The verbs `backtranslate` and `distil`: pairs that a model makes, from files of any size."""

from __future__ import annotations

import dataclasses
import sys
import time
from itertools import islice
from pathlib import Path
from typing import Any

from regard.cli.notes import note_unfinished
from regard.cli.outputs import check_outputs
from regard.cli.translate import settings_from
from regard.cli.translate_file import own_device
from regard.core.errors import DataError
from regard.core.files import MANIFEST, sha256_of
from regard.core.launcher import launched
from regard.data.reading.files import ByteFile
from regard.data.reading.lines import line_blocks
from regard.tasks.big_files import PART_LINES, Made, Work, parts_folder, work_through
from regard.tasks.pretrained import load_translator
from regard.tasks.synthetic_pairs import Kind, make_pairs

CANDIDATES = 8  # of which the one closest to the reference is taken


def run_synthesise(
    kind: Kind,
    source: Path,
    output: Path,
    model: Path | None,
    references: Path | None,
    changes: dict[str, Any],
    tag: str,
    device: str,
    engine: Any,
    compute: Any,
) -> None:
    check_outputs([output], [one for one in (source, references) if one is not None])
    translator = load_translator(model, own_device(device), engine=engine, compute=compute).tagged(tag)
    note_unfinished(translator.folder)
    if references is not None:
        changes = {"nbest": CANDIDATES, **changes}
    settings = settings_from(translator, changes)
    this, began = launched(), time.monotonic()
    asked: dict[str, Any] = {"kind": kind, "settings": dataclasses.asdict(settings), "tag": tag}
    asked["engine"] = [translator.engine, compute]  # numbers of one kind in one file
    if references is not None:
        asked["references"] = str(references.absolute())
    if translator.folder is not None and (translator.folder / MANIFEST).exists():
        asked["model"] = sha256_of(translator.folder / MANIFEST)
    if parts_folder(output).is_dir() and not this.rank:
        print(f"Going on with what is in {parts_folder(output)}.", file=sys.stderr)

    def work() -> Work:
        beside = None if references is None else _Lines(references)

        def made(first: int, lines: list[str]) -> Made:
            given = None if beside is None else beside.at(first, len(lines))
            return make_pairs(translator, kind, lines, settings, references=given, first_line=first + 1)

        return made

    def progress(lines: int) -> None:
        if not this.rank:
            print(f"{lines:,} lines, {time.monotonic() - began:.0f} s", file=sys.stderr)

    counts = work_through(source, output, asked, this, work, progress)
    if counts:
        print(
            f"{counts['pairs']:,} pairs of {counts['lines']:,} lines in {output}; "
            f"{counts['empty']:,} were empty, {counts['refused']:,} translations were none.",
            file=sys.stderr,
        )


class _Lines:
    """The lines of a file, asked for in its order, as many at a time as a part has."""

    def __init__(self, path: Path):
        self.path = path
        self.lines = (line for block in line_blocks(ByteFile(path)) for line in block)
        self.next = 0

    def at(self, first: int, count: int) -> list[str]:
        for _ in islice(self.lines, first - self.next):  # parts that are there already, or another worker's
            pass
        found = list(islice(self.lines, count))
        self.next = first + count
        if len(found) < count or (count < PART_LINES and next(self.lines, None) is not None):
            what = "it has not as many lines as the source"
            raise DataError(self.path, what, "Give the references of these very lines")
        return found
