"""Reads two languages of a translation memory (TMX 1.4 and older) as a stream, without trusting it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from xml.parsers import expat

from regard.core.errors import DataError
from regard.data.reading.columns import check_two
from regard.data.reading.files import ByteFile
from regard.data.reading.reader import Batch, RowReader

MAX_DEPTH = 64
MAX_UNIT = 16 << 20  # characters of one unit, and bytes of one tag
MAX_DEFAULTS = 10_000  # characters of all attribute defaults that a DOCTYPE declares
_CODES = frozenset(("bpt", "ept", "ph", "it", "ut"))  # their content belongs to the format of the original document


class TmxPairs(RowReader):
    """One pair in each translation unit; columns are languages, the first two that meet in a unit when none are named.

    A language stands for its regions too: `en` finds `en-GB`. Units that lack a language are counted in `skipped`.
    """

    def __init__(self, file: ByteFile, columns: Sequence[str | int] = ()) -> None:
        super().__init__([file])
        self._columns = tuple(_normal(column) for column in check_two(file.name, columns))
        self._met: dict[str, None] = {}  # languages, in their order

    def _batches(self, raw: bool) -> Iterator[Batch]:
        self._met = {}
        languages = self._columns
        units = _Units(self.names[0])
        for unit_list in units.read(self.files[0]):
            batch: Batch = ([], [])
            for unit in unit_list:
                self._met.update(dict.fromkeys(unit if len(self._met) < 20 else ()))
                languages = languages or _two_languages(list(unit))
                found = _find(unit, languages) if languages else None
                if found is None:
                    self.skipped += 1
                    continue
                batch[0].append(found[0])
                batch[1].append(found[1])
            yield batch

    def _without_pairs(self) -> DataError:
        wanted = " and ".join(self._columns) or "two languages"
        met = ", ".join(self._met) or "none"
        return DataError(
            self.names[0],
            f"no translation unit holds {wanted} (languages met: {met})",
            "Choose two languages of the file with columns",
        )


class _Units:
    """The parser: collects the segments of each unit by language."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._ready: list[dict[str, str]] = []
        self._unit: dict[str, str] | None = None
        self._language = ""
        self._text: list[str] | None = None  # pieces of the segment that is open
        self._codes = self._depth = self._size = self._defaults = 0
        parser = self._parser = expat.ParserCreate()
        parser.buffer_text = True
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        self._keep = self._characters  # bound once: it is set for each segment
        parser.EntityDeclHandler = self._entity
        parser.ExternalEntityRefHandler = self._external
        parser.SkippedEntityHandler = self._skipped
        parser.AttlistDeclHandler = self._attribute

    def read(self, file: ByteFile) -> Iterator[list[dict[str, str]]]:
        """The units, as many as end in one block of the file."""
        fed = 0
        for block in file.blocks():
            self._parse(block, False)
            fed += len(block)
            if fed - self._parser.CurrentByteIndex > MAX_UNIT:
                raise self._error(f"a tag or comment is longer than {MAX_UNIT >> 20} MiB", "Remove it")
            ready, self._ready = self._ready, []
            yield ready
        self._parse(b"", True)
        yield self._ready

    def _parse(self, block: bytes, last: bool) -> None:
        try:
            self._parser.Parse(block, last)
        except expat.ExpatError as error:
            raise DataError(
                f"{self._name}, line {error.lineno}",
                f"the file is not well-formed XML ({expat.ErrorString(error.code)})",
                "Export the translation memory again",
            ) from None
        except (ValueError, LookupError) as error:  # an encoding that Python does not know, or cannot give to expat
            raise self._error(f"its encoding is not supported ({error})", "Convert the file to UTF-8") from None

    def _error(self, what: str, todo: str) -> DataError:
        return DataError(f"{self._name}, line {self._parser.CurrentLineNumber}", what, todo)

    def _start(self, name: str, attributes: Mapping[str, str]) -> None:
        self._depth += 1
        if self._depth == 1 and name != "tmx":
            raise self._error(f"a TMX file begins with the element tmx, not {name[:40]}", "Give a TMX file")
        if self._depth > MAX_DEPTH:
            raise self._error(f"elements are nested more than {MAX_DEPTH} deep", "Give a TMX file")
        if self._text is not None:
            self._codes += name in _CODES
        elif name == "tu":
            self._unit, self._size = {}, 0
        elif name == "tuv":
            self._language = _normal(attributes.get("xml:lang") or attributes.get("lang") or "")
        elif name == "seg" and self._unit is not None:
            self._text = []
            self._codes = 0
            self._parser.CharacterDataHandler = self._keep

    def _end(self, name: str) -> None:
        self._depth -= 1
        if self._text is not None:
            if name == "seg":
                assert self._unit is not None
                self._unit.setdefault(self._language, _unwrapped("".join(self._text)))
                self._text = None
                self._parser.CharacterDataHandler = None
            else:
                self._codes -= name in _CODES
        elif name == "tuv":
            self._language = ""
        elif name == "tu" and self._unit is not None:
            self._ready.append(self._unit)
            self._unit = None

    def _characters(self, text: str) -> None:
        if self._text is None or self._codes:
            return
        self._size += len(text)
        if self._size > MAX_UNIT:
            raise self._error(f"the translation unit is longer than {MAX_UNIT >> 20} MiB", "Remove it")
        self._text.append(text)

    def _entity(self, name: str, *_: object) -> None:
        raise self._error(
            f"the file declares an entity ({name[:40]}), which could grow without end or point to another file",
            "Write the text itself instead of the entity",
        )

    def _external(self, *_: object) -> int:
        raise self._error("the file refers to an entity outside of it", "Write the text itself instead of the entity")

    def _skipped(self, name: str, *_: object) -> None:
        raise self._error(f"the entity {name[:40]} is not defined", "Write the text itself instead of the entity")

    def _attribute(self, element: str, name: str, kind: str, default: str | None, required: bool) -> None:
        self._defaults += len(default or "")
        if self._defaults > MAX_DEFAULTS:
            raise self._error("the DOCTYPE declares long default values", "Remove the DOCTYPE")


def _unwrapped(text: str) -> str:
    """The text without line breaks and the indentation around them."""
    if "\n" not in text and "\r" not in text:
        return text
    pieces = (piece.strip(" \t") for piece in text.replace("\r", "\n").split("\n"))
    return " ".join(piece for piece in pieces if piece)


@lru_cache(maxsize=1024)
def _normal(language: str) -> str:
    return language.strip().replace("_", "-").lower()


def _two_languages(met: Sequence[str]) -> tuple[str, ...]:
    """The first two languages of a unit; without their regions where that keeps them apart."""
    if len(met) < 2:
        return ()
    short = met[0].partition("-")[0], met[1].partition("-")[0]
    return short if short[0] != short[1] else (met[0], met[1])


def _find(unit: Mapping[str, str], languages: Sequence[str]) -> tuple[str, str] | None:
    source, target = _match(unit, languages[0]), _match(unit, languages[1])
    return None if source is None or target is None or source == target else (unit[source], unit[target])


def _match(unit: Mapping[str, str], language: str) -> str | None:
    if language in unit:
        return language
    return next((met for met in unit if met.startswith(f"{language}-")), None)
