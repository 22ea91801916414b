"""Back-translation and distillation: what pairs are made, what is refused, and going on after a kill."""

from __future__ import annotations

from typing import Any

import pytest
from typer.testing import CliRunner

import regard
from regard.cli import main, synthesise
from regard.core.errors import DataError
from regard.core.search_config import SearchConfig
from regard.tasks import big_files
from regard.tasks.lines import Translation
from regard.tasks.synthetic_pairs import make_pairs


class Teacher:
    """Writes from a table."""

    def __init__(self, table: dict[str, list[str]]):
        self.table = table

    def hypotheses(self, texts, **_: Any) -> list[list[Translation]]:
        found = []
        for text in texts:
            tokens = text.split()
            known = self.table.get(text, [text.upper()])
            found.append([Translation(t, 0.0, -1.0, t.split(), [], tokens, t != "CUT") for t in known])
        return found


TABLE = {"a cat": ["eine Katze", "die Katze"], "loop it": ["ja " * 30], "cut": ["CUT"], "none": [""], "": [""]}


def test_pairs():
    lines = ["a\tcat ", "", "loop it", "cut", "none"]
    made = make_pairs(Teacher(TABLE), "distil", lines, SearchConfig())  # type: ignore[arg-type]
    assert made.content.decode() == "a cat\teine Katze\n"
    assert made.counts == {"pairs": 1, "empty": 1, "refused": 3}
    back = make_pairs(Teacher(TABLE), "back", lines[:1], SearchConfig())  # type: ignore[arg-type]
    assert back.content.decode() == "eine Katze\ta cat\n"
    near = make_pairs(Teacher(TABLE), "distil", lines[:1], SearchConfig(), references=["die Katzen"])  # type: ignore[arg-type]
    assert near.content.decode() == "a cat\tdie Katze\n"


@pytest.fixture
def small_parts(monkeypatch):
    monkeypatch.setattr(big_files, "PART_LINES", 2)
    monkeypatch.setattr(synthesise, "PART_LINES", 2)


def test_a_file_by_the_bundled_model(tmp_path, monkeypatch, small_parts):
    source, out = tmp_path / "text", tmp_path / "pairs.tsv"
    lines = ["Good morning.", "", "Where is the bank?", "He laughed.", "It was late."]
    source.write_text("".join(f"{line}\n" for line in lines))
    plain = regard.load(device="cpu", engine="torch").translate([line for line in lines if line])
    expected = "".join(f"{s}\t{t}\n" for s, t in zip([line for line in lines if line], plain, strict=True))
    made = synthesise.make_pairs
    calls = []

    def breaks(*given: Any, **more: Any) -> Any:
        calls.append(more["first_line"])
        if len(calls) == 2:
            raise KeyboardInterrupt
        return made(*given, **more)

    monkeypatch.setattr(synthesise, "make_pairs", breaks)
    asked = ["distil", str(source), "--out", str(out), "--device", "cpu", "--engine", "torch"]
    CliRunner().invoke(main.app, asked)
    assert not out.exists()
    assert calls == [1, 3]
    other = CliRunner().invoke(main.app, [*asked, "--compute", "int8"])
    assert "engine is not the same" in str(other.exception)
    assert calls == [1, 3]
    result = CliRunner().invoke(main.app, asked)
    assert result.exit_code == 0, result.output
    assert calls == [1, 3, 3, 5]  # the first part is not made again
    assert out.read_text() == expected


def test_references_of_other_lines_are_refused(tmp_path, small_parts):
    path = tmp_path / "references"
    path.write_text("one\ntwo\nthree\n")
    lines = synthesise._Lines(path)
    assert lines.at(0, 2) == ["one", "two"]
    assert lines.at(2, 1) == ["three"]
    assert synthesise._Lines(path).at(2, 1) == ["three"]
    with pytest.raises(DataError, match="as many lines"):
        synthesise._Lines(path).at(0, 1)
    with pytest.raises(DataError, match="as many lines"):
        synthesise._Lines(path).at(2, 2)
