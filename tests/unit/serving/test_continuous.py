"""Texts that are written together: the same as alone, whoever comes and goes."""

from __future__ import annotations

import dataclasses
import random

import pytest
import torch
from models_to_serve import CONTEXT, LANGUAGE_MODELS, text_model

from regard.core.errors import ModelError
from regard.core.types import EOS
from regard.search.config import SearchConfig
from regard.serving.continuous import Company, Text, read_prompt
from regard.tasks.language_model import TextModel

PROMPTS = ["", "the cat", "a dog, and", "the dog"]
HOW = [
    {"method": "greedy"},
    {"seed": 1},
    {"seed": 2, "top_k": 3},
    {"seed": 3, "top_p": 0.7, "temperature": 0.8},
    {"seed": 4, "min_p": 0.2},
]


def company_of(model: TextModel, most: int = 64) -> Company:
    return Company(model.model, model.settings(), model.device, most)


def ask(model: TextModel, prompt: str, most: int, **how) -> Text:
    return Text(model.tokenizer.encode([prompt])[0], model.settings(max_tokens=most, **how))


def alone(model: TextModel, text: Text) -> list[str]:
    count = text.sample + 1
    config = dataclasses.replace(text.config, nbest=count) if text.config.method == "sample" else text.config
    prompt = model.tokenizer.decode([text.prompt])[0]
    assert model.tokenizer.encode([prompt])[0] == text.prompt
    return model.generations(prompt, search=config)[text.sample].tokens


@pytest.mark.parametrize("name", LANGUAGE_MODELS)
def test_texts_are_the_same_alone_and_in_company(name):
    """Texts enter at different steps, with settings of their own, and some are longer than the context."""
    model = text_model(name)
    waiting = [ask(model, PROMPTS[i % 4], 24 - 3 * i, **how) for i, how in enumerate(HOW)]
    everyone, company, steps = list(waiting), company_of(model, most=3), 0
    log_probs: dict[int, list[float]] = {}
    while waiting or company.texts:
        while waiting and company.free and steps % 2 == 0:
            company.enter([waiting.pop(0)])
        for one in company.step():
            log_probs.setdefault(id(one.text), []).append(one.log_prob)
        steps += 1
    assert name != "gpt" or any(text.window > 1 for text in everyone)
    for text in everyone:
        prompt = model.tokenizer.decode([text.prompt])[0]
        (expected,) = model.generations(prompt, search=text.config)
        assert model.tokenizer.pieces(text.tokens) == expected.tokens
        count = len(text.tokens)
        assert log_probs[id(text)][:count] == pytest.approx(expected.token_log_probs[:count], abs=1e-4)


@pytest.mark.parametrize("name", ["gpt", "gpt-rotary"])
def test_log_probabilities_are_the_same_while_others_come_go_and_slide(name):
    """Whoever fills the context gets a new window, for which all places may be laid anew: nobody loses anything by that."""
    model, draws = text_model(name), random.Random(5)

    def fresh(kind: int) -> Text:
        return ask(model, PROMPTS[kind], 2 + 9 * kind, method="greedy")

    def wrote(text: Text) -> list[float]:
        company, found = company_of(model), []
        company.enter([text])
        while company.texts:
            found += [one.log_prob for one in company.step()]
        return found

    expected = [wrote(fresh(kind)) for kind in range(4)]
    company, kinds, found, laid, slid = company_of(model), {}, {}, 0, 0
    for step in range(600):
        for _ in range(12 if step % 30 == 0 else draws.random() < 0.1):  # many at once, then few: places become fewer
            text = fresh(kind := draws.randrange(4))
            kinds[text], found[text] = kind, []
            company.enter([text])
        windows = sum(text.window for text in company.texts)
        places = company.places
        for one in company.step():
            found[one.text].append(one.log_prob)
            own = expected[kinds[one.text]]
            assert found[one.text] == pytest.approx(own[: len(found[one.text])], abs=1e-5)
        slid += sum(text.window for text in company.texts) > windows
        laid += company.places is not places
    assert slid
    assert laid  # in the middle of a step


def test_samples_of_one_prompt_share_its_reading_and_differ():
    model = text_model()
    prompt = model.tokenizer.encode(["the cat"])[0]
    config = model.settings(max_tokens=12, seed=7)
    texts = [Text(prompt, config, sample) for sample in range(5)]
    company = company_of(model)
    company.enter(texts)
    while company.texts:
        company.step()
    found = [model.tokenizer.pieces(text.tokens) for text in texts]
    assert found == [alone(model, text) for text in texts]
    assert len({tuple(one) for one in found}) > 1


def test_places_are_freed_used_again_and_grow():
    model = text_model()
    company = company_of(model, most=8)
    first = [ask(model, "the cat", 20, seed=i) for i in range(3)]
    for text in first:
        company.enter([text])
    assert len(company.places) == 4
    company.step()
    company.leave(first[1])
    company.leave(first[1])  # twice does no harm
    assert company.free == 6
    late = [ask(model, "a dog", 10, seed=i) for i in range(6)]
    for text in late:
        company.enter([text])
    assert (company.free, len(company.places)) == (0, 8)
    while company.texts:
        company.step()
    for text in [first[0], first[2], *late]:
        assert model.tokenizer.pieces(text.tokens) == alone(model, text)
    for text in [ask(model, "the", 5, seed=1)]:
        company.enter([text])
    assert len(company.places) == 1  # most were free


def test_rows_that_are_free_do_no_harm_beyond_the_caches():
    """A place that nobody has goes on reading; its position passes the end of the caches."""
    model = text_model("gpt-rotary")
    company = company_of(model, most=2)
    long, short = ask(model, "the cat", 40, method="greedy"), ask(model, "the dog sat", 1, seed=1)
    model.model.output.bias = torch.nn.Parameter(torch.zeros(model.tokenizer.size))
    with torch.no_grad():
        model.model.output.bias[EOS] = -60
    company.enter([short])
    company.enter([long])
    while company.texts:
        company.step()
    assert len(long.tokens) == 40
    assert model.tokenizer.pieces(long.tokens) == alone(model, long)


@pytest.mark.parametrize("own", [{"no_repeat_ngram": 2}, {"min_length": 9}, {"ban_unknown": False}], ids=str)
def test_the_models_own_constraints_hold(own):
    model = text_model("gpt", search=SearchConfig(**own))
    with torch.no_grad():
        model.model.output.bias = torch.nn.Parameter(torch.zeros(model.tokenizer.size))
        model.model.output.bias[EOS] = 2.0
    texts = [ask(model, prompt, 20, seed=seed) for seed in range(2) for prompt in ("the cat", "a")]
    company = company_of(model)
    for text in texts:
        company.enter([text])
    while company.texts:
        company.step()
    for text in texts:
        assert model.tokenizer.pieces(text.tokens) == alone(model, text)


def test_prompts_are_scored_and_likeliest_tokens_shown():
    model = text_model("lstmlm")
    prompt = model.tokenizer.encode(["the cat"])[0]
    company = company_of(model)
    text = Text(prompt, model.settings(max_tokens=3, method="greedy"), likeliest=4)
    scores = company.enter([text], likeliest=2)
    assert scores is not None
    (expected,) = model.score(["the cat"])
    assert scores.log_probs == pytest.approx(expected.token_log_probs[:-1], abs=1e-5)
    assert [len(top) for top in scores.top] == [2] * len(prompt)
    (wrote,) = company.step()
    assert len(wrote.top) == 4
    assert wrote.top[0] == (wrote.token, pytest.approx(wrote.log_prob))
    assert list(wrote.top) == sorted(wrote.top, key=lambda pair: -pair[1])


def test_prompts_beyond_the_context_are_errors():
    model = text_model()
    with pytest.raises(ModelError, match="the model reads at most 12"):
        company_of(model).enter([Text([5] * (CONTEXT - 1), model.settings(max_tokens=1))])
    state, scores = read_prompt(model.model, [], model.device, 1)
    assert state.filled == 0
    assert scores is not None
    assert scores.log_probs == []


def test_scores_that_are_no_numbers_are_an_error():
    model = text_model()
    with torch.no_grad():
        model.model.output.weight.fill_(float("nan"))
    company = company_of(model)
    company.enter([ask(model, "the", 3, seed=1)])
    with pytest.raises(ModelError, match="not numbers"):
        company.step()
