"""A file of any number of lines, worked on in parts: by several processes, and from where it was when they were killed.

Part n is the lines n * PART_LINES and following; it belongs to worker n mod (number of workers). What was made of it is kept in a
file of its own beside the output, which appears whole or not at all. The first worker puts them together at the end. Processes
need no connection for this, only the same folder; and a part that is there is never made again, however many workers made it.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from regard.core.errors import DataError
from regard.core.files import quoted, read_json, whole_file, write_bytes, write_json
from regard.core.launcher import Launched
from regard.data.reading.files import ByteFile
from regard.data.reading.lines import line_blocks

PART_LINES = 2048
JOB = "job.json"
GLANCE_SECONDS = 0.2
BEGIN_SECONDS = 60.0  # that a worker waits for the first one to begin


class Made(NamedTuple):
    """What was made of a part: bytes, and how many of its lines something is to be said about, by name."""

    content: bytes
    counts: dict[str, int]


Work = Callable[[int, list[str]], Made]  # of (the number of the first line, counted from 0, and the lines)
Progress = Callable[[int], None]  # hears how many lines this worker is through with


def work_through(
    source: str | Path,
    output: Path,
    asked: dict[str, Any],
    this: Launched,
    work: Callable[[], Work],
    progress: Progress = lambda lines: None,
) -> dict[str, int]:
    """Makes `output` of `source`; gives the sums of all counts, with `lines` among them (for others than the first worker: none).

    `asked` is all that the result depends on, beside the text: parts of another job are refused. `work` is called once, and only
    if there is something to do.
    """
    folder = parts_folder(output)
    file = ByteFile(source)
    if not _begin(folder, output, {**asked, "source": [str(file.place.absolute()), *file_identity(file)]}, this):
        return {}
    made, parts = None, 0
    for number, lines in enumerate(_parts(file)):
        parts += 1
        if number % this.size != this.rank or _place(folder, number).exists():
            continue
        made = made or work()
        found = made(number * PART_LINES, lines)
        head = json.dumps({"lines": len(lines), **found.counts}).encode()
        write_bytes(_place(folder, number), head + b"\n" + found.content)
        progress(number * PART_LINES + len(lines))
    if this.rank:
        return {}
    while any(not _place(folder, number).exists() for number in range(parts)):
        time.sleep(GLANCE_SECONDS)  # who starts workers sees to it that none is missing
    counts = _put_together(folder, parts, output)
    shutil.rmtree(folder, ignore_errors=True)
    return counts


def parts_folder(output: Path) -> Path:
    return output.with_name(f"{output.name}.parts")


def file_identity(file: ByteFile) -> list[int]:
    state = file.place.stat()
    return [state.st_size, state.st_mtime_ns]


def _begin(folder: Path, output: Path, job: dict[str, Any], this: Launched) -> bool:
    """Whether there is anything to do. The first worker makes the folder; parts in it must be of this very job."""
    job = json.loads(json.dumps(job))  # as it will be read
    if this.rank:
        until = time.monotonic() + BEGIN_SECONDS
        while not (folder / JOB).exists():
            if time.monotonic() > until:
                if output.exists():  # all parts were there, and the first worker was quick
                    return False
                raise DataError(folder, "the first worker has not begun", "See what it says")
            time.sleep(GLANCE_SECONDS)
    elif not (folder / JOB).exists():
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / JOB, job)
    before = read_json(folder / JOB)
    if before != job:
        known = before if isinstance(before, dict) else {}
        other = sorted(name for name in {*job, *known} if known.get(name) != job.get(name))
        what = f"it holds parts of another translation ({', '.join(other)} {'is' if len(other) == 1 else 'are'} not the same)"
        raise DataError(folder, what, f"Give the same command to go on, or begin anew: rm -r {quoted(folder)}")
    return True


def _parts(file: ByteFile) -> Iterator[list[str]]:
    lines = (line for block in line_blocks(file) for line in block)
    while part := list(islice(lines, PART_LINES)):
        yield part


def _place(folder: Path, number: int) -> Path:
    return folder / f"{number:09d}"


def _put_together(folder: Path, parts: int, output: Path) -> dict[str, int]:
    """All parts in their order, as one file that appears whole."""
    total: dict[str, int] = {}
    with whole_file(output) as file:
        for number in range(parts):
            head, _, content = _place(folder, number).read_bytes().partition(b"\n")
            for name, count in json.loads(head).items():
                total[name] = total.get(name, 0) + count
            file.write(content)
    return total


def joined_lines(lines: Iterable[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode("utf-8", "surrogateescape")
