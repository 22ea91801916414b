"""Texts cut into sentences, and the flat tokens of sentences and documents."""

from __future__ import annotations

import numpy as np
import pytest

from regard.core.errors import DataError
from regard.data import long_texts
from regard.data.corpus_config import DataConfig
from regard.data.sentence_stream import SentenceStream, documents_are_lines, sentences_of
from regard.data.tokenizers import Tokenizer, TokenizerConfig

TEXTS = ["The cat sat. The dog ran!\n\nWhy?", "one line", "two. \n three", "four"]


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("One. Two! Three? Four", ["One.", " Two!", " Three?", " Four"]),
        (
            'He said "Go." (Then he left.) It was 4.5 or a.b',
            ['He said "Go."', " (Then he left.)", " It was 4.5 or a.b"],
        ),
        ("first line\nsecond\n\n  third", ["first line", "\nsecond", "\n\n  third"]),
        ("Ends here.\nNext.  ", ["Ends here.", "\nNext.  "]),
        ("Wait... what?!  Yes .", ["Wait...", " what?!", "  Yes ."]),
        ("一。二！三", ["一。", "二！", "三"]),
        ("", [""]),
        (" \n ", [" \n "]),
    ],
)
def test_sentences(text, sentences):
    assert sentences_of(text) == sentences
    assert "".join(sentences_of(text)) == text


def words(kind: str, **settings) -> Tokenizer:
    return Tokenizer.train(
        [text + " x" for text in TEXTS] * 2, TokenizerConfig(kind=kind, size=300, **settings), ("<mask>",)
    )


def pieces(stream: SentenceStream, tokenizer: Tokenizer) -> list[list[str]]:
    """Sentences, and None between documents."""
    rows = [
        tokenizer.pieces(stream.tokens[begin:end].tolist())
        for begin, end in zip(stream.begins[:-1], stream.begins[1:], strict=True)
    ]
    assert stream.documents[0] == 0
    assert stream.documents[-1] == stream.sentences == len(rows)
    return rows


def test_a_stream_of_words(monkeypatch):
    tokenizer = words("word")
    stream = SentenceStream.from_documents(TEXTS, tokenizer, most=10)
    assert pieces(stream, tokenizer)[:4] == [
        ["▁The", "▁cat", "▁sat", "."], ["▁The", "▁dog", "▁ran", "!"], ["▁Why", "?"], ["▁one", "▁line"]
    ]  # fmt: skip
    assert stream.documents.tolist() == [0, 3, 4, 6, 7]
    assert (len(stream), stream.tokens.dtype) == (4 + 4 + 2 + 2 + 2 + 1 + 1, np.uint16)
    monkeypatch.setattr(long_texts.chunks_of, "__defaults__", (10,))  # a little text at a time changes nothing
    again = SentenceStream.from_documents(TEXTS, tokenizer, most=10)
    for name in ("tokens", "begins", "documents"):
        assert np.array_equal(getattr(again, name), getattr(stream, name))


def test_letters_and_bytes_keep_the_space_between_sentences():
    letters, byte = words("char"), words("byte")
    assert pieces(SentenceStream.from_documents(["a x. e", "e"], letters, most=10), letters) == [
        ["a", "▁", "x", "."], ["▁", "e"], ["e"]
    ]  # fmt: skip
    assert pieces(SentenceStream.from_documents(["a. e\nx"], byte, most=10), byte) == [
        ["a", "."],
        ["Ġ", "e"],
        ["Ċ", "x"],
    ]
    assert pieces(SentenceStream.from_documents(["a", "e"], byte, most=10, lines=True), byte)[1] == ["Ċ", "e"]


def test_a_long_sentence_is_cut_into_equal_parts():
    tokenizer = words("space", min_count=1)
    stream = SentenceStream.from_documents(["x " * 10, "x"], tokenizer, most=4)
    assert np.diff(stream.begins).tolist() == [3, 3, 4, 1]
    assert stream.documents.tolist() == [0, 3, 4]


def test_lines_are_joined_to_documents():
    tokenizer = words("word")
    lines = ["The cat sat. The dog ran!"] * 1000
    stream = SentenceStream.from_documents(lines, tokenizer, most=10, lines=True)
    sizes = np.diff(stream.begins[stream.documents])
    assert sizes.tolist() == [1000] * 8  # an eighth of a small text
    assert stream.sentences == 2000
    large = SentenceStream.from_documents(lines * 4, tokenizer, most=10, lines=True)
    assert np.diff(large.begins[large.documents])[0] == 1024
    assert large.documents[-1] == large.sentences


def test_a_text_without_tokens_is_refused():
    with pytest.raises(DataError, match="no token stands in it"):
        SentenceStream.from_documents([], words("word"), most=10)


def test_when_documents_are_lines(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("x")
    assert documents_are_lines(DataConfig(text=str(tmp_path / "file")))
    assert documents_are_lines(DataConfig(text="file", folder=str(tmp_path)))
    assert not documents_are_lines(DataConfig(text="folder", folder=str(tmp_path)))
    assert documents_are_lines(DataConfig(text="folder", folder=str(tmp_path), documents="line"))
    assert not documents_are_lines(DataConfig(text=str(tmp_path / "file"), documents="blank"))
