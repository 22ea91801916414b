"""Held-out parts: no leak, stable under change of the corpus, one pair per source."""

import random

import pytest

from regard.core.errors import DataError
from regard.data.split import Pairs, automatic_size, hold_out, sentence_key


def corpus(n: int) -> Pairs:
    return Pairs([f"source {i}" for i in range(n)], [f"target {i}" for i in range(n)])


def keys(texts: list[str]) -> set[str]:
    return {sentence_key(text) for text in texts}


@pytest.mark.parametrize(
    ("one", "other"),
    [("I'm ok.", "im OK"), ("ＡＢ１", "ab 1"), ("cafe\u0301", "CAFÉ!"), ("Straße", "STRASSE"), ("a_b", "a b")],
)
def test_same_sentence_to_a_learner(one, other):
    assert sentence_key(one) == sentence_key(other)


@pytest.mark.parametrize(("one", "other"), [("?", "!"), ("a1", "a2"), ("ja", "je"), ("他", "她")])
def test_different_sentences(one, other):
    assert sentence_key(one) != sentence_key(other)


def test_adversarial_duplicates_never_leak():
    draw = random.Random(0)
    forms = [str.upper, str.lower, lambda s: s + "!", lambda s: s.replace(" ", "  "), lambda s: f'"{s}"', lambda s: s]
    sources = [draw.choice(forms)(f"Sentence number {i % 200}") for i in range(3000)]
    pairs = Pairs(sources, [f"Satz {i}" for i in range(3000)])
    train, valid, test = hold_out(pairs, 20, 30, seed=3)
    assert (len(valid), len(test)) == (20, 30)
    assert not keys(train.sources) & keys(valid.sources)
    assert not keys(train.sources) & keys(test.sources)
    assert not keys(valid.sources) & keys(test.sources)
    assert len(keys(valid.sources)) == 20  # one pair per source
    assert len(keys(test.sources)) == 30
    assert len(train) == 150 * 15  # every pair of the other sources
    every = [sentence_key(source) for source in pairs.sources]
    assert valid.targets == [pairs.targets[every.index(sentence_key(source))] for source in valid.sources]


def test_pairs_stay_together():
    for part in hold_out(corpus(500), 50, 50, seed=1):
        assert len(part)
        assert all(s.split()[1] == t.split()[1] for s, t in zip(part.sources, part.targets, strict=True))


def test_by_both_also_removes_held_out_targets_from_training():
    pairs = Pairs([f"s{i}" for i in range(400)], [f"T {i % 40}." for i in range(400)])
    train, valid, test = hold_out(pairs, 5, 5, seed=1, by="both")
    assert not keys(train.targets) & keys(valid.targets + test.targets)
    assert len(train) == 400 - 10 * len(keys(valid.targets + test.targets))
    leaky, *_ = hold_out(pairs, 5, 5, seed=1, by="source")
    assert keys(leaky.targets) & keys(valid.targets + test.targets)


def test_order_of_the_corpus_does_not_matter():
    pairs = corpus(1000)
    order = list(range(1000))
    random.Random(1).shuffle(order)
    for one, other in zip(hold_out(pairs, 50, 50, 1), hold_out(pairs.take(order), 50, 50, 1), strict=True):
        assert sorted(one.sources) == sorted(other.sources)


def test_a_longer_corpus_moves_few_sentences():
    _, valid, test = hold_out(corpus(2000), 100, 100, 1)
    _, valid_after, test_after = hold_out(corpus(2040), 100, 100, 1)
    assert len(set(test.sources) & set(test_after.sources)) >= 93
    assert len(set(valid.sources) & set(valid_after.sources)) >= 88


def test_seed_changes_the_draw_and_the_test_part_ignores_the_validation_size():
    _, _, test = hold_out(corpus(1000), 50, 50, 1)
    assert set(hold_out(corpus(1000), 50, 50, 2)[2].sources) != set(test.sources)
    assert hold_out(corpus(1000), 5, 50, 1)[2] == test


@pytest.mark.parametrize(("n", "size"), [(5, 0), (500, 50), (5000, 100), (50_000, 500), (10_000_000, 2000)])
def test_automatic_size(n, size):
    assert automatic_size(n) == size


def test_automatic_size_counts_different_sources():
    pairs = Pairs([f"s{i % 100}" for i in range(10_000)], ["t"] * 10_000)
    assert len(hold_out(pairs, None, None, 1)[1]) == 10


def test_too_much_held_out():
    pairs = Pairs(["same"] * 50, [f"t{i}" for i in range(50)])
    with pytest.raises(DataError, match="only 1 different source"):
        hold_out(pairs, 1, 0, 1)
    with pytest.raises(DataError, match="no training pair is left"):
        hold_out(Pairs([f"s{i}" for i in range(50)], ["t"] * 50), 1, 0, 1, by="both")
    assert hold_out(pairs, 0, 0, 1)[0] == pairs
