"""Which two columns or keys of a file hold the source and the target, when the user says so and when not."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from regard.core.errors import DataError

_KNOWN = (("src", "tgt"), ("source", "target"), ("src", "trg"))
_NESTED = "translation"  # the usual name for an object with one key for each language
_CODE_LIST = (
    "aa ab ae af ak am an ar as av ay az ba be bg bh bi bm bn bo br bs ca ce ch co cr cs cu cv cy da de dv dz ee el en eo "
    "es et eu fa ff fi fj fo fr fy ga gd gl gn gu gv ha he hi ho hr ht hu hy hz ia id ie ig ii ik io is it iu ja jv ka kg "
    "ki kj kk kl km kn ko kr ks ku kv kw ky la lb lg li ln lo lt lu lv mg mh mi mk ml mn mr ms mt my na nb nd ne ng nl nn "
    "no nr nv ny oc oj om or os pa pi pl ps pt qu rm rn ro ru rw sa sc sd se sg si sk sl sm sn so sq sr ss st su sv sw ta "
    "te tg th ti tk tl tn to tr ts tt tw ty ug uk ur uz ve vi vo wa wo xh yi yo za zh zu "
    "ara bul ces dan deu ell eng est fin fra hin hun ita jpn kor lav lit nld nor pol por ron rus slk slv spa swe tur ukr "
    "vie zho"
)
_NAME_LIST = (
    "arabic bulgarian chinese czech danish dutch english estonian finnish french german greek hebrew hindi hungarian "
    "italian japanese korean latvian lithuanian norwegian polish portuguese romanian russian slovak slovenian spanish "
    "swedish turkish ukrainian vietnamese"
)
_LANGUAGES = frozenset((*_CODE_LIST.split(), *_NAME_LIST.split()))
_WITH_REGION = re.compile(r"([A-Za-z]{2})[-_]([A-Za-z]{2}|[A-Za-z]{4}|[0-9]{3})")  # en-GB, zh_Hans, es-419
_WITH_SCRIPT = re.compile(r"[a-z]{3}_[A-Z][a-z]{3}")  # deu_Latn


def is_language(name: str) -> bool:
    """Whether a column's name is a language: `en`, `en-GB`, `deu_Latn`, `German`."""
    name = name.strip()
    region = _WITH_REGION.fullmatch(name)
    code = region[1] if region else name
    return code.lower() in _LANGUAGES or _WITH_SCRIPT.fullmatch(name) is not None


def check_two(where: str, columns: Sequence[str | int]) -> tuple[str, ...]:
    """The columns as strings: none, or two different ones."""
    names = tuple(str(column) for column in columns)
    if names and (len(names) != 2 or names[0] == names[1]):
        raise DataError(
            where,
            f"two different columns are expected, got {', '.join(names)}",
            "Name the column of the source and that of the target",
        )
    return names


def as_numbers(columns: Sequence[str]) -> tuple[int, int] | None:
    """Columns that are given as numbers from 0, else None."""
    if len(columns) == 2 and all(column.isascii() and column.isdigit() and len(column) < 6 for column in columns):
        return int(columns[0]), int(columns[1])
    return None


def in_header(cells: Sequence[str]) -> tuple[int, int] | None:
    """The places of the two columns when a row of cells is a header with known names, else None."""
    names = [cell.strip().lower() for cell in cells]
    for source, target in _KNOWN:
        if names.count(source) == names.count(target) == 1:
            return names.index(source), names.index(target)
    languages = [place for place, cell in enumerate(cells) if is_language(cell)]
    if len(languages) == 3:
        languages = [place for place in languages if names[place] != "id"]  # Indonesian, but mostly a number
    if len(languages) == 2 and names[languages[0]] != names[languages[1]]:
        return languages[0], languages[1]
    return None


def find_in_header(where: str, cells: Sequence[str], columns: Sequence[str]) -> tuple[int, int]:
    """The places of the named columns in a header."""
    names = [cell.strip() for cell in cells]
    places: list[int] = []
    for column in columns:
        if names.count(column) != 1:
            what = f"no column {column}" if column not in names else f"several columns {column}"
            raise DataError(where, f"the header has {what}", f"Choose two of: {_listed(names)}")
        places.append(names.index(column))
    return places[0], places[1]


def choose_fields(where: str, record: Mapping[str, object], columns: Sequence[str]) -> tuple[str, str]:
    """The names of the two fields that hold the text, judged by one record; dots lead into nested objects."""
    for column in columns:
        if field(record, column) is None:
            raise DataError(where, f"there is no text under {column}", f"Choose two of: {_listed(_paths(record))}")
    if columns:
        return columns[0], columns[1]
    texts = [key for key, value in record.items() if isinstance(value, str)]
    lower = {key.lower(): key for key in texts}
    for source, target in _KNOWN:
        if source in lower and target in lower:
            return lower[source], lower[target]
    nested = record.get(_NESTED)
    if isinstance(nested, Mapping):
        inner = [key for key, value in nested.items() if isinstance(value, str)]
        if len(inner) == 2:
            return f"{_NESTED}.{inner[0]}", f"{_NESTED}.{inner[1]}"
    if len(texts) == 2:
        return texts[0], texts[1]
    known = "src and tgt, source and target, or an object translation with two languages"
    raise DataError(
        where,
        f"which fields hold the two sides is unclear (known are {known})",
        f"Choose two with columns, from: {_listed(_paths(record))}",
    )


def field(record: Mapping[str, object], name: str) -> object:
    """The value of a field; `translation.en` is the key `en` of the object `translation`, unless a key has that name."""
    if name in record:
        return record[name]
    begin, dot, rest = name.partition(".")
    inner = record.get(begin) if dot else None
    return field(inner, rest) if isinstance(inner, Mapping) else None


def _paths(record: Mapping[str, object], prefix: str = "", depth: int = 4) -> list[str]:
    """The dotted names of all texts."""
    found: list[str] = []
    for key, value in record.items():
        if isinstance(value, str):
            found.append(f"{prefix}{key}")
        elif isinstance(value, Mapping) and depth:
            found += _paths(value, f"{prefix}{key}.", depth - 1)
    return found


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(name if len(name) <= 40 else f"{name[:40]}…" for name in names[:20])
    return (shown if len(names) <= 20 else f"{shown}, …") or "none, since nothing there is text"
