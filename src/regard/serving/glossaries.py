"""The glossaries that a server has: files of terms that whoever runs it names, each for one pair of languages."""

from __future__ import annotations

import dataclasses
import datetime
import re
from collections.abc import Iterator, Sequence
from typing import Any

from regard.core.errors import ConfigError
from regard.core.visible_text import visible
from regard.serving.fields import Choice, Kind, Only
from regard.serving.languages import Languages
from regard.serving.refusals import Refused
from regard.tasks.glossary import KEPT, Glossary

MOST_GLOSSARIES = 64
_GIVEN = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]{0,99})(?::(?P<pair>[^=]{1,60}))?=(?P<path>.+)", re.DOTALL)


@dataclasses.dataclass(frozen=True, eq=False)
class Terms:
    """A glossary by name. Two are never the same, so it can be a key."""

    name: str
    source: str
    target: str
    glossary: Glossary = dataclasses.field(repr=False)

    def entries(self) -> str:
        """Its entries as tab-separated values: the words of a source form, the first form of the target."""
        lines = []
        for words, forms in self.glossary.terms.items():
            source = " ".join(words)
            lines.append(f"{source}\t{forms[0] if forms else source}")
        return "\n".join(lines)


class Glossaries:
    """All of them. `began` is what their clients are told about when they were made."""

    def __init__(self, found: Sequence[Terms] = ()):
        self.found = {one.name: one for one in found}
        self._keeping: dict[tuple[str | None, tuple[str, ...]], Terms] = {}  # with what is left as it is, too
        self.began = datetime.datetime.now(datetime.UTC)

    @classmethod
    def read(cls, given: Sequence[str], languages: Languages) -> Glossaries:
        """Those of `NAME=FILE` texts, or `NAME:SOURCE-TARGET=FILE`, which is needed where there are several pairs of languages."""
        if len(given) > MOST_GLOSSARIES:
            raise ConfigError("--glossary", f"{len(given)} are given", f"Give at most {MOST_GLOSSARIES}")
        found: dict[str, Terms] = {}
        pairs = {f"{pair.source}-{pair.target}": pair for pair in languages.pairs}
        known = ", ".join(pairs) or "none: no model here translates"
        for text in given:
            match = _GIVEN.fullmatch(text)
            if match is None:
                raise ConfigError("--glossary", f"{visible(text, 60)!r} is not NAME=FILE", "Write law=terms.tsv")
            name, pair = match["name"], match["pair"]
            if name in found:
                raise ConfigError("--glossary", f"two glossaries are called {name!r}", "Give one another name")
            if pair is None and len(pairs) != 1:
                what = f"{name!r} does not say for which languages it is"
                raise ConfigError("--glossary", what, f"Write NAME:SOURCE-TARGET=FILE; there are {known}")
            chosen = pairs.get(pair or next(iter(pairs)))
            if chosen is None:
                raise ConfigError("--glossary", f"no model translates {visible(pair or '', 60)}", f"There are {known}")
            found[name] = Terms(name, chosen.source, chosen.target, Glossary.load(match["path"]))
        return cls(list(found.values()))

    def __iter__(self) -> Iterator[Terms]:
        return iter(self.found.values())

    def __len__(self) -> int:
        return len(self.found)

    @property
    def kind(self) -> Kind:
        """The type of a field that names one."""
        if self.found:
            return Choice(tuple(self.found))
        return Only(None, "there are no glossaries here", "Leave it out, or start the server with --glossary")

    def choose(
        self, name: str | None, source: str | None, target: str, field: str, keep: Sequence[str] = ()
    ) -> Terms | None:
        """The glossary of a name, which has to be one for these languages; `keep` is what else is left as it is."""
        found = None if name is None else self._named(name, source, target, field)
        kinds = tuple(kind for kind in KEPT if kind in keep)
        if not kinds:
            return found
        terms = {} if found is None else found.glossary.terms
        made = Terms(name or "", source or "", target, Glossary(terms, kinds))
        return self._keeping.setdefault((name, kinds), made)  # the same one for the same wish: it is a key

    def _named(self, name: str, source: str | None, target: str, field: str) -> Terms:
        found = self.found[name]
        if (source, target) != (found.source, found.target):
            what = f"`{field}`: {name} is for {found.source} to {found.target}"
            raise Refused(400, what, f"Say {found.source} and {found.target} as the languages", field=field)
        return found

    def described(self, one: Terms) -> dict[str, Any]:
        """What DeepL's clients are told."""
        return {
            "glossary_id": one.name,
            "name": one.name,
            "ready": True,
            "source_lang": one.source.lower(),
            "target_lang": one.target.lower(),
            "creation_time": self.began.isoformat(timespec="microseconds"),
            "entry_count": len(one.glossary.terms),
        }
