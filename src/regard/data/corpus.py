"""Reads parallel text (plain or TSV, gzip or xz of each) and divides it into train, valid and test."""

from __future__ import annotations

import codecs
import gzip
import hashlib
import io
import lzma
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from regard.core.errors import ConfigError, DataError
from regard.data.bundle import PREFIX, bundled_path
from regard.data.split import Pairs, SplitBy, hold_out

MAX_TEXT_BYTES = 8 << 30
_CHUNK = 1 << 20
_OPENERS: dict[str, Callable[[Path], io.BufferedIOBase]] = {".gz": gzip.GzipFile, ".xz": lzma.LZMAFile}


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """Where the text is and how it is divided. Held-out parts come from files, or else from the training text."""

    folder: str = ""  # relative paths start here
    src: str = ""
    tgt: str = ""
    tsv: str = ""  # instead of src and tgt; `bundled:NAME` names a corpus of the package
    tsv_columns: tuple[int, ...] = (0, 1)  # source column, target column
    valid_src: str = ""
    valid_tgt: str = ""
    valid_tsv: str = ""
    test_src: str = ""
    test_tgt: str = ""
    test_tsv: str = ""
    valid_size: int = 0  # pairs to hold out where no files are given; 0 chooses from the corpus size, -1 holds out none
    test_size: int = 0  # likewise
    split_by: SplitBy = "source"
    split_seed: int = 1
    min_words: int = 0  # of either side, in every part; 0 sets no limit
    max_words: int = 0
    max_pairs: int = 0  # a seeded sample of the training part; 0 takes all
    source_language: str = ""  # for display
    target_language: str = ""

    def __post_init__(self) -> None:
        for name in ("valid_size", "test_size"):
            if getattr(self, name) < -1:
                raise ConfigError(f"setting data.{name}", f"it is {getattr(self, name)}", "Use -1, 0 or more")
        for name in ("min_words", "max_words", "max_pairs"):
            if getattr(self, name) < 0:
                raise ConfigError(f"setting data.{name}", f"it is negative ({getattr(self, name)})", "Use 0 or more")
        if 0 < self.max_words < self.min_words:
            raise ConfigError(
                "setting data.max_words",
                f"it is below data.min_words ({self.max_words} < {self.min_words})",
                "Raise it, or set it to 0 for no limit",
            )
        if len(self.tsv_columns) != 2 or min(self.tsv_columns) < 0:
            raise ConfigError(
                "setting data.tsv_columns",
                f"two column numbers from 0 are expected, got {list(self.tsv_columns)}",
                "Write for example data.tsv_columns=[0,1]",
            )


@dataclass
class Corpus:
    """The three parts of a corpus, with what identifies them."""

    train: Pairs
    valid: Pairs
    test: Pairs
    fingerprint: str  # SHA-256 of the three parts as they are used
    files: dict[str, str] = field(default_factory=dict)  # setting -> path
    dropped: int = 0  # pairs with an empty side
    filtered: int = 0  # pairs outside min_words and max_words


def load_corpus(config: DataConfig) -> Corpus:
    """Reads, filters and divides a corpus. The same text and settings always give the same parts."""
    files: dict[str, str] = {}
    train = _read_part(config, "", files)
    if train is None:
        raise DataError("data", "no training text is given", "Set data.src and data.tgt, or data.tsv")
    valid, test = _read_part(config, "valid_", files), _read_part(config, "test_", files)
    dropped = filtered = 0
    parts: list[Pairs | None] = []
    for name, part in (("training", train), ("validation", valid), ("test", test)):
        if part is None:
            parts.append(None)
            continue
        whole = _without_empty(part)
        fitting = _within_words(whole, config.min_words, config.max_words)
        dropped += len(part) - len(whole)
        filtered += len(whole) - len(fitting)
        if not len(fitting):
            raise DataError(
                f"the {name} text",
                f"none of its {len(part)} pairs is left ({len(part) - len(whole)} have an empty side, "
                f"{len(whole) - len(fitting)} are outside data.min_words and data.max_words)",
                "Check the files and these settings",
            )
        parts.append(fitting)
    train, valid, test = parts
    assert train is not None
    valid_size = 0 if valid is not None else max(0, config.valid_size) if config.valid_size else None
    test_size = config.test_size or (-1 if valid is not None else 0)
    test_size = 0 if test is not None or test_size < 0 else test_size or None
    train, held_valid, held_test = hold_out(train, valid_size, test_size, config.split_seed, config.split_by)
    valid = held_valid if valid is None else valid
    test = held_test if test is None else test
    train = _sample(train, config.max_pairs, config.split_seed)
    fingerprint = _fingerprint(train, valid, test)
    return Corpus(train, valid, test, fingerprint, files, dropped, filtered)


def read_pairs(src: str | Path, tgt: str | Path) -> Pairs:
    """Reads two files whose lines belong together."""
    sources, targets = read_lines(src), read_lines(tgt)
    if len(sources) != len(targets):
        raise DataError(
            f"{src} and {tgt}",
            f"the files are not aligned, the first has {len(sources)} lines and the second {len(targets)}",
            "Give files in which line n of one is the translation of line n of the other",
        )
    return Pairs(sources, targets)


def read_tsv(path: str | Path, columns: Sequence[int] = (0, 1)) -> Pairs:
    """Reads the source and the target column of a tab-separated file, without any quoting rules."""
    source, target = columns
    needed = max(source, target) + 1
    pairs = Pairs()
    for number, line in enumerate(read_lines(path), 1):
        cells = line.split("\t")
        if len(cells) < needed:
            raise DataError(
                f"{path}, line {number}",
                f"{needed} tab-separated columns are expected, got {len(cells)}",
                "Mend that line, or choose other columns with data.tsv_columns",
            )
        pairs.sources.append(cells[source])
        pairs.targets.append(cells[target])
    return pairs


def read_lines(path: str | Path) -> list[str]:
    r"""Reads the lines of a UTF-8 file, decompressing .gz and .xz.

    Only \n (or \r\n) ends a line: other Unicode line separators are text, or two aligned files would drift apart.
    """
    data = _read_bytes(path)
    begin = len(codecs.BOM_UTF8) if data.startswith(codecs.BOM_UTF8) else 0
    try:
        text = data[begin:].decode("utf-8")
    except UnicodeDecodeError as error:
        place = begin + error.start
        line = data.count(b"\n", 0, place) + 1
        raise DataError(
            f"{path}, line {line}", f"the text is not UTF-8 (byte 0x{data[place]:02x} at offset {place})", _advice(data)
        ) from None
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    return [line.removesuffix("\r") for line in lines]


def _read_bytes(path: str | Path) -> bytes:
    place = _place(path)
    content = bytearray()
    try:
        if place.is_dir():
            raise DataError(path, "it is a directory, not a text file", "Name a file in it")
        if not place.stat().st_size and place.is_file():
            raise DataError(path, "the file is empty", "Give a file with one sentence on each line")
        with _OPENERS.get(place.suffix.lower(), lambda plain: open(plain, "rb"))(place) as file:
            while chunk := file.read(_CHUNK):
                content += chunk
                if len(content) > MAX_TEXT_BYTES:
                    raise DataError(
                        path, f"it holds more than {MAX_TEXT_BYTES >> 20} MiB of text", "Divide it into smaller files"
                    )
    except FileNotFoundError:
        raise DataError(path, "there is no such file", "Check the path and data.folder") from None
    except PermissionError:
        raise DataError(path, "reading the file is not permitted", "Change its permissions, or copy it") from None
    except EOFError:
        raise DataError(path, "the archive is truncated", "Download or compress the file again") from None
    except (gzip.BadGzipFile, zlib.error, lzma.LZMAError) as error:
        raise DataError(path, f"the archive is corrupt ({error})", "Download or compress the file again") from None
    except (OSError, ValueError) as error:  # ValueError: a path with a null character
        reason = getattr(error, "strerror", None) or error
        raise DataError(path, f"the file cannot be read ({reason})", "Check the path") from None
    if not content:
        raise DataError(path, "the archive holds an empty file", "Give a file with one sentence on each line")
    return bytes(content)


def _place(path: str | Path) -> Path:
    return bundled_path(str(path)) if str(path).startswith(PREFIX) else Path(path)


def _advice(data: bytes) -> str:
    """What to do with bytes that are not UTF-8."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "It looks like UTF-16: convert it, for example with iconv -f UTF-16 -t UTF-8"
    for magic, suffix in ((b"\x1f\x8b", ".gz"), (b"\xfd7zXZ\0", ".xz")):
        if data.startswith(magic):
            return f"It looks compressed: give its name the ending {suffix}"
    return "Convert it, for example with iconv -f ISO-8859-1 -t UTF-8"


def _read_part(config: DataConfig, part: str, files: dict[str, str]) -> Pairs | None:
    """The pairs of one part (its settings start with `part`), or None where no file is given."""
    src, tgt, tsv = (getattr(config, f"{part}{name}") for name in ("src", "tgt", "tsv"))
    if tsv and (src or tgt):
        raise DataError(
            f"data.{part}tsv", "both a TSV file and plain files are given", f"Keep data.{part}tsv or data.{part}src/tgt"
        )
    if bool(src) != bool(tgt):
        given, missing = ("src", "tgt") if src else ("tgt", "src")
        raise DataError(
            f"data.{part}{given}", f"it is given without data.{part}{missing}", "Give both files, or a TSV file"
        )
    if tsv:
        files[f"{part}tsv"] = _in_folder(config, tsv)
        return read_tsv(files[f"{part}tsv"], config.tsv_columns)
    if src:
        files[f"{part}src"], files[f"{part}tgt"] = _in_folder(config, src), _in_folder(config, tgt)
        return read_pairs(files[f"{part}src"], files[f"{part}tgt"])
    return None


def _in_folder(config: DataConfig, name: str) -> str:
    if name.startswith(PREFIX):
        return name
    return str(Path(config.folder).expanduser() / Path(name).expanduser())


def _without_empty(pairs: Pairs) -> Pairs:
    sides = zip(pairs.sources, pairs.targets, strict=True)
    return pairs.take([i for i, (source, target) in enumerate(sides) if source.strip() and target.strip()])


def _within_words(pairs: Pairs, least: int, most: int) -> Pairs:
    if not least and not most:
        return pairs

    def fits(text: str) -> bool:
        words = len(text.split())
        return words >= least and (not most or words <= most)

    return pairs.take([i for i in range(len(pairs)) if fits(pairs.sources[i]) and fits(pairs.targets[i])])


def _sample(pairs: Pairs, size: int, seed: int) -> Pairs:
    """A seeded sample, in the order of the corpus."""
    if not size or size >= len(pairs):
        return pairs
    keys = np.random.Philox(key=seed % (1 << 64)).random_raw(len(pairs))
    return pairs.take(sorted(np.argsort(keys, kind="stable")[:size].tolist()))


def _fingerprint(*parts: Pairs) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(f"{len(part)} pairs\n".encode())
        for lines in (part.sources, part.targets):
            for line in lines:  # no line holds a line break, so the parts cannot run into each other
                digest.update(f"{line}\n".encode())
    return digest.hexdigest()
