"""Writes docs/settings.md from the configuration classes and their comments, so that every default lives in one place.

python docs/make_settings.py [--check]
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
from pathlib import Path

from regard.data.corpus import CorpusConfig
from regard.models.base import MODELS
from regard.training.config import SECTIONS

TARGET = Path(__file__).with_name("settings.md")


def comments(cls: type) -> dict[str, str]:
    """The comment at the end of each field's line."""
    found = {}
    for base in reversed([base for base in cls.__mro__ if dataclasses.is_dataclass(base)]):
        for line in inspect.getsource(base).splitlines():
            match = re.match(r"    (\w+): [^#]+# (.*)", line)
            if match:
                found[match[1]] = match[2]
    return found


def table(section: str, cls: type) -> str:
    notes = comments(cls)
    lines = [
        f"## {section}\n",
        (cls.__doc__ or "").strip().splitlines()[0] + "\n",
        "| setting | type | default | |",
        "|---|---|---|---|",
    ]
    for field in dataclasses.fields(cls):
        kind = str(field.type).replace("|", "\\|")
        default = "" if field.default is dataclasses.MISSING else repr(field.default)
        note = notes.get(field.name, "").replace("|", "\\|")
        lines.append(f"| `{section.split()[0]}.{field.name}` | `{kind}` | `{default}` | {note} |")
    return "\n".join(lines) + "\n"


def text() -> str:
    parts = [
        "# Settings\n",
        "Made by `docs/make_settings.py`. In a recipe they stand in sections (`[train]`), on the command line as\n"
        "`train.steps=1000`.\n",
    ]
    for section, cls in SECTIONS.items():
        parts.append(table(section, cls))
        if section == "data":
            parts.append(table("data.corpora[]", CorpusConfig))
    parts += [table(f"model (name = {name})", MODELS.get(name).Config) for name in MODELS.names()]
    return "\n".join(parts)


if __name__ == "__main__":
    if "--check" in sys.argv:
        sys.exit(
            0
            if TARGET.read_text(encoding="utf-8") == text()
            else "docs/settings.md is stale: run docs/make_settings.py"
        )
    TARGET.write_text(text(), encoding="utf-8")
