"""Before a run: standard input is kept as a file, and the text is checked for damage."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import regard
from regard.core.errors import DataError
from regard.data.addresses import STANDARD_INPUT
from regard.data.bundle import PREFIX
from regard.data.checks.report import Report
from regard.data.corpus_config import DataConfig
from regard.data.corpus_texts import is_small, texts_of
from regard.data.prepared import Shelf, read_plain, write_plain
from regard.data.reading import spool_input
from regard.data.survey import Text
from regard.training.progress import Reporter

KEPT = ("src", "tgt", "pairs", "text")


def keep_input(data: dict[str, Any], folder: Path) -> None:
    """Writes standard input into the run's folder where a setting names it, so that the run can be resumed."""
    for section in (data, *data.get("corpora", ())):
        for name, value in section.items():
            if name.endswith(KEPT) and value == STANDARD_INPUT:
                one_side = name.endswith(("src", "tgt", "text"))
                format = "text" if one_side else section.get("format", "auto")
                if format == "auto":
                    raise DataError(
                        "standard input",
                        "the format of its pairs is not known",
                        "Set data.format=tsv, csv, jsonl or tmx",
                    )
                section[name] = str(spool_input(folder, format).absolute())


def check_before_training(config: DataConfig, report: Reporter) -> None:
    """Checks every training text, and refuses to train on a damaged one."""
    if not config.check:
        return
    from regard.data.checks.check import known_names  # not needed when a run goes on

    known_names(config.allow)  # a misspelt name is an error even where nothing is found
    texts = texts_of(config)
    held_out = {part: texts[part][0] for part in ("valid", "test") if part in texts}
    languages = (config.source_language, config.target_language)
    for text in texts["train"]:
        if all(name.startswith(PREFIX) for name in text.reader.names):  # checked when they were bundled
            continue
        found = _checked(text, held_out, languages, config.store, report)
        findings = tuple(dataclasses.replace(f, allowed=f.name in config.allow) for f in found.findings)
        found = dataclasses.replace(found, findings=findings)
        found.refuse()
        _say(found, report)


def _checked(
    text: Text, held_out: Mapping[str, Text], languages: tuple[str, str], store: str, report: Reporter
) -> Report:
    """The check of a text; that of a large one is kept beside its tokens, and not made twice."""
    from regard.data.checks.check import check_pairs

    def check() -> Report:
        readers = {name: part.reader for name, part in held_out.items()}
        return check_pairs(text.reader, held_out=readers, languages=languages)

    if is_small(store, [text.reader]):
        return check()
    # with the names of the files, which may claim languages and stand in what is said, and the version of the checks
    parts = [
        [name, part.reader.content_hash(), type(part.reader).__name__, part.columns, part.reader.names]
        for name, part in {"": text, **held_out}.items()
    ]
    plain = json.dumps([parts, languages, regard.__version__])
    shelf = Shelf.for_text(store, hashlib.sha256(plain.encode(errors="surrogateescape")).hexdigest())

    def fill(folder: Path) -> None:
        report.say("Checking the text...")
        write_plain(folder / "report.json", check().to_plain())

    return Report.from_plain(read_plain(shelf.made("check", "", fill, report.say) / "report.json"))


def _say(found: Report, report: Reporter) -> None:
    warnings = [f for f in found.findings if f.severity == "warning" or (f.severity == "damage" and f.allowed)]
    if warnings:
        listed = ", ".join(f"{f.name} ({f.count:,})" for f in warnings)
        files = " ".join(found.files)
        report.say(f"The text has warnings: {listed}. `regard data check {files}` shows them.")
