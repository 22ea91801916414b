"""Reading and dividing labelled text."""

from __future__ import annotations

import gzip
import random

import pytest

from regard.core.errors import ConfigError, DataError
from regard.core.types import EOS
from regard.data.corpus_config import DataConfig
from regard.data.labelled import load_labelled, read_labelled
from regard.data.labelled_tokens import token_rows
from regard.data.tokenizers import Tokenizer, TokenizerConfig

GOOD = "pos\ta fine film\nneg\ta dull film\n"


@pytest.fixture
def write(tmp_path):
    def put(content: str | bytes, name: str = "text.tsv") -> str:
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(tmp_path / name)

    return put


def many(count: int, seed: int = 0) -> str:
    draw = random.Random(seed)
    return "".join(f"{draw.choice('ab')}\ttext number {i}\n" for i in range(count))


def test_a_label_stands_before_the_first_tab(write):
    found = read_labelled(write("pos \t a  fine film \r\n\nneg\tit is dull\n   \n"))
    assert found.part.labels == ["pos", "neg"]
    assert found.part.texts == ["a  fine film", "it is dull"]
    assert found.part.seconds == []
    assert (found.lines, found.empty) == ([1, 3], 2)


def test_labels_may_have_spaces_where_there_are_tabs(write):
    assert read_labelled(write("very good\ta film\nbad\tthe film\n")).part.labels == ["very good", "bad"]


def test_without_any_tab_the_first_word_is_the_label(write):
    found = read_labelled(write("1 a fine film\n0 it  is dull \n", "sst.train")).part
    assert (found.labels, found.texts) == (["1", "0"], ["a fine film", "it  is dull"])


def test_a_third_column_is_a_second_text(write):
    found = read_labelled(write("yes\tit rains\tit is wet\nno\tit rains\tit is dry\n")).part
    assert (found.texts, found.seconds) == (["it rains"] * 2, ["it is wet", "it is dry"])


def test_packed_files_are_read(write):
    assert read_labelled(write(gzip.compress(GOOD.encode()), "text.tsv.gz")).part.labels == ["pos", "neg"]


@pytest.mark.parametrize(
    ("content", "line", "message"),
    [
        ("pos\tfine\nneg\t\n", 2, "the text of the label 'neg' is empty"),
        ("pos\tfine\tyes\nneg\tdull\t \n", 2, "the second text of the label 'neg' is empty"),
        ("pos\tfine\n\nneg\n", 3, "2 tab-separated columns are expected.*got 1"),
        ("pos\tfine\nneg\tdull\tfilm\n", 2, "2 tab-separated columns are expected.*got 3"),
        ("pos\tfine\tyes\nneg\tdull\n", 2, "3 tab-separated columns are expected.*got 2"),
        ("a\tb\tc\td\n", 1, "2 or 3 tab-separated columns are expected.*got 4"),
        ("pos\tfine\n\tdull\n", 2, "no label before the first tab"),
        ("pos fine\nneg\n", 2, "the label 'neg' has no text"),
        ("pos\tfine\nneg\tdu\0ll\n", 2, "null character"),
        (f"pos\tfine\n{'n' * 201}\tdull\n", 2, "201 characters"),
        (b"pos\tfine\nneg\tcr\xe8me\n", 2, "not UTF-8.*iconv"),
    ],
)
def test_what_is_wrong_with_a_line_is_said_with_its_number(write, content, line, message):
    path = write(content)
    with pytest.raises(DataError, match=message) as caught:
        read_labelled(path)
    assert caught.value.where == f"{path}, line {line}"


@pytest.mark.parametrize(("name", "content"), [("t.csv", GOOD), ("t.jsonl.gz", gzip.compress(b"{}\n"))])
def test_other_formats_are_refused(write, name, content):
    with pytest.raises(DataError, match="from lines only"):
        read_labelled(write(content, name))


@pytest.mark.parametrize("content", ["", "\n \n"])
def test_a_file_with_nothing_in_it_is_refused(write, content):
    with pytest.raises(DataError, match=r"empty|nothing stands"):
        read_labelled(write(content))


@pytest.mark.parametrize("address", ["-", "hf:glue"])
def test_only_files_are_read(address):
    with pytest.raises(DataError, match="files only"):
        load_labelled(DataConfig(labelled=address))


def test_a_bundled_text_without_labels_is_refused():
    with pytest.raises(DataError, match=r"no labelled text of this name is bundled.*ud-ewt-genres-train"):
        load_labelled(DataConfig(labelled="bundled:tinyshakespeare"))


def test_the_bundled_genres_are_read_and_no_sentence_stands_on_two_sides():
    parts = {"labelled": "train", "valid_labelled": "valid", "test_labelled": "test"}
    corpus = load_labelled(DataConfig(**{key: f"bundled:ud-ewt-genres-{name}" for key, name in parts.items()}))
    assert [len(part) for part in (corpus.train, corpus.valid, corpus.test)] == [3400, 416, 411]
    assert corpus.labels == ("answers", "email", "newsgroup", "reviews", "weblog")
    assert corpus.repeated == {"valid": 0, "test": 0}


def test_one_label_only_is_refused(write):
    with pytest.raises(DataError, match="all its 2 texts have one label, 'pos'"):
        load_labelled(DataConfig(labelled=write("pos\ta\npos\tb\n")))


def test_a_file_whose_first_column_is_the_text_is_refused(write):
    with pytest.raises(DataError, match=r"20 lines have 20 labels.*first column"):
        load_labelled(DataConfig(labelled=write("".join(f"text {i}\t{i % 2}\n" for i in range(20)))))


@pytest.mark.parametrize(
    ("labels", "expected"),
    [(["b", "a", "c"], ("a", "b", "c")), (["10", "9", "-1"], ("-1", "9", "10")), (["10", "9", "x"], ("10", "9", "x"))],
)
def test_numbers_are_in_order_of_their_value_other_labels_of_their_letters(write, labels, expected):
    text = "".join(f"{label}\ttext {label} {i}\n" for i in range(3) for label in labels)
    assert load_labelled(DataConfig(labelled=write(text), valid_size=-1, test_size=-1)).labels == expected


@pytest.mark.parametrize("part", ["valid", "test"])
def test_a_label_that_training_does_not_have_is_refused_with_its_line(write, part):
    held = write("pos\tfine\n\nnew\tunheard of\n", "held.tsv")
    with pytest.raises(DataError, match="the label 'new' does not stand in") as caught:
        load_labelled(DataConfig(labelled=write(GOOD), **{f"{part}_labelled": held}))
    assert caught.value.where == f"{held}, line 3"


def test_files_of_one_and_of_two_texts_do_not_go_together(write):
    with pytest.raises(DataError, match="its lines have two texts"):
        load_labelled(DataConfig(labelled=write(GOOD), test_labelled=write("pos\ta\tb\n", "held.tsv")))


def test_parts_come_from_files_in_the_folder(write, tmp_path):
    for name in ("train", "valid", "test"):
        write(GOOD.replace("film", name), f"{name}.tsv")
    said: list[str] = []
    corpus = load_labelled(
        DataConfig(folder=str(tmp_path), labelled="train.tsv", valid_labelled="valid.tsv", test_labelled="test.tsv"),
        said.append,
    )
    assert [part.texts[0] for part in (corpus.train, corpus.valid, corpus.test)] == [
        "a fine train",
        "a fine valid",
        "a fine test",
    ]
    assert corpus.labels == ("neg", "pos")
    assert not corpus.two_texts
    assert corpus.repeated == {"valid": 0, "test": 0}
    assert set(corpus.files) == {"labelled", "valid_labelled", "test_labelled"}


def test_held_out_texts_never_stand_on_two_sides(write):
    text = many(300) + "".join(f"{'ab'[i % 2]}\tText: number {i}!\n" for i in range(0, 300, 3))  # the same to a learner
    corpus = load_labelled(DataConfig(labelled=write(text), valid_size=30, test_size=20))
    assert (len(corpus.valid), len(corpus.test)) == (30, 20)
    keys = [
        {t.lower().replace(":", "").replace("!", "") for t in p.texts}
        for p in (corpus.train, corpus.valid, corpus.test)
    ]
    assert not keys[0] & keys[1]
    assert not keys[0] & keys[2]
    assert not keys[1] & keys[2]
    assert len(corpus.train) + 50 + corpus.set_apart == 400
    assert corpus.set_apart > 0


def test_pairs_of_texts_are_held_out_as_pairs(write):
    text = "".join(f"{'ab'[i % 2]}\tfirst {i % 20}\tsecond {i // 20}\n" for i in range(200))
    corpus = load_labelled(DataConfig(labelled=write(text), valid_size=40, test_size=0))
    pairs = [set(zip(part.texts, part.seconds, strict=True)) for part in (corpus.train, corpus.valid, corpus.test)]
    assert [len(pair) for pair in pairs] == [140, 40, 20]
    assert not pairs[0] & (pairs[1] | pairs[2])
    assert corpus.set_apart == 0


def test_the_same_settings_give_the_same_parts_and_another_seed_others(write):
    path = write(many(200))
    first, again = (load_labelled(DataConfig(labelled=path)) for _ in range(2))
    other = load_labelled(DataConfig(labelled=path, split_seed=2))
    assert first.valid.texts == again.valid.texts
    assert first.fingerprint == again.fingerprint
    assert first.valid.texts != other.valid.texts
    assert first.fingerprint != other.fingerprint


def test_the_fingerprint_sees_a_changed_label(write):
    before = load_labelled(DataConfig(labelled=write(GOOD), valid_size=-1, test_size=-1)).fingerprint
    swapped = GOOD.replace("pos", "x").replace("neg", "pos").replace("x", "neg")
    assert load_labelled(DataConfig(labelled=write(swapped), valid_size=-1, test_size=-1)).fingerprint != before


def test_sizes_mean_what_they_mean_for_pairs(write):
    path, held = write(many(300)), write("a\tanother\nb\tthing\n", "held.tsv")
    for settings, expected in [
        ({}, (30, 30)),
        ({"valid_size": 7, "test_size": -1}, (7, 0)),
        ({"valid_size": -1, "test_size": -1}, (0, 0)),
        ({"valid_labelled": held}, (2, 0)),  # who gives a file for one part is not surprised by another
        ({"valid_labelled": held, "test_size": 5}, (2, 5)),
        ({"test_labelled": held}, (30, 2)),
    ]:
        corpus = load_labelled(DataConfig(labelled=path, **settings))
        assert (len(corpus.valid), len(corpus.test)) == expected, settings


def test_holding_out_everything_is_refused(write):
    with pytest.raises(DataError, match="nothing is left to train on: 3 validation and 2 test texts of 5"):
        load_labelled(DataConfig(labelled=write(many(5) + "a\tText number 1\n"), valid_size=3, test_size=2))


def test_a_label_whose_texts_are_all_held_out_is_refused(write):
    with pytest.raises(DataError, match=r"all texts with the label '\w+' are held out"):
        load_labelled(DataConfig(labelled=write(many(30) + "rare\tone of a kind\n"), valid_size=30, test_size=-1))


def test_test_texts_that_are_trained_on_are_counted_and_said(write):
    said: list[str] = []
    held = write("pos\tA fine film!\nneg\tunseen\n", "held.tsv")
    corpus = load_labelled(DataConfig(labelled=write(GOOD), test_labelled=held, valid_size=-1), said.append)
    assert corpus.repeated == {"test": 1}
    assert any("1 test texts are trained on too" in line for line in said)


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"pairs": "p.tsv"}, "pairs"),
        ({"src": "a", "tgt": "b"}, "src"),
        ({"text": "t.txt"}, "text"),
        ({"valid_text": "t.txt"}, "valid_text"),
        ({"valid_part": 0.1}, "valid_part"),
        ({"max_words": 10}, "max_words"),
        ({"split_by": "both"}, "split_by"),
    ],
)
def test_settings_of_other_text_are_refused_beside_labelled_text(settings, name):
    with pytest.raises(ConfigError, match=rf"data\.{name}\b.*labelled text"):
        DataConfig(labelled="l.tsv", **settings)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train(["a b c d e f g"] * 3, TokenizerConfig(kind="word"))


def test_two_texts_have_eos_between_them(tokenizer):
    found = token_rows(tokenizer, ["a b", "c"], ["d", "e f"], 0)
    (a, b, c), (d, e, f) = (tokenizer.encode([text])[0] for text in ("a b c", "d e f"))
    assert found.rows == [[a, b, EOS, d], [c, EOS, e, f]]
    assert found.cut == 0


def test_text_that_looks_like_the_end_is_text(tokenizer):
    assert EOS not in token_rows(tokenizer, ["a </s> b"], (), 0).rows[0]


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("a b c d e", "", "a b c d"),
        ("a b c d e", "f", "a b | f"),
        ("a", "b c d e f", "a | b c"),
        ("a b c d", "e f g a", "a b | e"),
        ("a b", "c", "a b | c"),
    ],
)
def test_long_texts_lose_their_end_and_of_two_the_longer_one_more(tokenizer, first, second, expected):
    found = token_rows(tokenizer, [first], [second] if second else (), 4)
    parts = [tokenizer.encode([part])[0] for part in expected.split(" | ")]
    assert found.rows == [[*parts[0], EOS, *parts[1]] if second else parts[0]]
    assert found.cut == (len(first.split()) + len(second.split()) + bool(second) > 4)
    assert len(found.rows[0]) <= 4


def test_a_text_without_tokens_is_refused_by_its_number(tokenizer):
    with pytest.raises(DataError, match="test text 12: nothing stands in it"):
        token_rows(tokenizer, ["a", "  "], (), 0, "test text", first=11)
    with pytest.raises(DataError, match="the second text 1: nothing"):
        token_rows(tokenizer, ["a"], [" "], 0)
