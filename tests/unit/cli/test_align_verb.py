"""`regard align` as a user runs it: what it writes, what it scores, and every mistake in one sentence."""

from __future__ import annotations

import gzip
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import regard
import regard.cli.align as verb
from regard.models.transformer import Transformer
from regard.tasks.symmetrising import symmetrise

Command = Callable[..., Any]
SOURCES = ["I saw Tom .", "", "She is here, isn't she?", "   The  dog barks. ", "Why?"]
TARGETS = ["Ich sah Tom .", "", "Sie ist hier, oder?", "Der Hund bellt.", ""]


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, ...]:
    """The arguments that name two small files."""
    (tmp_path / "a.en").write_text("".join(line + "\n" for line in SOURCES), encoding="utf-8")
    (tmp_path / "a.de").write_text("".join(line + "\n" for line in TARGETS), encoding="utf-8")
    return "--src", str(tmp_path / "a.en"), "--tgt", str(tmp_path / "a.de")


def written(links: list[list[tuple[int, int]]]) -> list[str]:
    return [" ".join(f"{i}-{j}" for i, j in pair) for pair in links]


def one_sentence(done: Any, *parts: str) -> None:
    assert done.code != 0
    assert done.out == ""
    assert len(done.err.splitlines()) == 1, done.err
    assert re.fullmatch(r"Error: .+: .+\. .+\.\n", done.err), done.err
    for part in parts:
        assert part in done.err


@pytest.fixture(scope="module")
def other_run(tiny_run: Path, tmp_path_factory: pytest.TempPathFactory, text_files: Any) -> Path:
    """A tiny model of the other direction."""
    from regard.training.progress import Reporter

    folder = tmp_path_factory.mktemp("runs") / "reverse"
    settings = {
        "data": {"valid_size": 20, "test_size": 20, "source_language": "de", "target_language": "en"},
        "tokenizer": {"size": 120},  # other tokens than those of the first model
        "model": {"width": 16, "layers": 1, "heads": 2, "inner": 32},
        "train": {"steps": 3, "batch_tokens": 600, "threads": 1},
    }
    files = {"src": str(text_files.tgt), "tgt": str(text_files.src)}
    regard.train(**files, out=folder, settings=settings, report=Reporter(quiet=True))
    return folder


# --- alignments


def test_a_line_for_each_pair(command: Command, tiny_run: Path, files: tuple[str, ...]) -> None:
    done = command("align", "-m", tiny_run, *files)
    assert (done.code, done.err) == (0, "")
    expected = regard.load(tiny_run).align(SOURCES, TARGETS)
    assert done.out.split("\n") == [*written(expected), ""]
    assert (done.lines[1], done.lines[4]) == ("", "")
    assert done.lines[0]


def test_chunks_change_nothing(
    command: Command, tiny_run: Path, files: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = command("align", "-m", tiny_run, *files).out
    monkeypatch.setattr(verb, "CHUNK_LINES", 2)
    assert command("align", "-m", tiny_run, *files).out == whole


def test_a_file_is_written(command: Command, tiny_run: Path, files: tuple[str, ...], tmp_path: Path) -> None:
    plain = command("align", "-m", tiny_run, *files).out
    out = tmp_path / "out.align"
    done = command("align", "-m", tiny_run, *files, "--out", out)
    assert (done.code, done.out, done.err) == (0, "", "")
    assert out.read_text() == plain
    assert command("align", "-m", tiny_run, *files, "--out", "-").out == plain
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.de", "a.en", "out.align"]


def test_compressed_text_and_standard_input(command: Command, tiny_run: Path, files: tuple[str, ...]) -> None:
    plain = command("align", "-m", tiny_run, *files).out
    source = Path(files[1])
    packed = source.with_suffix(".en.gz")
    packed.write_bytes(gzip.compress(b"\xef\xbb\xbf" + source.read_bytes()))
    assert command("align", "-m", tiny_run, "--src", packed, *files[2:]).out == plain
    assert command("align", "-m", tiny_run, "--src", "-", *files[2:], stdin=source.read_bytes()).out == plain


def test_rules_are_heard(command: Command, tiny_run: Path, files: tuple[str, ...]) -> None:
    translator = regard.load(tiny_run)
    wide = command("align", "-m", tiny_run, *files, "--threshold", 0.1)
    assert wide.lines == written(translator.align(SOURCES, TARGETS, threshold=0.1))
    full = command("align", "-m", tiny_run, *files, "--no-null")
    assert full.lines == written(translator.align(SOURCES, TARGETS, null=False))
    assert wide.out != full.out


@pytest.mark.parametrize("method", ["intersection", "union", "grow-diag-final-and", ""])
def test_two_directions(command: Command, tiny_run: Path, other_run: Path, files: tuple[str, ...], method: str) -> None:
    given = ("--symmetrise", method) if method else ()
    done = command("align", "-m", tiny_run, *files, "--reverse", other_run, "--no-null", *given)
    assert (done.code, done.err) == (0, "")
    forward = regard.load(tiny_run).align(SOURCES, TARGETS, null=False)
    backward = [[(i, j) for j, i in links] for links in regard.load(other_run).align(TARGETS, SOURCES, null=False)]
    joined = [symmetrise(a, b, method or "grow-diag-final-and") for a, b in zip(forward, backward, strict=True)]
    assert done.lines == written(joined)
    assert joined not in (forward, backward)


def test_pairs_too_long_are_counted_and_left_empty(
    command: Command, tiny_run: Path, files: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = command("align", "-m", tiny_run, *files).lines
    monkeypatch.setattr("regard.tasks.alignment.MOST_TOKENS", 12)
    monkeypatch.setattr(verb, "CHUNK_LINES", 2)
    done = command("align", "-m", tiny_run, *files)
    assert done.code == 0
    assert done.lines == [*whole[:2], "", *whole[3:]]
    assert re.fullmatch(
        r"Warning: 1 of 5 pairs are too long and have no links, the first at line 3: a text of .+ tokens is .+\.\n",
        done.err,
    )


def test_pairs_too_long_for_one_direction(
    command: Command, tiny_run: Path, other_run: Path, files: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pair that only one model can read has no links at all."""
    most = len(regard.load(tiny_run).tokenizers.source.encode(SOURCES[2:3])[0])
    assert len(regard.load(other_run).tokenizers.target.encode(SOURCES[2:3])[0]) > most
    given = ("align", "-m", tiny_run, *files, "--reverse", other_run, "--symmetrise", "union")
    assert command(*given).lines[2]
    monkeypatch.setattr("regard.tasks.alignment.MOST_TOKENS", most)
    done = command(*given)
    assert done.lines[2] == ""
    assert done.lines[0]
    assert done.err.startswith("Warning: 1 of 5 pairs are too long and have no links, the first at line 3")


def test_progress_is_for_terminals(
    command: Command, tiny_run: Path, files: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    done = command("align", "-m", tiny_run, *files, "--out", tmp_path / "out")
    assert "\x1b[?25h" in done.err  # a live line was there, and the cursor is shown again
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    with verb._progress(None, None) as progress:
        assert not isinstance(progress, verb.LineProgress)  # links and a live line would write over each other


# --- gold


def gold_of(links: list[list[tuple[int, int]]], first: int = 0) -> str:
    return "".join(" ".join(f"{i + first}-{j + first}" for i, j in pair) + "\n" for pair in links)


def test_scores(command: Command, tiny_run: Path, files: tuple[str, ...], tmp_path: Path) -> None:
    links = regard.load(tiny_run).align(SOURCES, TARGETS)
    count = sum(map(len, links))
    gold, out = tmp_path / "gold", tmp_path / "out"
    gold.write_text(gold_of(links))
    done = command("align", "-m", tiny_run, *files, "--gold", gold)
    assert (done.code, done.err) == (0, "")
    assert done.lines[0] == "AER 0.0000, precision 1.0000, recall 1.0000"
    assert done.lines[1].startswith(f"{count} links in 5 pairs; gold: {count} sure")
    assert len(done.lines) == 2
    gold.write_text(gold_of(links, first=1).replace("-", "?", 1))  # its first link is only a possible one
    given = ("--gold", gold, "--gold-from-one", "--json", "--out", out)
    score = json.loads(command("align", "-m", tiny_run, *files, *given).out)
    assert score == {
        "aer": 0.0, "precision": 1.0, "recall": 1.0, "pairs": 5, "links": count,
        "sure": count - 1, "possible": count, "links_sure": count - 1, "links_possible": count,
    }  # fmt: skip
    assert out.read_text().splitlines() == written(links)


def test_scores_do_not_depend_on_chunks(
    command: Command, tiny_run: Path, files: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gold = tmp_path / "gold"
    gold.write_text("0-0 1-1\n\n2-1 0?0\n1-1\n\n")
    given = ("align", "-m", tiny_run, *files, "--gold", gold, "--json")
    whole = json.loads(command(*given).out)
    assert 0 < whole["aer"] < 1
    monkeypatch.setattr(verb, "CHUNK_LINES", 1)
    assert json.loads(command(*given).out) == whole


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("0-0\n\n1-1 2_2\n\n\n", ["gold, line 3", "'2_2' is not a link"]),
        ("0-0\n\n\n\n\n\n", ["gold", "it has 6 lines, and the text 5"]),
        ("0-0\n\n\n\n", ["gold", "it has 4 lines, and the text 5"]),
        ("4-4\n\n\n\n\n", ["gold, line 1", "4-4 is beyond", "4 and 4", "--gold-from-one"]),
        ("\n0-0\n\n\n\n", ["gold, line 2", "0-0 is beyond", "0 and 0"]),
        ("", ["gold", "is empty"]),
    ],
)
def test_bad_gold(
    command: Command, tiny_run: Path, files: tuple[str, ...], tmp_path: Path, text: str, parts: list[str]
) -> None:
    (tmp_path / "gold").write_text(text)
    out = tmp_path / "out"
    one_sentence(command("align", "-m", tiny_run, *files, "--gold", tmp_path / "gold", "--out", out), *parts)
    assert not out.exists()


# --- mistakes


@pytest.mark.parametrize(
    ("given", "parts"),
    [
        (["--json"], ["--json", "without --gold"]),
        (["--gold-from-one"], ["--gold-from-one", "without --gold"]),
        (["--symmetrise", "union"], ["--symmetrise", "without --reverse"]),
        (["--reverse-tag", "<news>"], ["--reverse-tag", "without --reverse"]),
        (["--symmetrise", "onion", "--reverse", "x"], ["onion", "Did you mean union"]),
        (["--threshold", "1.5"], ["threshold", "1.5"]),
        (["--threshold", "0.5", "--no-null"], ["threshold", "Leave one of the two out"]),
        (["--tag", "<news>"], ["<news>", "not trained with this tag"]),
        (["--model", "absent"], ["absent", "no such folder"]),
        (["--reverse", "absent"], ["absent", "no such folder"]),
        (["--gold", "absent"], ["absent", "no such file"]),
        (["--out", "absent/out"], ["absent", "does not exist"]),
    ],
    ids=lambda value: " ".join(value) if value and value[0].startswith("--") else "",
)
def test_mistakes_in_options(
    command: Command, tiny_run: Path, files: tuple[str, ...], given: list[str], parts: list[str]
) -> None:
    one_sentence(command("align", "-m", tiny_run, *files, *given), *parts)


def test_mistakes_in_files(command: Command, tiny_run: Path, files: tuple[str, ...], tmp_path: Path) -> None:
    def align(*given: object) -> Any:
        return command("align", "-m", tiny_run, *files, *given)

    (tmp_path / "short").write_text("Ich sah Tom.\n")
    (tmp_path / "empty").write_text("")
    (tmp_path / "latin1").write_bytes(b"\xfc\n" * 5)
    one_sentence(align("--tgt", tmp_path / "short"), "not aligned", "5 lines", "1")
    one_sentence(align("--src", tmp_path / "empty"), "empty", "is empty")
    one_sentence(align("--tgt", tmp_path / "latin1"), "latin1, line 1", "not UTF-8")
    one_sentence(align("--src", tmp_path / "absent"), "absent", "no such file")
    one_sentence(align("--src", "-", "--tgt", "-"), "standard input", "both sides")
    one_sentence(align("-m", files[1]), "a.en", "it is a file, not a run folder")
    one_sentence(align("--reverse", tiny_run), "--reverse", "both models translate from en to de", "from de to en")
    before = Path(files[3]).read_bytes()
    one_sentence(align("--out", files[3]), "a.de", "one of the files to read")
    gold = tmp_path / "gold"
    gold.write_text("\n" * 5)
    one_sentence(align("--gold", gold, "--out", gold), "gold", "one of the files to read")
    assert Path(files[3]).read_bytes() == before


def test_what_fails_on_the_way_leaves_no_file(
    command: Command, tiny_run: Path, files: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "out").write_text("from before")
    monkeypatch.setattr(verb, "CHUNK_LINES", 2)
    monkeypatch.setattr(verb, "pharaoh", lambda links: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        command("align", "-m", tiny_run, *files, "--out", tmp_path / "out")
    assert (tmp_path / "out").read_text() == "from before"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.de", "a.en", "out"]


def test_a_model_without_attention(
    command: Command, tiny_run: Path, files: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Transformer, "capabilities", frozenset({"translates"}))
    one_sentence(command("align", "-m", tiny_run, *files), "Transformer has no attention over the source")
