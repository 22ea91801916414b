"""Word alignments in the result: those of `align` for each sentence, counted over the words of the whole line."""

from __future__ import annotations

import dataclasses

import pytest

import regard
from regard.core.search_config import SearchConfig
from regard.tasks.lines import Sentence, Translation, join_line
from regard.tasks.translation import Translator

LINE = "  I like the small dog.  She does not know him.\tWhy not? "


@pytest.fixture(scope="module")
def bundled() -> Translator:
    return regard.load(engine="torch", device="cpu")


def plain_links(translator: Translator, line: str, sentences: list[str], nth: int, beam: int) -> list[tuple[int, int]]:
    """By hand: each sentence by itself, and how many words stood before it."""
    found, sources, targets = [], 0, 0
    search = dataclasses.replace(translator.search, beam=beam, nbest=beam)
    for sentence in sentences:
        text = translator.hypotheses([sentence], search=search)[0][nth].text
        (links,) = translator.align([sentence], [text])
        found += [(i + sources, j + targets) for i, j in links]
        sources, targets = sources + len(sentence.split()), targets + len(text.split())
    assert sources == len(line.split())
    return sorted(found)


def test_links_of_a_line_of_several_sentences(bundled):
    sentences = ["I like the small dog.", "She does not know him.", "Why not?"]
    search = dataclasses.replace(bundled.search, beam=3, nbest=3)
    (found,) = bundled.hypotheses([LINE], search=search, alignment=True)
    assert len(found) == 3
    for nth, one in enumerate(found):
        assert one.alignment == plain_links(bundled, LINE, sentences, nth, 3)
        assert one.alignment
        assert max(i for i, _ in one.alignment) < len(LINE.split())
        assert max(j for _, j in one.alignment) < len(one.text.split())


def test_only_where_asked_for(bundled):
    assert bundled.hypotheses(["Good morning."])[0][0].alignment is None
    (found,) = bundled.hypotheses(["Good morning."], alignment=True)
    assert found[0].alignment == bundled.align(["Good morning."], [found[0].text])[0]
    assert bundled.hypotheses([" "], alignment=True)[0][0].alignment is None  # there was nothing to translate


def test_the_fast_engine_keeps_its_text_and_gets_the_same_links(bundled):
    pytest.importorskip("ctranslate2")
    fast = regard.load(engine="auto", device="cpu")
    (found,) = fast.hypotheses([LINE], alignment=True)
    assert fast.engine == "ctranslate2"
    assert found[0].text == fast.translate(LINE)
    words = LINE.split()
    parts = [" ".join(words[:5]), " ".join(words[5:10]), " ".join(words[10:])]
    if found[0].text == bundled.translate(LINE):
        assert found[0].alignment == plain_links(bundled, LINE, parts, 0, bundled.search.beam)


def test_a_pair_that_is_too_long_has_none(bundled, monkeypatch):
    monkeypatch.setattr("regard.tasks.alignment.MOST_TOKENS", 3)
    found = bundled.tagged("").hypotheses(["Yes.", "I like the small dog very much."], beam=1, alignment=True)
    assert found[0][0].alignment is not None
    assert found[1][0].alignment is None


def one(text: str, links: list[tuple[int, int]] | None) -> Translation:
    return Translation(text, 0.0, 0.0, [], [], [], True, alignment=links)


def test_a_word_cut_in_two_is_one_word():
    """Texts without spaces are cut anywhere: the halves belong to one word of the line."""
    parts = [
        (Sentence(0, "ab", ""), [one("x y", [(0, 1)])]),
        (Sentence(0, "cd ef", " "), [one("z w", [(0, 0), (1, 1)])]),
    ]
    (joined,) = join_line("abcd ef ", parts)
    assert joined.text == "x y z w "
    assert joined.alignment == [(0, 1), (0, 2), (1, 3)]
    parts[1] = (parts[1][0], [one("z w", None)])
    assert join_line("abcd ef ", parts)[0].alignment is None


def test_a_model_without_attention_has_none(bundled):
    from regard.models.base import build_model
    from regard.models.cho import ChoConfig

    size = bundled.tokenizers.source.size
    model = build_model(
        "cho", ChoConfig(width=8, embedding=8), source_vocabulary=size, target_vocabulary=size, shared=False
    )
    blind = Translator(model, bundled.tokenizers, SearchConfig(beam=1, max_extra=3))
    assert not blind.attends
    assert blind.hypotheses(["Good morning."], alignment=True)[0][0].alignment is None
