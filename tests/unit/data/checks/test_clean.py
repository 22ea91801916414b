"""Cleaning: what is dropped is listed with its reason, everything adds up, and nothing is left half-written."""

from __future__ import annotations

import csv
import errno
import gzip
import io
import json
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import regard.data.checks.clean as clean_module
import regard.data.checks.clean_folder as folder_module
from regard.core.errors import ConfigError, DataError
from regard.data.checks.alignment import Misaligned, Piece
from regard.data.checks.clean import FILTERS, CleanResult, clean_pairs
from regard.data.checks.clean_folder import check_place, escaped, output_names
from regard.data.checks.findings import FINDINGS
from regard.data.checks.mend import MENDS
from regard.data.reading import open_pairs
from regard.data.split import Pairs

Row = dict[str, str]


def whole_pairs(count: int = 1200) -> Pairs:
    """Different sentences from all over the bundled corpus, none of which any filter drops."""
    return _whole_pairs(1200).take(list(range(0, 1200, 1200 // count)))


@cache
def _whole_pairs(count: int) -> Pairs:
    pairs = open_pairs(["bundled:tatoeba-en-de"]).read()
    chosen = pairs.take(list(range(0, len(pairs), len(pairs) // (2 * count))))
    seen: set[str] = set()
    fine = []
    for i, (source, target) in enumerate(zip(chosen.sources, chosen.targets, strict=True)):
        plain = source.isprintable() and target.isprintable() and not any(c.isdigit() for c in source + target)
        if plain and 4 <= len(source.split()) <= 20 and source not in seen and 0.5 < len(target) / len(source) < 2:
            fine.append(i)
            seen.add(source)
    return chosen.take(fine[:count])


def write(folder: Path, pairs: Pairs, names: tuple[str, str] = ("text.en", "text.de")) -> list[Path]:
    files = [folder / name for name in names]
    for file, lines in zip(files, (pairs.sources, pairs.targets), strict=True):
        content = "".join(line + "\n" for line in lines).encode("utf-8", "surrogateescape")
        file.write_bytes(gzip.compress(content) if file.suffix == ".gz" else content)
    return files


PLAIN = {name for name, on in FILTERS.items() if on} - {"misaligned"}  # judging the alignment takes a while


def clean(folder: Path, pairs: Pairs, filters: Collection[str] | None = PLAIN, **options: Any) -> CleanResult:
    """Cleans without a look at the alignment; with it where `filters` is None, which stands for the usual ones."""
    return clean_pairs(open_pairs(write(folder, pairs)), folder / "out", filters=filters, **options)


def rows(result: CleanResult, name: str = "dropped.tsv") -> list[Row]:
    text = (result.folder / name).read_text(encoding="utf-8")
    return list(csv.DictReader(io.StringIO(text), delimiter="\t", quoting=csv.QUOTE_NONE))


def written(result: CleanResult) -> Pairs:
    sides = [(result.folder / name).read_bytes().decode("utf-8").split("\n") for name in result.files]
    assert [side.pop() for side in sides] == ["", ""]
    return Pairs(*sides)


def adds_up(result: CleanResult) -> None:
    """Every line that was read is in the clean text or in the list, once."""
    listed = rows(result)
    assert result.kept == len(written(result).sources) == len(written(result).targets)
    assert Counter(row["reason"] for row in listed) == result.dropped
    for side, read in (("source", result.source_lines), ("target", result.target_lines)):
        numbers = [int(row[f"{side}_line"]) for row in listed if row[f"{side}_line"]]
        assert len(numbers) == len(set(numbers))
        assert result.kept + len(numbers) == read
        assert all(1 <= number <= read for number in numbers)


# What is kept ---------------------------------------------------------------------------------------------------------


def test_a_clean_corpus_stays_as_it_is(tmp_path: Path) -> None:
    pairs = whole_pairs()
    result = clean(tmp_path, pairs, filters=None)
    assert rows(result) == []
    assert written(result) == pairs
    assert (result.kept, result.dropped, result.mended, result.misaligned) == (len(pairs), {}, {}, ())
    adds_up(result)


BAD: dict[str, tuple[str, str]] = {
    "not-utf8": ("The old gate stands open again.", "Das alte Tor steht wieder offen, sch\udcf6n."),
    "empty-pairs": ("", "  "),
    "empty-side": ("Nobody has translated this sentence.", ""),
    "mojibake": ("The product is five times three.", "Das Produkt ist 5 Ã— 3 oder noch ein wenig mehr."),
    "replacement-characters": ("The bridge is closed for repairs.", "Die Br\ufffdcke ist wegen Reparaturen gesperrt."),
    "control-characters": ("The letter has a private sign.", "Der Brief hat ein eigenes Zeichen \ue000 am Ende."),
    "copied-source": ("The weather is very fine today.", "The weather is very fine today."),
    "wrong-script": ("The boat left the harbour at night.", "Лодка ушла из гавани поздно ночью."),
    "wrong-language": (
        "Die Nachbarn haben gestern den ganzen Abend im Garten gesungen und getanzt.",
        "Die Nachbarn sangen gestern bis in die Nacht hinein im Garten und tanzten.",
    ),
    "long-lines": ("The " + "very " * 1200 + "long way.", "Der " + "sehr " * 1200 + "lange Weg."),
    "length-ratio": ("Go there.", "Geh bitte dorthin, " + "und zwar bald, " * 12 + "ehe es zu spät ist."),
    "unbalanced-markup": ("Press <b>here to go on.", "Drück <b>hier, um weiterzugehen."),
    "different-markup": ("Press <b>here</b> to go on now.", "Drück hier, um jetzt weiterzugehen."),
}


def with_bad_lines(pairs: Pairs, names: Collection[str]) -> tuple[Pairs, dict[str, int]]:
    """The pairs with a bad one of each name among them, and the numbers of these lines."""
    bad = Pairs([*pairs.sources], [*pairs.targets])
    for place, name in enumerate(names):
        bad.sources.insert(100 + 80 * place, BAD[name][0])
        bad.targets.insert(100 + 80 * place, BAD[name][1])
    return bad, {name: 101 + 80 * place for place, name in enumerate(names)}


def test_each_filter_drops_its_line_and_no_other(tmp_path: Path) -> None:
    pairs = whole_pairs()
    bad, numbers = with_bad_lines(pairs, BAD)
    result = clean(tmp_path, bad, filters=None)
    listed = rows(result)
    assert {row["reason"]: (row["source_line"], row["target_line"]) for row in listed} == {
        name: (str(number), str(number)) for name, number in numbers.items()
    }
    assert [(row["source"], row["target"]) for row in listed] == [tuple(map(escaped, BAD[name])) for name in BAD]
    assert written(result) == pairs
    adds_up(result)


def test_filters_that_are_not_asked_for_keep_their_lines(tmp_path: Path) -> None:
    names = ["copied-source", "wrong-script", "long-lines", "unbalanced-markup", "mojibake", "length-ratio"]
    bad, _ = with_bad_lines(whole_pairs(), names)
    others = PLAIN - {*names, "wrong-language", "foreign-language", "different-markup"}
    result = clean(tmp_path, bad, filters=others)
    assert written(result) == bad
    assert result.dropped == {}


def test_duplicates_keep_their_first_copy(tmp_path: Path) -> None:
    pairs = whole_pairs(400)
    again = Pairs([*pairs.sources, pairs.sources[7], pairs.sources[7] + " "], [*pairs.targets, *[pairs.targets[7]] * 2])
    result = clean(tmp_path, again)
    assert result.dropped == {"duplicates": 2}  # the spaces are mended first
    assert [row["source_line"] for row in rows(result)] == ["401", "402"]
    assert written(result) == pairs


def test_near_duplicates_are_dropped_when_asked_for(tmp_path: Path) -> None:
    pairs = whole_pairs(400)
    again = Pairs([*pairs.sources, pairs.sources[7].upper()], [*pairs.targets, pairs.targets[7]])
    (tmp_path / "a").mkdir()
    assert clean(tmp_path / "a", again).dropped == {}
    (tmp_path / "b").mkdir()
    chosen = PLAIN | {"near-duplicates"}
    assert clean(tmp_path / "b", again, filters=chosen).dropped == {"near-duplicates": 1}


def test_a_copy_of_a_dropped_line_is_judged_by_itself(tmp_path: Path) -> None:
    pairs = whole_pairs(400)
    bad = BAD["copied-source"]
    result = clean(tmp_path, Pairs([*pairs.sources, bad[0], bad[0]], [*pairs.targets, bad[1], bad[1]]))
    assert result.dropped == {"copied-source": 2}


def test_a_dropped_line_is_no_first_copy(tmp_path: Path) -> None:
    pairs = whole_pairs(400)
    bad = BAD["control-characters"]
    both = Pairs([*pairs.sources, bad[0], bad[0]], [*pairs.targets, bad[1], bad[1].replace("\ue000 ", "")])
    result = clean(tmp_path, both, filters={"control-characters", "duplicates", "near-duplicates"})
    assert result.dropped == {"control-characters": 1}
    assert written(result).sources[-1] == bad[0]


def test_the_first_reason_is_the_one_that_is_listed(tmp_path: Path) -> None:
    pairs = whole_pairs(400)
    long = "The " + "very " * 1200 + "long way."
    result = clean(tmp_path, Pairs([*pairs.sources, long], [*pairs.targets, long]))
    assert result.dropped == {"copied-source": 1}
    adds_up(result)


def test_different_numbers_are_dropped_when_asked_for(tmp_path: Path) -> None:
    pairs = whole_pairs(400)
    bad = Pairs([*pairs.sources, "The train leaves at 250."], [*pairs.targets, "Der Zug fährt um 417 ab."])
    chosen = PLAIN | {"different-numbers"}
    assert clean(tmp_path, bad, filters=chosen).dropped == {"different-numbers": 1}


def test_leaks_are_dropped(tmp_path: Path) -> None:
    pairs = whole_pairs(400)
    (tmp_path / "held").mkdir()
    valid = open_pairs(write(tmp_path / "held", pairs.head(3)))
    other = Pairs(pairs.sources[5:6], ["Etwas ganz anderes steht hier."])
    test = open_pairs(write(tmp_path / "held", other, ("t.en", "t.de")))
    result = clean(tmp_path, pairs, held_out={"valid": valid, "test": test})
    assert result.dropped == {"leaked-pairs": 3, "leaked-sources": 1}
    assert [int(row["source_line"]) for row in rows(result)] == [1, 2, 3, 6]
    adds_up(result)
    report = json.loads((result.folder / "report.json").read_text(encoding="utf-8"))
    assert list(report["held_out"]) == ["valid", "test"]


# Mends ----------------------------------------------------------------------------------------------------------------


def test_mends_are_done_counted_and_listed(tmp_path: Path) -> None:
    pairs = whole_pairs(400)
    bad = Pairs([*pairs.sources], [line + "\r" for line in pairs.targets])
    bad.sources[0] = "\ufeff" + bad.sources[0]
    bad.sources[4] = "The  houses \x07are\u200b old."
    bad.targets[4] = "Die HÃ¤user sind schÃ¶n alt.\r"
    result = clean(tmp_path, bad)
    assert result.dropped == {}
    assert result.mended == {
        "byte-order-marks": 1, "crlf": 400, "mojibake": 1, "control-characters": 1, "invisible-characters": 1,
        "white-space": 1,
    }  # fmt: skip
    clean_text = written(result)
    assert clean_text.sources[0] == pairs.sources[0]
    assert (clean_text.sources[4], clean_text.targets[4]) == ("The houses are old.", "Die Häuser sind schön alt.")
    assert rows(result, "changes.tsv") == [
        {
            "side": "source", "line": "5", "mends": "control-characters,invisible-characters,white-space",
            "before": "The  houses \\u0007are\u200b old.", "after": "The houses are old.",
        },
        {
            "side": "target", "line": "5", "mends": "crlf,mojibake", "before": "Die HÃ¤user sind schÃ¶n alt.\\r",
            "after": "Die Häuser sind schön alt.",
        },
    ]  # fmt: skip


def test_without_mends_the_lines_stay(tmp_path: Path) -> None:
    pairs = whole_pairs(400)
    bad = Pairs(
        [*pairs.sources[:-1], "The  old  houses are here."], [*pairs.targets[:-1], "Die  alten Häuser sind hier."]
    )
    result = clean(tmp_path, bad, mends=False)
    assert written(result) == bad
    assert result.mended == {}


def test_bytes_that_are_not_utf8_never_reach_the_clean_text(tmp_path: Path) -> None:
    pairs = whole_pairs(400)
    bad = Pairs([*pairs.sources, BAD["not-utf8"][0]], [*pairs.targets, BAD["not-utf8"][1]])
    result = clean(tmp_path, bad, filters=[], mends=False)
    assert result.dropped == {"not-utf8": 1}
    assert rows(result)[0]["target"].endswith("sch\\xF6n.")
    adds_up(result)


def test_half_characters_of_json_never_reach_the_clean_text(tmp_path: Path) -> None:
    pairs = whole_pairs(400)
    lines = [{"src": s, "tgt": t} for s, t in zip(pairs.sources, pairs.targets, strict=True)]
    lines.append({"src": "Half a sign \ud83d is here.", "tgt": "Ein halbes Zeichen ist hier."})
    file = tmp_path / "pairs.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="ascii")
    result = clean_pairs(open_pairs([file], columns=("src", "tgt")), tmp_path / "out", filters=[])
    assert result.dropped == {"lone-surrogates": 1}
    assert result.files == ("pairs.src", "pairs.tgt")
    assert rows(result)[0]["source"] == "Half a sign \\uD83D is here."
    adds_up(result)


# Misalignment ---------------------------------------------------------------------------------------------------------


def mispaired(result: CleanResult, pairs: Pairs) -> int:
    partner = dict(zip(pairs.sources, pairs.targets, strict=True))
    text = written(result)
    return sum(partner[source] != target for source, target in zip(text.sources, text.targets, strict=True))


def test_a_missing_line_is_repaired_though_the_files_differ_in_length(tmp_path: Path) -> None:
    pairs = whole_pairs()
    result = clean(tmp_path, Pairs([*pairs.sources], pairs.targets[:600] + pairs.targets[601:]), filters=None)
    assert (result.source_lines, result.target_lines) == (1200, 1199)
    assert mispaired(result, pairs) == 0
    assert result.kept >= 1185
    assert set(result.dropped) == {"misaligned"}
    assert "601" in {row["source_line"] for row in rows(result)}
    adds_up(result)


def test_a_missing_line_that_is_compensated_later_is_repaired(tmp_path: Path) -> None:
    pairs = whole_pairs()
    targets = (
        pairs.targets[:400] + pairs.targets[401:800] + ["Dieser Satz gehört hier gar nicht hin."] + pairs.targets[800:]
    )
    result = clean(tmp_path, Pairs([*pairs.sources], targets), filters=None)
    assert mispaired(result, pairs) == 0
    assert result.kept >= 1170
    adds_up(result)


def test_misaligned_lines_can_be_kept(tmp_path: Path) -> None:
    pairs = whole_pairs()
    shifted = pairs.targets[:600] + pairs.targets[601:] + pairs.targets[600:601]
    filters = PLAIN - {"length-ratio"}
    result = clean(tmp_path, Pairs([*pairs.sources], shifted), filters=filters)
    assert result.kept == 1200
    assert result.misaligned == ()


@pytest.mark.parametrize(("chosen", "lines"), [(None, 1160), (["duplicates"], 900)])
def test_files_of_different_length_without_an_explanation_are_refused(
    tmp_path: Path, chosen: list[str] | None, lines: int
) -> None:
    pairs = whole_pairs()
    with pytest.raises(DataError, match=rf"text\.de: the first has 1,200 lines and the second {lines:,}, and "):
        clean(tmp_path, Pairs([*pairs.sources], pairs.targets[:lines]), filters=chosen)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["text.de", "text.en"]


@pytest.mark.parametrize("chunk", [3, 10_000])
def test_lines_between_the_pieces_are_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    pairs = whole_pairs(400)
    damage = (Misaligned(10, 400, -2, 99.0, (5, 12), (400, 400)),)
    real: Callable[..., Any] = clean_module.judge
    pieces = [Piece(12, 10, 388), Piece(0, 0, 5)]  # in any order
    monkeypatch.setattr(clean_module, "_CHUNK", chunk)
    monkeypatch.setattr(clean_module, "judge", lambda features: replace(real(features), damage=damage))
    monkeypatch.setattr(clean_module, "repair", lambda *_: pieces)
    targets = pairs.targets[:398]
    targets[100] = ""
    result = clean(tmp_path, Pairs([*pairs.sources], targets), filters=["misaligned", "empty-side"])
    assert result.misaligned == damage
    assert result.dropped == {"misaligned": 7, "empty-side": 1}
    listed = rows(result)
    assert [listed[7][name] for name in ("source_line", "target_line")] == ["103", "101"]
    del listed[7]
    assert [row["source_line"] for row in listed] == ["6", "7", "8", "9", "10", "11", "12"]
    assert [row["target_line"] for row in listed] == ["6", "7", "8", "9", "10", "", ""]
    assert [row["target"] for row in listed] == [*pairs.targets[5:10], "", ""]
    text = written(result)
    assert text.sources == pairs.sources[:5] + pairs.sources[12:102] + pairs.sources[103:]
    assert text.targets == pairs.targets[:5] + pairs.targets[10:100] + pairs.targets[101:398]
    adds_up(result)


def test_of_pieces_in_another_order_the_most_lines_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = whole_pairs(400)
    moved = Pairs(
        [*pairs.sources], pairs.targets[:50] + pairs.targets[100:300] + pairs.targets[50:100] + pairs.targets[300:]
    )
    pieces = [Piece(0, 0, 50), Piece(50, 250, 50), Piece(100, 50, 200), Piece(300, 300, 100)]
    monkeypatch.setattr(clean_module, "repair", lambda *_: pieces)
    result = clean(tmp_path, moved, filters=None)
    assert (result.kept, result.dropped) == (350, {"misaligned": 100})  # 50 of each side, which stand apart
    assert written(result).sources == pairs.sources[:50] + pairs.sources[100:]
    assert mispaired(result, pairs) == 0
    adds_up(result)


def test_the_longest_chain_of_pieces_is_found() -> None:
    pieces = [Piece(0, 50, 30), Piece(40, 0, 5), Piece(60, 100, 10), Piece(80, 60, 4)]
    assert clean_module._in_order(pieces[::-1]) == [pieces[0], pieces[2]]
    assert clean_module._in_order([]) == []


def test_sides_that_never_fit_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clean_module, "repair", lambda *_: [])
    with pytest.raises(DataError, match="no line of the two sides belongs to the other side"):
        clean(tmp_path, whole_pairs(400), filters=None)
    assert not (tmp_path / "out").exists()


def test_the_size_of_the_chunks_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = whole_pairs(400)
    bad = Pairs([*pairs.sources, *(b[0] for b in BAD.values())], [*pairs.targets, *(b[1] for b in BAD.values())])
    results = []
    for chunk in (17, 10_000):
        monkeypatch.setattr(clean_module, "_CHUNK", chunk)
        folder = tmp_path / str(chunk)
        folder.mkdir()
        result = clean(folder, bad)
        assert len(result.dropped) > 8
        adds_up(result)
        results.append([(result.folder / name).read_bytes() for name in (*result.files, "dropped.tsv", "changes.tsv")])
    assert results[0] == results[1]


# The folder -----------------------------------------------------------------------------------------------------------


def test_the_report_says_what_was_done(tmp_path: Path) -> None:
    reader = open_pairs(write(tmp_path, whole_pairs(400)))
    result = clean_pairs(reader, tmp_path / "out", command="regard data clean text.en text.de --out out")
    report = json.loads((result.folder / "report.json").read_text(encoding="utf-8"))
    assert report["command"] == "regard data clean text.en text.de --out out"
    assert report["inputs"]["sha256"] == reader.content_hash()
    assert report["read"] == {"source_lines": 400, "target_lines": 400}
    assert report["kept"] == result.kept
    assert set(report["mends"]) == set(MENDS)
    assert "near-duplicates" not in report["filters"]
    assert "misaligned" in report["filters"]
    assert sorted(path.name for path in result.folder.iterdir()) == sorted(
        ["text.en", "text.de", "dropped.tsv", "changes.tsv", "report.json"]
    )


def test_the_inputs_are_not_touched(tmp_path: Path) -> None:
    pairs = whole_pairs(400)
    files = write(tmp_path, Pairs([line + "  " for line in pairs.sources], [*pairs.targets]))
    before = [file.read_bytes() for file in files]
    clean_pairs(open_pairs(files), tmp_path / "out", filters=[])
    assert [file.read_bytes() for file in files] == before


def test_packed_files_become_plain_ones(tmp_path: Path) -> None:
    files = write(tmp_path, whole_pairs(400), ("a.en.gz", "a.de.gz"))
    result = clean_pairs(open_pairs(files), tmp_path / "out", filters=[])
    assert result.files == ("a.en", "a.de")
    assert written(result) == whole_pairs(400)


@pytest.mark.parametrize(
    ("inputs", "languages", "names"),
    [
        (["x/a.en", "y/a.de"], ("", ""), ("a.en", "a.de")),
        (["x/text", "y/text"], ("", ""), ("text.src", "text.tgt")),
        (["x/text", "y/TEXT.gz"], ("en", "de"), ("text.en", "text.de")),
        (["pairs.tsv.xz"], ("", ""), ("pairs.src", "pairs.tgt")),
        (["pairs.tmx"], ("en", "de"), ("pairs.en", "pairs.de")),
        (["pairs.tmx"], ("en", "en"), ("pairs.src", "pairs.tgt")),
        (["pairs.tmx"], ("../x", "de"), ("pairs.x", "pairs.de")),
        (["report.json", "b"], ("", ""), ("report.json.src", "report.json.tgt")),
        (["pairs"], ("", ""), ("pairs.src", "pairs.tgt")),
    ],
)
def test_names_of_the_clean_files(inputs: list[str], languages: tuple[str, str], names: tuple[str, str]) -> None:
    assert output_names(inputs, languages) == names


def test_a_place_that_holds_something_is_refused(tmp_path: Path) -> None:
    files = write(tmp_path, whole_pairs(400))
    full, file, empty = tmp_path / "full", tmp_path / "file", tmp_path / "empty"
    full.mkdir()
    (full / "x").touch()
    file.touch()
    empty.mkdir()
    cases: list[tuple[Path, str]] = [
        (full, "the folder is not empty"),
        (file, "it is a file, and a folder is to be made"),
        (files[0], "the text to be cleaned is there"),
        (tmp_path, "the text to be cleaned is there"),
        (tmp_path / "nul\0l", "it cannot be used"),
    ]
    for place, sentence in cases:
        with pytest.raises(DataError, match=sentence):
            clean_pairs(open_pairs(files), place, filters=[])
    assert [p.name for p in full.iterdir()] == ["x"]
    assert clean_pairs(open_pairs(files), empty, filters=[]).kept == 400  # an empty folder is free
    assert check_place(tmp_path / "new" / "deep", files) == (tmp_path / "new" / "deep").resolve()


def test_unknown_names_are_refused_with_the_nearest(tmp_path: Path) -> None:
    reader = open_pairs(write(tmp_path, whole_pairs(400)))
    with pytest.raises(
        ConfigError, match=r"filter 'duplicate': there is none of this name\. Did you mean duplicates\?"
    ):
        clean_pairs(reader, tmp_path / "out", filters=["duplicate"])
    with pytest.raises(ConfigError, match=r"mend 'mojibak': there is none of this name\. Did you mean mojibake\?"):
        clean_pairs(reader, tmp_path / "out", mends=["mojibak"])


def test_filters_are_named_like_the_findings() -> None:
    assert set(FILTERS) <= set(FINDINGS)


def test_escaped_cells() -> None:
    assert escaped("a\tb\nc\rd\\e\x07\udce4\ud83d\u2028ü") == "a\\tb\\nc\\rd\\\\e\\u0007\\xE4\\uD83D\\u2028ü"


# Trouble while writing ------------------------------------------------------------------------------------------------


def left(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_full_disk_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(io.BytesIO):
        room = 30_000

        def write(self, content: Any) -> int:
            if self.tell() + len(content) > self.room:
                raise OSError(errno.ENOSPC, "No space left on device")
            return super().write(content)

        def fileno(self) -> int:
            return 1

    files = write(tmp_path, whole_pairs())
    monkeypatch.setattr(folder_module, "open", lambda *_, **__: Full(), raising=False)
    monkeypatch.setattr(clean_module, "_CHUNK", 100)
    with pytest.raises(DataError, match=r"out: the disk is full\. Make room, or choose another place"):
        clean_pairs(open_pairs(files), tmp_path / "out", filters=[])
    assert left(tmp_path) == ["text.de", "text.en"]


def test_a_disk_that_is_full_at_the_end_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    files = write(tmp_path, whole_pairs(400))
    monkeypatch.setattr(folder_module.os, "fsync", full)
    with pytest.raises(DataError, match="the disk is full"):
        clean_pairs(open_pairs(files), tmp_path / "out", filters=[])
    assert left(tmp_path) == ["text.de", "text.en"]


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    files = write(tmp_path, whole_pairs(400))
    with pytest.raises(DataError, match=r"it cannot be written \(Not a directory\)"):
        clean_pairs(open_pairs(files), files[0] / "out", filters=[])


@pytest.mark.parametrize("stop", [KeyboardInterrupt, RuntimeError])
def test_whatever_stops_it_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop: type[BaseException]
) -> None:
    files = write(tmp_path, whole_pairs(400))
    calls = iter(range(10))
    real: Callable[..., Any] = clean_module.flag_lines

    def stopping(*arguments: Any) -> Any:
        if next(calls) == 2:
            assert any(path.name.startswith(".out.partial-") for path in tmp_path.iterdir())
            raise stop
        return real(*arguments)

    monkeypatch.setattr(clean_module, "_CHUNK", 100)
    monkeypatch.setattr(clean_module, "flag_lines", stopping)
    with pytest.raises(stop):
        clean_pairs(open_pairs(files), tmp_path / "out", filters=[])
    assert left(tmp_path) == ["text.de", "text.en"]


def test_ctrl_c_while_the_files_are_made_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = write(tmp_path, whole_pairs(400))
    real: Callable[..., Any] = open

    def stopping(path: Path, *arguments: Any, **options: Any) -> Any:
        if path.name == "changes.tsv":
            raise KeyboardInterrupt
        return real(path, *arguments, **options)

    monkeypatch.setattr(folder_module, "open", stopping, raising=False)
    with pytest.raises(KeyboardInterrupt):
        clean_pairs(open_pairs(files), tmp_path / "out", filters=[])
    assert left(tmp_path) == ["text.de", "text.en"]


def test_two_at_once_do_not_mix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = write(tmp_path, whole_pairs(400))
    real: Callable[..., Any] = clean_module.flag_lines

    def meanwhile(*arguments: Any) -> Any:
        (tmp_path / "out").mkdir(exist_ok=True)
        (tmp_path / "out" / "theirs").touch()
        return real(*arguments)

    monkeypatch.setattr(clean_module, "flag_lines", meanwhile)
    with pytest.raises(DataError, match="another process has written there meanwhile"):
        clean_pairs(open_pairs(files), tmp_path / "out", filters=[])
    assert left(tmp_path / "out") == ["theirs"]
    assert left(tmp_path) == ["out", "text.de", "text.en"]


def test_a_side_that_was_cut_off_keeps_its_partners(tmp_path):
    """What one side has more at its end was never there on the other; nothing was lost in between."""
    pairs = whole_pairs()
    sources, targets = pairs.sources, pairs.targets
    (tmp_path / "a.en").write_text("".join(line + "\n" for line in sources), encoding="utf-8")
    (tmp_path / "a.de").write_text("".join(line + "\n" for line in targets[:-200]), encoding="utf-8")
    result = clean_pairs(open_pairs([tmp_path / "a.en", tmp_path / "a.de"], "text"), tmp_path / "out")
    assert result.kept >= len(sources) - 210
    kept = (tmp_path / "out" / "a.en").read_text(encoding="utf-8").splitlines()
    assert kept == [line for line in sources[:-200] if line in set(kept)]
    (tmp_path / "b.de").write_text("".join(line + "\n" for line in targets[:-3]), encoding="utf-8")
    with pytest.raises(DataError, match="cannot be found"):
        clean_pairs(open_pairs([tmp_path / "a.en", tmp_path / "b.de"], "text"), tmp_path / "other")


def test_nothing_left_is_an_error_and_leaves_nothing(tmp_path):
    text = "".join(line + "\n" for line in whole_pairs().sources if len(line.split()) > 5)
    for name in ("a.en", "b.en"):
        (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match="no pair is left, most are dropped for copied-source"):
        clean_pairs(open_pairs([tmp_path / "a.en", tmp_path / "b.en"], "text"), tmp_path / "out")
    assert not (tmp_path / "out").exists()
