"""The types of a request's fields: one description both reads them, strictly, and writes their part of the OpenAPI document."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol

from regard.core.visible_text import visible
from regard.serving.refusals import Refused

NO_NUL = r"^[^\u0000]*$"
_WHOLE = re.compile(r"[+-]?[0-9]{1,19}")
_NUMBER = re.compile(r"[+-]?(?:[0-9]{1,18}(?:\.[0-9]{0,18})?|\.[0-9]{1,18})(?:[eE][+-]?[0-9]{1,3})?")
FLAGS = {"true": True, "True": True, "1": True, "false": False, "False": False, "0": False}  # of a form
SHOWN = 40  # characters of what a client sent that an error repeats


class Kind(Protocol):
    """A type of values."""

    many: ClassVar[bool]  # a form may give the field several times

    def fits(self, value: Any) -> bool:
        """Whether a JSON value is of the right type; `read` says whether it is also within bounds."""
        ...

    def read(self, value: Any, where: str) -> Any:
        """The value of a JSON value."""
        ...

    def read_text(self, texts: Sequence[str], where: str) -> Any:
        """The value of what a form or a query gives."""
        ...

    def schema(self) -> dict[str, Any]: ...

    @property
    def words(self) -> str:
        """What it is, for errors."""
        ...


def wrong(where: str, what: str, todo: str, status: int = 400) -> Refused:
    """The refusal of a field."""
    kind = {413: "too_long"}.get(status, "invalid")
    return Refused(status, f"`{where}`: {what}", todo, kind=kind, field=where)  # type: ignore[arg-type]


def _single(texts: Sequence[str], where: str) -> str:
    if len(texts) != 1:
        raise wrong(where, f"it is given {len(texts)} times", "Give it once")
    return texts[0]


@dataclasses.dataclass(frozen=True)
class Text:
    """A text of bounded length, without NUL and half characters."""

    most: int
    least: int = 0
    many: ClassVar[bool] = False

    def fits(self, value: Any) -> bool:
        return isinstance(value, str)

    def read(self, value: Any, where: str) -> str:
        if not isinstance(value, str):
            raise wrong(where, "it is not a text", "Send a text")
        if len(value) < self.least:
            raise wrong(where, "it is empty", "Send a text")
        if len(value) > self.most:
            what = f"it has {len(value):,} characters, and at most {self.most:,} are taken"
            raise wrong(where, what, "Send a shorter one")
        if "\0" in value:
            raise wrong(where, "it has a NUL character", "Leave it out")
        if has_halves(value):
            raise wrong(where, "it has half a character (a lone surrogate)", "Send whole characters")
        return value

    def read_text(self, texts: Sequence[str], where: str) -> str:
        return self.read(_single(texts, where), where)

    def schema(self) -> dict[str, Any]:
        least = {"minLength": self.least} if self.least else {}
        return {"type": "string", **least, "maxLength": self.most, "pattern": NO_NUL}

    @property
    def words(self) -> str:
        return "a text"


def has_halves(text: str) -> bool:
    """Whether a text has a lone surrogate, which JSON can write and UTF-8 cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


@dataclasses.dataclass(frozen=True)
class Choice:
    """One of some texts; with `fold`, upper and lower case are the same."""

    choices: tuple[str, ...]
    fold: bool = False
    many: ClassVar[bool] = False

    def fits(self, value: Any) -> bool:
        return isinstance(value, str)

    def read(self, value: Any, where: str) -> str:
        if isinstance(value, str):
            for choice in self.choices:
                if value == choice or (self.fold and len(value) < SHOWN and value.upper() == choice.upper()):
                    return choice
        shown = f"{visible(value, SHOWN)} is not supported" if isinstance(value, str) else f"it is not {self.words}"
        raise wrong(where, shown, f"Send {self.words}")

    def read_text(self, texts: Sequence[str], where: str) -> str:
        return self.read(_single(texts, where), where)

    def schema(self) -> dict[str, Any]:
        if not self.fold:
            return {"type": "string", "enum": list(self.choices)}
        either = ["".join(_either(c) for c in choice) for choice in self.choices]
        return {"type": "string", "pattern": f"^(?:{'|'.join(either)})$", "examples": list(self.choices)}

    @property
    def words(self) -> str:
        return "one of " + ", ".join(self.choices[:20]) if self.choices else "nothing: no model serves this"


def _either(c: str) -> str:
    return f"[{c.upper()}{c.lower()}]" if c.isascii() and c.isalpha() else re.escape(c)


@dataclasses.dataclass(frozen=True)
class Whole:
    """A whole number within bounds. As in JSON Schema 1.0 is one; true is none."""

    least: int
    most: int
    many: ClassVar[bool] = False

    def fits(self, value: Any) -> bool:
        return type(value) is int or (type(value) is float and value.is_integer())

    def read(self, value: Any, where: str) -> int:
        if not self.fits(value):
            raise wrong(where, "it is not a whole number", f"Send {self.words}")
        if not self.least <= value <= self.most:
            what = (
                f"{int(value)} is not from {self.least} to {self.most}" if abs(value) < 1e15 else "it is out of bounds"
            )
            raise wrong(where, what, f"Send {self.words}")
        return int(value)

    def read_text(self, texts: Sequence[str], where: str) -> int:
        text = _single(texts, where)
        if not _WHOLE.fullmatch(text):
            raise wrong(where, "it is not a whole number", f"Send {self.words}")
        return self.read(int(text), where)

    def schema(self) -> dict[str, Any]:
        return {"type": "integer", "minimum": self.least, "maximum": self.most}

    @property
    def words(self) -> str:
        return f"a whole number from {self.least} to {self.most}"


@dataclasses.dataclass(frozen=True)
class Number:
    """A number within bounds."""

    least: float
    most: float
    many: ClassVar[bool] = False

    def fits(self, value: Any) -> bool:
        return type(value) in (int, float)

    def read(self, value: Any, where: str) -> float:
        if not self.fits(value):
            raise wrong(where, "it is not a number", f"Send {self.words}")
        if not self.least <= value <= self.most or not math.isfinite(value):
            raise wrong(where, f"it is not from {self.least:g} to {self.most:g}", f"Send {self.words}")
        return float(value)

    def read_text(self, texts: Sequence[str], where: str) -> float:
        text = _single(texts, where)
        if not _NUMBER.fullmatch(text):
            raise wrong(where, "it is not a number", f"Send {self.words}")
        return self.read(float(text), where)

    def schema(self) -> dict[str, Any]:
        return {"type": "number", "minimum": self.least, "maximum": self.most}

    @property
    def words(self) -> str:
        return f"a number from {self.least:g} to {self.most:g}"


@dataclasses.dataclass(frozen=True)
class Flag:
    """true or false; in a form also 1 or 0."""

    many: ClassVar[bool] = False

    def fits(self, value: Any) -> bool:
        return isinstance(value, bool)

    def read(self, value: Any, where: str) -> bool:
        if not isinstance(value, bool):
            raise wrong(where, "it is neither true nor false", "Send true or false")
        return value

    def read_text(self, texts: Sequence[str], where: str) -> bool:
        text = _single(texts, where)
        if text not in FLAGS:
            raise wrong(where, "it is neither true nor false", "Send true or false")
        return FLAGS[text]

    def schema(self) -> dict[str, Any]:
        return {"type": "boolean"}

    @property
    def words(self) -> str:
        return "true or false"


@dataclasses.dataclass(frozen=True)
class Only:
    """A field of an interface that has one value here; any other is refused with the reason."""

    value: float | str | None
    why: str
    todo: str
    many: ClassVar[bool] = False

    def fits(self, value: Any) -> bool:
        return True

    def read(self, value: Any, where: str) -> Any:
        numbers = type(value) in (int, float) and type(self.value) in (int, float)
        if value != self.value or not (type(value) is type(self.value) or numbers):
            raise wrong(where, self.why, self.todo)
        return value

    def read_text(self, texts: Sequence[str], where: str) -> Any:
        text = _single(texts, where)
        if text != ("" if self.value is None else str(self.value)):
            raise wrong(where, self.why, self.todo)
        return self.value

    def schema(self) -> dict[str, Any]:
        return {"type": "null"} if self.value is None else {"const": self.value}

    @property
    def words(self) -> str:
        return "nothing" if self.value is None else str(self.value)


@dataclasses.dataclass(frozen=True)
class ListOf:
    """A list of bounded length. A form gives the field several times."""

    kind: Kind
    most: int
    least: int = 1
    many: ClassVar[bool] = True

    def fits(self, value: Any) -> bool:
        return isinstance(value, list) and all(map(self.kind.fits, value[:1]))

    def read(self, value: Any, where: str) -> list[Any]:
        if not isinstance(value, list):
            raise wrong(where, "it is not a list", f"Send {self.words}")
        self._check(len(value), where)
        return [self.kind.read(item, where if i == 0 else f"{where}[{i}]") for i, item in enumerate(value)]

    def read_text(self, texts: Sequence[str], where: str) -> list[Any]:
        self._check(len(texts), where)
        return [self.kind.read_text([text], where) for text in texts]

    def _check(self, count: int, where: str) -> None:
        if count < self.least:
            raise wrong(where, "it is an empty list", f"Send {self.words}")
        if count > self.most:
            raise wrong(where, f"it has {count:,} entries, and at most {self.most:,} are taken", "Send fewer")

    def schema(self) -> dict[str, Any]:
        return {"type": "array", "items": self.kind.schema(), "minItems": self.least, "maxItems": self.most}

    @property
    def words(self) -> str:
        return f"a list of {self.kind.words}"


@dataclasses.dataclass(frozen=True)
class OneOf:
    """A value of the first kind that reads it; where none does, the first that fits it says why."""

    kinds: tuple[Kind, ...]
    many: ClassVar[bool] = True

    def fits(self, value: Any) -> bool:
        return any(kind.fits(value) for kind in self.kinds)

    def read(self, value: Any, where: str) -> Any:
        refusals: list[Refused] = []
        for kind in self.kinds:
            if kind.fits(value):
                try:
                    return kind.read(value, where)
                except Refused as refusal:
                    refusals.append(refusal)
        if refusals:
            raise refusals[0]
        raise wrong(where, f"it is not {self.words}", f"Send {self.words}")

    def read_text(self, texts: Sequence[str], where: str) -> Any:
        """One text is of the first kind, several of the first that may be given several times."""
        chosen = self.kinds[0] if len(texts) == 1 else next((k for k in self.kinds if k.many), self.kinds[0])
        return chosen.read_text(texts, where)

    def schema(self) -> dict[str, Any]:
        return {"anyOf": [kind.schema() for kind in self.kinds]}

    @property
    def words(self) -> str:
        return " or ".join(dict.fromkeys(kind.words for kind in self.kinds))


@dataclasses.dataclass(frozen=True)
class Field:
    """A field of a request. `null`: null is the same as nothing."""

    name: str
    kind: Kind
    about: str = ""
    required: bool = False
    default: Any = None
    null: bool = False

    def schema(self) -> dict[str, Any]:
        schema = self.kind.schema()
        if self.null and schema.get("type") != "null":
            schema = {"anyOf": [schema, {"type": "null"}]}
        about = {"description": self.about} if self.about else {}
        default = {"default": self.default} if self.default is not None else {}
        return {**schema, **about, **default}


@dataclasses.dataclass(frozen=True)
class Record:
    """An object with named fields. `closed`: other names are refused, else they are ignored."""

    fields: tuple[Field, ...] = ()
    closed: bool = False
    many: ClassVar[bool] = False

    def fits(self, value: Any) -> bool:
        return isinstance(value, dict)

    def read(self, value: Any, where: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise wrong(where, "it is not an object", "Send a JSON object")
        inside = "" if where == "the request" else f"{where}."
        self._check_names(value, inside)
        found = {}
        for field in self.fields:
            given = value.get(field.name)
            if field.name not in value or (field.null and given is None):
                found[field.name] = self._missing(field, inside)
            else:
                found[field.name] = field.kind.read(given, inside + field.name)
        return found

    def read_form(self, given: Mapping[str, Sequence[str]]) -> dict[str, Any]:
        """The same of a form or a query."""
        self._check_names(given, "")
        return {
            field.name: field.kind.read_text(given[field.name], field.name)
            if given.get(field.name)
            else self._missing(field, "")
            for field in self.fields
        }

    def read_text(self, texts: Sequence[str], where: str) -> Any:
        raise wrong(where, "a form cannot hold an object", "Send JSON")

    def _missing(self, field: Field, inside: str) -> Any:
        if field.required:
            where = inside + field.name
            todo = f"Send {field.kind.words}"
            raise Refused(400, f"invalid request: missing {where} parameter", todo, field=where)
        return field.default

    def _check_names(self, given: Mapping[str, Any], inside: str) -> None:
        unknown = [name for name in given if name not in {field.name for field in self.fields}] if self.closed else []
        if unknown:
            name = visible(inside + unknown[0], SHOWN)
            known = ", ".join(field.name for field in self.fields)
            raise wrong(name, "there is no such field", f"Known are {known}")

    def schema(self) -> dict[str, Any]:
        required = [field.name for field in self.fields if field.required]
        return {
            "type": "object",
            "properties": {field.name: field.schema() for field in self.fields},
            **({"required": required} if required else {}),
            **({"additionalProperties": False} if self.closed else {}),
        }

    @property
    def words(self) -> str:
        return "an object"
