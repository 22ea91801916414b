"""Plain text: what a document is, what is held out, and which texts are refused."""

import gzip
import hashlib
import lzma
from pathlib import Path

import pytest

from regard.core.config import build, to_plain
from regard.core.errors import ConfigError, DataError
from regard.data import documents as documents_module
from regard.data.bundle import bundled_names, bundled_path
from regard.data.corpus_config import DataConfig
from regard.data.documents import TextCount, load_text, read_documents
from regard.data.reading import open_pairs

TEXT = "  one\ttwo  three \r\n\n   \nfour\n five\n\n\nsix"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_bytes(TEXT.encode())
    return path


def whole(path: Path, **settings: object):
    return load_text(DataConfig(text=str(path), **{"valid_part": 0, "test_part": 0, **settings}))


def test_a_document_is_a_line_a_file_or_what_stands_between_empty_lines(file):
    assert read_documents(file) == (["one\ttwo  three", "four", "five", "six"], 4)
    assert read_documents(file, "line") == read_documents(str(file))
    assert read_documents(file, "file") == ([TEXT], 0)
    assert read_documents(file, "blank") == (["  one\ttwo  three ", "four\n five", "six"], 0)


def test_files_of_a_folder_come_in_the_order_of_their_names(tmp_path):
    folder = tmp_path / "books"
    folder.mkdir()
    (folder / "b.txt").write_text("b1\nb2\n")
    with gzip.open(folder / "a.txt.gz", "wt") as packed:
        packed.write("a1\n\na2")
    (folder / "c.txt").write_text("")
    (folder / "d.txt").write_text(" \n")
    (folder / ".hidden").write_text("hidden")
    assert read_documents(folder) == (["a1\n\na2", "b1\nb2\n"], 2)
    assert read_documents(folder, "line").texts == ["a1", "a2", "b1", "b2"]
    assert read_documents(folder, "blank").texts == ["a1", "a2", "b1\nb2"]
    (folder / "more").mkdir()
    (folder / "more" / "deep.txt").write_text("deep")
    said: list[str] = []
    assert read_documents(folder, say=said.append).texts == ["a1\n\na2", "b1\nb2\n"]
    assert said == [f"{folder}: the 1 folders in it are not read, only its 4 files."]


@pytest.mark.parametrize("ending", [".gz", ".xz", ".zst"])
def test_packed_files(tmp_path, ending):
    zstandard = pytest.importorskip("zstandard")
    pack = {".gz": gzip.compress, ".xz": lzma.compress, ".zst": zstandard.compress}[ending]
    path = tmp_path / f"text{ending}"
    path.write_bytes(pack("\ufeffä\nb\n".encode()))
    assert read_documents(path).texts == ["ä", "b"]
    assert read_documents(path, "file").texts == ["ä\nb\n"]


def test_relative_paths_start_in_the_folder_and_files_are_recorded(tmp_path, file):
    other = tmp_path / "valid.txt"
    other.write_text("x\ny\n")
    corpus = load_text(DataConfig(folder=str(tmp_path), text="text.txt", valid_text="valid.txt", test_part=0))
    assert corpus.train == ["one\ttwo  three", "four", "five", "six"]
    assert (corpus.valid, corpus.test) == (["x", "y"], [])
    assert corpus.files == {"text": str(file), "valid_text": str(other)}
    assert corpus.dropped == 4


def test_counts(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("äö\nabc\n", encoding="utf-8")
    corpus = whole(path, documents="line")
    assert corpus.counts == {"train": TextCount(2, 5, 7), "valid": TextCount(0, 0, 0), "test": TextCount(0, 0, 0)}
    assert corpus.characters == 5


def lines(path: Path, count: int) -> list[str]:
    texts = [f"line number {i}" for i in range(count)]
    path.write_text("".join(text + "\n" for text in texts))
    return texts


def folder_of(path: Path, texts: list[str]) -> Path:
    """A folder with one file for each text, in their order."""
    path.mkdir()
    for i, text in enumerate(texts):
        (path / f"{i:04}.txt").write_text(text)
    return path


def test_documents_of_a_folder_are_held_out_by_their_text(tmp_path):
    texts = lines(tmp_path / "text.txt", 200)
    path = folder_of(tmp_path / "folder", texts)
    corpus = load_text(DataConfig(text=str(path), valid_part=0.1, test_part=0.05))
    assert [len(part) for part in (corpus.train, corpus.valid, corpus.test)] == [170, 20, 10]
    assert sorted([*corpus.train, *corpus.valid, *corpus.test]) == sorted(texts)
    for part in (corpus.train, corpus.valid, corpus.test):
        assert [texts.index(text) for text in part] == sorted(texts.index(text) for text in part)  # in their order
    again = load_text(DataConfig(text=str(path), valid_part=0.1, test_part=0.05))
    assert (again.valid, again.test, again.fingerprint) == (corpus.valid, corpus.test, corpus.fingerprint)
    other = load_text(DataConfig(text=str(path), valid_part=0.1, test_part=0.05, split_seed=2))
    assert other.valid != corpus.valid
    assert other.fingerprint != corpus.fingerprint
    path = folder_of(tmp_path / "reversed", texts[::-1])
    assert load_text(DataConfig(text=str(path), valid_part=0.1, test_part=0.05)).valid == corpus.valid[::-1]


@pytest.mark.parametrize("documents", ["auto", "line", "blank"])
def test_of_a_file_the_end_is_held_out(tmp_path, documents):
    path = tmp_path / "text.txt"
    texts = [f"line number {i}" for i in range(100, 300)]
    path.write_text(("\n\n" if documents == "blank" else "\n").join(texts))
    corpus = load_text(DataConfig(text=str(path), documents=documents, valid_part=0.1, test_part=0.05))
    assert (corpus.train, corpus.valid, corpus.test) == (texts[:170], texts[170:190], texts[190:])
    assert corpus.set_apart == 0
    for valid, test in ((0.1, 0), (0, 0.1)):
        corpus = load_text(DataConfig(text=str(path), documents=documents, valid_part=valid, test_part=test))
        held = (corpus.valid, corpus.test)
        assert (corpus.train, held) == (texts[:180], (texts[180:], []) if valid else ([], texts[180:]))


def test_parts_of_a_file_are_parts_of_its_text(tmp_path):
    path = tmp_path / "text.txt"
    texts = ["x" * 500, *["y" * 10] * 10, "z" * 200, "w" * 200]
    path.write_text("\n".join(texts))
    corpus = load_text(DataConfig(text=str(path), valid_part=0.2, test_part=0.2))
    assert (len(corpus.train), corpus.valid, corpus.test) == (11, texts[11:12], texts[12:])
    corpus = load_text(DataConfig(text=str(path), valid_part=0.01, test_part=0.01))  # at least one document each
    assert (len(corpus.train), corpus.valid, corpus.test) == (11, texts[11:12], texts[12:])


LONG = "word " * 50  # 249 characters without the last space


def test_long_copies_never_stand_on_both_sides_of_a_folder(tmp_path):
    texts = [f"{LONG}{i}" for i in range(40)]
    path = folder_of(tmp_path / "long", texts + [text.upper() + "!" for text in texts] + texts)
    said: list[str] = []
    corpus = load_text(DataConfig(text=str(path), valid_part=0.25, test_part=0.25), said.append)
    sides = [{text.lower().rstrip("!") for text in part} for part in (corpus.train, corpus.valid, corpus.test)]
    assert [len(side) for side in sides] == [20, 10, 10]
    assert set.union(*sides) == set(texts)
    assert (len(corpus.train), len(corpus.valid), corpus.set_apart) == (60, 10, 40)
    assert said == ["40 copies of held-out documents, of 200 characters or more, are not trained on."]
    short = [f"name {i}" for i in range(40)]
    corpus = load_text(DataConfig(text=str(folder_of(tmp_path / "short", short * 3)), valid_part=0.25, test_part=0.25))
    assert (len(corpus.train), len(corpus.valid), len(corpus.test), corpus.set_apart) == (100, 10, 10, 0)
    assert set(corpus.valid) <= set(corpus.train)


def test_long_copies_never_stand_on_both_sides_of_a_file(tmp_path):
    path = tmp_path / "text.txt"
    assert documents_module.LEAST_COPY == 200
    exactly, less, other = "a" * 200, "b" * 199, "c" * 220
    early = [exactly.upper() + ".", other, less, "MENENIUS:", LONG.strip(), *(f"{i:0250}" for i in range(20))]
    texts = [*early, LONG.strip(), less, other, exactly, LONG.strip(), "MENENIUS:"]
    path.write_text("\n".join(texts))
    said: list[str] = []
    corpus = load_text(DataConfig(text=str(path), valid_part=0.095, test_part=0.065), said.append)
    assert corpus.test == [exactly, LONG.strip(), "MENENIUS:"]
    assert corpus.valid == [less, other]  # what is tested is not validated on either
    assert corpus.train == [less, "MENENIUS:", *early[5:]]
    assert corpus.set_apart == 4
    assert said == ["4 copies of held-out documents, of 200 characters or more, are not trained on."]
    path.write_text(f"{'x ' * 4000}\n{LONG}\n{LONG}")
    with pytest.raises(DataError, match="nothing is left to validate on: all of it is held out elsewhere too"):
        load_text(DataConfig(text=str(path), valid_part=0.03, test_part=0.03))
    path.write_text(f"{LONG}\n{LONG}\n{LONG}")
    with pytest.raises(DataError, match="nothing is left to train on: all of it is held out elsewhere too"):
        load_text(DataConfig(text=str(path)))


def test_lines_that_occur_often_are_trained_on():
    corpus = load_text(DataConfig(text="bundled:tinyshakespeare"))
    assert (corpus.train.count("MENENIUS:"), corpus.set_apart) == (162, 0)
    assert corpus.valid.count("PETRUCHIO:") > 0
    sizes = [corpus.counts[part].characters for part in ("train", "valid", "test")]
    assert [round(size / sum(sizes), 3) for size in sizes] == [0.9, 0.05, 0.05]


def test_a_file_given_for_a_part_takes_nothing_from_the_text(tmp_path):
    path, test = tmp_path / "text.txt", tmp_path / "test.txt"
    lines(path, 100)
    test.write_text("line number 3\n")
    corpus = load_text(DataConfig(text=str(path), test_text=str(test), valid_part=0.1, test_part=0.5))
    assert [len(part) for part in (corpus.train, corpus.valid, corpus.test)] == [90, 10, 1]
    assert len(whole(path).train) == 100


def test_of_a_single_document_the_end_is_held_out(tmp_path):
    path = tmp_path / "text.txt"
    text = "".join(f"line {i}\n" for i in range(100, 300))
    path.write_text(text)
    corpus = load_text(DataConfig(text=str(path), documents="file", valid_part=0.1, test_part=0.05))
    assert "".join([*corpus.train, *corpus.valid, *corpus.test]) == text
    assert [len(part) for part in (corpus.train, corpus.valid, corpus.test)] == [1, 1, 1]
    assert (corpus.valid[0][:9], corpus.test[0][:9]) == ("line 270\n", "line 290\n")
    corpus = load_text(DataConfig(text=str(path), documents="file", valid_part=0.1, test_part=0))
    assert corpus.valid[0].startswith("line 280\n")
    assert not corpus.test
    corpus = load_text(DataConfig(text=str(path), documents="file", valid_part=0, test_part=0.1))
    assert (corpus.valid, corpus.test[0][:9]) == ([], "line 280\n")


def test_a_document_without_line_breaks_is_cut_between_words_or_anywhere(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("early\n" + "word " * 100)  # a break too far away to be of use
    corpus = load_text(DataConfig(text=str(path), documents="file", valid_part=0.1, test_part=0))
    assert (len(corpus.train[0]) + len(corpus.valid[0]), corpus.valid[0][:5]) == (506, "word ")
    assert 45 <= len(corpus.valid[0]) <= 55
    path.write_text("x" * 100)
    corpus = load_text(DataConfig(text=str(path), valid_part=0.1, test_part=0.2))
    assert [len(part[0]) for part in (corpus.train, corpus.valid, corpus.test)] == [70, 10, 20]


def test_the_fingerprint_is_of_the_text_and_its_division(tmp_path, file):
    first = whole(file).fingerprint
    copy = tmp_path / "copy.txt.gz"
    copy.write_bytes(gzip.compress(TEXT.encode()))
    assert whole(copy).fingerprint == first  # where it lies is not part of it
    assert whole(file, documents="blank").fingerprint != first
    copy = tmp_path / "shifted.txt"
    copy.write_text("one\ttwo  threefour\nfive\nsi\nx\n")  # the same characters and documents, divided elsewhere
    assert whole(copy).fingerprint != first
    assert load_text(DataConfig(text=str(file), valid_part=0.25, test_part=0)).fingerprint != first


def test_the_fingerprint_does_not_depend_on_chunks(file, monkeypatch):
    first = {kind: whole(file, documents=kind) for kind in ("line", "file", "blank")}
    monkeypatch.setattr(documents_module, "CHUNK", 5)
    monkeypatch.setattr(documents_module, "chunks_of", lambda texts: ([text] for text in texts))
    for kind, corpus in first.items():
        again = whole(file, documents=kind)
        assert (again.fingerprint, again.counts) == (corpus.fingerprint, corpus.counts)


@pytest.mark.parametrize(
    ("content", "documents", "what"),
    [
        (b"", "line", "the file is empty"),
        (b" \n\n\t\n", "line", "all its 3 documents are empty"),
        (b" \n\n", "file", "all its 1 documents are empty"),
        (b" \n\n", "blank", "it is empty"),
        (b"fine\nB\xe4r\n", "line", r"line 2: the text is not UTF-8 \(byte 0xe4 at offset 6\)"),
        (b"fine\nB\xe4r\n", "file", r"line 2: the text is not UTF-8 \(byte 0xe4 at offset 6\)"),
        ("text".encode("utf-16"), "line", "not UTF-8. It looks like UTF-16"),
        ("text".encode("utf-16"), "file", "not UTF-8. It looks like UTF-16"),
        (b"a\nb\0c\n", "line", "line 2: a null character stands there: it is not a text file"),
        (b"a\nb\0c\n", "file", "line 2: a null character stands there: it is not a text file"),
        (b"PK\x03\x04\0\0abc", "file", "looks like a zip archive"),
        (gzip.compress(b"text", mtime=0), "line", "It looks compressed: give its name the ending .gz"),
    ],
)
def test_what_is_no_text_is_refused(tmp_path, content, documents, what):
    path = tmp_path / "text.txt"
    path.write_bytes(content)
    with pytest.raises(DataError, match=what):
        read_documents(path, documents)


def test_what_is_not_there_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"nothing\.txt: there is no such file"):
        load_text(DataConfig(folder=str(tmp_path), text="nothing.txt"))
    with pytest.raises(DataError, match="the folder holds no files"):
        read_documents(tmp_path)
    (tmp_path / "sub").mkdir()
    with pytest.raises(DataError, match=r"it holds no files, only 1 folders\. Give a folder with the files themselves"):
        read_documents(tmp_path)
    (tmp_path / "empty.txt").write_text("")
    with pytest.raises(DataError, match="all its 1 documents are empty"):
        read_documents(tmp_path)
    with pytest.raises(DataError, match="its files are empty"):
        read_documents(tmp_path, "line")
    with pytest.raises(DataError, match="no training text is given"):
        load_text(DataConfig())
    for address in ("-", "hf:some/set"):
        with pytest.raises(DataError, match="read from files only"):
            load_text(DataConfig(text=address))


def test_too_little_to_hold_parts_out(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("a\nb\n")
    with pytest.raises(DataError, match="nothing is left to train on: of 2 documents, 1 would be held out"):
        load_text(DataConfig(text=str(path)))
    assert len(load_text(DataConfig(text=str(path), test_part=0)).train) == 1
    path.write_text("same\nSame.\nsame\n")
    assert len(load_text(DataConfig(text=str(path))).train) == 1
    with pytest.raises(DataError, match="of 1 different documents, 1 would be held out for validation and 1 for test"):
        load_text(DataConfig(text=str(folder_of(tmp_path / "same", ["same", "Same.", "same"]))))
    path.write_text("short")
    with pytest.raises(DataError, match="its only document, of 5 characters, is too short"):
        load_text(DataConfig(text=str(path)))
    assert whole(path).train == ["short"]


def test_more_text_than_memory_may_hold_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(documents_module, "MAX_WHOLE_BYTES", 10)
    for name in "abc":
        (tmp_path / name).write_text("1234")
    with pytest.raises(DataError, match="its files hold more than"):
        read_documents(tmp_path)
    (tmp_path / "d").write_text("12345678901")
    with pytest.raises(DataError, match="it holds more than"):
        read_documents(tmp_path / "d")


def test_settings():
    for part in (-0.1, 0.6, float("nan")):
        for name in ("valid_part", "test_part"):
            with pytest.raises(ConfigError, match=f"data.{name}: it is {part}. Use a part of the text, from 0 to 0.5"):
                DataConfig(text="x", **{name: part})
    for name, value in (
        ("src", "x"),
        ("pairs", "x"),
        ("test_tgt", "x"),
        ("min_words", 3),
        ("max_pairs", 9),
        ("tag", "<a>"),
    ):
        with pytest.raises(ConfigError, match=f"data.{name}: it is about sentence pairs, and data.text is plain text"):
            DataConfig(text="x", **{name: value})
    with pytest.raises(ConfigError, match=r"data\.valid_text is plain text"):
        DataConfig(pairs="x", valid_text="y")
    with pytest.raises(ConfigError, match=r"Set data\.valid_part, or give pairs"):
        DataConfig(text="x", valid_size=100)
    config = DataConfig(text="x", valid_text="y", documents="blank", test_part=0.5, split_seed=7, folder="/tmp")
    assert build(DataConfig, to_plain(config), "data") == config


def test_bundled_text():
    assert bundled_names((".txt.xz",)) == ["tinyshakespeare"]
    assert {"tatoeba-en-de", "tinyshakespeare"} <= set(bundled_names())
    about = bundled_path("tinyshakespeare").with_name("tinyshakespeare.LICENSE.md").read_text()
    (text,) = read_documents("bundled:tinyshakespeare", "file").texts
    assert len(text) == 1_115_394
    assert hashlib.sha256(text.encode()).hexdigest() in about
    assert "public domain" in about
    corpus = load_text(DataConfig(text="bundled:tinyshakespeare", documents="file", valid_part=0.1, test_part=0))
    assert abs(len(corpus.train[0]) - 1_003_854) < 40  # the first nine tenths
    assert len(read_documents("bundled:tinyshakespeare").texts) == 32_777
    with pytest.raises(DataError, match=r"no plain text of this name is bundled\..* Known: .*tinyshakespeare"):
        load_text(DataConfig(text="bundled:tatoeba-en-de"))
    with pytest.raises(DataError, match="a single file of plain text holds only one side"):
        open_pairs(["bundled:tinyshakespeare"])


def test_one_language_of_bundled_pairs_is_a_text():
    english = read_documents("bundled:tatoeba-en")
    assert len(english.texts) == len(set(english.texts)) > 100_000  # each sentence once
    assert "Run!" in english.texts[:10]
    assert "Lauf!" not in english.texts[:10]
    with pytest.raises(DataError, match="each a document"):
        read_documents("bundled:tatoeba-en", "file")
    with pytest.raises(DataError, match=r"Did you mean bundled:tatoeba-en\?.*tinyshakespeare"):
        read_documents("bundled:tatoeba-em")
