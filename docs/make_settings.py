"""Writes docs/settings.md from the configuration classes and their comments, so that every default lives in one place.

python docs/make_settings.py [--check]
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import io
import sys
import tokenize
import typing
from pathlib import Path

from regard.data.corpus_config import CorpusConfig
from regard.models.base import MODELS
from regard.training.config import SECTIONS

TARGET = Path(__file__).with_name("settings.md")


def comments(cls: type) -> dict[str, str]:
    """The comment on each field's lines."""
    found = {}
    for base in reversed([base for base in cls.__mro__ if dataclasses.is_dataclass(base)]):
        source = inspect.getsource(base)
        at = {
            token.start[0]: token.string.lstrip("# ")
            for token in tokenize.generate_tokens(io.StringIO(source).readline)
            if token.type == tokenize.COMMENT
        }
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                for line in range(node.lineno, (node.end_lineno or node.lineno) + 1):
                    if line in at:
                        found[node.target.id] = at[line]
    return found


def kind(field: dataclasses.Field, cls: type) -> str:
    """A field's type, with the choices that it leaves instead of the name that the code has for them."""
    hint = typing.get_type_hints(cls)[field.name]
    if typing.get_origin(hint) is typing.Literal:
        return f"Literal[{', '.join(map(repr, typing.get_args(hint)))}]"
    return str(field.type)


def table(section: str, cls: type, about: str = "") -> str:
    notes = comments(cls)
    lines = [
        f"## {section}\n",
        *([about + "\n"] if about else []),
        (cls.__doc__ or "").strip().splitlines()[0] + "\n",
        "| setting | type | default | |",
        "|---|---|---|---|",
    ]
    for field in dataclasses.fields(cls):
        written = kind(field, cls).replace("|", "\\|")
        default = "" if field.default is dataclasses.MISSING else repr(field.default)
        note = notes.get(field.name, "").replace("|", "\\|")
        lines.append(f"| `{section.split()[0]}.{field.name}` | `{written}` | `{default}` | {note} |")
    return "\n".join(lines) + "\n"


def text() -> str:
    parts = [
        "# Settings\n",
        "Made by `docs/make_settings.py`. In a recipe they stand in sections (`[train]`), on the command line as\n"
        "`train.steps=1000`. A recipe of one's own is a TOML file, given by its path; with `like = 'NAME'` before its\n"
        "sections its settings go over those of a recipe that ships with regard, one by one: who gives `pairs` over a\n"
        "recipe's `src` and `tgt` sets these to `''`.\n",
    ]
    for section, cls in SECTIONS.items():
        parts.append(table(section, cls))
        if section == "data":
            parts.append(table("data.corpora[]", CorpusConfig))
    for name in MODELS.names():
        cls = MODELS.get(name).Config
        paper = " ".join((sys.modules[cls.__module__].__doc__ or "").split("\n\n")[0].split())
        parts.append(table(f"model (name = {name})", cls, paper))
    return "\n".join(parts)


if __name__ == "__main__":
    if "--check" in sys.argv:
        sys.exit(
            0
            if TARGET.read_text(encoding="utf-8") == text()
            else "docs/settings.md is stale: run docs/make_settings.py"
        )
    TARGET.write_text(text(), encoding="utf-8")
