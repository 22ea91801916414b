"""Tokens in files are the tokens in memory, and are made again exactly when something has changed."""

import dataclasses
import random

import numpy as np
import pytest

from regard.core.errors import DataError
from regard.data.batching import BatchPlan, BatchStream
from regard.data.corpus import load_corpus
from regard.data.corpus_config import CorpusConfig, DataConfig
from regard.data.split import Pairs, gathered
from regard.data.store import TokenStore
from regard.data.tokenizers import TokenizerConfig, TokenizerPair

NAMES = ("Anna", "Ben", "Clara", "David", "Emma", "Felix")
THINGS = (("book", "Buch"), ("house", "Haus"), ("table", "Tisch"), ("lamp", "Lampe"), ("river", "Fluss"))


def lines(count: int, seed: int = 0) -> Pairs:
    draw = random.Random(seed)
    pairs = Pairs()
    for i in range(count):
        name, (thing, ding), number = draw.choice(NAMES), draw.choice(THINGS), draw.randint(2, 9999)
        pairs.sources.append(f"{name} bought the {thing} for {number} crowns{' today' * (i % 4)}.")
        pairs.targets.append(f"{name} kaufte {ding} für {number} Kronen{' heute' * (i % 5)}.")
    return pairs


def write(folder, name, pairs):
    for side, text in (("en", pairs.sources), ("de", pairs.targets)):
        (folder / f"{name}.{side}").write_text("".join(line + "\n" for line in text), encoding="utf-8")


@pytest.fixture
def folder(tmp_path):
    first = lines(700)
    first.sources[10] = first.targets[33] = ""
    write(tmp_path, "a", first)
    write(tmp_path, "b", lines(300, 1))
    return tmp_path


def config(folder, **more) -> DataConfig:
    return DataConfig(folder=str(folder), src="a.en", tgt="a.de", store="memory", **more)


SEVERAL = (
    CorpusConfig(src="a.en", tgt="a.de", weight=2.5, max_words=8, max_pairs=650),
    CorpusConfig(src="b.en", tgt="b.de", weight=0.5, tag="<b>", max_ratio=1.4),
)
CASES = {
    "plain": {},
    "both": {"split_by": "both", "valid_size": 7, "test_size": 9},
    "sample": {"max_pairs": 100, "min_words": 7},
    "given": {"valid_src": "b.en", "valid_tgt": "b.de"},
    "several": {"src": "", "tgt": "", "corpora": SEVERAL},
}


@pytest.mark.parametrize("case", CASES)
def test_a_text_on_the_shelf_is_the_text_in_memory(folder, tmp_path, case):
    memory = config(folder).__class__(**{**vars(config(folder)), **CASES[case]})
    here = load_corpus(memory)
    kept = dataclasses.replace(memory, store=str(tmp_path / "shelf"))
    for _ in range(2):  # when it is made, and when it is found
        there = load_corpus(kept)
        assert gathered(there.train.chunks(64)) == here.train
        for name in ("valid", "test", "fingerprint", "dropped", "filtered", "weights", "tags", "set_apart", "files"):
            assert getattr(there, name) == getattr(here, name), name
        for most in (1, 10, 99, 10_000):
            spaced = gathered(there.train.spaced(most).chunks())
            assert spaced == here.train.spaced(most)
            assert 0 < len(spaced) <= most
    assert len(list((tmp_path / "shelf").glob("text-*"))) == 1


def test_other_weights_hold_on_the_same_shelf(folder):
    one, two = (dataclasses.replace(c, filters=(), max_words=0, max_ratio=0.0, max_pairs=0) for c in SEVERAL)
    data = DataConfig(folder=str(folder), store=str(folder / "shelf"), corpora=(one, two))
    first = load_corpus(data)
    other = load_corpus(dataclasses.replace(data, corpora=(one, dataclasses.replace(two, weight=7.0))))
    assert [part.weight for part in first.weights] == [2.5, 0.5]
    assert [part.weight for part in other.weights] == [2.5, 7.0]
    assert [part.pairs for part in other.weights] == [part.pairs for part in first.weights]
    assert len(list((folder / "shelf").glob("text-*"))) == 1


def test_a_line_that_moves_to_the_next_text_is_noticed(folder):
    data = DataConfig(
        folder=str(folder),
        store="memory",
        corpora=(CorpusConfig(src="a.en", tgt="a.de"), CorpusConfig(src="b.en", tgt="b.de", weight=3.0)),
    )
    before = load_corpus(data)
    for side in ("en", "de"):
        first, second = ((folder / f"{name}.{side}").read_text().splitlines(keepends=True) for name in "ab")
        (folder / f"a.{side}").write_text("".join(first[:-1]))
        (folder / f"b.{side}").write_text("".join(first[-1:] + second))
    after = load_corpus(data)
    assert after.train == before.train
    assert after.fingerprint != before.fingerprint


def test_what_is_left_out_is_counted(folder):
    corpus = load_corpus(dataclasses.replace(config(folder), src="", tgt="", corpora=SEVERAL))
    assert corpus.dropped == 2
    assert corpus.filtered["max_words"] > 100
    assert corpus.filtered["max_ratio"] > 10
    assert corpus.tags == ("<b>",)
    assert {part.weight for part in corpus.weights} == {2.5, 0.5}
    assert sum(part.pairs for part in corpus.weights) == len(corpus.train)
    weights = corpus.pair_weights()
    assert weights is not None
    assert (weights == np.where([tag == "<b>" for tag in corpus.train.tags], 0.5, 2.5)).all()


@pytest.fixture(scope="module")
def tokenizers():
    pairs = lines(300)
    return TokenizerPair.train(pairs.sources, pairs.targets, TokenizerConfig(size=300))


def test_tokens_in_files_are_the_tokens_in_memory(folder, tokenizers):
    data = dataclasses.replace(config(folder), store=str(folder / "shelf"))
    corpus = load_corpus(data)
    weights = np.arange(len(corpus.train)) % 3 + 0.5
    here = TokenStore.from_pairs(corpus.train, tokenizers, 14, weights=weights)
    there = TokenStore.on_shelf(corpus.shelf, corpus.train, tokenizers, 14, weights=weights)
    assert 0 < here.dropped < len(corpus.train)
    assert isinstance(there.source.flat, np.memmap)
    assert not there.source.flat.flags.writeable
    assert there.source.flat.dtype == np.uint16
    for side in ("source", "target"):
        assert (getattr(here, side).flat == getattr(there, side).flat).all()
        assert (getattr(here, side).offsets == getattr(there, side).offsets).all()
    assert (here.kept == there.kept).all()
    assert (here.weights == there.weights).all()
    assert (here.weights == weights[here.kept]).all()
    assert here.dropped == there.dropped
    streams = [BatchStream(store, BatchPlan.of(store, 300, seed=5)) for store in (here, there)]
    for _ in range(40):
        one, other = (next(stream).batch for stream in streams)
        assert one.rows == other.rows
        assert all((a == b).all() for a, b in zip(one[1:3], other[1:3], strict=True))
        assert (one.source.tokens == other.source.tokens).all()
    with pytest.raises(DataError, match=r"all .* pairs are longer than 1 tokens"):
        TokenStore.on_shelf(corpus.shelf, corpus.train, tokenizers, 1)


def test_made_again_exactly_when_something_has_changed(folder, tokenizers):
    data = dataclasses.replace(config(folder), store=str(folder / "shelf"))

    def prepared(config=data, tokenizers=tokenizers, most=24) -> set[str]:
        corpus = load_corpus(config)
        TokenStore.on_shelf(corpus.shelf, corpus.train, tokenizers, most)
        return {path.name for path in (folder / "shelf").glob("t*-*")}

    first = prepared()
    assert len(first) == 2
    assert prepared() == first
    moved = folder / "moved"
    moved.mkdir()
    for side in ("en", "de"):
        (moved / f"x.{side}").write_bytes((folder / f"a.{side}").read_bytes())
    assert prepared(dataclasses.replace(data, folder=str(moved), src="x.en", tgt="x.de")) == first, (
        "the same text elsewhere"
    )
    assert prepared(dataclasses.replace(data, source_language="en", allow=("copied-source",))) == first
    assert len(prepared(most=23)) == 3, "another length"
    other = TokenizerPair.train(lines(300).sources, lines(300).targets, TokenizerConfig(size=100))
    assert len(prepared(tokenizers=other)) == 4, "another tokenizer"
    assert len(prepared(dataclasses.replace(data, max_words=8))) == 6, "another filter"
    assert len(prepared(dataclasses.replace(data, split_seed=2))) == 8, "another division"
    text = (folder / "a.de").read_text()
    (folder / "a.de").write_text(text.replace("Buch", "Bach", 1))
    assert len(prepared()) == 10, "another text"
    (folder / "a.de").write_text(text)
    assert len(prepared()) == 10


def test_tags_stand_before_the_sources_they_belong_to(folder):
    data = dataclasses.replace(config(folder), src="", tgt="", corpora=SEVERAL)
    corpus = load_corpus(data)
    tokenizers = TokenizerPair.train_on(corpus.train, TokenizerConfig(size=300), corpus.tags)
    tag = tokenizers.source.tag("<b>")
    store = TokenStore.from_pairs(corpus.train, tokenizers)
    tagged = [corpus.train.tags[place] == "<b>" for place in store.kept]
    assert [store.source[row][0] == tag for row in range(len(store))] == tagged
    assert 0 < sum(tagged) < len(tagged)
    assert all(tag not in store.source[row][1:] for row in range(len(store)))
    row = tagged.index(True)
    assert tokenizers.source.decode([store.source[row]]) == [corpus.train.sources[store.kept[row]]]
    assert tokenizers.source.encode(["<b> x"])[0][0] != tag, "what a text says is never a tag"


@pytest.mark.parametrize(
    ("weight", "least", "most"), [(1.0, 200, 200), (3.0, 600, 600), (0.25, 30, 70), (2.5, 460, 540)]
)
def test_weights_say_how_often_a_row_comes(weight, least, most):
    weights = np.concatenate([np.full(200, weight), np.ones(100)])
    plan = BatchPlan(np.full(300, 5), np.full(300, 5), 60, seed=3, weights=weights)
    epochs = [np.concatenate(plan.epoch(epoch)) for epoch in (0, 1)]
    for rows in epochs:
        times = np.bincount(rows, minlength=300)
        assert least <= times[:200].sum() <= most
        assert (times[200:] == 1).all()
        assert set(times[:200]) <= {int(weight), int(np.ceil(weight))}
    assert (np.concatenate(plan.epoch(0)) == epochs[0]).all()
    if weight % 1:
        assert (np.bincount(epochs[0], minlength=300) != np.bincount(epochs[1], minlength=300)).any()


def test_an_epoch_is_never_empty():
    plan = BatchPlan(np.full(3, 5), np.full(3, 5), 60, seed=3, weights=np.full(3, 1e-9))
    assert all(len(plan.epoch(epoch)) == 1 for epoch in range(5))
