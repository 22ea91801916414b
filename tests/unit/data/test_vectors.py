"""Word vectors in files: the two formats byte by byte, and what is wrong with a file."""

from __future__ import annotations

import gzip
import lzma
import struct

import numpy as np
import pytest

from regard.core.errors import DataError
from regard.data import vector_formats
from regard.data.vectors import read_vectors, vectors_width, write_vectors

WORDS = ["the", "naïve", "日本", "2"]
MATRIX = np.array([[0.1, -2.5, 3e-9], [1, 0, -0.0], [1e30, 2e-38, 7], [-1, 0.33333334, 5]], dtype=np.float32)


@pytest.fixture
def write(tmp_path):
    def put(content: str | bytes, name: str = "vectors.txt") -> str:
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(tmp_path / name)

    return put


def binary(words, matrix, end=b"", count=None) -> bytes:
    """The binary format as word2vec (end=newline) and gensim (no end) write it."""
    rows = [
        word.encode() + b" " + struct.pack(f"<{len(row)}f", *row) + end for word, row in zip(words, matrix, strict=True)
    ]
    return f"{len(words) if count is None else count} {len(matrix[0])}\n".encode() + b"".join(rows)


def same(read, words=WORDS, matrix=MATRIX) -> bool:
    return read.words == list(words) and read.matrix.dtype == np.float32 and read.matrix.tobytes() == matrix.tobytes()


def test_text_is_written_with_the_shortest_numbers_that_come_back(tmp_path):
    write_vectors(tmp_path / "v.txt", ["a", "b"], np.array([[0.1, 1.0], [-2.5, 1e-5]], dtype=np.float32))
    assert (tmp_path / "v.txt").read_bytes() == b"2 2\na 0.1 1.0\nb -2.5 1e-05\n"


def test_binary_is_written_as_word2vec_does(tmp_path):
    write_vectors(tmp_path / "v.bin", WORDS, MATRIX, binary=True)
    assert (tmp_path / "v.bin").read_bytes() == binary(WORDS, MATRIX, b"\n")


@pytest.mark.parametrize("as_binary", [False, True])
def test_what_is_written_comes_back_to_the_last_bit(tmp_path, as_binary):
    draw = np.random.default_rng(0)
    words, matrix = (
        [f"w{i}" for i in range(9000)],
        draw.normal(size=(9000, 7)).astype(np.float32) * 10.0 ** draw.integers(-20, 20, (9000, 1)),
    )
    write_vectors(tmp_path / "v", words, matrix, binary=as_binary)
    assert same(read_vectors(tmp_path / "v"), words, matrix.astype(np.float32))
    assert vectors_width(tmp_path / "v") == 7


@pytest.mark.parametrize("end", [b"", b"\n"])
def test_binary_is_read_with_and_without_line_feeds(write, end):
    assert same(read_vectors(write(binary(WORDS, MATRIX, end))))


def test_numbers_may_look_like_line_feeds_and_spaces(write):
    matrix = np.array([[1, 2, 3], *np.frombuffer(b"\n\n\n\n    \n   ", dtype="<f4").reshape(1, 3)], dtype=np.float32)
    assert same(read_vectors(write(binary(["a", "b"], matrix, b"\n"))), ["a", "b"], matrix)


def test_glove_has_no_header(write):
    read = read_vectors(write("the 0.5 1 -2\nnew york 1 2 3\n. . . 4 5 6\n"))
    assert read.words == ["the", "new york", ". . ."]
    assert read.matrix.tolist() == [[0.5, 1, -2], [1, 2, 3], [4, 5, 6]]


def test_spaces_at_the_end_tabs_and_returns_are_read(write):
    read = read_vectors(write("2 2\r\na 1 2 \r\nb\t3\t4\r\n\n"))
    assert (read.words, read.matrix.tolist()) == (["a", "b"], [[1, 2], [3, 4]])


def test_other_spaces_are_letters(write):
    assert read_vectors(write("1 2\na\u00a0b\u2028 1 2\n")).words == ["a\u00a0b\u2028"]


@pytest.mark.parametrize(("pack", "ending"), [(gzip.compress, ".gz"), (lzma.compress, ".xz")])
@pytest.mark.parametrize("content", [binary(WORDS, MATRIX), b"1 2\na 1 2\n"], ids=["binary", "text"])
def test_packed_files_are_read(write, pack, ending, content):
    plain, packed = read_vectors(write(content)), read_vectors(write(pack(content), "v" + ending))
    assert same(packed, plain.words, plain.matrix)


@pytest.mark.parametrize(
    "content", [binary(["a", "b", "c"], [[1, 2], [3, 4], [5, 6]]), "a 1 2\nb 3 4\nc 5 6\n"], ids=["binary", "text"]
)
def test_only_wanted_words_are_kept(write, content):
    read = read_vectors(write(content), words=["c", "a", "z"])
    assert (read.words, read.matrix.tolist()) == (["a", "c"], [[1, 2], [5, 6]])


def test_unwanted_numbers_are_not_even_read(write):
    assert read_vectors(write("a 1 2\nb x 4\n"), words=["a"]).words == ["a"]
    with pytest.raises(DataError, match="1 numbers stand after the word 'b'"):  # but the width of all is looked at
        read_vectors(write("a 1 2\nb 4\n"), words=["a"])


def test_nothing_wanted_is_nothing(write):
    assert read_vectors(write("a 1 2\n"), words=["b"]).matrix.shape == (0, 2)


def test_of_a_repeated_word_the_first_vector_is_kept_and_that_is_said(write):
    path, said = write("3 1\na 1\nb 2\na 3\n"), []
    read = read_vectors(path, say=said.append)
    assert (read.words, read.matrix.tolist(), read.repeated) == (["a", "b"], [[1], [2]], 1)
    assert "1 words stand there again; the first vector of each is kept" in said[0]
    with pytest.warns(UserWarning, match="stand there again"):
        read_vectors(path)


@pytest.mark.parametrize(
    ("content", "where", "message"),
    [
        ("2 3\na 1 2 3\nb 1 2\n", "line 3", "2 numbers stand after the word 'b', and the header says 3"),
        ("2 2\na 1 2\nb 1 2 3\n", "line 3", "3 numbers stand after the word 'b', and the header says 2"),
        ("a 1 2\nb 1 2 3\n", "line 2", "3 numbers stand after the word 'b', and line 1 has 2"),
        ("a 1 2\n1 2\n", "line 2", "1 numbers stand"),
        ("a 1 2\nb\n", "line 2", "0 numbers stand"),
        ("a 1 2\nb 1 two\n", "line 2", "'two' stands where a number"),
        ("a 1 2\nb 1 1_0\n", "line 2", "'1_0' stands where a number"),
        ("a 1 2\nb 1 nan\n", "line 2", "no finite number"),
        ("a 1 2\nb inf 1\nc 1 2\n", "line 2", "no finite number"),
        ("a 1 2\nb 1 1e39\n", "line 2", "no finite number of float32"),
        ("a 1 2\n\nb 1 2\n", "line 2", "nothing stands there"),
        ("3 2\na 1 2\nb 1 2\n", "line 3", "ends after 2 words, and its header says 3"),
        ("1 2\na 1 2\nb 1 2\n", "line 3", "the header says 1 words, and more follow"),
        (b"a 1 2\nfran\xe7ais 1 2\n", "line 2", "not UTF-8"),
        (b"2 2\nfran\xe7ais 1 2\nb 3 4\n", "line 2", "not UTF-8"),
        ("hello\n", "line 1", "a word and 0 numbers"),
        ("just some words\n", "line 1", "'some' stands where a number"),
        ("0 2\n", "line 1", "0 words of width 2"),
        ("99999999999 2\n", "line 1", "more than 50,000,000 words"),
        ("2 99999999\n", "line 1", "more than 50,000,000 words"),
        (f"{'w' * 5000} 1 2\n", "line 1", "5,000 characters"),
        (binary(["a", "b"], [[1, 2], [np.nan, 4]]), "word 2", "no finite number"),
        (binary(["a", "b"], [[1, 2], [3, 4]], count=1), "", "more follows after the 1 words"),
        (binary(["a" * 30, "b"], [[1, 2], [3, 4]])[:-3], "word 2", "the file ends there"),
        (binary(["a", "b"], [[1, 2], [3, 4]], count=9), "", "take at least 90"),
        (
            binary(["a", "b"], [[1, 2, 3], [3, 4, 5]], b"\n").replace(b"2 3", b"2 2"),
            "word 2",
            "do not have the width 2",
        ),
        (b"1 2\ncaf\xe9 " + struct.pack("<2f", 1, 2), "word 1", "no word in UTF-8"),
        (b"1 2\n " + struct.pack("<2f", 1, 2) + b"a", "word 1", "no word in UTF-8"),
        (b"1 2\n" + b"\x01" * 6000, "line 2", "0 numbers stand"),
        (b"2 2\na " + b"\x01" * 6000, "word 2", "no word in UTF-8"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(write, content, where, message):
    path = write(content)
    with pytest.raises(DataError, match=message) as caught:
        read_vectors(path)
    assert caught.value.where == (f"{path}, {where}" if where else path)


def test_a_packed_binary_file_that_is_cut_is_an_error(write):
    path = write(gzip.compress(binary(["a", "b"], [[1, 2], [3, 4]], count=9)), "v.bin.gz")
    with pytest.raises(DataError, match="the file ends there, and its header says 9"):
        read_vectors(path)


def test_blocks_may_end_anywhere(write, monkeypatch):
    from regard.data.reading import files

    words = [f"word{i}" for i in range(300)]
    matrix = np.arange(900, dtype=np.float32).reshape(300, 3)
    for block in (40, 64, 97):
        monkeypatch.setattr(files, "BLOCK", block)
        monkeypatch.setattr(files.ByteFile.packed, "__defaults__", (block,))
        assert same(read_vectors(write(binary(words, matrix, b"\n"))), words, matrix)


def test_words_beyond_the_bound_are_refused(write, monkeypatch):
    monkeypatch.setattr(vector_formats, "MOST_WORDS", 2)
    with pytest.raises(DataError, match="more than"):
        read_vectors(write("a 1\nb 2\nc 3\n"))


@pytest.mark.parametrize(
    ("words", "matrix", "message"),
    [
        (["a b"], [[1.0]], "has a space"),
        ([""], [[1.0]], "is empty"),
        (["a\nb"], [[1.0]], "has a space"),
        (["a"], [[np.inf]], "no finite number"),
        (["a", "b"], [[1.0]], "do not fit together"),
        (["\ud800"], [[1.0]], "not valid Unicode"),
    ],
)
def test_what_cannot_be_written_is_refused_and_leaves_no_file(tmp_path, words, matrix, message):
    with pytest.raises(DataError, match=message):
        write_vectors(tmp_path / "v.txt", words, np.array(matrix, dtype=np.float32))
    assert list(tmp_path.iterdir()) == []


def test_packed_files_and_missing_folders_are_not_written(tmp_path):
    for name, message in (("v.gz", "not compressed"), ("none/v.txt", "cannot be written")):
        with pytest.raises(DataError, match=message):
            write_vectors(tmp_path / name, ["a"], np.ones((1, 1), dtype=np.float32))
