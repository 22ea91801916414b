"""The threat model names tests that exist, for every way in."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")


def test_every_way_in_has_tests_that_exist():
    rows = [line for line in PAGE.splitlines() if line.startswith("|")][2:]
    assert len(rows) >= 13
    for row in rows:
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        assert len(cells) == 4, row
        named = re.findall(r"`(tests/[a-z0-9_/]+\.py)`", cells[3])
        assert named, row
        for name in named:
            assert re.search(
                r"^(async )?def test_|^    def test_", (ROOT / name).read_text(encoding="utf-8"), re.MULTILINE
            ), name


def test_every_verb_that_listens_or_reads_from_afar_is_there():
    for word in ("regard serve", "regard look", "regard data get", "torchrun", "make audit"):
        assert word in PAGE, word


def test_commands_of_the_makefile_exist():
    text = (ROOT / "Makefile").read_text()
    for target in ("audit", "soak"):
        assert re.search(rf"^{target}:", text, re.MULTILINE)
    for path in re.findall(r"\$\(PYTHON\) ((?:tools|benchmarks|docs)/\S+\.py)", text):
        assert (ROOT / path).exists(), path
