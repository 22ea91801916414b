"""Tokenizers: round trips, special tokens in text, determinism across processes, damaged files."""

import hashlib
import json
import subprocess
import sys

import pytest

from regard.core.errors import ConfigError, TokenizerError
from regard.core.types import BOS, EOS, PAD, SPECIALS, UNK
from regard.data import tokenizer_training
from regard.data.corpus import load_corpus
from regard.data.corpus_config import DataConfig
from regard.data.tokenizers import Tokenizer, TokenizerConfig, TokenizerPair
from regard.data.unigram import train_unigram

KINDS = ("bpe", "unigram", "word", "char", "byte")
TEXTS = [
    "Hello, world.",
    'He said (twice): "No way!"',
    "Don't pay $1,984.50 – it's a trap…",
    "Grüß Gott, schöne Welt!",
    "if a<b then </s> or <s> or <pad><unk> end",
    "It is 9.15 in the old world, Tom.",
]


def config(kind: str, **settings) -> TokenizerConfig:
    return TokenizerConfig(**{"kind": kind, "size": 300, "min_count": 1, **settings})


@pytest.fixture(scope="module", params=KINDS)
def tokenizer(request):
    return Tokenizer.train(TEXTS * 3, config(request.param))


@pytest.fixture(scope="module")
def tatoeba():
    return load_corpus(DataConfig(pairs="bundled:tatoeba-en-de", max_pairs=8000)).train


def test_text_round_trips_with_its_spacing(tokenizer):
    assert tokenizer.decode(tokenizer.encode(TEXTS)) == TEXTS
    assert all(UNK not in ids for ids in tokenizer.encode(TEXTS))


def test_special_tokens_written_in_a_text_are_text(tokenizer):
    texts = ["<s>", "</s>", "<pad>", "<unk>", "a<s>", "if a</s>", "<pad> <s>"]
    for text, ids in zip(texts, tokenizer.encode(texts), strict=True):
        assert len(ids) >= 3
        assert not {PAD, BOS, EOS} & set(ids), text
    loaded = Tokenizer.from_json(tokenizer.to_json())
    assert loaded.encode(texts) == tokenizer.encode(texts)


def test_special_ids_and_decoding(tokenizer):
    assert tokenizer.pieces([PAD, BOS, EOS, UNK]) == list(SPECIALS)
    (ids,) = tokenizer.encode(["Hello, world."])
    assert tokenizer.decode([[BOS, *ids, EOS, PAD, PAD], []]) == ["Hello, world.", ""]
    assert max(ids) < tokenizer.size
    assert tokenizer.pieces([10**6]) == ["<unk>"]


def test_json_round_trip(tokenizer):
    again = Tokenizer.from_json(tokenizer.to_json())
    assert again.to_json() == tokenizer.to_json()
    assert again.fingerprint == tokenizer.fingerprint == hashlib.sha256(tokenizer.to_json().encode()).hexdigest()
    assert again.encode(TEXTS) == tokenizer.encode(TEXTS)


def test_white_space_counts_as_one_space(tokenizer):
    text = "  Hello,\u00a0 world.\t"
    decoded = tokenizer.decode(tokenizer.encode([text]))[0]
    assert decoded == (text if tokenizer.size == 260 else "Hello, world.")
    assert tokenizer.encode([""]) == [[]]


def test_bytes_know_every_text():
    tokenizer = Tokenizer.train([], config("byte"))
    texts = ["naïve 😀 家\u0301", " two  spaces\n\ttab ", "cafe\u0301", "\x00\x7f", "▁"]
    assert tokenizer.decode(tokenizer.encode(texts)) == texts
    assert tokenizer.encode(["ä"]) == [[4 + byte for byte in "ä".encode()]]
    assert tokenizer.size == 260


def test_characters():
    tokenizer = Tokenizer.train(["ab c", "cab"], config("char"))
    assert tokenizer.pieces(tokenizer.encode(["ab c"])[0]) == ["a", "b", "▁", "c"]
    assert tokenizer.encode(["axb"])[0][1] == UNK
    assert tokenizer.size == 4 + len("abc▁")


def test_words():
    tokenizer = Tokenizer.train(["a b b, c c c", "d"], config("word", min_count=2))
    assert tokenizer.pieces(range(4, tokenizer.size)) == ["▁c", "▁b"]
    small = Tokenizer.train([f"w{chr(97 + i)} " * (i + 1) for i in range(20)], config("word", size=14))
    assert small.pieces(range(4, small.size)) == [f"▁w{chr(97 + i)}" for i in range(19, 9, -1)]


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_subwords_never_join_words_with_punctuation(kind, tatoeba):
    tokenizer = Tokenizer.train(tatoeba.sources, config(kind, size=1000, min_count=2))
    assert tokenizer.size == 1000
    pieces = [piece.removeprefix("▁") for piece in tokenizer.pieces(range(4, tokenizer.size))]
    assert all(piece.isalpha() for piece in pieces if len(piece) > 1)
    assert not any("▁" in piece for piece in pieces)
    assert tokenizer.pieces(tokenizer.encode(["in 1984"])[0])[-4:] == ["1", "9", "8", "4"]
    text = "He's very tired, isn't he?"
    assert tokenizer.decode(tokenizer.encode([text])) == [text]


def test_size_is_a_maximum_even_for_the_alphabet():
    texts = [chr(0x4E00 + i) * (i + 2) for i in range(200)]
    for kind in ("bpe", "unigram", "word"):
        tokenizer = Tokenizer.train(texts, config(kind, size=50))
        assert tokenizer.size <= 50
        if kind != "word":
            assert UNK not in tokenizer.encode([texts[-1]])[0], kind  # the frequent ones stay


def test_settings():
    lower = Tokenizer.train(TEXTS, config("char", lowercase=True))
    assert lower.decode(lower.encode(["Hello, WORLD."])) == ["hello, world."]
    composed = Tokenizer.train(["é ﬁ"], config("char"))
    assert composed.decode(composed.encode(["e\u0301 ﬁ"])) == ["é ﬁ"]
    compatible = Tokenizer.train(["é ﬁ"], config("char", normalize="nfkc"))
    assert compatible.decode(compatible.encode(["é ﬁ"])) == ["é fi"]
    untouched = Tokenizer.train(["e\u0301"], config("char", normalize="none"))
    assert untouched.decode(untouched.encode(["e\u0301"])) == ["e\u0301"]
    whole = Tokenizer.train(["in 1984"] * 9, config("word", split_digits=False))
    assert whole.pieces(whole.encode(["in 1984"])[0]) == ["▁in", "▁1984"]


def test_unigram_prefers_frequent_whole_words():
    words = {"▁the": 500, "▁then": 60, "▁other": 80, "▁he": 200, "▁t": 3, "▁hen": 2}
    pieces = dict(train_unigram(words, 12))
    assert {"▁the", "▁he"} <= set(pieces)
    assert set("▁thenor") <= set(pieces)
    assert len(pieces) == 12
    assert pieces["▁the"] > pieces["▁he"] > pieces["o"]
    assert all(score < 0 for score in pieces.values())


def test_unigram_takes_words_longer_than_its_window():
    tokenizer = Tokenizer.train(["abcde" * 100], config("unigram"))
    assert len(tokenizer.encode(["abcde" * 100])[0]) < 150
    assert tokenizer.decode(tokenizer.encode(["abcde" * 100])) == ["abcde" * 100]


def test_unigram_compresses_better_than_bpe(tatoeba):
    lengths = {}
    for kind in ("bpe", "unigram"):
        encoded = Tokenizer.train(tatoeba.targets, config(kind, size=2000)).encode(tatoeba.targets)
        lengths[kind] = sum(map(len, encoded))
    assert lengths["unigram"] < 0.99 * lengths["bpe"]


_TRAIN = """
from regard.data.corpus import read_tsv
from regard.data.tokenizers import Tokenizer, TokenizerConfig
pairs = read_tsv("bundled:tatoeba-en-de")
texts = pairs.sources[::60] + pairs.targets[::60]
for kind in ("bpe", "unigram", "word", "char"):
    print(kind, Tokenizer.train(texts, TokenizerConfig(kind=kind, size=2000)).fingerprint)
    print(kind, Tokenizer.train(texts, TokenizerConfig(kind=kind, size=60)).fingerprint)
"""


def test_training_is_the_same_in_every_process():
    command = [sys.executable, "-c", _TRAIN]
    first, second = (subprocess.run(command, capture_output=True, text=True, check=True).stdout for _ in range(2))
    assert first == second
    assert len(set(first.split())) == 4 + 7  # kinds, and different tokenizers (char has no size)


@pytest.mark.parametrize(
    "settings", [{}, {"lowercase": True, "normalize": "nfkc"}, {"split_digits": False, "min_count": 5}]
)
def test_counted_words_are_merged_as_lines_are(settings, tatoeba):
    """The library's own way, from lines, gives the same pieces and merges."""
    texts = [
        *tatoeba.sources[:2000],
        *tatoeba.targets[:2000],
        *TEXTS,
        "ﬁn ½ e\u0301\u00a0x  \u2003 ４２, 4a2b",
        "▁ ▁▁a_▁",
    ]
    chosen = config("bpe", **{"size": 900, "min_count": 2, **settings})
    made = json.loads(Tokenizer.train(texts, chosen).to_json())["model"]
    by_lines = tokenizer_training._untrained(chosen)
    words = tokenizer_training._count_words(texts, by_lines)
    alphabet = tokenizer_training._alphabet(words, chosen.size - len(SPECIALS))
    tokenizer_training._merge(by_lines, texts, chosen, [], alphabet)
    other = json.loads(by_lines.to_str())["model"]
    assert len(made["merges"]) > 500
    assert (made["vocab"], made["merges"]) == (other["vocab"], other["merges"])


def test_pair_files(tmp_path):
    sources, targets = ["the old house"] * 5, ["das alte Haus"] * 5
    joint = TokenizerPair.train(sources, targets, config("bpe"))
    assert joint.source is joint.target
    (tmp_path / "joint").mkdir()
    joint.save(tmp_path / "joint")
    assert [path.name for path in (tmp_path / "joint").iterdir()] == ["tokenizer.json"]
    loaded = TokenizerPair.load(tmp_path / "joint")
    assert loaded.joint
    assert loaded.source.fingerprint == joint.source.fingerprint

    apart = TokenizerPair.train(sources, targets, config("bpe", joint=False))
    (tmp_path / "apart").mkdir()
    apart.save(tmp_path / "apart")
    loaded = TokenizerPair.load(tmp_path / "apart")
    assert not loaded.joint
    assert loaded.target.encode(targets) == apart.target.encode(targets)
    assert loaded.source.fingerprint == apart.source.fingerprint != loaded.target.fingerprint
    (tmp_path / "apart" / "tokenizer.tgt.json").unlink()
    with pytest.raises(TokenizerError, match=r"tokenizer\.tgt\.json: the file is missing"):
        TokenizerPair.load(tmp_path / "apart")
    with pytest.raises(TokenizerError, match="holds no tokenizer"):
        TokenizerPair.load(tmp_path)
    (tmp_path / "joint" / "tokenizer.json").write_bytes(b"\xff\xfe")
    with pytest.raises(TokenizerError, match="not UTF-8"):
        TokenizerPair.load(tmp_path / "joint")


def test_foreign_and_damaged_json():
    good = Tokenizer.train(TEXTS, config("bpe")).to_json()
    for text in ("", "{", good[:-30], "[1, 2]", '{"hello": 1}', "null", good.replace('"BPE"', '"XYZ"')):
        with pytest.raises(TokenizerError, match="file: it is not a tokenizer, or a damaged one"):
            Tokenizer.from_json(text, "file")
    value = json.loads(good)
    value["added_tokens"] = []
    vocab = value["model"]["vocab"]
    vocab["<pad>"], vocab["<s>"] = vocab["<s>"], vocab["<pad>"]
    with pytest.raises(TokenizerError, match="tokens 0 to 3 must be <pad> <s> </s> <unk>, got <s> <pad>"):
        Tokenizer.from_json(json.dumps(value))
    value = json.loads(good)
    last = max(value["model"]["vocab"], key=value["model"]["vocab"].get)
    value["model"]["vocab"][last] += 50
    with pytest.raises(TokenizerError, match="gaps"):
        Tokenizer.from_json(json.dumps(value))


def test_truncation_in_a_file_is_not_obeyed():
    value = json.loads(Tokenizer.train(TEXTS, config("char")).to_json())
    value["truncation"] = {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0}
    assert len(Tokenizer.from_json(json.dumps(value)).encode(["Hello"])[0]) == 5


def test_bad_text_and_settings():
    with pytest.raises(TokenizerError, match="no text to train"):
        Tokenizer.train(["", "  "], config("bpe"))
    with pytest.raises(TokenizerError, match="not valid Unicode"):
        Tokenizer.train(TEXTS, config("char")).encode(["fine", "bad \udcff"])
    for settings in ({"size": 4}, {"min_count": 0}):
        with pytest.raises(ConfigError):
            TokenizerConfig(**settings)


ODD = [
    "", "   ", "a", " a  b ", "a\tb\u00a0c\u3000d\u2028e", "x ´abc abc¨ ½ ﬁ", "e\u0301 \u0301e ne\u0301", "▁ a▁b ▁▁", "</s> <pad>",
    "1,000.50 (3-4) 'don't'", "日本語 です。 これは", "नमस्ते दुनिया", "👍🏽 ok👍",
    "\u200bz\u200b w", "a\x85b\x0bc\x0cd", "A\x1cB \x1f", "ſ ẞ İ ǅ",
]  # fmt: skip


@pytest.mark.parametrize("normalize", ["nfc", "nfkc", "none"])
@pytest.mark.parametrize("kind", ["bpe", "unigram", "word", "char", "byte"])
def test_word_by_word_is_the_same(kind, normalize, tatoeba):
    texts = [*ODD, *tatoeba.sources[:300], *tatoeba.targets[:300]]
    for lowercase in (False, True):
        tokenizer = Tokenizer.train(texts[:400], config(kind, size=400, normalize=normalize, lowercase=lowercase))
        for chunk in (texts, [text for text in texts if not set(text) & {"\x1c", "\x1f"}], texts[::-1]):
            assert tokenizer.encode_many(chunk) == tokenizer.encode(chunk)
        assert bool(tokenizer._words) == (kind in ("bpe", "unigram", "word"))


def test_remembered_words_are_bounded(tatoeba, monkeypatch):
    monkeypatch.setattr("regard.data.tokenizers.MOST_WORDS", 20)
    tokenizer = Tokenizer.train(tatoeba.sources[:200], config("bpe", size=400))
    for begin in range(0, 300, 30):
        part = tatoeba.sources[begin : begin + 30]
        assert tokenizer.encode_many(part) == tokenizer.encode(part)
        assert len(tokenizer._words) < 400


def test_tags_are_tokens_that_no_text_spells(tatoeba):
    for kind in ("bpe", "unigram", "word", "char", "byte"):
        tokenizer = Tokenizer.train(tatoeba.sources[:200], config(kind, size=400), tags=["<a>", "<b>"])
        again = Tokenizer.from_json(tokenizer.to_json())
        assert again.tags == tokenizer.tags == {"<a>": 4, "<b>": 5}
        ids = again.encode(["<a> b <b><a>"])[0]
        assert not {4, 5} & set(ids)
        assert again.decode([[4, *ids, 5]]) == again.decode([ids])
        assert again.pieces([4, 5]) == ["<a>", "<b>"]
        with pytest.raises(
            TokenizerError, match=r"tag 'c': the model was not trained with this tag, it knows <a>, <b>"
        ):
            again.tag("c")
