"""Plain text for language models: read from a file or a folder, divided into documents, and these into train, valid and test.

A document is a line, a whole file, or what stands between empty lines. The text is held in memory.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from regard.core.errors import DataError
from regard.data.addresses import SHARDS, is_path
from regard.data.bundle import PREFIX, TEXT, bundled_path, bundled_side
from regard.data.corpus_config import DataConfig
from regard.data.long_texts import CHUNK, chunks_of
from regard.data.prepared import from_home
from regard.data.reading.files import ByteFile
from regard.data.reading.lines import MAX_WHOLE_BYTES, decoded, line_blocks, refuse_other_encodings
from regard.data.split import divide, draws_of, sentence_key

Unit = Literal["auto", "line", "file", "blank"]
Say = Callable[[str], None]
PARTS = ("train", "valid", "test")
LEAST_COPY = 200  # characters; shorter documents (a heading, a speaker's name) may occur again on the other side
_MARK = "\ufeff"  # a byte order mark


class TextCount(NamedTuple):
    """How much text a part is; bytes are those of UTF-8."""

    documents: int
    characters: int
    bytes: int


class Documents(NamedTuple):
    """The documents of a text, in their order, and how many were left out since nothing stands in them."""

    texts: list[str]
    empty: int


@dataclass
class TextCorpus:
    """The three parts of a text, with what identifies them."""

    train: Sequence[str]
    valid: Sequence[str]
    test: Sequence[str]
    fingerprint: str  # SHA-256 of the documents as they are used, part by part
    files: dict[str, str] = field(default_factory=dict)  # setting -> file or folder
    counts: dict[str, TextCount] = field(default_factory=dict)  # part -> how much it is
    dropped: int = 0  # documents without text
    set_apart: int = 0  # long copies of held-out documents: neither trained on nor held out again
    shards: tuple[str, ...] = ()  # where the text is that is trained on, if `train` is only a sample of it

    @property
    def characters(self) -> int:
        """Those that are trained on."""
        return self.counts["train"].characters


def load_text(config: DataConfig, say: Say | None = None) -> TextCorpus:
    """Reads and divides a text. The same text and settings always give the same parts."""
    if not config.text:
        raise DataError("data", "no training text is given", "Set data.text to a file or a folder")
    if config.text.startswith(SHARDS):
        from regard.data.sharded_text import load_sharded  # which imports this file

        return load_sharded(config, say)
    files: dict[str, str] = {}
    parts: dict[str, list[str]] = {}
    dropped = set_apart = 0
    for part, setting in zip(PARTS, ("text", "valid_text", "test_text"), strict=True):
        given = getattr(config, setting)
        if given:
            files[setting] = str(from_home(config.folder) / from_home(given)) if is_path(given) else given
            found = read_documents(files[setting], config.documents, say)
            parts[part], dropped = found.texts, dropped + found.empty
    valid_part = 0.0 if "valid" in parts else config.valid_part
    test_part = 0.0 if "test" in parts else config.test_part
    if valid_part or test_part:
        name, whole = files["text"], parts["train"]
        if len(whole) == 1:
            train, valid, test = _end_held_out(name, whole[0], valid_part, test_part)
        else:
            if is_path(name) and os.path.isdir(name):
                train, valid, test = _drawn(name, whole, valid_part, test_part, config.split_seed)
            else:
                train, valid, test = _last_held_out(name, whole, valid_part, test_part)
            set_apart = len(whole) - len(train) - len(valid) - len(test)
        parts = {"valid": valid, "test": test, **parts, "train": train}
    if set_apart and say is not None:
        say(f"{set_apart:,} copies of held-out documents, of {LEAST_COPY} characters or more, are not trained on.")
    train, valid, test = (parts.get(part, []) for part in PARTS)
    fingerprint, counts = _counted([train, valid, test])
    return TextCorpus(train, valid, test, fingerprint, files, counts, dropped, set_apart)


def read_documents(address: str | Path, documents: Unit = "auto", say: Say | None = None) -> Documents:
    """The documents of a file, of every file of a folder (in the order of their names), or of `bundled:NAME`: a bundled text,
    or the different sentences of one language of bundled pairs (`bundled:tatoeba-en`), of which each is a document.

    `line`: every line, without the white space around it. `file`: every file, as it is. `blank`: what stands between
    empty lines. `auto`: files of a folder, lines of a file. At least one document holds text, or an error says so.
    """
    name = str(address)
    if name.startswith(PREFIX):
        if (side := bundled_side(name)) is not None:
            return _one_side(name, *side, documents)
        bundled_path(name, (TEXT,))
    elif not is_path(name):
        raise DataError(name, "plain text is read from files only", "Give a file or a folder")
    folder = is_path(name) and os.path.isdir(name)
    files = _files_in(Path(name), say) if folder else [name]
    kind = documents if documents != "auto" else "file" if folder else "line"
    texts: list[str] = []
    empty = total = 0
    for place in files:
        if folder and not os.path.getsize(place):
            empty += kind == "file"
            continue
        file = ByteFile(place, limit=MAX_WHOLE_BYTES)
        before = len(texts)
        empty += _read_into(texts, file, kind)
        total += sum(map(len, texts[before:]))
        if total > MAX_WHOLE_BYTES:
            raise DataError(name, f"its files hold more than {MAX_WHOLE_BYTES >> 30} GiB of text", "Give fewer files")
    if not texts:
        what = f"all its {empty:,} documents are empty" if empty else "its files are empty" if folder else "it is empty"
        raise DataError(name, what, "Give a file or a folder with text in it")
    return Documents(texts, empty)


def _one_side(name: str, pairs: Path, column: int, documents: Unit) -> Documents:
    """The sentences in one column of bundled pairs, each once."""
    if documents not in ("auto", "line"):
        raise DataError(name, "it is sentences, each a document", "Use data.documents=line")
    rows = (line.split("\t") for lines in line_blocks(ByteFile(pairs)) for line in lines)
    return Documents(list(dict.fromkeys(row[column].strip() for row in rows)), 0)


def _files_in(folder: Path, say: Say | None) -> list[str]:
    """The files of a folder, hidden ones left out."""
    try:
        with os.scandir(folder) as entries:
            seen = [entry for entry in entries if not entry.name.startswith(".")]
            files = sorted(entry.name for entry in seen if entry.is_file())
            folders = sum(entry.is_dir() for entry in seen)
    except OSError as error:
        raise DataError(folder, f"the folder cannot be read ({error.strerror})", "Check its permissions") from None
    if not files:
        what = f"it holds no files, only {folders} folders" if folders else "the folder holds no files"
        raise DataError(folder, what, "Give a folder with the files themselves in it")
    if folders and say is not None:
        say(f"{folder}: the {folders} folders in it are not read, only its {len(files):,} files.")
    return [str(folder / name) for name in files]


def _read_into(texts: list[str], file: ByteFile, kind: Unit) -> int:
    """Adds the documents of a file; gives how many were empty."""
    if kind == "file":
        text = _whole(file)
        if not text or text.isspace():
            return 1
        texts.append(text)
        return 0
    empty = number = 0
    block: list[str] = []  # the lines since the last empty one
    for lines in line_blocks(file):
        for line in lines:
            number += 1
            if "\0" in line:
                raise _binary(file.name, number)
            if kind == "line":
                if line := line.strip():
                    texts.append(line)
                else:
                    empty += 1
            elif line.strip():
                block.append(line)
            elif block:
                texts.append("\n".join(block))
                block = []
    if block:
        texts.append("\n".join(block))
    return empty


def _whole(file: ByteFile) -> str:
    """A file as it is, but for a byte order mark."""
    data = bytearray()
    for block in file.blocks():
        if not data:
            refuse_other_encodings(file.name, block)
        data += block
    text = decoded(file.name, data, False, 0, 0)
    if "\0" in text:
        raise _binary(file.name, text.count("\n", 0, text.index("\0")) + 1)
    return text.removeprefix(_MARK)


def _binary(name: str, line: int) -> DataError:
    return DataError(f"{name}, line {line}", "a null character stands there: it is not a text file", "Give plain text")


def _drawn(
    name: str, documents: list[str], valid: float, test: float, seed: int
) -> tuple[list[str], list[str], list[str]]:
    """Parts of the different documents, drawn by a hash of (seed, document), so that more of them move few.

    The first copy of a document is held out. Others are trained on if they are short, else left out.
    """
    draws = draws_of(documents, seed)
    distinct = len(np.unique(draws))
    sizes = [max(1, round(part * distinct)) if part else 0 for part in (valid, test)]
    if sum(sizes) >= distinct:
        raise _nothing_left(name, f"{distinct} different documents", *sizes)
    parts = divide(draws, None, *sizes)
    train, held = parts.train, np.concatenate([parts.valid, parts.test])
    train |= np.fromiter((len(document) < LEAST_COPY for document in documents), dtype=bool, count=len(documents))
    train[held] = False
    places = np.flatnonzero(train), parts.valid, parts.test
    train_texts, valid_texts, test_texts = ([documents[i] for i in part.tolist()] for part in places)
    return train_texts, valid_texts, test_texts


def _last_held_out(
    name: str, documents: list[str], valid: float, test: float
) -> tuple[list[str], list[str], list[str]]:
    """The first documents, then those for validation, then those for testing: parts of the text, not of their number.

    What is trained on loses long copies of what is held out, and so does the part for validation of what is tested.
    """
    begins = np.cumsum([0, *map(len, documents)])
    ends = [len(documents)]
    for part, before in ((test, 0.0), (valid, test)):
        wanted = (1 - before - part) * begins[-1]
        nearest = int(np.abs(begins - wanted).argmin())
        ends.append(min(nearest, ends[-1] - 1) if part else ends[-1])
    last, middle, first = ends
    if first < 1:
        raise _nothing_left(name, f"{len(documents)} documents", middle - first, last - middle)
    tested = documents[middle:]
    validated = _without_copies(documents[first:middle], tested)
    trained = _without_copies(documents[:first], [*validated, *tested])
    for what, part, texts in (("train on", True, trained), ("validate on", valid, validated)):
        if part and not texts:
            todo = "Give data.valid_text and data.test_text, or more text"
            raise DataError(name, f"nothing is left to {what}: all of it is held out elsewhere too", todo)
    return trained, validated, tested


def _without_copies(documents: list[str], held: list[str]) -> list[str]:
    """Leaves out long documents whose letters and digits are those of a held-out one."""
    known = {sentence_key(document) for document in held if len(document) >= LEAST_COPY}
    return [text for text in documents if len(text) < LEAST_COPY or sentence_key(text) not in known]


def _nothing_left(name: str, documents: str, valid: int, test: int) -> DataError:
    return DataError(
        name,
        f"nothing is left to train on: of {documents}, {valid} would be held out for validation and {test} for testing",
        "Give data.valid_text and data.test_text, set data.valid_part and data.test_part to 0, or set data.documents",
    )


def _end_held_out(name: str, text: str, valid: float, test: float) -> tuple[list[str], list[str], list[str]]:
    """A document's beginning, then its part for validation, then the one for testing."""
    end = len(text)
    found: list[list[str]] = []
    for part in (test, valid):
        size = round(part * len(text))
        begin = _break_near(text, end - size, size // 2) if part else end
        found.append([text[begin:end]] if part else [])
        end = begin
    parts = [text[:end]], found[1], found[0]
    if any(not piece or piece.isspace() for pieces in parts for piece in pieces):
        raise DataError(
            name,
            f"its only document, of {len(text):,} characters, is too short to hold parts of it out",
            "Give more text, or set data.valid_part and data.test_part to 0",
        )
    return parts


def _break_near(text: str, place: int, reach: int) -> int:
    """The beginning of a line near a place, or else of a word, or else the place itself."""
    low, high = max(0, place - reach), place + reach
    for mark in ("\n", " "):
        found = [text.rfind(mark, low, place), text.find(mark, place, high)]
        if places := [where + 1 for where in found if where >= 0]:
            return min(places, key=lambda where: abs(where - place))
    return place


def _counted(parts: Sequence[Sequence[str]]) -> tuple[str, dict[str, TextCount]]:
    """What identifies the parts, and how much text they are."""
    digest = hashlib.sha256()
    counts: dict[str, TextCount] = {}
    for name, documents in zip(PARTS, parts, strict=True):
        digest.update(f"{name} {len(documents)}\n".encode())
        characters = size = 0
        for chunk in chunks_of(documents):
            for document in chunk if len(chunk) == 1 else ["\0".join(chunk)]:  # no document holds this character
                for begin in range(0, len(document), CHUNK):
                    data = document[begin : begin + CHUNK].encode()
                    digest.update(data)
                    size += len(data)
            digest.update(b"\0")
            characters += sum(map(len, chunk))
            size -= len(chunk) - 1
        counts[name] = TextCount(len(documents), characters, size)
    return digest.hexdigest(), counts
