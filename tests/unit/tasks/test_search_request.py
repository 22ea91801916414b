"""What a search is asked for reaches the engine as it was said, and a second search is silent."""

from __future__ import annotations

import dataclasses

import pytest

from regard.core.search_config import SearchConfig
from regard.tasks.glossary import Glossary
from regard.tasks.guarding import Guard
from regard.tasks.pretrained import load
from regard.tasks.search_request import SearchRequest
from regard.tasks.torch_translation import TorchEngine

TEXTS = ["Good morning.", "The bank is open."]


@pytest.fixture
def asked(monkeypatch) -> list[tuple[int, SearchRequest]]:
    """What torch is asked for: how many sentences, and how."""
    seen: list[tuple[int, SearchRequest]] = []
    search = TorchEngine.search

    def noted(self, sentences, request, letters=None):
        seen.append((len(sentences), request))
        return search(self, sentences, request, letters)

    monkeypatch.setattr(TorchEngine, "search", noted)
    return seen


def test_everything_that_is_asked_for_reaches_the_engine(asked):
    done: list[int] = []
    settings = SearchConfig(beam=2)
    load(device="cpu", engine="torch").hypotheses(
        TEXTS, search=settings, attention=True, batch_tokens=99, progress=done.append, details=False
    )
    assert [count for count, _ in asked] == [2]
    request = asked[0][1]
    assert (request.settings, request.attention, request.batch_tokens, request.details) == (settings, True, 99, False)
    assert done == [1, 2]


def test_a_guard_searches_again_as_before_but_for_the_settings_and_in_silence(asked):
    done: list[int] = []

    class Careful(Guard):
        def keep(self, sources, found, settings, again):
            again([1], dataclasses.replace(settings, beam=7))
            return found

    translator = load(device="cpu", engine="torch").guarded(Careful())
    translator.hypotheses(TEXTS, beam=1, attention=True, batch_tokens=99, progress=done.append, details=False)
    (_, first), (count, second) = asked
    assert count == 1
    assert second == dataclasses.replace(first, settings=dataclasses.replace(first.settings, beam=7), progress=None)
    assert done == [1, 2]


def test_terms_are_searched_for_with_the_same_wishes_and_in_silence(asked):
    done: list[int] = []
    translator = load(device="cpu", engine="torch").with_glossary(Glossary.of([("bank", "Ufer")]))
    translator.hypotheses(TEXTS, beam=8, attention=True, batch_tokens=99, progress=done.append, details=False)
    (plain, first), (_, with_terms) = asked
    assert plain == 1
    assert first == SearchRequest(first.settings, True, 99, None, False)
    assert with_terms == first
    assert done == []
