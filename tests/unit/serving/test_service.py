"""The service: the same answers as from the models alone, whoever else asks; bounds, deadlines, and clients that go away."""

from __future__ import annotations

import asyncio
import dataclasses
import math
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from models_to_serve import CONTEXT, LANGUAGE_MODELS, shelf_of, text_model

import regard
from regard.core.errors import DataError, ModelError
from regard.serving.completions import Completed, Piece, Wishes
from regard.serving.limits import Limits
from regard.serving.refusals import Refused
from regard.serving.service import Service
from regard.serving.shelf import Served, Shelf


def serving(shelf: Shelf, use: Callable[[Service], Coroutine[Any, Any, None]], **limits: Any) -> None:
    service = Service(shelf, Limits(**limits))
    try:
        asyncio.run(use(service))
        assert (service.admission.requests, service.admission.tokens) == (0, 0)
        assert soon(lambda: not any(one.slots + one.waiting for one in service._scribes.values()))
    finally:
        assert service.close(10)


def soon(true: Callable[[], bool]) -> bool:
    """Whether something becomes true within some seconds."""
    end = time.monotonic() + 10
    while not true() and time.monotonic() < end:
        time.sleep(0.005)
    return true()


def the(service: Service) -> Served:
    return next(iter(service.shelf))


# --- batches

TEXTS = [
    "Good morning. How are you?\n\nI am fine.",
    "The weather is nice today.",
    "I have never been to Berlin, but my sister lives there.",
    "",
    "Where is the station?",
    "He did not say a word. She left. The door was open, and nobody came back.",
    "Thank you very much!",
]


@pytest.mark.parametrize("engine", ["ctranslate2", "torch"])
def test_translations_are_the_same_alone_and_in_company(engine):
    model = regard.load(engine=engine, device="cpu")
    alone = {beam: [model.translate(text, beam=beam) for text in TEXTS] for beam in (1, 5)}

    async def use(service: Service) -> None:
        served = the(service)
        asked = [service.translate(served, [text], beam=beam) for beam in alone for text in TEXTS]
        asked.append(service.translate(served, TEXTS, beam=5, alternatives=2))
        found = await asyncio.gather(*asked)
        assert [many[0][0] for many in found[:-1]] == alone[1] + alone[5]
        expected = model.hypotheses(TEXTS, search=dataclasses.replace(model.search, beam=5, nbest=3))
        assert found[-1] == [[one.text for one in many] for many in expected]
        assert len(found[-1][1]) == 3

    shelf = shelf_of("translation", model=model)
    serving(shelf, use)


def test_translations_bring_attention_where_it_is_asked_for():
    model = regard.load(device="cpu")

    async def use(service: Service) -> None:
        ((found,),) = await service.translations(the(service), ["Good morning."], attention=True)
        assert found.attention is not None
        assert np.sum(found.attention, axis=1) == pytest.approx(1, abs=1e-4)

    serving(shelf_of("translation", model=model), use)


def test_readers_answer_the_same_in_company(folders: dict[str, Path]):
    shelf = Shelf.open([f"{name}={place}" for name, place in folders.items()], device="cpu")
    texts = ["The cat sat on the mat.", "A red car!", "Good morning, nobody slept in the street."]
    masked = ["The [MASK] sat on the mat.", "A [MASK] car stood in the [MASK]."]
    sorter, tagger, reader = (regard.load(folders[name], device="cpu") for name in ("sorter", "tagger", "reader"))

    async def use(service: Service) -> None:
        names = {name: shelf.models[name] for name in folders}
        found: Any = await asyncio.gather(
            *(service.classify(names["sorter"], [text], top=2) for text in texts),
            service.classify(names["sorter"], texts),
            *(service.tag(names["tagger"], [text]) for text in texts),
            service.tag(names["tagger"], texts),
            *(service.fill(names["reader"], [text], top=3) for text in masked),
            service.fill(names["reader"], masked, top=3),
            *(service.embed(names["reader"], [text]) for text in texts),
            service.embed(names["reader"], texts),
        )
        for i, text in enumerate(texts):
            guesses = sorter.guesses([text], top=2)[0]
            assert [guess.label for guess in found[i][0]] == [guess.label for guess in guesses]
            assert [g.probability for g in found[i][0]] == pytest.approx([g.probability for g in guesses], abs=1e-6)
            assert found[3][i][0].label == guesses[0].label
            tagged = tagger.tag(text)
            for several in (found[4 + i][0], found[7][i]):
                assert [one[:2] for one in several] == [one[:2] for one in tagged]
                assert [o.probability for o in several] == pytest.approx([o.probability for o in tagged], abs=1e-6)
            vector = reader.embed(text)[0]
            assert found[11 + i][0] == pytest.approx(vector, abs=1e-5)
            assert found[14][i] == pytest.approx(vector, abs=1e-5)
        for i, text in enumerate(masked):
            for several in (found[8 + i][0], found[10][i]):
                for words, expected in zip(several, reader.fill(text, 3), strict=True):
                    assert [word.word for word in words] == [word.word for word in expected]
                    assert [word.probability for word in words] == pytest.approx(
                        [word.probability for word in expected], abs=1e-6
                    )
        with pytest.raises(DataError, match=r"text 2: no \[MASK\]"):
            await service.fill(names["reader"], ["The [MASK].", "nothing"])
        with pytest.raises(DataError, match="text 2: nothing stands in it"):
            await service.tag(names["tagger"], ["a", " "])
        with pytest.raises(Refused, match="translates"):
            await service.translate(names["sorter"], ["a"])
        with pytest.raises(Refused, match="top is 0"):
            await service.classify(names["sorter"], ["a"], top=0)
        assert await service.count_tokens(names["sorter"], texts) == [
            len(ids) for ids in sorter.tokenizers.source.encode(texts)
        ]

    serving(shelf, use)


# --- completions


def endless(name: str = "lstmlm") -> Any:
    """A model whose texts never end by themselves."""
    import torch

    from regard.core.types import EOS

    model = text_model(name)
    with torch.no_grad():
        model.model.output.bias[EOS] = -math.inf  # type: ignore[index]
    return model


def wish(**how: Any) -> Wishes:
    return Wishes(**{"max_tokens": 10, "seed": 3, **how})


@pytest.mark.parametrize("name", ["gpt", "nplm", "rnnlm", "lstmlm"])
def test_completions_are_what_generate_gives(name):
    assert name in LANGUAGE_MODELS
    model = text_model(name)

    async def use(service: Service) -> None:
        served, prompts = the(service), ["", "the cat", "a dog"]
        plain = [service.complete(served, prompt, wish(max_tokens=20)) for prompt in prompts]
        cold = [service.complete(served, prompt, wish(temperature=0.0, max_tokens=6)) for prompt in prompts]
        many = service.complete(served, "the", wish(n=4, top_p=0.9, temperature=0.7))
        found = await asyncio.gather(*plain, *cold, many)
        for prompt, one, other in zip(prompts, found[:3], found[3:6], strict=True):
            assert one.choices[0].text == model.generate(prompt, max_tokens=20, seed=3)
            assert other.choices[0].text == model.generate(prompt, max_tokens=6, method="greedy")
            assert one.prompt_tokens == len(prompt)
            assert other.written_tokens <= 6
        expected = model.generate("the", samples=4, max_tokens=10, seed=3, top_p=0.9, temperature=0.7)
        assert [choice.text for choice in found[6].choices] == expected

    serving(shelf_of(model=model), use, slots=3)


async def streamed(service: Service, prompt: str | list[int], wishes: Wishes) -> tuple[list[Piece], dict[int, str]]:
    pieces: list[Piece] = []
    texts: dict[int, str] = {}
    async for piece in service.stream(the(service), prompt, wishes):
        pieces.append(piece)
        texts[piece.index] = texts.get(piece.index, "") + piece.text
    return pieces, texts


@pytest.mark.parametrize("kind", ["char", "byte", "bpe", "space"])
def test_streams_are_the_same_texts_in_pieces(kind):
    model = text_model("gpt", kind, size=300 if kind == "byte" else 60)

    async def use(service: Service) -> None:
        for wishes in (wish(n=2), wish(stop=("a", "t e")), wish(echo=True, logprobs=1), wish(max_tokens=0, echo=True)):
            whole: Completed = await service.complete(the(service), "the cat", wishes)
            pieces, texts = await streamed(service, "the cat", wishes)
            assert [texts[i] for i in sorted(texts)] == [choice.text for choice in whole.choices]
            for i, choice in enumerate(whole.choices):
                own = [piece for piece in pieces if piece.index == i]
                assert [piece.finish for piece in own[:-1]] == [None] * (len(own) - 1)
                assert own[-1].finish == choice.finish
                facts = [one for piece in own for one in piece.tokens]
                assert [(one.text, one.offset) for one in facts] == [(one.text, one.offset) for one in choice.tokens]
                expected = [one.log_prob for one in choice.tokens]
                assert [one.log_prob for one in facts] == pytest.approx(expected, abs=1e-5)

    serving(shelf_of(model=model), use)


def test_a_stop_text_ends_a_completion_before_it():
    model = endless()
    text = model.generate("the cat", max_tokens=60, seed=3)
    assert isinstance(text, str)
    stop, other = text[20:23], text[30:34]

    async def use(service: Service) -> None:
        wishes = wish(max_tokens=60, stop=("never", other, stop), logprobs=0)
        (choice,) = (await service.complete(the(service), "the cat", wishes)).choices
        end = min(text.find(stop), text.find(other))
        assert (choice.text, choice.finish) == (text[:end], "stop")
        assert "".join(facts.text for facts in choice.tokens).startswith(choice.text)
        assert choice.tokens[-1].offset < len(choice.text)
        pieces, texts = await streamed(service, "the cat", wishes)
        assert texts[0] == text[:end]
        assert pieces[-1].finish == "stop"

    serving(shelf_of(model=model), use)


def test_log_probabilities_are_the_models_own():
    model = text_model("rnnlm")

    async def use(service: Service) -> None:
        done = await service.complete(the(service), "the cat", wish(logprobs=2, echo=True))
        (choice,) = done.choices
        (found,) = model.generations("the cat", search=model.settings(max_tokens=10, seed=3))
        (prompt,) = model.score(["the cat"])
        count = done.prompt_tokens
        assert choice.text == "the cat" + found.text
        assert [facts.log_prob for facts in choice.tokens[:count]] == pytest.approx(
            prompt.token_log_probs[:-1], abs=1e-5
        )
        written = done.written_tokens
        assert [facts.log_prob for facts in choice.tokens[count:]] == pytest.approx(
            found.token_log_probs[:written], abs=1e-5
        )
        assert "".join(facts.text for facts in choice.tokens) == choice.text
        for facts in choice.tokens:
            assert choice.text[facts.offset :].startswith(facts.text)
            assert len(facts.top) == 2
            assert facts.top[0][1] >= facts.top[1][1]
        nothing = await service.complete(the(service), "the cat", wish(logprobs=1, echo=True, max_tokens=0))
        assert (nothing.choices[0].text, nothing.written_tokens) == ("the cat", 0)
        assert nothing.choices[0].tokens == tuple(
            dataclasses.replace(facts, top=facts.top[:1]) for facts in choice.tokens[:count]
        )

    serving(shelf_of(model=model), use)


def test_the_best_of_several_texts_are_those_with_the_highest_log_probability_per_token():
    model = text_model("lstmlm")

    async def use(service: Service) -> None:
        every = (await service.complete(the(service), "a", wish(n=6, logprobs=0))).choices
        best = await service.complete(the(service), "a", wish(n=2, best_of=6, logprobs=0))
        ranked = sorted(every, key=lambda one: -one.log_prob / max(1, len(one.tokens)))
        assert [one.text for one in best.choices] == [one.text for one in ranked[:2]]
        assert best.written_tokens == sum(len(one.tokens) for one in every)
        with pytest.raises(Refused, match="best of several"):
            service.stream(the(service), "a", wish(best_of=2))

    serving(shelf_of(model=model), use)


def test_prompts_may_be_tokens_and_wrong_ones_are_errors():
    model = text_model()
    ids = model.tokenizer.encode(["the cat"])[0]

    async def use(service: Service) -> None:
        served = the(service)
        one, other = await asyncio.gather(
            service.complete(served, ids, wish(echo=True)), service.complete(served, "the cat", wish(echo=True))
        )
        assert [choice.text for choice in one.choices] == [choice.text for choice in other.choices]
        for prompt, error in (([10**6], DataError), ([-1], DataError), ("☃☃", DataError), ([1], ModelError)):
            with pytest.raises(error):
                await service.complete(served, prompt, wish())
        with pytest.raises(ModelError, match="reads at most"):
            await service.complete(served, "the cat sat on the mat", wish())
        with pytest.raises(ModelError, match="reads at most"):
            await anext(service.stream(served, "a" * CONTEXT, wish()))
        different = {(await service.complete(served, "the", wish(seed=None))).choices[0].text for _ in range(4)}
        assert len(different) > 1

    serving(shelf_of(model=model), use)


# --- who gives up, who comes too late, who is too many


def test_who_gives_up_frees_the_place_at_the_next_step():
    async def use(service: Service) -> None:
        served = the(service)
        long = asyncio.create_task(service.complete(served, "the", wish(max_tokens=1024)))
        stream = service.stream(served, "a", wish(max_tokens=1024))
        await asyncio.sleep(0)
        await anext(stream)
        scribe = service._scribes[served.name]
        assert soon(lambda: scribe.slots == 2)
        waits = asyncio.create_task(service.complete(served, "a", wish(max_tokens=3)))  # there are only two places
        await asyncio.sleep(0.02)
        assert not waits.done()
        long.cancel()
        await stream.aclose()
        with pytest.raises(asyncio.CancelledError):
            await long
        assert len((await waits).choices) == 1
        assert soon(lambda: not scribe.slots)
        assert service.admission.requests == 0
        assert service.metrics.given_up.total() == 2

    serving(shelf_of(model=endless()), use, slots=2)


def test_an_answer_that_is_not_ready_in_time_is_refused():
    async def use(service: Service) -> None:
        served, now = the(service), asyncio.get_running_loop().time()
        with pytest.raises(Refused) as caught:
            await service.complete(served, "a", wish(max_tokens=1024), deadline=now + 0.1)
        assert (caught.value.status, caught.value.kind) == (503, "deadline")
        assert caught.value.retry_after is not None
        with pytest.raises(Refused, match="not ready in time"):
            async for _ in service.stream(served, "a", wish(max_tokens=1024), deadline=now + 0.4):
                pass
        assert service.metrics.refusals.values == {("deadline",): 2}

    serving(shelf_of(model=endless()), use)


def test_more_than_the_queue_holds_are_refused_and_later_ones_are_not():
    async def use(service: Service) -> None:
        served = the(service)
        asked = [asyncio.create_task(service.complete(served, "a", wish(max_tokens=20))) for _ in range(12)]
        found = await asyncio.gather(*asked, return_exceptions=True)
        refused = [one for one in found if isinstance(one, Refused)]
        assert len(refused) == 8
        assert {(one.status, one.kind) for one in refused} == {(503, "busy")}
        assert all(one.retry_after is not None for one in refused)
        assert len({one.choices[0].text for one in found if isinstance(one, Completed)}) == 1
        assert (await service.complete(served, "a", wish())).written_tokens
        with pytest.raises(Refused, match="max_tokens"):
            await service.complete(served, "a", wish(max_tokens=10**9))

    serving(shelf_of(model=text_model()), use, queue=4)


def test_draining_finishes_what_was_accepted_and_refuses_the_rest():
    async def use(service: Service) -> None:
        served = the(service)
        accepted = asyncio.create_task(service.complete(served, "a", wish(max_tokens=200)))
        await asyncio.sleep(0.01)
        draining = asyncio.create_task(service.drain(20))
        await asyncio.sleep(0.01)
        assert not service.ready
        with pytest.raises(Refused, match="being stopped"):
            await service.complete(served, "a", wish())
        assert await draining
        assert len((await accepted).choices) == 1
        await service.start()
        assert service.ready
        late = asyncio.create_task(service.complete(served, "a", wish(max_tokens=1024)))
        await asyncio.sleep(0.01)
        assert not await service.drain(0.05)
        late.cancel()

    serving(shelf_of(model=endless("rnnlm")), use)


def test_a_model_that_fails_fails_its_requests_and_works_again(caplog):
    model = text_model("rnnlm")
    right = model.model.step

    def wrong(*_: Any, **__: Any) -> Any:
        raise RuntimeError("the sky fell")

    async def use(service: Service) -> None:
        served = the(service)
        model.model.step = wrong  # type: ignore[method-assign]
        found = await asyncio.gather(*(service.complete(served, "a", wish()) for _ in range(3)), return_exceptions=True)
        assert [type(one) for one in found] == [RuntimeError] * 3
        model.model.step = right  # type: ignore[method-assign]
        assert (await service.complete(served, "a", wish())).choices[0].text == model.generate(
            "a", max_tokens=10, seed=3
        )
        assert "the sky fell" in caplog.text

    serving(shelf_of(model=model), use)


def test_models_are_put_back_and_loaded_again():
    shelf = shelf_of(a=text_model("rnnlm"), b=text_model("nplm"))
    shelf.most_loaded = 1

    async def use(service: Service) -> None:
        for name in "abab":
            await service.complete(shelf.models[name], "the", wish())
        assert service.metrics.loads.values == {("a",): 2.0, ("b",): 2.0}
        assert shelf.loaded == ["b"]
        assert "regard_models_loaded 1" in service.metrics.text()

    serving(shelf, use)
