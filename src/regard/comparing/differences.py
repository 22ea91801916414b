"""In what the settings of the entries of a comparison differ."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from regard.comparing.results import Entry
from regard.comparing.tables import NOTHING

MOST_KEYS = 200  # of the table; all of them are in recipes/


def differing_settings(entries: Sequence[Entry]) -> dict[str, list[str]]:
    """By name (`section.key`), the value of each entry, as text; those that all entries share are left out.

    Section by section; in each, settings that more entries have come first.
    """
    flat = [_flat(entry.values) for entry in entries]
    keys = list(dict.fromkeys(key for values in flat for key in values))
    sections = list(dict.fromkeys(key.split(".")[0] for key in keys))
    keys.sort(key=lambda key: (sections.index(key.split(".")[0]), sum(key not in values for values in flat)))
    table = {key: [values.get(key, NOTHING) for values in flat] for key in keys}
    different = [key for key, texts in table.items() if len(set(texts)) > 1]
    return {key: table[key] for key in different[:MOST_KEYS]}


def settings_table(entries: Sequence[Entry]) -> tuple[list[str], list[list[str]]] | None:
    """A header and lines, longer than wide; None where nothing differs."""
    table = differing_settings(entries)
    if not table:
        return None
    names = [entry.name for entry in entries]
    if len(table) > len(entries):
        return ["Setting", *names], [[key, *texts] for key, texts in table.items()]
    return ["System", *table], [[name, *(texts[i] for texts in table.values())] for i, name in enumerate(names)]


def _flat(values: Mapping[str, Any]) -> dict[str, str]:
    sections = {name: section if isinstance(section, Mapping) else {"": section} for name, section in values.items()}
    return {
        f"{name}.{key}".removesuffix("."): _text(value)
        for name, section in sections.items()
        for key, value in section.items()
    }


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
