"""Every format, packed in every way, and rows that are damaged: text pairs, TSV, CSV, JSON Lines, standard input."""

import csv
import gzip
import io
import json
import lzma
import os
import subprocess
import sys
from pathlib import Path
from xml.sax.saxutils import escape

import pyarrow
import pyarrow.parquet
import pytest
import zstandard

from regard.core.errors import DataError
from regard.data.reading import csv_pairs, lines, open_pairs, opening, reader, spool_input, standard_input
from regard.data.split import Pairs

PACKS = {"": bytes, ".gz": gzip.compress, ".xz": lzma.compress, ".zst": zstandard.ZstdCompressor().compress}
SOURCES = [f'The {i}th house has "{i % 7}" windows, {i % 5}; rooms' + " é" * (i % 3) for i in range(2500)]
TARGETS = [f"Das {i}. Haus hat {i % 7} Fenster & <{i % 5}> Räume" + " ’" * (i % 4) for i in range(2500)]


def refusal(call, *arguments):
    """The sentence with which a call is refused."""
    with pytest.raises(DataError) as caught:
        call(*arguments)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def refused(path, *arguments):
    """The sentence with which the reading of a file is refused."""
    return refusal(lambda: open_pairs([path], *arguments).read())


def as_tsv(sources, targets):
    return "".join(f"{s}\t{t}\n" for s, t in zip(sources, targets, strict=True)).encode()


def as_csv(sources, targets):
    file = io.StringIO(newline="")
    csv.writer(file).writerows([("source", "target"), *zip(sources, targets, strict=True)])
    return file.getvalue().encode()


def as_jsonl(sources, targets):
    rows = zip(sources, targets, strict=True)
    return "".join(json.dumps({"src": s, "tgt": t}) + "\n" for s, t in rows).encode()


def as_tmx(sources, targets):
    units = (
        f'<tu><tuv xml:lang="en"><seg>{escape(s)}</seg></tuv><tuv xml:lang="de"><seg>{escape(t)}</seg></tuv></tu>\n'
        for s, t in zip(sources, targets, strict=True)
    )
    return f'<?xml version="1.0"?><tmx version="1.4"><header/><body>{"".join(units)}</body></tmx>'.encode()


def as_parquet(sources, targets):
    file = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table({"src": sources, "tgt": targets}), file)
    return file.getvalue()


FORMATS = {
    ".tsv": as_tsv,
    ".csv": as_csv,
    ".jsonl": as_jsonl,
    ".ndjson": as_jsonl,
    ".tmx": as_tmx,
    ".parquet": as_parquet,
}


@pytest.mark.parametrize("pack", PACKS)
@pytest.mark.parametrize("ending", FORMATS)
def test_every_format_in_every_packing(tmp_path, ending, pack):
    path = tmp_path / f"corpus{ending}{pack}"
    path.write_bytes(PACKS[pack](FORMATS[ending](SOURCES, TARGETS)))
    reader = open_pairs([path])
    chunks = list(reader.chunks(size=1000))
    assert [len(chunk) for chunk in chunks] == [1000, 1000, 500]
    assert [s for chunk in chunks for s in chunk.sources] == SOURCES
    assert [t for chunk in chunks for t in chunk.targets] == TARGETS
    assert list(reader.chunks(size=1000)) == chunks, "a reader reads again from the beginning"
    assert reader.read() == Pairs(SOURCES, TARGETS)
    assert list(reader.chunks(raw=True)) == [Pairs(SOURCES, TARGETS)]
    assert (reader.names, reader.skipped) == ((str(path),), 0)
    assert reader.size_on_disk() == path.stat().st_size
    upper = tmp_path / f"CORPUS{ending}{pack}".upper()
    os.link(path, upper)
    assert open_pairs([upper]).read() == Pairs(SOURCES, TARGETS)
    other = tmp_path / f"corpus{pack}"
    os.link(path, other)
    assert open_pairs([other], ending[1:].replace("ndjson", "jsonl")).read() == Pairs(SOURCES, TARGETS)


@pytest.mark.parametrize("pack", PACKS)
def test_text_pairs_in_every_packing(tmp_path, pack):
    for name, side in (("a.en", SOURCES), ("a.de", TARGETS)):
        (tmp_path / f"{name}{pack}").write_bytes(PACKS[pack]("".join(f"{line}\n" for line in side).encode()))
    reader = open_pairs([tmp_path / f"a.en{pack}", tmp_path / f"a.de{pack}"])
    chunks = list(reader.chunks(size=600))
    assert [len(chunk) for chunk in chunks] == [600] * 4 + [100]
    assert [s for chunk in chunks for s in chunk.sources] == SOURCES
    assert [t for chunk in chunks for t in chunk.targets] == TARGETS
    assert list(reader.chunks(size=1250)) == [
        Pairs(SOURCES[:1250], TARGETS[:1250]),
        Pairs(SOURCES[1250:], TARGETS[1250:]),
    ]


@pytest.mark.parametrize("ending", FORMATS)
def test_a_long_line_passes_in_every_format(tmp_path, ending):
    path = tmp_path / f"long{ending}"
    long = "word " * 20_000
    path.write_bytes(FORMATS[ending](["short", long.strip()], ["kurz", "lang"]))
    assert open_pairs([path]).read() == Pairs(["short", long.strip()], ["kurz", "lang"])


@pytest.mark.parametrize(("count", "other"), [(3, 2), (2, 3), (5, 2500), (2500, 5), (2500, 2499)])
@pytest.mark.parametrize("size", [1, 2, 7, 2499, 2500, 10_000])
def test_line_counts_must_agree(tmp_path, count, other, size):
    (tmp_path / "a").write_text("\n".join(SOURCES[:count]))
    (tmp_path / "b").write_text("\n".join(TARGETS[:other]) + "\n")
    reader = open_pairs([tmp_path / "a", tmp_path / "b"])
    assert refusal(lambda: list(reader.chunks(size=size))) == (
        f"{tmp_path / 'a'} and {tmp_path / 'b'}: the files are not aligned, "
        f"the first has {count} lines and the second {other}. "
        "Give files in which line n of one is the translation of line n of the other."
    )
    chunks = list(reader.chunks(size=size, raw=True))
    assert [s for chunk in chunks for s in chunk.sources] == SOURCES[:count]
    assert [t for chunk in chunks for t in chunk.targets] == TARGETS[:other]
    for chunk in chunks[: min(count, other) // size]:
        assert len(chunk.sources) == len(chunk.targets) == size
    assert all(max(len(chunk.sources), len(chunk.targets)) == size for chunk in chunks[:-1])


def test_chunks_of_long_lines_are_cut_short_on_both_sides_alike(tmp_path, monkeypatch):
    monkeypatch.setattr(lines, "MAX_WAITING", 2 << 20)
    monkeypatch.setattr(reader, "MAX_WAITING", 2 << 20)
    sources, targets = ["x" * 100_000 + str(i) for i in range(100)], [f"short {i}" for i in range(100)]
    for ending, write in (("", None), (".tsv", as_tsv), (".jsonl", as_jsonl)):
        path = tmp_path / f"t{ending}"
        if write is None:
            path.write_text("\n".join(sources))
            (tmp_path / "u").write_text("\n".join(targets))
            found = list(open_pairs([path, tmp_path / "u"]).chunks(size=1000))
        else:
            path.write_bytes(write(sources, targets))
            found = list(open_pairs([path]).chunks(size=1000))
        assert 3 < len(found) < 12
        assert all(len(chunk.sources) == len(chunk.targets) for chunk in found)
        assert [s for chunk in found for s in chunk.sources] == sources
        assert [t for chunk in found for t in chunk.targets] == targets


def test_impossible_requests(tmp_path):
    text, table = tmp_path / "a.txt", tmp_path / "a.tsv"
    text.write_text("a\n")
    table.write_text("a\tb\n")
    one = "a single file of plain text holds only one side. Give two files, or name the format of this one"
    assert refusal(open_pairs, [text]) == f"{text}: {one} (tsv, csv, jsonl, tmx, parquet, datasets)."
    assert refusal(open_pairs, [table], "text").startswith(f"{table}: {one}")
    assert refusal(open_pairs, []) == "data: one or two files are expected, got 0. Give a source and a target file."
    assert "got 3" in refusal(open_pairs, [text, text, text])
    assert refusal(open_pairs, [text, table]) == (
        f"{table}: two files are given, and one file of the format tsv holds both sides. "
        "Give it alone, or set the format to text if it is plain text."
    )
    assert refusal(open_pairs, [text, text], "csv").startswith(
        f"{text}: two files are given, and one file of the format"
    )
    assert open_pairs([text, table], "text").read() == Pairs(["a"], ["a\tb"])
    assert refusal(open_pairs, [table], "jsnl") == (
        "format jsnl: there is no such format. "
        "Did you mean jsonl? Known: auto, text, tsv, csv, jsonl, tmx, parquet, datasets."
    )
    assert refusal(open_pairs, [text, text], "text", ["0", "1"]) == (
        f"{text}: plain text has no columns to choose from. Leave the columns away."
    )
    for columns in (["0"], ["0", "0"], ["0", "1", "2"]):
        assert refusal(open_pairs, [table], "tsv", columns) == (
            f"{table}: two different columns are expected, got {', '.join(columns)}. "
            "Name the column of the source and that of the target."
        )
    assert "no such file" in refusal(open_pairs, [tmp_path / "missing.tsv"])
    with pytest.raises(ValueError, match="chunk of 0"):
        next(open_pairs([table]).chunks(size=0))


def test_tsv_columns(tmp_path):
    path = tmp_path / "t.tsv"
    path.write_text('id\t"a\tb\tmore\r\nid\tc\td\n')
    assert open_pairs([path], columns=["2", "1"]).read() == Pairs(["b", "d"], ['"a', "c"])
    assert open_pairs([path], columns=[0, 3 - 1]).read() == Pairs(["id", "id"], ["b", "d"])
    assert refused(path, "tsv", ["0", "3"]) == (
        f"{path}, line 2: 4 tab-separated columns are expected, got 3. Mend that line, or choose other columns."
    )
    path.write_bytes(b"\xef\xbb\xbfid\ten\tde\r\n1\tone\teins\r\n2\ttwo\tzwei\r\n")
    for raw, end in ((False, ""), (True, "\r")):
        (chunk,) = open_pairs([path], columns=["de", "id"]).chunks(raw=raw)
        assert chunk == Pairs([f"eins{end}", f"zwei{end}"], ["1", "2"])
    assert (
        refused(path, "tsv", ["en", "fr"]) == f"{path}, line 1: the header has no column fr. Choose two of: id, en, de."
    )


def test_a_short_tsv_line_far_into_the_file_is_named(tmp_path):
    path = tmp_path / "t.tsv"
    path.write_bytes(b"some words here\tand there\n" * 90_000 + b"no tab\n" + b"a\tb\n")
    for raw in (False, True):
        said = refusal(lambda raw=raw: list(open_pairs([path]).chunks(raw=raw)))
        assert said.startswith(f"{path}, line 90001: 2 tab-separated columns are expected, got 1.")


@pytest.mark.parametrize(
    ("content", "columns", "sources", "targets"),
    [
        ("source,target\na,b\n", (), ["a"], ["b"]),
        ("id,tgt,src\n1,b,a\n", (), ["a"], ["b"]),
        ("id;EN;de-AT\n1;a;b\n", (), ["a"], ["b"]),
        ("deu_Latn,score,eng_Latn\na,1,b\n", (), ["a"], ["b"]),
        ("German\tEnglish\na\tb\n", (), ["a"], ["b"]),
        ("Hello.,Hallo.\na,b\n", (), ["Hello.", "a"], ["Hallo.", "b"]),
        ('"Well, well; yes",Na ja\na,b\n', (), ["Well, well; yes", "a"], ["Na ja", "b"]),
        ("Hello, you, there;Hallo\na, c;b\n", (), ["Hello, you, there", "a, c"], ["Hallo", "b"]),
        ("one,two,three\na,b,c\n", ("three", "one"), ["c"], ["a"]),
        ("one;two,too;three\na;b;c\n", ("three", "one"), ["c"], ["a"]),
        ("x,y,z\na,b,c\n", ("2", "0"), ["z", "c"], ["x", "a"]),
        ("x;y;z, w\na;b;c\n", ("2", "0"), ["z, w", "c"], ["x", "a"]),
        ("source,target,z\na,b,c\n", ("1", "2"), ["b"], ["c"]),
        ('source,target\r\n"a ""quoted"" line\r\nand more",b\r\n', (), ['a "quoted" line and more'], ["b"]),
        ('source,target\n"\na\n\n","b\r\rc"\n', (), ["a"], ["b  c"]),
        ('"source\nname",x\na,b\n', ("x", "source\nname"), ["b"], ["a"]),
        ("\ufeffsource,target\na\u2028x,b", (), ["a\u2028x"], ["b"]),
        ("source,target\n,\n", (), [""], [""]),
    ],
)
def test_csv(tmp_path, content, columns, sources, targets):
    path = tmp_path / "t.csv"
    path.write_bytes(content.encode())
    assert open_pairs([path], columns=columns).read() == Pairs(sources, targets)


def test_blank_csv_lines_are_counted(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("source,target\n\na,b\n\n\n")
    reader = open_pairs([path])
    assert reader.read() == reader.read() == Pairs(["a"], ["b"])
    assert reader.skipped == 3


NOT_CSV = "Close each quotation mark, and double those inside quoted text."


@pytest.mark.parametrize(
    ("content", "columns", "said"),
    [
        (
            "source,target\na,b\nc,d,e\n",
            (),
            ", line 3: the row has 3 columns and the first row 2. "
            "Mend that row: text that holds a comma must stand in quotation marks.",
        ),
        (
            'source;target\n"a\nb";c\nd\n',
            (),
            ", line 4: the row has 1 columns and the first row 2. "
            "Mend that row: text that holds a semicolon must stand in quotation marks.",
        ),
        (
            'source,target\na,b\n"c,d\ne,f\n',
            (),
            f", line 3: the row that begins here is not valid CSV (unexpected end of data). {NOT_CSV}",
        ),
        (
            'source,target\na,b\n"c" d,e\n',
            (),
            f""", line 3: the row that begins here is not valid CSV (',' expected after '"'). {NOT_CSV}""",
        ),
        ('"a,b\nc,d\n', (), f", line 1: the row that begins here is not valid CSV (unexpected end of data). {NOT_CSV}"),
        (
            "source,target\na,b\nc,{}\n",
            (),
            f", line 3: the row that begins here is not valid CSV (field larger than field limit (131072)). {NOT_CSV}",
        ),
        (
            "only one column\n",
            (),
            ", line 1: the first row has only one column. Separate the columns with commas, semicolons or tabs.",
        ),
        (
            "Hello; you,Hallo\n",
            (),
            ", line 1: the delimiter is unclear, since the first row holds comma and semicolon. "
            "Begin the file with a header such as source,target.",
        ),
        (
            "1,Hello,Hallo\n",
            (),
            ", line 1: there are 3 columns and no header with known names (such as source,target or en,de). "
            "Choose two with columns, by name or by number from 0.",
        ),
        ("en,de,fr\n1,2,3\n", ("en", "it"), ", line 1: the header has no column it. Choose two of: en, de, fr."),
        ("en,de,en\n1,2,3\n", ("en", "de"), ", line 1: the header has several columns en. Choose two of: en, de, en."),
        ("a,b\n1,2\n", ("0", "2"), ", line 1: there is no column 2, since the row has 2. Count columns from 0."),
        ("source,target\n", (), ": it holds no pairs of text. Give a file with some."),
    ],
)
def test_damaged_csv(tmp_path, content, columns, said):
    path = tmp_path / "t.csv"
    path.write_text(content.replace("{}", "x" * 131_073))
    assert refused(path, "auto", columns) == f"{path}{said}"


def test_an_open_quote_does_not_swallow_the_file(tmp_path, monkeypatch):
    monkeypatch.setattr(csv_pairs, "MAX_LINE_BYTES", 100_000)
    path = tmp_path / "t.csv"
    path.write_text('source,target\na,b\n"c,' + "d\ne,f" * 50_000)
    assert refused(path) == (f"{path}, line 3: the row is longer than 0 MiB. Check that each quotation mark is closed.")


@pytest.mark.parametrize(
    ("first", "columns", "pair"),
    [
        ({"tgt": "b", "src": "a", "note": "c"}, (), ("a", "b")),
        ({"Source": "a", "target": "b", "id": "7"}, (), ("a", "b")),
        ({"id": "7", "translation": {"en": "a", "de": "b"}}, (), ("a", "b")),
        ({"id": 7, "x": "a", "y": "b", "ok": True, "none": None}, (), ("a", "b")),
        ({"translation": {"en": "a", "de": "b", "fr": "c"}}, ("translation.fr", "translation.de"), ("c", "b")),
        ({"a": {"b": {"c": "deep"}}, "a.b": "flat"}, ("a.b.c", "a.b"), ("deep", "flat")),
        ({"src": "two\nlines\r\n", "tgt": "\nand\rmore"}, (), ("two lines", "and more")),
        ({"src": "null \0, feed \x0b, \u2028", "tgt": "\U0001f600"}, (), ("null \0, feed \x0b, \u2028", "\U0001f600")),
    ],
)
def test_jsonl_fields(tmp_path, first, columns, pair):
    path = tmp_path / "t.jsonl"
    path.write_text(f"{json.dumps(first)}\n\n  \r\n{json.dumps(first)}")
    reader = open_pairs([path], columns=columns)
    assert reader.read() == Pairs([pair[0]] * 2, [pair[1]] * 2)
    assert reader.skipped == 2


GOOD = '{"src": "a", "tgt": "b"}\n'
MEND = "Mend that line, or choose other columns."


@pytest.mark.parametrize(
    ("content", "columns", "said"),
    [
        (
            GOOD + '{"src": "a", "tgt": }\n',
            (),
            ", line 2: the line is not valid JSON (Expecting value at column 21). Write one JSON object on each line.",
        ),
        (
            GOOD + GOOD.strip() * 2,
            (),
            ", line 2: the line is not valid JSON (Extra data at column 25). Write one JSON object on each line.",
        ),
        (
            '["a", "b"]\n',
            (),
            ', line 1: a JSON object is expected, got a list. Write lines such as {"src": "…", "tgt": "…"}.',
        ),
        (GOOD + '{"src": "a"}\n', (), f", line 2: the value of tgt is not a text but null or missing. {MEND}"),
        (GOOD + '{"src": 5, "tgt": "b"}\n', (), f", line 2: the value of src is not a text but a number. {MEND}"),
        (GOOD + '{"src": "a", "tgt": {}}\n', (), f", line 2: the value of tgt is not a text but an object. {MEND}"),
        (
            '{"src": "a", "src": "c", "tgt": "b"}\n',
            (),
            ", line 1: the line is not valid JSON (the key src stands twice in one object). "
            "Write one JSON object on each line.",
        ),
        (
            GOOD + '{"src": "a", "tgt": "b", "n": ' + "9" * 5000 + "}\n",
            (),
            ", line 2: the line is not valid JSON (Exceeds the limit (4300 digits) for integer string conversion: "
            "value has 5000 digits; use sys.set_int_max_str_digits() to increase the limit). "
            "Write one JSON object on each line.",
        ),
        (
            GOOD + '{"src": "a", "tgt": "b", "n": ' + "[" * 200_000 + "]" * 200_000 + "}\n",
            (),
            ", line 2: the line is nested too deeply. Write one flat JSON object on each line.",
        ),
        (
            GOOD + '{"src": "a\\ud800b", "tgt": "b"}\n',
            (),
            ", line 2: the text of src holds half a character (\\ud800, a lone surrogate). Mend or remove that line.",
        ),
        (
            '{"a": "1", "b": "2", "c": {"d": "3", "e": 4}, "f": "5"}\n',
            (),
            ", line 1: which fields hold the two sides is unclear (known are src and tgt, source and target, "
            "or an object translation with two languages). Choose two with columns, from: a, b, c.d, f.",
        ),
        (GOOD, ("src", "trg"), ", line 1: there is no text under trg. Choose two of: src, tgt."),
        ("\n \n", (), ": it holds no pairs of text. Give a file with some."),
    ],
)
def test_damaged_jsonl(tmp_path, content, columns, said):
    path = tmp_path / "t.jsonl"
    path.write_text(content)
    assert refused(path, "auto", columns) == f"{path}{said}"


def test_raw_json_keeps_lone_surrogates(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_text('{"src": "a\\ud800b", "tgt": "\\u0007\\ud83d\\ude00"}\n')
    assert list(open_pairs([path]).chunks(raw=True)) == [Pairs(["a\ud800b"], ["\x07\U0001f600"])]


class Input:
    """A standard input that is no terminal."""

    def __init__(self, content, terminal=False):
        self.buffer, self.closed, self.isatty = io.BytesIO(content), False, lambda: terminal


@pytest.mark.parametrize("pack", PACKS)
@pytest.mark.parametrize("format", ["tsv", "csv", "jsonl", "tmx", "parquet"])
def test_standard_input(monkeypatch, tmp_path, format, pack):
    monkeypatch.setattr(opening.tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(sys, "stdin", Input(PACKS[pack](FORMATS[f".{format}"](SOURCES, TARGETS))))
    reader = open_pairs(["-"], format)
    assert reader.names == ("standard input",)
    assert reader.read() == reader.read() == Pairs(SOURCES, TARGETS)
    (folder,) = tmp_path.iterdir()
    assert folder.stat().st_mode & 0o077 == 0, "others must not read it"
    assert sum(1 for _ in folder.iterdir()) == 1


def test_standard_input_for_one_of_two_sides(monkeypatch, tmp_path):
    path = tmp_path / "a"
    path.write_text("1\n2\n")
    for paths, found in ((["-", path], Pairs(["x", "y"], ["1", "2"])), ([path, "-"], Pairs(["1", "2"], ["x", "y"]))):
        monkeypatch.setattr(sys, "stdin", Input(gzip.compress(b"x\ny\n")))
        assert open_pairs(paths).read() == found
    assert refusal(open_pairs, ["-", "-"]) == (
        "standard input: it is given for both sides. Give a file for one of them."
    )


def test_the_copy_of_standard_input_goes_with_its_reader(tmp_path):
    program = (
        "import gc; from pathlib import Path; from regard.data.reading import open_pairs\n"
        f"folder = Path({str(tmp_path)!r}); reader = open_pairs(['-'], 'tsv'); pairs = reader.read()\n"
        "assert len(list(folder.iterdir())) == 1; print(pairs.sources, pairs.targets)\n"
        "try: open_pairs(['-'], 'tsv')\n"
        "except Exception as error: print(error)\n"
        "assert len(list(folder.iterdir())) == 1\n"
    )
    environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(
        [sys.executable, "-c", program], input=b"a\tb\n", capture_output=True, env=environment, check=False
    )
    assert done.stderr == b""
    assert done.stdout.decode().splitlines() == [
        "['a'] ['b']",
        "standard input: it is empty. Pipe text into the command, or name a file.",
    ]
    assert list(tmp_path.iterdir()) == []


def test_bad_standard_input(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "stdin", Input(b"", terminal=True))
    assert refusal(spool_input, tmp_path, "tsv") == (
        "standard input: it is a terminal, not a pipe or a file. Pipe text into the command, or name a file."
    )
    monkeypatch.setattr(sys, "stdin", None)
    assert "standard input: it is closed." in refusal(spool_input, tmp_path, "tsv")
    assert refusal(open_pairs, ["-"]) == (
        "standard input: its format is not known. "
        "Give two files, or name the format of this one (tsv, csv, jsonl, tmx, parquet, datasets)."
    )
    monkeypatch.setattr(sys, "stdin", Input(b"a\tb\n" * 1000))
    monkeypatch.setattr(standard_input, "MAX_INPUT_BYTES", 1000)
    assert "standard input: it holds more than 0 MiB." in refusal(spool_input, tmp_path, "tsv")
    assert "cannot be kept in" in refusal(spool_input, tmp_path / "missing", "tsv")
    assert list(tmp_path.iterdir()) == [], "nothing half-written is left"
    monkeypatch.setattr(sys, "stdin", Input(b"a b\n"))
    assert "standard input, line 1: 2 tab-separated" in refusal(lambda: open_pairs(["-"], "tsv").read())


def test_a_full_disk_while_standard_input_is_kept(monkeypatch, tmp_path):
    if not Path("/dev/full").exists():
        pytest.skip("there is no /dev/full")
    monkeypatch.setattr(sys, "stdin", Input(b"a\tb\n" * 100_000))
    real = standard_input.tempfile.mkstemp

    def full(**settings):
        handle, name = real(**settings)
        os.close(handle)
        return os.open("/dev/full", os.O_WRONLY), name

    monkeypatch.setattr(standard_input.tempfile, "mkstemp", full)
    assert refusal(spool_input, tmp_path, "tsv") == (
        f"standard input: it cannot be kept in {tmp_path} (No space left on device). Make room there, or name a file."
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("pack", PACKS)
def test_the_name_of_the_copy_says_what_it_is(monkeypatch, tmp_path, pack):
    monkeypatch.setattr(sys, "stdin", Input(PACKS[pack](b"a\tb\n")))
    place = spool_input(tmp_path, "tsv")
    assert place.parent == tmp_path
    assert place.name.startswith("stdin-")
    assert place.name.endswith(f".tsv{pack}")
    assert list(tmp_path.iterdir()) == [place]
    assert open_pairs([place]).read() == Pairs(["a"], ["b"])
