"""Short lists: a lexicon learnt from pairs, and which tokens a batch may write."""

from __future__ import annotations

import numpy as np
import pytest

from regard.core.errors import CheckpointError, DataError
from regard.data.short_lists import ShortLists, learn_short_lists
from regard.data.store import TokenRows, TokenStore

WORDS = 60  # ids 4 .. 63 on either side


def dictionary(seed: int = 0) -> np.ndarray:
    return 4 + np.random.default_rng(seed).permutation(WORDS)


def pairs(count: int = 600, seed: int = 1, skewed: bool = False) -> TokenStore:
    """Sentences whose translation is word by word, in another order; skewed: word n is n times as rare as the first."""
    draw = np.random.default_rng(seed)
    means = dictionary()
    often = 1 / np.arange(1, WORDS + 1) if skewed else np.ones(WORDS)
    sources, targets = [], []
    for _ in range(count):
        words = draw.choice(WORDS, draw.integers(2, 8), p=often / often.sum())
        sources.append((4 + words).tolist())
        targets.append(draw.permutation(means[words]).tolist())
    return TokenStore(TokenRows.from_lists(sources), TokenRows.from_lists(targets), np.arange(count))


def test_every_word_finds_its_own_translation_first():
    lists = learn_short_lists(pairs(), WORDS + 4, WORDS + 4, each=3, always=0)
    np.testing.assert_array_equal(lists.each[4:, 0], dictionary())


def test_more_rounds_are_surer_than_counting_together():
    store = pairs(150, skewed=True)  # beside a rare word, a frequent one is seen as often as the right one
    counted, learnt = (learn_short_lists(store, WORDS + 4, WORDS + 4, each=1, always=0, rounds=n) for n in (1, 8))
    right = [int((lists.each[4:, 0] == dictionary()).sum()) for lists in (counted, learnt)]
    assert right[0] + 5 < right[1]


def test_a_batch_may_write_what_its_words_become_and_what_is_always_allowed():
    lists = learn_short_lists(pairs(), WORDS + 4, WORDS + 4, each=1, always=5)
    assert set(range(4)) <= set(lists.always.tolist())
    assert len(lists.always) == 9  # four specials and the five most frequent
    means = dictionary()
    rare = [word for word in range(WORDS) if means[word] not in lists.always][:2]
    tokens = lists.tokens([[4 + rare[0]], [4 + rare[1]]])
    assert set(tokens.tolist()) == {*lists.always.tolist(), int(means[rare[0]]), int(means[rare[1]])}
    assert lists.tokens([]).tolist() == lists.always.tolist()


def test_frequent_words_are_allowed_and_not_listed_again():
    lists = learn_short_lists(pairs(), WORDS + 4, WORDS + 4, each=4, always=20)
    assert not np.isin(lists.each[lists.each > 0], lists.always).any()


def test_coverage_is_the_share_of_words_on_the_list():
    store = pairs()
    assert learn_short_lists(store, WORDS + 4, WORDS + 4, each=2, always=0).coverage(store) == 1.0
    nothing = ShortLists(np.zeros((WORDS + 4, 1), dtype=np.int32), np.arange(4, dtype=np.int32), WORDS + 4)
    assert nothing.coverage(store) == 0.0


def test_a_large_text_is_taken_in_steps():
    lists = learn_short_lists(pairs(3000), WORDS + 4, WORDS + 4, each=1, always=0, most_cells=20_000)
    assert (lists.each[4:, 0] == dictionary()).mean() > 0.9


def test_saved_lists_come_back_and_those_of_other_models_are_refused(tmp_path):
    lists = learn_short_lists(pairs(), WORDS + 4, WORDS + 4, each=2, always=3)
    lists.save(tmp_path / "lists")
    again = ShortLists.load(tmp_path / "lists", WORDS + 4, WORDS + 4)
    np.testing.assert_array_equal(again.each, lists.each)
    np.testing.assert_array_equal(again.always, lists.always)
    for sizes in ((WORDS + 5, WORDS + 4), (WORDS + 4, WORDS + 5)):
        with pytest.raises(CheckpointError, match="no short lists for this model"):
            ShortLists.load(tmp_path / "lists", *sizes)
    content = (tmp_path / "lists").read_bytes()
    (tmp_path / "lists").write_bytes(content[: len(content) // 2])
    with pytest.raises(CheckpointError, match="no short lists"):
        ShortLists.load(tmp_path / "lists", WORDS + 4, WORDS + 4)


def test_a_list_with_tokens_outside_the_vocabulary_is_refused(tmp_path):
    each = np.full((WORDS + 4, 1), WORDS + 4, dtype=np.int32)
    ShortLists(each, np.arange(4, dtype=np.int32), WORDS + 4).save(tmp_path / "lists")
    with pytest.raises(CheckpointError):
        ShortLists.load(tmp_path / "lists", WORDS + 4, WORDS + 4)


def test_no_text_is_an_error():
    empty = TokenStore(TokenRows.from_lists([]), TokenRows.from_lists([]), np.arange(0))
    with pytest.raises(DataError, match="there is no text"):
        learn_short_lists(empty, 10, 10)
