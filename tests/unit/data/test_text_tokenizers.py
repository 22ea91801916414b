"""Tokenizers for language models: words between spaces, byte-level BPE, GPT-2's own files, and texts of any length."""

import json
import random
import subprocess
import sys

import numpy as np
import pytest

from regard.core.errors import ConfigError, DataError, TokenizerError
from regard.core.types import BOS, EOS, PAD, SPECIALS, UNK
from regard.data.bpe_dropout import BpeDropout
from regard.data.documents import read_documents
from regard.data.long_texts import parts_of
from regard.data.tokenizer_training import byte_names
from regard.data.tokenizers import Tokenizer, TokenizerConfig, TokenizerPair, gpt2_tokenizer

PTB = ["the u.s. did n't buy N <unk> shares", "n't <unk> the the N mr. <unk>"]
ODD = [
    "", " ", "\n", "a\r\nb\n\n\n  c \t", "  two  spaces", "don't I'LL they'll we've 's", "naïve 家 👍🏽 e\u0301",
    "\x00\x7f\x1c\x85",
    "</s><s><pad> <unk>", "<|endoftext|>", "▁ a▁b", "12,345.67 ½ x²", "x\u00a0y\u3000z\u2028w", "नमस्ते दुनिया", "a" * 300,
]  # fmt: skip


@pytest.fixture(scope="module")
def shakespeare() -> str:
    return read_documents("bundled:tinyshakespeare", "file").texts[0][:60_000]


def config(kind: str, **settings) -> TokenizerConfig:
    return TokenizerConfig(**{"kind": kind, "size": 400, "min_count": 1, **settings})


def test_words_between_spaces_stay_whole():
    tokenizer = Tokenizer.train(PTB, config("space"))
    ids = tokenizer.encode(PTB)
    assert tokenizer.pieces(ids[0]) == ["▁the", "▁u.s.", "▁did", "▁n't", "▁buy", "▁N", "<unk>", "▁shares"]
    assert tokenizer.decode(ids) == PTB
    assert [row.count(UNK) for row in ids] == [1, 2]
    assert tokenizer.size == len(SPECIALS) + 8  # without <unk>, which is UNK
    assert tokenizer.pieces(range(4, 7)) == ["▁the", "▁N", "▁n't"]  # by frequency, then by the alphabet
    assert tokenizer.encode(["the new N"]) == [[4, UNK, 5]]
    assert tokenizer.decode([[BOS, 4, UNK, 5, EOS, PAD]]) == ["the <unk> N"]
    assert tokenizer.encode(["  the \t\n N "]) == [[4, 5]]
    again = Tokenizer.from_json(tokenizer.to_json())
    assert again.encode(PTB) == ids
    assert again.decode(ids) == PTB
    assert tokenizer.encode_many(PTB) == ids


def test_words_between_spaces_are_taken_as_they_are():
    texts = ["don't e\u0301 ﬁ @-@ 1,000.50 a<unk>b <unk>, <UNK>", "(x)"]
    tokenizer = Tokenizer.train(texts, config("space", normalize="nfkc"))
    assert tokenizer.decode(tokenizer.encode(texts)) == texts
    assert not any(UNK in ids for ids in tokenizer.encode(texts))
    assert len(tokenizer.encode(texts)[0]) == 8
    lower = Tokenizer.train(["The THE the"], config("space", lowercase=True))
    assert lower.decode(lower.encode(["THE"])) == ["the"]


def test_words_that_look_like_special_tokens_are_words():
    texts = ["<s> a </s> b <pad> <unk>", "</s> </s>"]
    tokenizer = Tokenizer.train(texts, config("space"))
    ids = tokenizer.encode(texts)
    assert not {PAD, BOS, EOS} & {i for row in ids for i in row}
    assert tokenizer.decode(ids) == texts
    assert ids[0][-1] == UNK
    unseen = Tokenizer.train(["a b"], config("space"))
    assert unseen.encode(["<s> </s> <pad> <unk>"]) == [[UNK] * 4]


def test_size_and_count_of_words_between_spaces_are_exact():
    texts = [f"w{i} " * (i + 1) + "<unk> " * 50 for i in range(20)]
    tokenizer = Tokenizer.train(texts, config("space", size=14))
    assert tokenizer.size == 14
    assert tokenizer.pieces(range(4, 14)) == [f"▁w{i}" for i in range(19, 9, -1)]
    assert Tokenizer.train(texts, config("space", min_count=15)).size == 4 + 6


def test_listed_words_belong_to_the_vocabulary(tmp_path):
    path = tmp_path / "words.txt"
    path.write_text("the\nnever\n\n<unk>\nn't\nnever\nseen\r\n")
    tokenizer = Tokenizer.train(PTB, config("space", words=str(path)))
    plain = Tokenizer.train(PTB, config("space"))
    assert tokenizer.size == plain.size + 2
    # the text's words by frequency as before, then those that never occur in it, by the alphabet
    assert tokenizer.pieces(range(plain.size)) == plain.pieces(range(plain.size))
    assert tokenizer.pieces(range(plain.size, tokenizer.size)) == ["▁never", "▁seen"]
    assert tokenizer.encode(["never <unk> other"]) == [[plain.size, UNK, UNK]]
    rare = Tokenizer.train(PTB, config("space", words=str(path), min_count=2))
    assert rare.pieces(range(4, rare.size)) == ["▁the", "▁N", "▁n't", "▁never", "▁seen"]
    words = Tokenizer.train(PTB, config("word", words=str(path)))  # as a text of them is cut
    assert words.pieces(words.encode(["never seen"])[0]) == ["▁never", "▁seen"]
    assert UNK not in words.encode(["n't"])[0]


def test_listed_words_come_first_where_there_is_little_room(tmp_path, monkeypatch):
    path = tmp_path / "words.txt"
    path.write_text("never\nw3\nseen")
    texts = [f"w{i} " * (20 - i) for i in range(20)]
    tokenizer = Tokenizer.train(texts, config("space", size=9, words=str(path)))
    assert tokenizer.pieces(range(4, 9)) == ["▁w0", "▁w1", "▁w3", "▁never", "▁seen"]
    path.write_text("\n".join("abcdef"))
    with pytest.raises(ConfigError, match=r"its 6 words do not fit into tokenizer.size=9. Use at least 10"):
        Tokenizer.train(texts, config("space", size=9, words=str(path)))
    monkeypatch.chdir(tmp_path)
    relative = Tokenizer.train(texts, config("space", words="words.txt"))
    assert relative.fingerprint == Tokenizer.train(texts, config("space", words=str(path))).fingerprint


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "there are no words in it. Give a UTF-8 file with one word on each line"),
        (b"\n \n", "there are no words in it"),
        (b"one\ntwo words\n", "line 2: 2 words stand there"),
        (b"B\xe4r\n", "line 1: the text is not UTF-8"),
        (b"aaaa\nbbbbbb\0bbbbbbbbbbb\n", "line 2: a null character stands there"),
        (b"a\n" * 30, "it holds more than 0 MiB of text"),
        (None, "there is no such file"),
    ],
)
def test_word_lists_that_are_refused(tmp_path, monkeypatch, content, what):
    monkeypatch.setattr("regard.data.word_list.MAX_LIST_BYTES", 50)
    path = tmp_path / "words.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DataError, match=what):
        Tokenizer.train(["a"], config("space", words=str(path)))


def test_word_lists_are_files_and_for_words():
    for address in ("-", "hf:some/set", "bundled:tinyshakespeare", "a\0b"):
        with pytest.raises(ConfigError, match=r"setting tokenizer\.words: .* is no file"):
            Tokenizer.train(["a"], config("space", words=address))
    for kind in ("bpe", "unigram", "char", "byte", "bytebpe"):
        with pytest.raises(ConfigError, match=f"tokenizer.words: the tokens of tokenizer.kind={kind} are not words"):
            config(kind, words="words.txt")


def test_pieces_of_bytes_give_every_text_back(shakespeare):
    tokenizer = Tokenizer.train([shakespeare], config("bytebpe"))
    assert tokenizer.size == 400
    texts = [*ODD, shakespeare]
    ids = tokenizer.encode(texts)
    assert tokenizer.decode(ids) == texts
    assert not any(set(row) & {PAD, BOS, EOS, UNK} for row in ids)
    assert len(ids[-1]) < 0.6 * len(shakespeare)
    draw = random.Random(1)
    made = [
        "".join(chr(draw.choice([10, 32, 39, draw.randrange(0xD800), 0x1F600])) for _ in range(20)) for _ in range(300)
    ]
    assert tokenizer.decode(tokenizer.encode(made)) == made
    again = Tokenizer.from_json(tokenizer.to_json())
    assert again.encode(texts) == ids
    assert tokenizer.encode_many(texts) == ids


def test_pieces_of_bytes_are_cut_as_gpt2_cuts():
    tokenizer = Tokenizer.train(["they'll see it's 123 dogs!! \n\n  now"] * 50, config("bytebpe", size=500))
    pieces = tokenizer.pieces(tokenizer.encode(["they'll see it's 123 dogs!! \n\n  now"])[0])
    # GPT-2's rules: endings, words and numbers with the space before, signs; of several spaces the last goes with a word.
    assert pieces == ["they", "'ll", "Ġsee", "Ġit", "'s", "Ġ123", "Ġdogs", "!!", "ĠĊĊĠ", "Ġnow"]
    assert tokenizer.pieces(range(4, 260)) == sorted(byte_names())


def test_bytes_are_never_normalised_but_may_be_lowered():
    tokenizer = Tokenizer.train(["abc"], config("bytebpe", normalize="nfkc"))
    assert tokenizer.decode(tokenizer.encode(["e\u0301 ﬁ"])) == ["e\u0301 ﬁ"]
    lower = Tokenizer.train(["abc"], config("bytebpe", lowercase=True))
    assert lower.decode(lower.encode(["ABC\n"])) == ["abc\n"]


def test_pieces_of_bytes_need_room_and_text():
    for size in (100, 259):
        with pytest.raises(ConfigError, match=f"{size} tokens are too few: bytes and special tokens are 260"):
            config("bytebpe", size=size)
    assert Tokenizer.train(["abab"], config("bytebpe", size=260)).size == 260
    with pytest.raises(ConfigError, match="too few for bytes, special tokens and 1 tags"):
        Tokenizer.train(["abab"], config("bytebpe", size=260), tags=["<a>"])
    with pytest.raises(TokenizerError, match="no text to train"):
        Tokenizer.train(["", ""], config("bytebpe"))


def test_tags_are_tokens_that_no_text_spells():
    for kind in ("space", "bytebpe"):
        tokenizer = Tokenizer.train(["a <b> <b>", "<a> <--> <-->"] * 9, config(kind), tags=["<a>", "<b>"])
        assert tokenizer.tags == {"<a>": 4, "<b>": 5}
        (ids,) = tokenizer.encode(["<a> <b>"])
        assert not {4, 5} & set(ids)
        assert tokenizer.decode([[4, *ids]]) == ["<a> <b>"]
    with pytest.raises(ConfigError, match="tag <-->: a text may spell it"):
        Tokenizer.train(["<--> <-->"] * 9, config("bytebpe"), tags=["<-->"])


def test_bpe_dropout_refuses_bytes(shakespeare):
    with pytest.raises(ConfigError, match="this tokenizer merges bytes"):
        BpeDropout(Tokenizer.train([shakespeare], config("bytebpe")))


_TRAIN = """
from regard.data.documents import read_documents
from regard.data.tokenizers import TokenizerPair, TokenizerConfig
texts = read_documents("bundled:tinyshakespeare").texts[::30]
for kind in ("space", "bytebpe"):
    for size in (300, 1000):
        print(TokenizerPair.train_on_text(texts, TokenizerConfig(kind=kind, size=size)).target.fingerprint)
"""


def test_training_is_the_same_in_every_process():
    command = [sys.executable, "-c", _TRAIN]
    first, second = (subprocess.run(command, capture_output=True, text=True, check=True).stdout for _ in range(2))
    assert first == second
    assert len(set(first.split())) == 4


def test_one_tokenizer_for_a_text():
    documents = [f"word{i}" for i in range(10)] + ["x"]
    pair = TokenizerPair.train_on_text(documents, config("space"))
    assert pair.joint
    assert pair.source is pair.target
    assert pair.target.size == 4 + 11
    few = TokenizerPair.train_on_text(documents, config("space", lines=4)).target
    assert sorted(few.pieces(range(4, few.size))) == ["▁word0", "▁word3", "▁word6", "▁word9"]
    long = "some words " * 20_000
    assert TokenizerPair.train_on_text([long], config("space")).target.size == 6


@pytest.mark.parametrize("normalize", ["nfc", "nfkc"])
@pytest.mark.parametrize("kind", ["bpe", "unigram", "word", "char", "byte", "space", "bytebpe"])
def test_a_long_text_has_the_same_tokens_in_parts(kind, normalize, shakespeare, monkeypatch):
    odd = " \n".join([*ODD, *ODD[::-1], "  if a:\n\n    b  \n  \n   c   d " * 20])  # white space that becomes pieces
    tokenizer = Tokenizer.train([shakespeare, odd], config(kind, size=600, normalize=normalize))
    assert tokenizer._between is not None
    for text in (odd, f" {odd}\n ", shakespeare[:3000], "", "  \n "):
        (whole,) = tokenizer.encode([text])
        for size in (1, 7, 200, 1 << 16):
            monkeypatch.setattr("regard.data.tokenizers.parts_of", lambda text, size=size: parts_of(text, size))
            assert [i for ids in tokenizer.encode_long(text) for i in ids] == whole, size


def test_tokenizers_made_elsewhere_get_a_text_as_a_whole(shakespeare):
    value = json.loads(Tokenizer.train([shakespeare], config("bpe")).to_json())
    for change in ({"normalizer": None}, {"normalizer": {"type": "NFC"}}, {"pre_tokenizer": None}):
        tokenizer = Tokenizer.from_json(json.dumps({**value, **change}))
        assert tokenizer._between is None
        assert list(tokenizer.encode_long(" a  b\n")) == tokenizer.encode([" a  b\n"])
        assert tokenizer.encode_many([" a  b\n"]) == tokenizer.encode([" a  b\n"])
    value = json.loads(Tokenizer.train([shakespeare], config("bytebpe")).to_json())
    for change in ({"use_regex": False}, {"add_prefix_space": True}):
        foreign = {**value, "pre_tokenizer": {**value["pre_tokenizer"], **change}}
        assert Tokenizer.from_json(json.dumps(foreign))._between is None


def gpt2_files(folder, merges=("a b", "Ġ c", "ab Ġc"), extra=("<|endoftext|>",)):
    """A vocabulary in the form of GPT-2's: bytes in its order, what merges make, and its special token."""
    tokens = [*sorted(byte_names()), *("".join(merge.split()) for merge in merges), *extra]
    encoder, bpe = folder / "encoder.json", folder / "vocab.bpe"
    encoder.write_text(json.dumps({token: i for i, token in enumerate(tokens)}))
    bpe.write_text("#version: 0.2\n" + "".join(merge + "\n" for merge in merges), encoding="utf-8")
    return encoder, bpe


def test_gpt2_files(tmp_path):
    tokenizer = gpt2_tokenizer(*gpt2_files(tmp_path))
    assert tokenizer.size == 4 + 256 + 3
    assert tokenizer.pieces([0, 1, 2, 3]) == list(SPECIALS)
    # "!" is GPT-2's token 0, a is 64, b is 65, c is 66; the merges make 256, 257; ab and " c" are never joined over a cut
    assert tokenizer.encode(["!ab c", "ba\n"]) == [[4, 260, 261], [69, 68, 4 + 198]]
    assert tokenizer.decode(tokenizer.encode(ODD)) == ODD
    assert not any(set(ids) & {PAD, BOS, EOS, UNK} for ids in tokenizer.encode(ODD))
    assert Tokenizer.from_json(tokenizer.to_json()).encode(ODD) == tokenizer.encode(ODD)
    assert gpt2_tokenizer(*gpt2_files(tmp_path, extra=())).encode(["!ab c"]) == [[4, 260, 261]]
    assert tokenizer._between == []


def test_gpt2_files_agree_with_hugging_face(tmp_path, shakespeare):
    transformers = pytest.importorskip("transformers")
    own = json.loads(Tokenizer.train([shakespeare], config("bytebpe", size=1000)).to_json())["model"]
    merges = [" ".join(merge) for merge in own["merges"]]
    encoder, bpe = gpt2_files(tmp_path, merges)
    tokenizer = gpt2_tokenizer(encoder, bpe)
    theirs = transformers.GPT2Tokenizer(str(encoder), str(bpe))
    texts = [text for text in [*ODD, shakespeare] if text and "<|" not in text]
    for text, ids in zip(texts, tokenizer.encode(texts), strict=True):
        assert ids == (np.array(theirs(text)["input_ids"]) + 4).tolist()


def test_damaged_gpt2_files(tmp_path):
    encoder, bpe = gpt2_files(tmp_path)
    tokens = json.loads(encoder.read_text())
    good = bpe.read_text(encoding="utf-8")

    def refused(what: str) -> None:
        with pytest.raises(TokenizerError, match=what):
            gpt2_tokenizer(encoder, bpe)

    for line in ("a", "a b c", "a z", "ab ab"):
        bpe.write_text(f"{good}{line}\n", encoding="utf-8")
        refused(f"vocab.bpe, line 5: '{line}' does not make a token of two")
    bpe.write_bytes(b"\xff")
    refused("vocab.bpe: it is not UTF-8 text")
    bpe.write_text(good, encoding="utf-8")
    for content in ("{", "[" * 100_000, "\udcff"):
        encoder.write_bytes(content.encode(errors="surrogateescape"))
        refused("encoder.json: it is not JSON")
    for value in ([1], {"a": "b"}, {"a": True}, {"a": 0.0}):
        encoder.write_text(json.dumps(value))
        refused("no table of tokens")
    end = len(tokens) - 1
    for change, what in (
        ({"a": 10_000}, "not numbered from 0 on"),
        ({"<|endoftext|>": 0, "!": end}, r"<\|endoftext\|> is not its last token"),
        ({"<|endoftext|>": end + 1, "<s>": end}, "the token '<s>' is not made of bytes"),
        ({"<|endoftext|>": end + 1, "家": end}, "the token '家' is not made of bytes"),
    ):
        encoder.write_text(json.dumps({**tokens, **change}))
        refused(what)
    fewer = [token for token in tokens if token not in "xyz"]
    encoder.write_text(json.dumps({token: i for i, token in enumerate(fewer)}))
    refused("3 of the 256 bytes are not among its tokens")
    encoder.unlink()
    refused("encoder.json: the file is missing")
