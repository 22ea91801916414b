"""One update of word2vec's tables against plain loops over pairs, in float64, written from the papers' equations."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from regard.core.types import PAD
from regard.layers.huffman import huffman_paths
from regard.models.word2vec import Word2Vec, Word2VecConfig
from regard.training.word2vec_draws import WordDraws, parts_kept
from regard.training.word2vec_tree import visits_of
from regard.training.word2vec_updates import WordBatch, update_for

VOCABULARY, WIDTH, WINDOW, RATE, K, SHARED, GROUP = 30, 6, 3, 0.3, 4, 8, 16
WORDS = 48


def sigma(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def small_model(architecture: Any, objective: Any) -> Word2Vec:
    torch.manual_seed(3)
    config = Word2VecConfig(
        architecture=architecture, objective=objective, width=WIDTH, window=WINDOW, negatives=K, shared=SHARED
    )
    model = Word2Vec(config, vocabulary=VOCABULARY)
    model.counts.copy_(torch.arange(VOCABULARY) ** 2 // 3)
    model.counts[:4] = 0
    for table in model.parameters():
        torch.nn.init.normal_(table, std=0.5)
    return model


def batch_of(model: Word2Vec) -> WordBatch:
    """Words with windows of all sizes: some empty, some cut at one side. Negatives meet words of the windows."""
    torch.manual_seed(5)
    around = torch.randint(4, VOCABULARY, (WORDS + 2 * WINDOW,))
    around[:WINDOW] = around[-WINDOW:] = PAD
    left, right = (torch.randint(0, WINDOW + 1, (WORDS,)) for _ in range(2))
    left, right = torch.minimum(left, torch.arange(WORDS)), torch.minimum(right, torch.arange(WORDS).flip(0))
    left[7] = right[7] = 0
    codes = left * (WINDOW + 1) + right
    if model.config.objective == "tree":
        tables = WordDraws(model, model.counts, torch.device("cpu")).tables
        assert tables is not None
        mean = model.config.architecture == "cbow"
        (visits,) = visits_of(around[None, WINDOW:-WINDOW], codes[None], WINDOW, tables, mean)
        return WordBatch(around, codes, None, visits)
    return WordBatch(around, codes, torch.randint(4, VOCABULARY, (WORDS // GROUP, SHARED)))


def windows(batch: WordBatch) -> list[tuple[int, list[int]]]:
    """Each word, and the words around it."""
    words, found = batch.around.tolist(), []
    for i, code in enumerate(batch.codes.tolist()):
        left, right, place = *divmod(code, WINDOW + 1), i + WINDOW
        found.append((words[place], words[place - left : place] + words[place + 1 : place + 1 + right]))
    return found


class Plain:
    """Sums of gradients (of what is to grow), and of the loss, pair by pair."""

    def __init__(self, model: Word2Vec):
        other = model.nodes if model.config.objective == "tree" else model.output
        self.v, self.u = model.embedding.weight.detach().double(), other.weight.detach().double()
        self.dv, self.du, self.loss = torch.zeros_like(self.v), torch.zeros_like(self.u), 0.0

    def tell(self, h: torch.Tensor, row: int, label: int, weight: float) -> torch.Tensor:
        """weight · log σ(±u·h): adds to the gradient of u, and gives that of h."""
        x = float(self.u[row] @ h)
        self.loss -= weight * math.log(sigma(x if label else -x))
        slope = weight * (label - sigma(x))
        self.du[row] += slope * h
        return slope * self.u[row]


def told_negative(plain: Plain, h: torch.Tensor, word: int, negatives: list[int]) -> torch.Tensor:
    slope = plain.tell(h, word, 1, 1.0)
    for negative in negatives:
        if negative != word:
            slope = slope + plain.tell(h, negative, 0, K / SHARED)
    return slope


def plain_negative(model: Word2Vec, batch: WordBatch) -> tuple[Plain, int]:
    plain, pairs = Plain(model), 0
    assert batch.negatives is not None
    for i, (word, context) in enumerate(windows(batch)):
        negatives = batch.negatives[i // GROUP].tolist()
        if model.config.architecture == "skipgram":
            for other in context:  # from the word, each of those around it
                plain.dv[word] += told_negative(plain, plain.v[word], other, negatives)
                pairs += 1
        elif context:
            slope = told_negative(plain, plain.v[context].mean(0), word, negatives)
            for other in context:
                plain.dv[other] += slope
            pairs += 1
    return plain, pairs


def plain_tree(model: Word2Vec, batch: WordBatch) -> tuple[Plain, int]:
    plain, pairs = Plain(model), 0
    nodes, signs, _ = huffman_paths(model.counts)
    for word, context in windows(batch):
        path = [(n, int(s > 0)) for n, s in zip(nodes[word].tolist(), signs[word].tolist(), strict=True) if s]
        inputs = (
            [[other] for other in context] if model.config.architecture == "skipgram" else [context] * bool(context)
        )
        for group in inputs:
            h = plain.v[group].mean(0)
            slope = sum(plain.tell(h, node, label, 1.0) for node, label in path)
            for other in group:
                plain.dv[other] += slope
            pairs += 1
    return plain, pairs


@pytest.mark.parametrize("objective", ["negative", "tree"])
@pytest.mark.parametrize("architecture", ["skipgram", "cbow"])
def test_an_update_is_the_sum_over_all_pairs(architecture, objective, monkeypatch):
    monkeypatch.setattr("regard.training.word2vec_tree.MOST_NODE_CHANGES", 1e9)  # no node has a lower rate
    monkeypatch.setattr("regard.training.word2vec_draws.MOST_NODE_SAME", 1e9)
    model = small_model(architecture, objective)
    batch = batch_of(model)
    plain, pairs = (plain_tree if objective == "tree" else plain_negative)(model, batch)
    tables = WordDraws(model, model.counts, torch.device("cpu")).tables
    update = update_for(model, WORDS, GROUP, tables)
    for _ in range(2):  # what a batch leaves in the update's room does not show in the next
        measured = update(batch, None, measure=True)
        assert measured is not None
        assert float(measured.loss) == pytest.approx(plain.loss, rel=1e-5)
        assert int(measured.pairs) == pairs
    other = model.nodes if objective == "tree" else model.output
    torch.testing.assert_close(model.embedding.weight.double(), plain.v)  # no rate: nothing has changed
    assert update(batch, RATE) is None
    torch.testing.assert_close(model.embedding.weight.double(), plain.v + RATE * plain.dv, atol=2e-5, rtol=1e-4)
    torch.testing.assert_close(other.weight.double(), plain.u + RATE * plain.du, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("limits", [(8.0, 1e9), (1e9, 8.0)], ids=["changes", "same-words"])
@pytest.mark.parametrize("architecture", ["skipgram", "cbow"])
def test_nodes_learn_more_slowly_where_they_are_met_too_often(monkeypatch, architecture, limits):
    model = small_model(architecture, "tree")
    same = float(parts_kept(model.counts, model.config.sample).square().sum())
    monkeypatch.setattr("regard.training.word2vec_tree.MOST_NODE_CHANGES", limits[0])
    monkeypatch.setattr("regard.training.word2vec_draws.MOST_NODE_SAME", limits[1] * same)
    batch = batch_of(model)
    plain, _ = plain_tree(model, batch)
    tables = WordDraws(model, model.counts, torch.device("cpu")).tables
    assert tables is not None
    update_for(model, WORDS, GROUP, tables)(batch, RATE)
    nodes, signs, _ = huffman_paths(model.counts)
    often = torch.zeros(len(plain.u), 1, dtype=torch.float64)
    for word, context in windows(batch):
        for node, sign in zip(nodes[word].tolist(), signs[word].tolist(), strict=True):
            often[node] += (len(context) if architecture == "skipgram" else bool(context)) * (sign != 0)
    assert 0 < int((often > 8).sum()) < len(often)
    rates = (8 / often.clamp(min=1)).clamp(max=1)
    torch.testing.assert_close(model.nodes.weight.double(), plain.u + RATE * rates * plain.du, atol=2e-5, rtol=1e-4)


def test_the_tree_is_a_distribution_over_the_words_that_occur():
    model = small_model("skipgram", "tree")
    log_probs = model.tree_log_probs(torch.randn(5, WIDTH))
    torch.testing.assert_close(log_probs.exp().sum(1), torch.ones(5))
    assert (log_probs[:, :4] == -torch.inf).all()
    assert (log_probs[:, 4:] > -torch.inf).all()
