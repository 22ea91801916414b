"""How many sentences a search has at a time where nothing is recorded: bounded by tokens and by the scores of a step."""

from __future__ import annotations

import pytest
import torch

from regard.core.types import EOS
from regard.models.base import build_model
from regard.models.transformer import TransformerConfig
from regard.search import many
from regard.search.config import SearchConfig

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


@pytest.fixture
def sizes(monkeypatch):
    """The sizes of the batches that are searched."""
    seen: list[int] = []

    def told(model, source, *given, **named):
        seen.append(len(source.tokens))
        return searched(model, source, *given, **named)

    searched = many.search
    monkeypatch.setattr(many, "search", told)
    return seen


def _found(count: int, **named):
    torch.manual_seed(5)
    config = TransformerConfig(width=16, heads=2, layers=1, dropout=0.0)
    model = build_model("transformer", config, source_vocabulary=30, target_vocabulary=30, shared=False).eval()
    sources = [[4 + i % 20, 5 + i % 7, EOS] for i in range(count)]
    return dict(many.search_many(model, sources, SearchConfig(beam=2, nbest=2, max_length=5), **named))


def test_a_batch_of_the_usual_size_takes_32_sentences_of_24_tokens_under_a_beam_of_four():
    assert many.usual_tokens(CPU, 4) // 25 >= 32
    assert many.most_rows(CPU, 4 * 32_000) >= 32


def test_more_hypotheses_are_fewer_tokens_down_to_a_few():
    assert many.usual_tokens(CPU, 2) == 2 * many.usual_tokens(CPU, 4)
    assert many.usual_tokens(CPU, 1 << 20) == many.FEWEST_TOKENS
    assert many.usual_tokens(CUDA, 1) == many.BATCH_TOKENS_ELSEWHERE
    assert many.most_rows(CPU, 1 << 40) == 1
    assert many.most_rows(CUDA, many.STEP_SCORES_ELSEWHERE // 3) == 3


def test_neither_bound_is_exceeded_and_both_give_the_same_texts(sizes, monkeypatch):
    wanted = _found(10)
    assert sizes == [10]
    monkeypatch.setitem(many.STEP_SCORES, "cpu", 4 * 2 * 30 + 1)  # four sentences, two hypotheses of each
    by_scores = _found(10)
    assert sizes[1:] == [4, 4, 2]
    by_tokens = _found(10, batch_tokens=9)  # of three tokens each
    assert sizes[4:] == [3, 3, 3, 1]
    for other in (by_scores, by_tokens):
        assert {i: [one.tokens for one in n] for i, n in other.items()} == {
            i: [one.tokens for one in n] for i, n in wanted.items()
        }
