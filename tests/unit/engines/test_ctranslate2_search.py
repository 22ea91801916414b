"""CTranslate2's search, as regard asks it, finds regard's own n-best lists, or says that torch has to search."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from toys import SOURCE, arrays, texts, toy

from regard.core.errors import ModelError
from regard.core.search_config import SearchConfig
from regard.core.types import EOS, pad_rows
from regard.engines import ctranslate2_engine
from regard.engines.ctranslate2_engine import CTranslate2Engine, threads
from regard.engines.ctranslate2_model import converted
from regard.engines.ctranslate2_rules import breaks_rule, search_options, why_not_search
from regard.search.search import search

pytest.importorskip("ctranslate2")
SOURCES = texts(len(SOURCE), 40, 12)


@pytest.fixture(scope="module")
def toy_engine() -> tuple[Any, CTranslate2Engine]:
    model, section, target = toy(ending=4.0)
    files = converted(section, arrays(model), SOURCE, target, "float32")
    return model, CTranslate2Engine(files, SOURCE, target, longest=200, limit=None, compute="float32")


@pytest.mark.parametrize("beam", [1, 2, 5])
@pytest.mark.parametrize("norm", ["plain", "gnmt", "none"])
def test_the_same_lists_are_found(toy_engine: tuple[Any, CTranslate2Engine], beam: int, norm: Any) -> None:
    model, engine = toy_engine
    settings = SearchConfig(beam=beam, nbest=beam, length_norm=norm, alpha=0.8, max_extra=30)
    wanted = search(model, pad_rows([[*row, EOS] for row in SOURCES]), settings)
    found = engine.finish(engine.start(SOURCES, settings), details=True)
    same = 0
    for many, own in zip(found, wanted, strict=True):
        if many is not None:
            assert [one.tokens for one in many] == [one.tokens for one in own]
            assert [one.score for one in many] == pytest.approx([one.score for one in own], abs=1e-4)
            assert many[0].token_log_probs == pytest.approx(own[0].token_log_probs, abs=1e-4)
            assert all(one.finished for one in own)
            same += 1
    assert same > 20


@pytest.mark.parametrize(("largest", "between", "inside"), [(1 << 40, 3, 1), (1, 1, 3)])
def test_threads_take_batches_of_their_own_unless_a_model_is_large(
    monkeypatch: pytest.MonkeyPatch, toy_engine: tuple[Any, CTranslate2Engine], largest: int, between: int, inside: int
) -> None:
    """What CTranslate2 is asked for, and how many batches are begun before one is waited for."""
    import ctranslate2

    asked: dict[str, Any] = {}
    make = ctranslate2.Translator
    monkeypatch.setattr(ctranslate2, "Translator", lambda *given, **named: asked.update(named) or make(*given, **named))
    monkeypatch.setattr(ctranslate2_engine, "APART", largest)
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    model, section, target = toy(ending=4.0)
    files = converted(section, arrays(model), SOURCE, target, "float32")
    engine = CTranslate2Engine(files, SOURCE, target, longest=200, limit=None, compute="float32")
    assert (asked["inter_threads"], asked["intra_threads"], engine.batches) == (between, inside, between)
    settings = SearchConfig(beam=2, max_extra=30)
    found, usual = (one.finish(one.start(SOURCES, settings)) for one in (engine, toy_engine[1]))
    assert [many and many[0].tokens for many in found] == [many and many[0].tokens for many in usual]


def test_one_best_needs_no_details(toy_engine: tuple[Any, CTranslate2Engine]) -> None:
    model, engine = toy_engine
    settings = SearchConfig(beam=4, nbest=1, length_norm="plain", alpha=1.0)
    wanted = search(model, pad_rows([[*row, EOS] for row in SOURCES]), settings)
    for many, (own, *_) in zip(engine.finish(engine.start(SOURCES, settings)), wanted, strict=True):
        if many is not None:
            assert many[0].tokens == own.tokens
            assert many[0].log_prob == pytest.approx(own.log_prob, abs=1e-3)
            assert many[0].token_log_probs == []


@pytest.mark.parametrize(
    "change",
    [
        {"max_extra": 0, "max_ratio": 0.0},  # one token at most: most texts are cut
        {"min_length": 25},
        {"no_repeat_ngram": 1},
    ],
    ids=str,
)
def test_what_breaks_a_rule_is_left_to_torch(toy_engine: tuple[Any, CTranslate2Engine], change: dict[str, Any]) -> None:
    model, engine = toy_engine
    settings = dataclasses.replace(SearchConfig(beam=3, nbest=3), **change)
    found = engine.finish(engine.start(SOURCES, settings))
    assert sum(many is None for many in found) > 5
    wanted = search(model, pad_rows([[*row, EOS] for row in SOURCES]), settings)
    kept = [(many, own) for many, own in zip(found, wanted, strict=True) if many is not None]
    for many, own in kept:
        assert [one.tokens for one in many] == [one.tokens for one in own]


def test_texts_beyond_the_positions_are_left_to_torch(toy_engine: tuple[Any, CTranslate2Engine]) -> None:
    _, engine = toy_engine
    long = [5] * 200
    found = engine.finish(engine.start([long, SOURCES[0]], SearchConfig()))
    assert found[0] is None
    assert engine.finish(engine.start([long], SearchConfig())) == [None]
    assert engine.finish(engine.start([SOURCES[0]], SearchConfig(max_ratio=1000.0))) == [None]


def test_a_text_may_have_as_many_tokens_as_its_maximum_and_then_end() -> None:
    assert search_options(SearchConfig(), [5, 7], 9)["max_decoding_length"] == 10


def test_without_normalisation_the_search_does_not_stop_early() -> None:
    """With a penalty of 0 CTranslate2 ends at the first text that is better than all that go on."""
    assert search_options(SearchConfig(length_norm="none"), [5, 7], 9)["length_penalty"] > 0
    assert search_options(SearchConfig(length_norm="plain", alpha=0.0), [5, 7], 9)["length_penalty"] > 0
    assert search_options(SearchConfig(length_norm="plain", alpha=0.7), [5, 7], 9)["length_penalty"] == 0.7


def test_requests_that_need_torch_are_named() -> None:
    plain = SearchConfig()
    assert why_not_search(plain) is None
    assert "attention" in str(why_not_search(plain, attention=True))
    assert "beginning" in str(why_not_search(plain, prefixes=True))
    assert "sampled" in str(why_not_search(SearchConfig(method="sample")))
    assert "coverage" in str(why_not_search(SearchConfig(coverage=0.2)))
    assert "exact" in str(why_not_search(SearchConfig(stop="exact")))


@pytest.mark.parametrize(
    ("tokens", "broken"),
    [
        ("a b c", False),
        ("a a a", False),  # three in a row, and three may be
        ("a a a a", True),
        ("x a b a b a b a", False),
        ("x a b a b a b a b y", True),
        ("a b c d a b c d a b c d e", False),
        ("a b c d a b c d a b c d a b c d e", True),
        ("a b c d e " * 4, False),  # five tokens: no loop that is looked for
        ("a b a c a d a e a f", False),
    ],
)
def test_loops_are_seen(tokens: str, broken: bool) -> None:
    assert breaks_rule(tokens.split(), 100, SearchConfig(max_repeat=3)) is broken
    assert not breaks_rule(tokens.split(), 100, SearchConfig(max_repeat=0))


def test_lengths_and_repeated_grams_are_seen() -> None:
    assert breaks_rule(["a"] * 5, 4, SearchConfig())
    assert not breaks_rule(["a"] * 4, 4, SearchConfig())
    assert breaks_rule(["a"], 4, SearchConfig(min_length=2))
    assert breaks_rule(["a", "b", "c", "a", "b"], 9, SearchConfig(no_repeat_ngram=2))
    assert not breaks_rule(["a", "b", "c", "a", "b"], 9, SearchConfig(no_repeat_ngram=3))


def test_a_token_twice_is_refused() -> None:
    model, section, target = toy()
    files = converted(section, arrays(model), SOURCE, target, "float32")
    with pytest.raises(ModelError, match="twice"):
        CTranslate2Engine(files, [*SOURCE[:-1], SOURCE[5]], target, longest=9, limit=None, compute="float32")
    with pytest.raises(ModelError, match="CTranslate2"):
        CTranslate2Engine({**files, "model.bin": b"none"}, SOURCE, target, longest=9, limit=None, compute="float32")


def test_threads_are_as_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert threads() == 3
    monkeypatch.setenv("OMP_NUM_THREADS", "many")
    assert threads() >= 1
