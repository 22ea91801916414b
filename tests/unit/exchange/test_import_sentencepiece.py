"""SentencePiece models read as they are: the pieces and texts that the sentencepiece library gave for them, recorded.

sentencepiece_recorded.json holds four small models, trained by the library on invented words (unigram and byte-pair encoding, with
a map of characters of their own, or with bytes for unknown characters), and for each of them random and odd strings, their pieces,
and the text that the known ones of these decode to. benchmarks/import_opus_mt.py compares 20,000 strings with the library itself.
"""

from __future__ import annotations

import base64
import json
import struct
from pathlib import Path
from typing import Any

import pytest

from regard.core.errors import TokenizerError
from regard.core.specials import SPECIALS
from regard.data.charsmap import LONGEST, Charsmap
from regard.data.tokenizers import Tokenizer
from regard.exchange.sentencepiece_model import SentencePieceModel, piece_tokenizer, read_sentencepiece

RECORDED = json.loads(Path(__file__).with_name("sentencepiece_recorded.json").read_text())


@pytest.fixture(params=list(RECORDED))
def recorded(request: Any, tmp_path: Path) -> tuple[Path, list[Any]]:
    path = tmp_path / "some.model"
    path.write_bytes(base64.b64decode(RECORDED[request.param]["model"]))
    return path, RECORDED[request.param]["rows"]


def tokenizer_of(model: SentencePieceModel) -> Tokenizer:
    return piece_tokenizer(model, [piece for piece in model.usable if piece not in SPECIALS], "test")


def test_pieces_and_texts_are_those_of_the_library(recorded: tuple[Path, list[Any]]) -> None:
    path, rows = recorded
    tokenizer = tokenizer_of(read_sentencepiece(path))
    again = Tokenizer.from_json(tokenizer.to_json())  # what a run folder keeps
    for one in (tokenizer, again):
        ids = one.encode([text for text, _, _ in rows])
        assert [one.pieces(row) for row in ids] == [pieces for _, pieces, _ in rows]
        assert one.decode(ids) == [text for _, _, text in rows]


def test_tokens_that_only_the_model_knows_change_no_text(recorded: tuple[Path, list[Any]]) -> None:
    path, rows = recorded
    model = read_sentencepiece(path)
    more = ["▁thethethe", "zzzzriver", "▁the▁river"]
    names = [*more, *(piece for piece in model.usable if piece not in SPECIALS)]
    tokenizer = piece_tokenizer(model, names, "test", tags=[">>xyz<<"])
    for text, pieces, _ in rows:
        assert tokenizer.pieces(tokenizer.encode([text])[0]) == pieces
    assert tokenizer.tags == {">>xyz<<": len(names) + len(SPECIALS)}
    assert ">>xyz<<" not in tokenizer.pieces(tokenizer.encode([">>xyz<< the river"])[0])


def field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2]) + (bytes([len(content)]) if len(content) < 128 else _long(len(content))) + content


def _long(value: int) -> bytes:
    found = b""
    while value >= 128:
        found, value = found + bytes([value & 127 | 128]), value >> 7
    return found + bytes([value])


def piece(text: str, score: float = 0.0, kind: int = 1) -> bytes:
    return field(1, field(1, text.encode()) + b"\x15" + struct.pack("<f", score) + bytes([0x18, kind]))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "its pieces are missing"),
        (piece("<unk>", kind=2) + piece("a") + piece("a"), "there twice"),
        (piece("<unk>", kind=2) + piece("a", float("nan")), "without scores"),
        (piece("<unk>", kind=2) + piece("a", kind=4), "user-defined symbols"),
        (piece("a"), "special pieces are unusual"),
        (piece("<unk>", kind=2) + field(2, b"\x18\x03"), "model of words or characters"),
        (piece("<unk>", kind=2) + field(2, b"\xc0\x01\x01"), "puts spaces after words"),
        (piece("<unk>", kind=2) + field(3, field(2, b"\xff\xff\xff\x7f" + b"\0" * 8)), "map of characters is damaged"),
        (b"\x0a\xff\xff\xff\xff\x0f", "longer than the file"),
        (b"\x0a" + b"\xff" * 20, "a number has no end"),
        (b"\x0b", "a field of kind 3"),
        (b"\x08\x01", "a message is expected"),
        (b"\x80\x04\x95", "not a SentencePiece model"),
    ],
)
def test_what_is_no_model_is_refused(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "bad.model"
    path.write_bytes(content)
    with pytest.raises(TokenizerError, match=reason):
        read_sentencepiece(path)


def a_map(*texts: bytes, value: int = 0) -> bytes:
    """A map whose trie knows one key, "a", by hand: the root, a node for the letter, and a leaf that points to a text."""
    units = [0] * 512
    units[0] = (256 ^ 0) << 10  # the root's children are at 256 ^ letter
    letter = 256 ^ ord("a")
    units[letter] = ord("a") | 1 << 8 | (letter ^ 2) << 10  # has a leaf
    units[letter ^ (letter ^ 2)] = value | 1 << 31
    trie = struct.pack(f"<{len(units)}I", *units)
    return struct.pack("<I", len(trie)) + trie + b"\0".join(texts) + b"\0"


def test_a_map_replaces_what_it_knows() -> None:
    assert Charsmap(a_map(b"xyz"))("banana \ud800") == "bxyznxyznxyz \ud800"


@pytest.mark.parametrize(
    "content",
    [
        a_map(b"x" * (LONGEST + 1)),  # one letter becomes a book
        a_map(b"x", value=10_000),  # beyond the texts
        a_map(b"\xff\xfe"),  # no UTF-8
    ],
)
def test_a_map_that_lies_is_an_error(content: bytes) -> None:
    with pytest.raises(TokenizerError, match="map of characters is damaged"):
        Charsmap(content)("banana")


@pytest.mark.parametrize(
    "content", [b"", b"\1\0\0", struct.pack("<I", 8) + b"\0" * 4, struct.pack("<I", 3) + b"\0" * 9]
)
def test_a_map_without_a_trie_is_an_error(content: bytes) -> None:
    with pytest.raises(TokenizerError, match="map of characters is damaged"):
        Charsmap(content)


def test_steps_outside_the_trie_are_no_match() -> None:
    wild = struct.pack("<I", 16) + struct.pack("<4I", *[0xFFFFFC00] * 4) + b"x\0"
    assert Charsmap(wild)("any text, 中文") == "any text, 中文"
