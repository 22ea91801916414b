"""Reading and dividing corpora: formats, bad input, filters, fingerprints."""

import dataclasses
import gzip
import lzma
import os

import pytest

from regard.core.config import build, to_plain
from regard.core.errors import ConfigError, DataError
from regard.data.bundle import bundled_names, bundled_path
from regard.data.corpus import load_corpus, read_pairs, read_tsv
from regard.data.corpus_config import CorpusConfig, DataConfig
from regard.data.reading import read_lines


@pytest.fixture
def files(tmp_path):
    """A pair of aligned files of 300 lines, with a few empty ones."""
    sources = [f"source number {i}" if i % 50 else "" for i in range(300)]
    targets = [f"Ziel mit der Nummer {i}" if i % 30 else "  " for i in range(300)]
    (tmp_path / "a.en").write_text("\n".join(sources) + "\n", encoding="utf-8")
    (tmp_path / "a.de").write_text("\n".join(targets) + "\n", encoding="utf-8")
    return tmp_path


def test_only_line_feeds_end_a_line(tmp_path):
    odd = "a\u2028b\x0bc\x85d\x0ce\u2029f\x1cg\rh"
    path = tmp_path / "t"
    path.write_bytes(b"\xef\xbb\xbf" + f"{odd}\r\nsecond\n\n\ufefflast".encode())
    assert read_lines(path) == [odd, "second", "", "\ufefflast"]
    path.write_bytes(b"one\ntwo\n")
    assert read_lines(path) == ["one", "two"]


@pytest.mark.parametrize(("name", "pack"), [("t.gz", gzip.compress), ("t.xz", lzma.compress), ("T.XZ", lzma.compress)])
def test_archives(tmp_path, name, pack):
    path = tmp_path / name
    whole = pack("ä\nb\n".encode() * 5000)
    path.write_bytes(whole)
    assert read_lines(path) == ["ä", "b"] * 5000
    path.write_bytes(whole[:-20])
    with pytest.raises(DataError, match="truncated"):
        read_lines(path)
    path.write_bytes(b"this is not an archive at all")
    with pytest.raises(DataError, match="corrupt"):
        read_lines(path)
    path.write_bytes(whole[:40] + bytes([whole[40] ^ 0xFF]) + whole[41:])
    with pytest.raises(DataError, match=r"corrupt|truncated"):
        read_lines(path)
    path.write_bytes(pack(b""))
    with pytest.raises(DataError, match="empty"):
        read_lines(path)
    path.write_bytes(b"")
    with pytest.raises(DataError, match="empty"):
        read_lines(path)


def test_decompressed_size_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr("regard.data.reading.lines.MAX_WHOLE_BYTES", 3 << 20)
    path = tmp_path / "bomb.gz"
    path.write_bytes(gzip.compress(b"a" * (4 << 20)))
    with pytest.raises(DataError, match="more than 3 MiB"):
        read_lines(path)


def test_wrong_encoding_names_line_and_byte(tmp_path):
    path = tmp_path / "t"
    path.write_bytes(b"\xef\xbb\xbfone\ntwo\nf\xfcr\n")
    with pytest.raises(DataError, match=r"line 3: the text is not UTF-8 \(byte 0xfc at offset 12\).*iconv"):
        read_lines(path)
    path.write_bytes("text\n".encode("utf-16"))
    with pytest.raises(DataError, match="UTF-16"):
        read_lines(path)
    path.write_bytes(gzip.compress(b"text\n"))
    with pytest.raises(DataError, match=r"compressed: give its name the ending \.gz"):
        read_lines(path)


def test_unreadable_files(tmp_path):
    with pytest.raises(DataError, match="no such file"):
        read_lines(tmp_path / "missing")
    with pytest.raises(DataError, match="directory"):
        read_lines(tmp_path)
    with pytest.raises(DataError, match="cannot be read"):
        read_lines("a\0b")
    empty = tmp_path / "empty"
    empty.touch()
    with pytest.raises(DataError, match="the file is empty"):
        read_lines(empty)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
def test_forbidden_file(tmp_path):
    path = tmp_path / "t"
    path.write_text("x\n")
    path.chmod(0)
    with pytest.raises(DataError, match="not permitted"):
        read_lines(path)


def test_line_counts_must_agree(tmp_path):
    (tmp_path / "a").write_text("1\n2\n3\n")
    (tmp_path / "b").write_text("1\n2\n")
    with pytest.raises(DataError, match=r"a and .*b: .*3 lines and the second 2"):
        read_pairs(tmp_path / "a", tmp_path / "b")


def test_tsv_columns(tmp_path):
    path = tmp_path / "t.tsv"
    path.write_text('id\t"a\tb\tmore\nid\tc\td\n')
    pairs = read_tsv(path, (2, 1))
    assert (pairs.sources, pairs.targets) == (["b", "d"], ['"a', "c"])
    path.write_text("a\tb\nc\n")
    with pytest.raises(DataError, match=r"line 2: 2 tab-separated columns are expected, got 1"):
        read_tsv(path)


def test_pairs_with_an_empty_side_are_dropped_and_counted(files):
    corpus = load_corpus(DataConfig(folder=str(files), src="a.en", tgt="a.de"))
    assert corpus.dropped == 14  # 6 sources, 10 targets, 2 of them together
    assert len(corpus.train) + len(corpus.valid) + len(corpus.test) == 286
    assert len(corpus.valid) == len(corpus.test) == 28
    assert corpus.files == {"src": str(files / "a.en"), "tgt": str(files / "a.de")}
    both = zip(corpus.train.sources, corpus.train.targets, strict=True)
    assert all(source.split()[-1] == target.split()[-1] for source, target in both)


def test_fingerprint_follows_the_text_and_nothing_else(files):
    plain = DataConfig(folder=str(files), src="a.en", tgt="a.de")
    first = load_corpus(plain).fingerprint
    assert load_corpus(plain).fingerprint == first
    (files / "b.en.gz").write_bytes(gzip.compress((files / "a.en").read_bytes()))
    (files / "b.de").write_bytes((files / "a.de").read_bytes().replace(b"\n", b"\r\n"))
    assert load_corpus(DataConfig(src=str(files / "b.en.gz"), tgt=str(files / "b.de"))).fingerprint == first
    rows = zip(read_lines(files / "a.en"), read_lines(files / "a.de"), strict=True)
    (files / "c.tsv").write_text("".join(f"{target}\t{source}\n" for source, target in rows))
    assert load_corpus(DataConfig(pairs=str(files / "c.tsv"), columns=("1", "0"))).fingerprint == first
    for change in ({"split_seed": 2}, {"valid_size": 5}, {"max_pairs": 100}, {"tgt": "a.en"}):
        assert load_corpus(dataclasses.replace(plain, **change)).fingerprint != first
    text = (files / "a.de").read_text()
    (files / "a.de").write_text(text.replace("Nummer 7\n", "Nummer 7!\n"))
    assert load_corpus(plain).fingerprint != first


def test_word_limits_hold_in_every_part(tmp_path):
    (tmp_path / "s").write_text("".join("w " * (i % 9 + 1) + f"{i}\n" for i in range(400)))
    (tmp_path / "t").write_text("".join("v " * (i % 7 + 1) + f"{i}\n" for i in range(400)))
    (tmp_path / "v").write_text("too short\nthis is long enough\n")
    config = DataConfig(folder=str(tmp_path), src="s", tgt="t", min_words=3, max_words=6, test_size=20)
    corpus = load_corpus(dataclasses.replace(config, valid_src="v", valid_tgt="v"))
    for part in (corpus.train, corpus.valid, corpus.test):
        assert all(3 <= len(text.split()) <= 6 for text in part.sources + part.targets)
    expected = sum(3 <= i % 9 + 2 <= 6 and 3 <= i % 7 + 2 <= 6 for i in range(400))
    assert len(corpus.train) + len(corpus.test) == expected
    assert (len(corpus.test), corpus.valid.sources) == (20, ["this is long enough"])
    assert sum(corpus.filtered.values()) == 401 - expected
    with pytest.raises(DataError, match="training text: none of its 400 pairs is left"):
        load_corpus(dataclasses.replace(config, min_words=50, max_words=60))


def test_which_parts_are_held_out(files):
    config = DataConfig(folder=str(files), src="a.en", tgt="a.de")
    given = dataclasses.replace(config, valid_src="a.en", valid_tgt="a.de")
    assert [len(part) for part in (load_corpus(given).valid, load_corpus(given).test)] == [286, 0]
    assert len(load_corpus(given).train) == 286
    assert len(load_corpus(dataclasses.replace(given, test_size=7)).test) == 7
    tested = load_corpus(dataclasses.replace(config, test_src="a.en", test_tgt="a.de"))
    assert (len(tested.valid), len(tested.test)) == (28, 286)


def test_sample_is_of_the_training_part_only(files):
    config = DataConfig(folder=str(files), src="a.en", tgt="a.de")
    whole, part = load_corpus(config), load_corpus(dataclasses.replace(config, max_pairs=40))
    assert (part.valid, part.test) == (whole.valid, whole.test)
    assert len(part.train) == 40
    places = [whole.train.sources.index(source) for source in part.train.sources]
    assert places == sorted(places)
    assert places != list(range(40))
    assert load_corpus(dataclasses.replace(config, max_pairs=40)).train == part.train


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "no training text"),
        ({"src": "a.en"}, r"data\.src: it is given without data\.tgt"),
        ({"src": "a.en", "tgt": "a.de", "valid_tgt": "a.de"}, r"data\.valid_tgt: it is given without data\.valid_src"),
        ({"src": "a.en", "tgt": "a.de", "pairs": "x"}, "both a file of pairs and files of one side"),
        ({"pairs": "bundled:tatoeba-en-dee"}, "Did you mean bundled:tatoeba-en-de"),
        ({"src": "a.en", "tgt": "a.de", "valid_size": 1000}, "only 286 different source sentences"),
    ],
)
def test_contradictory_settings(files, settings, message):
    with pytest.raises(DataError, match=message):
        load_corpus(DataConfig(folder=str(files), **settings))


@pytest.mark.parametrize(
    "settings",
    [
        {"max_pairs": -1},
        {"min_words": 5, "max_words": 3},
        {"columns": ("0",)},
        {"corpora": (CorpusConfig(weight=0.0),)},
        {"max_ratio": 0.5},
        {"max_ratio": float("nan")},
        {"tag": "two words"},
        {"tag": "<s>"},
        {"corpora": (CorpusConfig(src="a", tgt="b", tag="</s>"),)},
    ],
)
def test_impossible_settings(settings):
    with pytest.raises(ConfigError):
        DataConfig(**settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"src": "a", "tgt": "b", "format": "csv"}, r"data\.format: data\.src and data\.tgt are plain text"),
        ({"src": "a", "tgt": "b", "columns": ("x", "y")}, r"data\.columns: data\.src and data\.tgt are plain text"),
        ({"corpora": (CorpusConfig(src="a", tgt="b", format="tsv"),)}, r"data\.corpora\[0\]\.format: .*plain text"),
        ({"corpora": (CorpusConfig(src="a", tgt="b"),), "max_words": 9}, r"data\.max_words: it does not hold"),
        ({"corpora": (CorpusConfig(src="a", tgt="b"),), "filters": ("x",), "valid_src": "v", "valid_tgt": "w"},
         r"data\.filters: it does not hold for data\.corpora.*Set filters in every table"),
        ({"corpora": (CorpusConfig(src="a", tgt="b"),), "tag": "<x>"}, r"data\.tag: it does not hold"),
    ],
)  # fmt: skip
def test_settings_that_would_do_nothing(settings, message):
    with pytest.raises(ConfigError, match=message):
        DataConfig(**settings)


def test_settings_for_held_out_files_beside_others():
    corpora = (CorpusConfig(src="a", tgt="b", tag="<x>"),)
    DataConfig(corpora=corpora, valid_pairs="v", format="tsv", columns=("1", "0"), tag="<x>")
    DataConfig(src="a", tgt="b", valid_pairs="v", format="tsv", columns=("1", "0"))
    DataConfig(src="a", tgt="b", format="text")


def test_config_round_trip():
    config = DataConfig(pairs="x.tsv", columns=("1", "0"), split_by="both")
    assert build(DataConfig, to_plain(config), "data") == config


def test_bundled_corpus():
    assert "tatoeba-en-de" in bundled_names()
    assert bundled_path("bundled:tatoeba-en-de") == bundled_path("tatoeba-en-de")
    assert bundled_path("tatoeba-en-de").with_name("tatoeba-en-de.LICENSE.md").read_text().count("CC BY 2.0 FR") == 1
    for name in ("../bundled/tatoeba-en-de", "", "nothing"):
        with pytest.raises(DataError, match=r"Known: .*tatoeba-en-de"):
            bundled_path(name)
    pairs = read_tsv("bundled:tatoeba-en-de")
    assert len(pairs) == 169_813
    assert (pairs.sources[0], pairs.targets[0]) == ("Hi.", "Hallo!")
