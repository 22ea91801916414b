"""Served translators answer through the guard of `regard translate`, the same alone and in company; --no-guard switches it off."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest
from typer.testing import CliRunner

import regard
from regard.serving.service import Service
from regard.serving.shelf import Shelf
from regard.tasks.guarding import Guard
from regard.tasks.pretrained import BUNDLED
from regard.tasks.translation_engines import Engine

STRICT = Guard(from_tokens=1, longest=1.01)  # takes exception to translations that are longer than their source
TEXTS = [
    "The weather is nice today.",
    "Where is the station?",
    "The children played in the garden until it was dark.",
    "Thank you! I do not know what you mean.",
    "The train to Hamburg leaves at nine.",
    "Tom was late again.",
]


def served_texts(engine: Engine, guard: Guard | None, alternatives: int = 0) -> tuple[list[list[str]], float]:
    """Answers to all texts, asked at the same time, and how many the guard has noted."""
    shelf = Shelf.open([f"model={BUNDLED}"], device="cpu", engine=engine, guard=guard)
    service = Service(shelf)

    async def use() -> list[list[str]]:
        asked = (service.translate(shelf.models["model"], [text], alternatives=alternatives) for text in TEXTS)
        return [many for (many,) in await asyncio.gather(*asked)]

    try:
        return asyncio.run(use()), service.metrics.noted.total()
    finally:
        service.close()


@pytest.mark.parametrize(("engine", "alternatives"), [("ctranslate2", 0), ("ctranslate2", 2), ("torch", 0)])
def test_answers_are_those_of_the_guarded_model_alone(engine, alternatives):
    model = regard.load(engine=engine, device="cpu")
    settings = dataclasses.replace(model.search, beam=max(model.search.beam, alternatives + 1), nbest=alternatives + 1)
    plain = [model.hypotheses([text], search=settings)[0] for text in TEXTS]
    careful = [model.guarded(STRICT).hypotheses([text], search=settings)[0] for text in TEXTS]
    assert any(a[0].text != b[0].text for a, b in zip(plain, careful, strict=True)), "the guard has nothing to do"
    found, noted = served_texts(engine, STRICT, alternatives)
    assert found == [[one.text for one in many] for many in careful]
    assert noted == sum(bool(many[0].note) for many in careful) > 0
    found, noted = served_texts(engine, None, alternatives)
    assert found == [[one.text for one in many] for many in plain]
    assert noted == 0


def test_the_guard_is_on_unless_one_says_otherwise(monkeypatch):
    (served,) = Shelf.open(device="cpu")
    assert served.load().guard == Guard()
    import regard.cli.serve as command
    from regard.cli.main import app

    seen: list[Guard | None] = []

    def stop(folders, **how):
        seen.append(how["guard"])
        raise regard.RegardError("test", "enough", "Stop")

    monkeypatch.setattr(command.Shelf, "open", stop)
    for words in ([], ["--no-guard"]):
        assert CliRunner().invoke(app, ["serve", *words]).exit_code != 0
    assert seen == [Guard(), None]
