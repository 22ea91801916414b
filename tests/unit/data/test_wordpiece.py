"""Word pieces: vocabularies of BERT's as regard's tokenizers, and new ones from text."""

from __future__ import annotations

from itertools import product

import pytest

from regard.core.errors import ConfigError, TokenizerError
from regard.core.types import BOS, EOS, PAD, SPECIALS, UNK
from regard.data.tokenizers import Tokenizer, TokenizerConfig
from regard.data.wordpiece import MASK, order_of, read_vocabulary, train_wordpieces, wordpiece_json

VOCABULARY = ["[PAD]", "[unused0]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "play", "##ing", "##s", "cafe", ",", "."]


def tokenizer(**settings) -> Tokenizer:
    return Tokenizer.from_json(wordpiece_json(VOCABULARY, **settings))


def trained(texts: list[str], **settings) -> Tokenizer:
    config = TokenizerConfig(**{"kind": "wordpiece", "size": 60, "min_count": 1, **settings})
    return Tokenizer.train(texts, config, (MASK,))


def test_special_tokens_come_first_and_the_others_keep_their_order():
    assert order_of(VOCABULARY, "here") == [0, 3, 4, 2, 5, 1, 6, 7, 8, 9, 10, 11]
    made = tokenizer()
    assert made.pieces(range(made.size)) == [*SPECIALS, MASK, "[unused0]", *VOCABULARY[6:]]
    assert made.tags == {MASK: 4}


def test_a_word_is_the_longest_pieces_from_the_left():
    made = tokenizer()
    assert [made.pieces(ids) for ids in made.encode(["plays, playing.", "Café", "playful plays"])] == [
        ["play", "##s", ",", "play", "##ing", "."],
        ["cafe"],
        ["<unk>", "play", "##s"],  # a word with a part that is no piece is unknown as a whole
    ]
    assert made.decode(made.encode(["Plays ,  playing ."])) == ["plays, playing."]
    assert made.decode([[BOS, *made.encode(["plays"])[0], 4, EOS, PAD]]) == ["plays"]


def test_case_and_accents():
    assert tokenizer(lowercase=False).encode(["Cafe", "café", "cafe"]) == [[UNK], [UNK], [9]]
    assert tokenizer(lowercase=False, strip_accents=True).encode(["café"]) == [[9]]
    assert tokenizer(strip_accents=False).encode(["Café", "CAFE"]) == [[UNK], [9]]


@pytest.mark.parametrize(
    "text", ["<s>", "</s>", "<unk>", "<mask>", "[MASK]", "[CLS]", "[unused0]", "##s", "play<mask>s"]
)
def test_no_text_spells_a_special_token(text):
    (ids,) = tokenizer().encode([text])
    assert not {PAD, BOS, EOS, 4, 5} & set(ids)
    assert len(ids) > 1


def test_words_one_by_one_give_the_same_tokens():
    texts = [
        "plays, playing\tcafé", "play\x85s play\x0cing", "中plays国 play\u2028s\u00a0s", "pl\x00ay pl\u200bays \x1f s", " ",
        "e\u0301 \u0301e ne\u0301", "ſ ẞ İ ǅ ▁ play▁s", "cafe\u0301 \ufffd👍🏽 ok👍", "नमस्ते दुनिया",
    ]  # fmt: skip
    for made in (tokenizer(), tokenizer(lowercase=False), trained(["plays, playing café 中国"] * 3)):
        assert made.encode_many(texts) == made.encode(texts)
        assert [made.encode_many([text])[0] for text in texts] == made.encode(texts)
        long = " ".join(texts[0] for _ in range(9000))
        assert [i for part in made.encode_long(long) for i in part] == made.encode([long])[0]


@pytest.mark.parametrize(
    ("tokens", "told"),
    [
        ([*VOCABULARY, "play"], "'play' is there twice"),
        ([*VOCABULARY, ""], "line 13: there is no token"),
        (VOCABULARY[1:], r"\[PAD\] is missing"),
        ([token for token in VOCABULARY if token != "[MASK]"], r"\[MASK\] is missing"),
        ([*VOCABULARY, "<s>"], "<s>, which regard needs"),
        ([], "is missing"),
    ],
)
def test_what_is_no_vocabulary_is_refused(tokens, told):
    with pytest.raises(TokenizerError, match=told):
        wordpiece_json(tokens, "vocab.txt")


def test_files(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_bytes("a\r\nb\u2028c\r\n\u00a0\r\n".encode())
    assert read_vocabulary(path) == ["a", "b\u2028c", "\u00a0"]  # only line breaks end a token
    path.write_bytes(b"")
    assert read_vocabulary(path) == []
    path.write_bytes(b"a\n\xff\n")
    with pytest.raises(TokenizerError, match="not UTF-8"):
        read_vocabulary(path)
    with pytest.raises(TokenizerError, match="missing"):
        read_vocabulary(tmp_path / "none")
    with pytest.raises(TokenizerError, match="cannot be read"):
        read_vocabulary(tmp_path)


def test_pieces_of_text():
    counts = {"low": 5, "lower": 2, "newest": 6, "widest": 3}
    assert train_wordpieces(counts, 100, 4) == [
        "l", "n", "w", "##d", "##e", "##i", "##o", "##r", "##s", "##t", "##w",
        "##es", "##est", "lo", "low", "ne", "##west", "newest",
    ]  # fmt: skip
    assert train_wordpieces(counts, 4, 1) == ["##e", "##s", "##t", "##w"]  # the most frequent
    assert train_wordpieces({"ab": 1, "ba": 1}, 100, 9) == ["a", "b", "##a", "##b"]


def test_a_character_that_finds_no_room_is_bridged_by_no_piece(monkeypatch):
    monkeypatch.setattr("regard.data.wordpiece._MOST_SYMBOLS", 6)
    assert train_wordpieces({"axb": 3, "ab": 1, "cd": 9, "dc": 9}, 20, 1)[6:] == ["cd", "dc", "ab"]
    assert train_wordpieces({"axb": 3, "azb": 1, "cd": 9, "dc": 9}, 20, 1)[6:] == ["cd", "dc"]


def test_a_trained_tokenizer():
    made = trained(["Playing games, playing the game.", "The gamer plays."] * 4, lowercase=True)
    assert made.tags == {MASK: 4}
    assert made.size <= 60
    (ids,) = made.encode(["The PLAYING gamers."])
    assert UNK not in ids
    assert made.decode([ids]) == ["the playing gamers."]
    assert Tokenizer.from_json(made.to_json()).encode(["the gamer"]) == made.encode(["the gamer"])
    assert UNK in made.encode(["über"])[0]
    with pytest.raises(TokenizerError, match="no text"):
        trained([" "])
    with pytest.raises(ConfigError, match=r"tokenizer\.words"):
        TokenizerConfig(kind="wordpiece", words="list.txt")


def test_the_same_text_gives_the_same_tokens_in_any_order():
    """Hugging Face's own trainer numbers them otherwise every time."""
    parts = product(("lo", "mi", "ka", "tu"), ("ren", "sol", "bu"), ("dan", "o", "ti"))
    texts = [f"{a}{b} {b}{c}{a}, {c}" for a, b, c in parts]
    made = [Tokenizer.train(some, TokenizerConfig(kind="wordpiece", size=60)) for some in (texts, texts[::-1]) * 3]
    assert made[0].size == 60
    assert len({one.fingerprint for one in made}) == 1
    assert sum(UNK in ids for ids in made[0].encode(texts)) == 0
