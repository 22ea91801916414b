"""Word alignment by attention: from tokens to words, from weights to links, and the limits."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from regard.core.errors import ConfigError, DataError, ModelError, TokenizerError
from regard.core.types import BOS, EOS, pad_rows
from regard.data.split import Pairs
from regard.data.tokenizers import TokenizerConfig, TokenizerPair
from regard.data.word_tokens import WordTokens
from regard.models.base import Recorder
from regard.models.transformer import Transformer, TransformerConfig
from regard.tasks.alignment import Aligner, LinkRule, align, word_shares
from regard.tasks.sentences import MAX_LINE_CHARACTERS
from regard.tasks.translation import Translator

SOURCES = [
    "the small dog barks .",
    "a cat , a dog and  a bird.",
    "dog",
    "  why not?",
    "the bird sings a song, doesn't it ?",
]
TARGETS = [
    "der kleine Hund bellt .",
    "eine Katze, ein Hund und ein Vogel .",
    "Hund",
    "warum  nicht? ",
    "der Vogel singt, nicht?",
]


def made(kind: str = "bpe", **settings) -> Translator:
    """A translator of random weights, some of them large, so that its attention has sharp peaks."""
    pairs = Pairs(SOURCES * 2, TARGETS * 2)
    tokenizers = TokenizerPair.train_on(pairs, TokenizerConfig(kind=kind, size=120, min_count=1), ["<news>", "<talk>"])
    config = TransformerConfig(**{"width": 16, "layers": 2, "heads": 2, "dropout": 0.1, **settings})
    torch.manual_seed(3)
    size = tokenizers.source.size
    model = Transformer(config, source_vocabulary=size, target_vocabulary=size, shared=True)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "cross" in name:
                parameter *= 3
    return Translator(model, tokenizers)


@pytest.fixture(scope="module")
def translator() -> Translator:
    return made()


# --- from weights to shares


def plain_shares(weights, source_words: list[int], target_words: list[int], lead: int, words: tuple[int, int]):
    """Loops over every weight. `words` are the numbers of source and target words."""
    rows = []
    for wanted in range(words[1]):
        row = [0.0] * (words[0] + 1)
        for t, target in enumerate(target_words):
            for s in range(lead + len(source_words) + 1):
                inside = lead <= s < lead + len(source_words)
                word = source_words[s - lead] if inside else words[0]
                if target == wanted:
                    row[word] += float(weights[t][s])
        total = sum(row)
        rows.append([weight / total for weight in row] if total else row)
    return np.array(rows)


def test_shares_are_sums_over_source_words_and_means_over_target_words() -> None:
    weights = np.array(
        [
            [0.1, 0.2, 0.3, 0.1, 0.3],  # the first token of target word 0
            [0.5, 0.1, 0.2, 0.2, 0.0],  # the second
            [0.0, 0.0, 0.0, 0.4, 0.6],  # target word 1
            [1.0, 0.0, 0.0, 0.0, 0.0],  # EOS: no word
        ]
    )
    source, target = WordTokens([9, 9, 9], [0, 0, 1], 2), WordTokens([9, 9, 9], [0, 0, 1], 2)
    expected = [[(0.5 + 0.3) / 2, (0.1 + 0.2) / 2, (0.4 + 0.5) / 2], [0.0, 0.4, 0.6]]
    np.testing.assert_allclose(word_shares(weights, source, target, 1), expected, atol=1e-12)
    expected = [[(0.3 + 0.6) / 2, (0.3 + 0.2) / 2, (0.4 + 0.2) / 2], [0.0, 0.0, 1.0]]
    without_lead = WordTokens([9, 9, 9, 9], [0, 0, 1, 2], 2)  # a last token of no word: white space
    np.testing.assert_allclose(word_shares(weights, without_lead, target), expected, atol=1e-12)


@pytest.mark.parametrize("seed", range(20))
def test_shares_against_plain_loops(seed: int) -> None:
    draw = random.Random(seed)
    words = draw.randint(1, 5), draw.randint(1, 5)
    source, target = (sorted(draw.choices(range(count + 1), k=draw.randint(1, 9))) for count in words)
    lead = draw.randint(0, 2)
    weights = np.random.default_rng(seed).random((len(target) + 1, lead + len(source) + 1))  # rows do not sum to 1
    found = word_shares(
        weights, *(WordTokens([9] * len(w), w, n) for w, n in zip((source, target), words, strict=True)), lead
    )
    np.testing.assert_allclose(found, plain_shares(weights, source, target, lead, words), atol=1e-12)


def test_words_without_tokens_or_attention_have_no_share() -> None:
    shares = word_shares(
        np.array([[0.0, 0.0], [1.0, 0.0], [0.5, 0.5]]), WordTokens([9], [0], 1), WordTokens([9, 9], [0, 2], 4)
    )
    assert shares.tolist() == [[0, 0], [0, 0], [1, 0], [0, 0]]
    assert LinkRule().links(shares) == [(0, 2)]
    assert LinkRule(null=False).links(shares) == [(0, 2)]


# --- from shares to links


SHARES = np.array(
    [
        [0.5, 0.3, 0.2],  # the best word
        [0.1, 0.3, 0.6],  # the end has more than any word
        [0.3, 0.3, 0.4],  # and here; two words are level
        [0.1, 0.45, 0.45],  # a word level with the end
        [0.4, 0.4, 0.2],
    ]
)


def test_the_best_word_is_linked_unless_the_end_has_more() -> None:
    assert LinkRule().links(SHARES) == [(0, 0), (0, 4), (1, 3)]
    assert LinkRule(null=False).links(SHARES) == [(0, 0), (0, 2), (0, 4), (1, 1), (1, 3)]


def test_a_threshold_links_all_words_above_it() -> None:
    assert LinkRule(threshold=0.3).links(SHARES) == [(0, 0), (0, 2), (0, 4), (1, 0), (1, 1), (1, 2), (1, 3), (1, 4)]
    assert LinkRule(threshold=0.45).links(SHARES) == [(0, 0), (1, 3)]
    assert LinkRule(threshold=1).links(SHARES) == []


def test_no_words_no_links() -> None:
    for rule in (LinkRule(), LinkRule(null=False), LinkRule(threshold=0.1)):
        assert rule.links(np.zeros((0, 3))) == []
        assert rule.links(np.ones((2, 1))) == []


@pytest.mark.parametrize("threshold", [0, -0.1, 1.01, float("nan")])
def test_a_threshold_is_a_share(threshold: float) -> None:
    with pytest.raises(ConfigError, match=r"threshold: .+ is not above 0 and at most 1"):
        LinkRule(threshold=threshold)


def test_a_threshold_knows_no_null() -> None:
    with pytest.raises(ConfigError, match="Leave one of the two out"):
        LinkRule(threshold=0.5, null=False)


# --- from texts to links


def stepped_links(translator: Translator, source: str, target: str, tag: str, *, null: bool) -> list[tuple[int, int]]:
    """The links of one pair: its words cut apart by hand, the target stepped through token by token, plain loops."""
    sides, words = [], []
    for text, tokenizer in ((source, translator.tokenizers.source), (target, translator.tokenizers.target)):
        alone = tokenizer.encode(text.split())
        sides.append([i for ids in alone for i in ids])
        words.append([number for number, ids in enumerate(alone) for _ in ids])
    model, lead = translator.model.eval(), [translator.tokenizers.source.tag(tag)] if tag else []
    rows = []
    with torch.no_grad():
        memory, state = model.start(pad_rows([[*lead, *sides[0], EOS]]), capacity=100)
        for token in [BOS, *sides[1]]:
            record = Recorder()
            _, state = model.step(torch.tensor([[token]]), memory, state, record)
            rows.append(model.alignment(record)[0, 0, 0].double().numpy())
    shares = plain_shares(rows, *words, len(lead), (len(source.split()), len(target.split())))
    links = []
    for j, row in enumerate(shares.tolist()):
        best = max(row[:-1])
        if best >= row[-1] or not null:
            links.append((row.index(best), j))
    return sorted(links)


@pytest.mark.parametrize("kind", ["bpe", "unigram", "word"])
@pytest.mark.parametrize("tag", ["", "<news>"])
@pytest.mark.parametrize("null", [True, False])
def test_links_are_those_of_stepping_through_each_pair_alone(kind: str, tag: str, null: bool) -> None:
    translator = made(kind)
    found = translator.tagged(tag).align(SOURCES, TARGETS, null=null)
    assert found == [stepped_links(translator, *pair, tag, null=null) for pair in zip(SOURCES, TARGETS, strict=True)]
    assert len({tuple(links) for links in found}) >= len(found) - 1  # the comparison says something
    assert any(i != j for links in found for i, j in links)
    if not null:
        assert [len(links) for links in found] == [len(text.split()) for text in TARGETS]


@pytest.mark.parametrize("kind", ["char", "byte"])
def test_characters_and_bytes_link_words_too(kind: str) -> None:
    for links, source, target in zip(made(kind).align(SOURCES, TARGETS, null=False), SOURCES, TARGETS, strict=True):
        assert [j for _, j in sorted(links, key=lambda link: link[1])] == list(range(len(target.split())))
        assert all(0 <= i < len(source.split()) for i, _ in links)


def test_null_leaves_words_alone(translator: Translator) -> None:
    most = [sum(map(len, align(translator, SOURCES, TARGETS, null=null))) for null in (True, False)]
    assert most[0] < most[1]
    wide = align(translator, SOURCES, TARGETS, threshold=0.05)
    assert sum(map(len, wide)) > most[1]
    assert all(links == sorted(set(links)) for links in wide)


@pytest.mark.parametrize("batch_tokens", [1, 30, 100_000])
def test_neither_batches_nor_order_change_links(translator: Translator, batch_tokens: int) -> None:
    order = [3, 0, 4, 2, 1]
    found = Aligner(translator)([SOURCES[i] for i in order], [TARGETS[i] for i in order], batch_tokens=batch_tokens)
    alone = [align(translator, [SOURCES[i]], [TARGETS[i]])[0] for i in order]
    assert found == alone


def test_tags_are_heard_for_each_pair(translator: Translator) -> None:
    tags = ["<news>", "", "<talk>", "", "<news>"]
    mixed = align(translator, SOURCES, TARGETS, tags=tags)
    for i, tag in enumerate(tags):
        assert mixed[i] == translator.tagged(tag).align([SOURCES[i]], [TARGETS[i]])[0]
    assert mixed != align(translator, SOURCES, TARGETS)
    with pytest.raises(TokenizerError, match="<new>"):
        align(translator, SOURCES[:1], TARGETS[:1], tags=["<new>"])
    with pytest.raises(DataError, match="1 tags for 2 texts"):
        align(translator, SOURCES[:2], TARGETS[:2], tags=[""])


@pytest.mark.parametrize("kind", ["bpe", "byte"])
def test_blank_sides_have_no_links(kind: str) -> None:
    translator = made(kind)
    found = align(translator, ["", " ", "a dog", "\t", "a dog"], ["", "x", "", "\u00a0", "ein Hund"])
    assert found[:4] == [[], [], [], []]
    assert found[4] == align(translator, ["a dog"], ["ein Hund"])[0] != []
    assert align(translator, [], []) == []


def test_a_model_in_training_is_put_to_rest(translator: Translator) -> None:
    expected = align(translator, SOURCES, TARGETS)
    translator.model.train()
    assert align(translator, SOURCES, TARGETS) == expected


# --- what cannot be aligned


def test_too_long_for_the_model() -> None:
    translator = made("word", positions="learned", max_length=6)
    sources, targets = ["a dog", "a dog a dog a", "a dog a dog a dog", "a"], ["Hund", "Hund", "Hund", "Hund , " * 3]
    assert [len(links) for links in align(translator, sources[:2], targets[:2], null=False)] == [1, 1]
    with pytest.raises(
        ModelError, match=r"line 3: a text of 6 tokens is longer than the 5 that can be aligned at once"
    ):
        align(translator, sources, targets)
    heard: dict[int, ModelError] = {}
    found = Aligner(translator, LinkRule(null=False))(sources, targets, too_long=heard.__setitem__, first_line=11)
    assert [len(links) for links in found] == [1, 1, 0, 0]
    assert {number: error.where for number, error in heard.items()} == {13: "line 13", 14: "line 14"}
    with pytest.raises(ModelError, match=r"line 2: a text of 5 tokens is longer than the 4"):  # a tag takes one place
        align(translator, sources[:2], targets[:2], tags=["<news>", "<news>"])


def test_too_long_for_memory(translator: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.tasks.alignment.MOST_TOKENS", 30)
    with pytest.raises(ModelError, match=r"line 2: a text of .+ tokens is longer than the 30"):
        align(translator, ["dog", "dog " * 31], ["Hund", "Hund"])
    with pytest.raises(ModelError, match="line 1: a text of 100,001 characters is longer than the 100,000"):
        align(translator, ["dog"], ["x" * (MAX_LINE_CHARACTERS + 1)])


def test_what_is_given_wrongly(translator: Translator) -> None:
    with pytest.raises(DataError, match="2 sources for 1 targets"):
        align(translator, ["a", "b"], ["c"])
    with pytest.raises(DataError, match="a single text is given"):
        align(translator, "a", ["c"])
    with pytest.raises(DataError, match="a single text is given"):
        align(translator, ["a"], "c")


def test_a_model_without_attention(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Transformer, "capabilities", frozenset({"translates"}))
    with pytest.raises(ModelError, match="alignment: Transformer has no attention over the source"):
        align(made(), ["a"], ["b"])
