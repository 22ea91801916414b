"""Search with a language model: prompts are read at once, limits count what is new, and tokens can be had as they come."""

from __future__ import annotations

import dataclasses
import math
import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "tasks"))
from toy_text_model import ToyTextModel

from regard.core.errors import ModelError
from regard.core.types import BOS, EOS, UNK, Padded, pad_rows
from regard.models.base import build_model
from regard.models.gpt import GPTConfig
from regard.search import Hypothesis, SearchConfig, score_pairs, search, stream
from regard.search.scoring import normalised

VOCABULARY = 11
PROMPTS = [[4, 5, 6, 7, 5], [7, 7], [9, 4, 4, 10, 8, 6, 5]]
METHODS = {
    "greedy": SearchConfig(beam=1, max_length=9),
    "beam": SearchConfig(beam=4, nbest=4, max_length=9),
    "exact": SearchConfig(beam=3, nbest=3, stop="exact", length_norm="plain", max_length=9),
    "sample": SearchConfig(method="sample", nbest=3, max_length=9),
    "filtered sample": SearchConfig(method="sample", nbest=2, temperature=1.3, top_k=5, top_p=0.9, max_length=9),
}
stepping = sys.modules["regard.search.step"]


def nothing(rows: int) -> Padded:
    return pad_rows([[EOS]] * rows)


def gpt(context: int = 24) -> torch.nn.Module:
    torch.manual_seed(1)
    config = GPTConfig(width=16, layers=2, heads=2, context=context, dropout=0.0, attention_dropout=0.0)
    model = build_model("gpt", config, source_vocabulary=VOCABULARY, target_vocabulary=VOCABULARY, shared=True)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3)
    return model.eval()


MODELS = {"recurrent": lambda: ToyTextModel(VOCABULARY), "gpt": gpt}


def same(a: list[Hypothesis], b: list[Hypothesis]) -> None:
    assert [(h.tokens, h.finished) for h in a] == [(h.tokens, h.finished) for h in b]
    for one, other in zip(a, b, strict=True):
        assert one.score == pytest.approx(other.score, abs=1e-5)
        assert one.log_prob == pytest.approx(other.log_prob, abs=1e-5)
        assert one.token_log_probs == pytest.approx(other.token_log_probs, abs=1e-5)


def step_by_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes search believe that nothing could be read at once."""
    read = stepping.Step._read

    def refused(self, memory, state, tokens):
        own, state = read(self, memory, state, tokens)
        return own * math.inf, state

    monkeypatch.setattr(stepping.Step, "_read", refused)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("method", METHODS)
def test_a_prompt_read_at_once_is_a_prompt_read_step_by_step(name, method, monkeypatch):
    model, config = MODELS[name](), METHODS[method]
    asked: list[int] = []
    advance = type(model).advance

    def counted(self, tokens, *others):
        asked.append(tokens.shape[-1])
        return advance(self, tokens, *others)

    monkeypatch.setattr(type(model), "advance", counted)
    found = search(model, nothing(3), config, PROMPTS)
    assert asked[0] == 2  # the shortest prompt
    assert set(asked[1:]) == {1}
    monkeypatch.setattr(stepping, "READ_CELLS", 1)  # pieces of one token
    for a, b in zip(search(model, nothing(3), config, PROMPTS), found, strict=True):
        same(a, b)
    step_by_step(monkeypatch)
    for a, b in zip(search(model, nothing(3), config, PROMPTS), found, strict=True):
        same(a, b)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("method", METHODS)
def test_batch_mates_change_nothing(name, method):
    model, config = MODELS[name](), METHODS[method]
    together = search(model, nothing(4), config, [*PROMPTS, []])
    for prompt, found in zip([*PROMPTS, []], together, strict=True):
        same(search(model, nothing(1), config, [prompt])[0], found)
    same(search(model, nothing(1), config)[0], together[3])  # no prompt is an empty one


@pytest.mark.parametrize("method", METHODS)
def test_log_probs_are_teacher_forced_and_scores_are_of_what_is_new(method):
    model, config = ToyTextModel(VOCABULARY, seed=3), METHODS[method]
    for prompt, hypotheses in zip(PROMPTS, search(model, nothing(3), config, PROMPTS), strict=True):
        for h in hypotheses:
            ((_, each),) = score_pairs(model, nothing(1), [h.tokens])
            each = each if h.finished else each[:-1]
            assert h.tokens[: len(prompt)] == prompt
            assert h.token_log_probs == pytest.approx(each, abs=1e-5)
            new = torch.tensor([math.fsum(each[len(prompt) :])], dtype=torch.float64)
            length = torch.tensor([len(each) - len(prompt)])
            assert h.score == pytest.approx(float(normalised(config, new, length)), abs=1e-5)


def test_limits_count_new_tokens_whatever_the_source_settings_say():
    model = ToyTextModel(VOCABULARY)
    with torch.no_grad():
        model.output.bias[EOS] = -50
    config = SearchConfig(beam=1, max_length=30, max_ratio=0.0, max_extra=1)
    assert [len(h[0].tokens) for h in search(model, nothing(3), config, PROMPTS)] == [35, 32, 37]
    with torch.no_grad():
        model.output.bias[EOS] = 50
    config = dataclasses.replace(config, min_length=4)
    assert [len(h[0].tokens) for h in search(model, nothing(3), config, PROMPTS)] == [9, 6, 11]


@pytest.mark.parametrize("name", MODELS)
def test_the_models_context_is_the_end(name):
    model = gpt(context=10) if name == "gpt" else ToyTextModel(VOCABULARY, limit=10)
    with torch.no_grad():
        model.output.weight[EOS] = 0
        model.output.weight[4] *= 5
    config = SearchConfig(beam=2, min_length=50)
    assert {len(h[0].tokens) for h in search(model, nothing(2), config, [[5] * 8, [5]])} == {9}
    message = "prompt 2: it has 9 tokens, and the model reads at most 8 to write one more. Shorten it"
    with pytest.raises(ModelError, match=message):
        search(model, nothing(2), config, [[5], [5] * 9])


def test_samples_depend_on_the_prompt_the_seed_and_their_number():
    model = ToyTextModel(VOCABULARY, sharpness=0.2)
    config = SearchConfig(method="sample", nbest=3, max_length=12)

    def drawn(config: SearchConfig, prompt: list[int]) -> list[list[int]]:
        return [h.tokens[len(prompt) :] for h in search(model, nothing(1), config, [prompt])[0]]

    first = drawn(config, [4, 5])
    assert first == drawn(config, [4, 5])
    assert drawn(dataclasses.replace(config, nbest=1), [4, 5]) == first[:1]
    assert drawn(dataclasses.replace(config, max_length=5), [4, 5]) == [tokens[:5] for tokens in first]
    assert len({tuple(tokens) for tokens in first}) == 3
    assert drawn(dataclasses.replace(config, seed=2), [4, 5]) != first
    flat = ToyTextModel(VOCABULARY, sharpness=0.0)  # the same distribution after any prompt
    others = [
        search(flat, nothing(1), dataclasses.replace(config, nbest=1), [prompt])[0][0].tokens[-6:]
        for prompt in ([], [4], [5])
    ]
    assert others[0] != others[1] != others[2]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("method", ["greedy", "sample"])
@pytest.mark.parametrize("prompt", [[], [4], PROMPTS[2]])
def test_streamed_tokens_are_those_of_search(name, method, prompt):
    model = MODELS[name]()
    ended = set()
    for most in range(1, 9):
        least = most - most % 2  # every other text may end at once
        config = dataclasses.replace(METHODS[method], nbest=1, seed=most, max_length=most, min_length=least)
        ((found,),) = search(model, nothing(1), config, [prompt])
        written = list(stream(model, nothing(1), config, [prompt]))
        assert [w.token for w in written] == found.tokens[len(prompt) :] + [EOS] * found.finished
        assert [w.log_prob for w in written] == pytest.approx(found.token_log_probs[len(prompt) :], abs=1e-6)
        ended.add((found.finished, len(found.tokens) - len(prompt)))
    assert len(ended) > 3


def test_a_token_is_there_before_the_next_is_asked_for(monkeypatch):
    model = ToyTextModel(VOCABULARY)
    with torch.no_grad():
        model.output.bias[EOS] = -50
    steps = []
    step = type(model).step
    monkeypatch.setattr(type(model), "step", lambda self, *others: (steps.append(1), step(self, *others))[1])
    coming = stream(model, nothing(1), SearchConfig(beam=1), [[4, 5]])
    for count in (1, 2, 3):
        next(coming)
        assert len(steps) == count
    assert not torch.is_inference_mode_enabled()


def test_only_one_text_can_be_streamed():
    model = ToyTextModel(VOCABULARY)
    for config, rows in (
        (SearchConfig(beam=2), 1),
        (SearchConfig(beam=1), 2),
        (SearchConfig(method="sample", nbest=2), 1),
        (SearchConfig(beam=1, stop="exact"), 1),
    ):
        with pytest.raises(ModelError, match="stream: tokens can be given out as they come only where one text"):
            next(stream(model, nothing(rows), config))


def test_wrong_prompts_say_why():
    model = ToyTextModel(VOCABULARY)
    with pytest.raises(ModelError, match="1 prefixes for 2 sentences"):
        search(model, nothing(2), SearchConfig(), [[4]])
    for bad in (BOS, EOS, VOCABULARY):
        with pytest.raises(ModelError, match="prefix of sentence 1"):
            search(model, nothing(1), SearchConfig(), [[bad]])
    assert search(model, nothing(1), SearchConfig(), [[UNK]])
    with torch.no_grad():
        model.output.weight[5] = math.nan
    with pytest.raises(ModelError, match="not numbers"):
        search(model, nothing(1), SearchConfig(), [[4, 5]])
