"""Guesses change nothing: with any draft the text is that of the plain search, and a good one saves steps."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from regard.core.errors import ConfigError, ModelError
from regard.core.types import EOS, pad_rows
from regard.models.base import MODELS, build_model
from regard.search import SearchConfig, search
from regard.search.speculative import speculate

torch.set_num_threads(1)
V = 23
SIZES = {
    "transformer": {"width": 16, "layers": 2, "heads": 2, "inner": 20},
    "transformer-shaw": {"width": 16, "layers": 2, "heads": 2, "inner": 20, "relative": "shaw"},
    "bahdanau": {"embedding": 8, "width": 6},
    "convs2s": {"embedding": 8, "width": 8, "layers": 2},
    "gpt": {"width": 16, "layers": 2, "heads": 2, "context": 60},
    "gpt-rotary": {"width": 16, "layers": 2, "heads": 2, "context": 60, "positions": "none", "relative": "rotary"},
    "lstmlm": {"width": 6, "layers": 1},
    "nplm": {"order": 3, "embedding": 5, "width": 6},
    "rctm2": {},
}


def make(name: str, seed: int, vocabulary: int = V):
    torch.manual_seed(seed)
    kind = name.split("-")[0]
    config = MODELS.get(kind).Config(name=kind, **SIZES[name])
    model = build_model(kind, config, source_vocabulary=vocabulary, target_vocabulary=vocabulary, shared=True).eval()
    for p in model.parameters():
        torch.nn.init.normal_(p, std=0.5)
    return model


CONFIGS = {
    "greedy": SearchConfig(beam=1, max_ratio=1, max_extra=9, max_length=14),
    "constrained": SearchConfig(beam=1, max_ratio=1, max_extra=9, max_length=14, no_repeat_ngram=2, min_length=3, max_repeat=1),
    "sample": SearchConfig(method="sample", temperature=0.8, top_p=0.95, max_ratio=1, max_extra=9, max_length=14, seed=5),
}  # fmt: skip


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
@pytest.mark.parametrize(
    ("large", "small"),
    [
        ("transformer", "transformer"), ("transformer-shaw", "bahdanau"), ("transformer", "convs2s"),
        ("gpt", "gpt"), ("gpt-rotary", "lstmlm"), ("gpt", "nplm"),
    ],
)  # fmt: skip
def test_the_text_is_that_of_the_plain_search(large, small, config):
    model, draft = make(large, 1), make(small, 2)
    writes = "gpt" in large
    for row in range(4):
        source = pad_rows([[EOS] if writes else [*range(4 + row, 9), EOS]])
        prefix = [[5, 6, 7][: row + 1]] if writes or row == 2 else [[]]
        ((plain,),) = search(model, source, config, prefix)
        for ahead in (1, 3, 5):
            found = speculate(model, draft, source, config, prefix[0], ahead).hypothesis
            assert found.tokens == plain.tokens
            assert found.finished == plain.finished
            assert found.token_log_probs == pytest.approx(plain.token_log_probs, abs=1e-5)
            assert found.score == pytest.approx(plain.score, abs=1e-5)


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_who_always_guesses_right_saves_steps(config):
    model = make("transformer", 1)
    source = pad_rows([[5, 6, 7, 8, EOS]])
    if not config.no_repeat_ngram:
        config = dataclasses.replace(config, max_repeat=0)  # drafts do not see that a loop is forbidden
    found = speculate(model, make("transformer", 1), source, config, ahead=4)
    assert found.right == found.guessed > 0
    written = len(found.hypothesis.token_log_probs)
    assert found.steps <= -(-written // 5) + 1
    other = speculate(model, make("transformer", 9), source, config, ahead=4)
    assert other.hypothesis.tokens == found.hypothesis.tokens
    assert other.steps > found.steps


def test_what_cannot_be():
    model, source = make("transformer", 1), pad_rows([[5, EOS]])
    for draft, config, what in [
        (make("transformer", 1, 19), SearchConfig(beam=1), "vocabularies of 19 and 23"),
        (make("gpt", 1), SearchConfig(beam=1), "one of the models translates"),
        (make("rctm2", 1), SearchConfig(beam=1), "length first"),
    ]:
        with pytest.raises(ModelError, match=what):
            speculate(model, draft, source, config)
    with pytest.raises(ModelError, match="cannot be taken back"):
        speculate(make("bahdanau", 1), model, source, SearchConfig(beam=1))
    with pytest.raises(ConfigError, match="one text at a time"):
        speculate(model, model, source, SearchConfig(beam=2))
    with pytest.raises(ConfigError, match="not from 1 to 32"):
        speculate(model, model, source, SearchConfig(beam=1), ahead=0)


def test_what_is_given_is_read_at_once_and_not_guessed():
    model, draft = make("gpt", 1), make("gpt", 2)
    prompt = [5, 6, 7, 8, 9, 10, 11, 12, 13, 14]
    config = dataclasses.replace(CONFIGS["greedy"], max_length=4)
    reads: list[int] = []
    advance = model.advance

    def counted(tokens, memory, state):
        reads.append(tokens.shape[-1])
        return advance(tokens, memory, state)

    model.advance = counted
    found = speculate(model, draft, pad_rows([[EOS]]), config, prompt, ahead=2)
    assert reads[0] == len(prompt) + 1
    assert found.steps == len(reads) - 1
    assert found.guessed <= 2 * found.steps
    model.advance = advance
    ((plain,),) = search(model, pad_rows([[EOS]]), config, [prompt])
    assert found.hypothesis.tokens == plain.tokens
