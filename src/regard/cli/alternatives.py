"""`regard translate --alternatives`: what else could stand at a place of a translation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from regard.cli.translate import one_line, settings_from, stdin_lines
from regard.tasks.pretrained import load_translator


def run_alternatives(
    texts: list[str] | None,
    model: Path | None,
    changes: dict[str, Any],
    prefix: str,
    tag: str,
    count: int,
    as_json: bool,
    device: str,
    compute: Any = "auto",
) -> None:
    translator = load_translator(model, device, compute=compute).tagged(tag)
    settings = settings_from(translator, changes)
    for number, line in enumerate([" ".join(texts)] if texts else stdin_lines()):
        found = translator.alternatives(line, prefix, count, search=settings)
        if as_json:
            plain = {"source": line, "prefix": prefix, "alternatives": [one.to_plain() for one in found]}
            print(json.dumps(plain, ensure_ascii=False))
            continue
        for one in found:
            print(f"{number} ||| {one_line(one.text)} ||| {one.score:.4f}")
