"""Labelled text: read from files of lines, and divided into train, valid and test.

A line is `label<TAB>text`, or `label<TAB>text<TAB>second text`; in a file without any tab, the first word of a line is its
label. Lines with nothing on them are left out. The text is held in memory. `bundled:NAME` is one of the package's files.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from regard.core.errors import DataError
from regard.core.visible_text import visible
from regard.data.addresses import is_path
from regard.data.bundle import LABELLED, PREFIX, bundled_path
from regard.data.corpus_config import DataConfig
from regard.data.held_out import NAMES, count_repeated, hold_out_units, place_of, sizes_to_hold_out
from regard.data.reading import archives
from regard.data.reading.files import ByteFile
from regard.data.reading.lines import MAX_WHOLE_BYTES, line_blocks
from regard.data.split import draws_of

Say = Callable[[str], None]
PARTS = {"train": "labelled", "valid": "valid_labelled", "test": "test_labelled"}  # part -> setting
MOST_LABEL_CHARACTERS = 200
MANY_LABELS = 10  # from so many on, a label for every second line is no label
OTHER_FORMATS = (".csv", ".json", ".jsonl", ".ndjson", ".parquet", ".xlsx")


@dataclass
class Labelled:
    """Texts and their labels; `seconds` are the second texts, or empty where each line has one text."""

    labels: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    seconds: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, places: Sequence[int]) -> Labelled:
        seconds = [self.seconds[i] for i in places] if self.seconds else []
        return Labelled([self.labels[i] for i in places], [self.texts[i] for i in places], seconds)

    def draws(self, seed: int) -> np.ndarray:
        """A number for each text, or pair of them, by (seed, text): equal ones have equal numbers."""
        if not self.seconds:
            return draws_of(self.texts, seed)
        first, second = draws_of(self.texts, seed), draws_of(self.seconds, seed)
        both = [
            hashlib.blake2b(a.tobytes() + b.tobytes(), digest_size=8).digest()
            for a, b in zip(first, second, strict=True)
        ]
        return np.frombuffer(b"".join(both), dtype=">u8").astype(np.uint64)


class LabelledFile(NamedTuple):
    """What a file holds, the line of each text, and how many lines had nothing on them."""

    part: Labelled
    lines: list[int]
    empty: int


@dataclass
class LabelledCorpus:
    """The three parts of labelled text, with what identifies them."""

    train: Labelled
    valid: Labelled
    test: Labelled
    labels: tuple[
        str, ...
    ]  # all of them, in their order; numbers in order of their value, other labels by their letters
    fingerprint: str  # SHA-256 of the lines as they are used, part by part
    files: dict[str, str] = field(default_factory=dict)  # setting -> path
    dropped: int = 0  # lines with nothing on them
    set_apart: int = 0  # copies of held-out texts: neither trained on nor held out again
    repeated: dict[str, int] = field(
        default_factory=dict
    )  # part that comes from a file -> its texts that are trained on too

    @property
    def two_texts(self) -> bool:
        return bool(self.train.seconds)


def load_labelled(config: DataConfig, say: Say | None = None) -> LabelledCorpus:
    """Reads and divides labelled text. The same text and settings always give the same parts."""
    if not config.labelled:
        raise DataError("data", "no labelled text is given", "Set data.labelled to a file of lines: label, tab, text")
    files = {
        setting: place_of(config, getattr(config, setting), setting, "labelled", LABELLED)
        for setting in PARTS.values()
        if getattr(config, setting)
    }
    found = {part: read_labelled(files[setting]) for part, setting in PARTS.items() if setting in files}
    labels = _labels(files["labelled"], found["train"].part)
    for part in found:
        _check_held_out(files[PARTS[part]], found[part], labels, found["train"].part, files["labelled"])
    parts = {part: one.part for part, one in found.items()}
    set_apart = 0
    valid_size, test_size = sizes_to_hold_out(config, parts)
    if valid_size or test_size:
        whole = parts["train"]
        train, valid, test = hold_out_units(files["labelled"], whole, valid_size, test_size, config.split_seed)
        parts = {"valid": valid, "test": test, **parts, "train": train}
        set_apart = len(whole) - len(train) - (len(valid) if valid_size else 0) - (len(test) if test_size else 0)
        _check_all_trained(files["labelled"], labels, train)
    train, valid, test = (parts.get(part, Labelled()) for part in PARTS)
    repeated = {part: count_repeated(train, parts[part]) for part in ("valid", "test") if part in found}
    dropped = sum(one.empty for one in found.values())
    corpus = LabelledCorpus(
        train, valid, test, labels, _fingerprint(train, valid, test), files, dropped, set_apart, repeated
    )
    if say is not None:
        _report(corpus, say)
    return corpus


def read_labelled(path: str | Path) -> LabelledFile:
    """The lines of a file. At least one holds a text, or an error says so."""
    name = str(path)
    if name.startswith(PREFIX):
        bundled_path(name, (LABELLED,))
    elif not is_path(name):
        raise DataError(name, "labelled text is read from files only", "Give a file")
    plain = Path(name.lower())
    if (plain.with_suffix("") if plain.suffix in archives.ENDINGS else plain).suffix in OTHER_FORMATS:
        raise DataError(name, "labelled text is read from lines only", "Convert it to lines: label, tab, text")
    lines = [line for block in line_blocks(ByteFile(name, limit=MAX_WHOLE_BYTES)) for line in block]
    numbered = [(number, line) for number, line in enumerate(lines, start=1) if line.strip()]
    if not numbered:
        raise DataError(name, "nothing stands in it", "Give a file of lines: label, tab, text")
    tabs = any("\t" in line for _, line in numbered)
    part, columns = Labelled(), 0
    for number, line in numbered:
        where = f"{name}, line {number}"
        if "\0" in line:
            raise DataError(where, "a null character stands there: it is not a text file", "Give plain text")
        cells = [cell.strip() for cell in line.split("\t")] if tabs else line.split(None, 1)
        columns = columns or len(cells)
        _check_line(where, cells, columns, tabs)
        part.labels.append(cells[0])
        part.texts.append(cells[1].strip())
        part.seconds += cells[2:]
    return LabelledFile(part, [number for number, _ in numbered], len(lines) - len(numbered))


def _check_line(where: str, cells: list[str], columns: int, tabs: bool) -> None:
    if not tabs and len(cells) < 2:
        raise DataError(where, f"the label {cells[0]!r} has no text", "Write the text behind it, or leave the line out")
    if tabs and (len(cells) != columns or not 2 <= len(cells) <= 3):
        expected = columns if 2 <= columns <= 3 else "2 or 3"
        what = f"{expected} tab-separated columns are expected (label, text, perhaps a second text), got {len(cells)}"
        raise DataError(where, what, "Mend that line")
    if not cells[0]:
        raise DataError(where, "there is no label before the first tab", "Write one, or leave the line out")
    if len(cells[0]) > MOST_LABEL_CHARACTERS:
        what = f"its label has {len(cells[0])} characters: {cells[0][:40]!r}..."
        raise DataError(where, what, "Put the label into the first column, and the text behind it")
    if not all(cells[1:]):
        which = "second text" if cells[1] else "text"
        raise DataError(where, f"the {which} of the label {cells[0]!r} is empty", "Write one, or leave the line out")


def _labels(name: str, part: Labelled) -> tuple[str, ...]:
    """The labels of the training text, in their order."""
    labels = set(part.labels)
    if len(labels) == 1:
        raise DataError(
            name,
            f"all its {len(part):,} texts have one label, {part.labels[0]!r}",
            "Give texts with two or more labels",
        )
    if len(labels) > MANY_LABELS and 2 * len(labels) > len(part):
        what = f"its {len(part):,} lines have {len(labels):,} labels, such as {part.labels[0][:40]!r}"
        raise DataError(name, what, "Put the label into the first column, and the text behind it")
    if all(label.isascii() and label.removeprefix("-").isdecimal() for label in labels):
        return tuple(sorted(labels, key=lambda label: (int(label), label)))
    return tuple(sorted(labels))


def _check_held_out(name: str, found: LabelledFile, labels: Sequence[str], train: Labelled, train_name: str) -> None:
    known = set(labels)
    for number, label in zip(found.lines, found.part.labels, strict=True):
        if label not in known:
            shown = ", ".join(map(repr, labels[:10])) + (", ..." if len(labels) > 10 else "")
            what = f"the label {label!r} does not stand in {train_name}, which has {shown}"
            raise DataError(f"{name}, line {number}", what, "Mend the label, or train on texts that have it")
    if bool(found.part.seconds) != bool(train.seconds):
        ours, theirs = ("two texts", "one") if found.part.seconds else ("one text", "two")
        raise DataError(name, f"its lines have {ours}, those of {train_name} {theirs}", "Give files of one kind")


def _check_all_trained(name: str, labels: Sequence[str], train: Labelled) -> None:
    if missing := [label for label in labels if label not in set(train.labels)]:
        what = f"all texts with the label {missing[0]!r} are held out: none is left to train on"
        raise DataError(name, what, "Hold out fewer (data.valid_size, data.test_size), or set another data.split_seed")


def _report(corpus: LabelledCorpus, say: Say) -> None:
    if corpus.dropped:
        say(f"{corpus.dropped:,} lines with nothing on them are left out.")
    if corpus.set_apart:
        say(f"{corpus.set_apart:,} copies of held-out texts are not trained on.")
    for part, count in corpus.repeated.items():
        if count:
            say(f"Warning: {count:,} {NAMES[part]} texts are trained on too.")
    counts = Counter(corpus.train.labels)
    shown = ", ".join(f"{visible(label, 40)} {counts[label]:,}" for label in corpus.labels[:20])
    say(f"{len(corpus.labels):,} labels: {shown}{', ...' if len(corpus.labels) > 20 else ''}")


def _fingerprint(*parts: Labelled) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(f"{len(part)} {len(part.seconds)}\n".encode())
        for column in (part.labels, part.texts, part.seconds):
            digest.update("\n".join(column).encode(errors="surrogatepass") + b"\n")
    return digest.hexdigest()
