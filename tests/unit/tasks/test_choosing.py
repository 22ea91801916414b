"""Minimum Bayes risk, reranking and the guard: each against its definition, and through a translator."""

from __future__ import annotations

import dataclasses
import random
from typing import Any

import pytest
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

import regard
from regard.core.errors import ConfigError
from regard.core.search_config import SearchConfig
from regard.tasks.guarding import Guard
from regard.tasks.lines import Translation
from regard.tasks.minimum_risk import UTILITIES, MinimumRisk, expected_utilities
from regard.tasks.pair_score import PairScore
from regard.tasks.reranking import Reranker

WORDS = ["der", "die", "das", "Haus", "Hund", "läuft,", "schläft.", "groß!", "alt", "und", "ist", "3,5"]


def translation(text: str, **more: Any) -> Translation:
    tokens = text.split()
    given = {"score": 0.0, "log_prob": -float(len(tokens)), "token_log_probs": [], "source_tokens": ["x"] * 4}
    return Translation(**{"text": text, "tokens": tokens, "finished": True, **given, **more})


@pytest.fixture(scope="module")
def by_torch():
    return regard.load(engine="torch", device="cpu")


@pytest.mark.parametrize(("name", "metric"), [("chrf", CHRF()), ("bleu", BLEU(effective_order=True))])
def test_utilities_are_sacrebleu_s(name, metric):
    draw = random.Random(1)
    texts = [" ".join(draw.choices(WORDS, k=draw.randint(0, 12))) for _ in range(12)] + ["", "a", "ab", "ab  ab"]
    table = UTILITIES[name](texts)
    for i, text in enumerate(texts):
        for j, other in enumerate(texts):
            assert table[i, j] == pytest.approx(metric.sentence_score(text, [other]).score, abs=1e-9)


def test_the_text_that_the_others_agree_with_comes_first():
    texts = ["das Haus ist alt", "das Haus ist alt", "das Haus ist sehr alt", "ein Hund", "das Haus war alt"]
    (chosen,) = MinimumRisk(samples=5).choose(["x"], [[translation(text) for text in texts]])
    assert chosen[0].text == "das Haus ist alt"
    assert chosen[-1].text == "ein Hund"
    assert len(chosen) == 4  # each text once
    expected = expected_utilities(texts, "chrf")
    assert chosen[0].score == pytest.approx(expected[0]) == pytest.approx(max(expected))


def test_minimum_risk_through_a_translator(by_torch):
    careful = by_torch.choosing(MinimumRisk(samples=8, utility="chrf"))
    texts = ["Where is the nearest bank?", "He laughed. It was late."]
    one, two = careful.hypotheses(texts, search=SearchConfig(nbest=2, beam=2)), careful.translate(texts)
    assert [many[0].text for many in one] == two == careful.translate(texts)  # drawn by seed and text
    drawn = by_torch.hypotheses(texts[:1], search=MinimumRisk(samples=8).settings(by_torch.search))[0]
    values = expected_utilities([d.text for d in drawn], "chrf")
    assert two[0] == drawn[values.index(max(values))].text
    assert by_torch.chooser is None


@pytest.mark.parametrize("how", [{"samples": 1}, {"samples": 65}, {"utility": "ter"}])
def test_settings_of_minimum_risk_are_checked(how):
    with pytest.raises(ConfigError):
        MinimumRisk(**how)


class Fixed:
    """Scores that a test gives."""

    def __init__(self, scores: dict[str, float]):
        self.scores, self.asked = scores, []

    def score(self, sources, targets=None):
        self.asked.append((list(sources), targets))
        keys = sources if targets is None or sources[0] in self.scores else targets
        return [PairScore(self.scores[key], ["t"], [self.scores[key] / 2] * 2) for key in keys]


def test_reranking_adds_up_what_models_say():
    many = [
        translation("eins zwei", log_prob=-3.0),
        translation("eins", log_prob=-2.2),
        translation("drei", log_prob=-4.0),
    ]
    channel: Any = Fixed({"eins zwei": -4.0, "eins": -2.0, "drei": -1.0})
    language: Any = Fixed({"eins zwei": -5.0, "eins": -1.0, "drei": -9.0})
    ranker = Reranker(channel=channel, language_model=language, channel_weight=0.5, language_weight=0.2)
    (found,) = ranker.choose(["one two"], [many])
    expected = {
        "eins zwei": -3.0 / 3 + 0.5 * -4.0 / 2 + 0.2 * -5.0 / 5,
        "eins": -2.2 / 2 + 0.5 * -2.0 / 2 + 0.2 * -1.0 / 5,
        "drei": -4.0 / 2 + 0.5 * -1.0 / 2 + 0.2 * -9.0 / 5,
    }
    assert {one.text: one.score for one in found} == pytest.approx(expected)
    assert [one.text for one in found] == sorted(expected, key=lambda text: -expected[text])
    assert channel.asked == [(["eins zwei", "eins", "drei"], ["one two"] * 3)]  # x given y
    other: Any = Fixed({"one two": 0.0})
    with pytest.raises(ConfigError, match="no model"):
        Reranker()
    with pytest.raises(ConfigError, match="from 2"):
        Reranker(other=other, candidates=1)
    with pytest.raises(ConfigError, match="other_weight"):
        Reranker(other=other, other_weight=-0.5)


def test_reranking_through_a_translator(by_torch):
    """With another model that is the same one, the order is that of log-probabilities per token."""
    ranked = by_torch.choosing(Reranker(other=by_torch, candidates=4))
    found = ranked.hypotheses(["Where is the nearest bank?"], search=SearchConfig(beam=4, nbest=4))[0]
    means = [one.log_prob / (len(one.tokens) + 1) for one in found]
    assert means == sorted(means, reverse=True)
    assert [one.score for one in found] == pytest.approx([2 * mean for mean in means], abs=1e-3)


@pytest.mark.parametrize(
    ("source", "text", "more", "fault"),
    [
        ("The house is old.", "das Haus ist alt .", {}, ""),
        ("The house.", "   ", {}, "nothing"),
        ("...", "", {}, ""),
        ("The house", "ja ja ja ja ja ja", {}, "repeats"),
        ("The house", "ja und ja und ja und ja und ja und ja und", {}, "repeats"),
        ("no no no no no no no", "nein nein nein nein nein nein nein", {}, ""),
        ("The house is very old now", "The house is very old now", {}, "copies"),
        ("Berlin 2024", "Berlin 2024", {}, ""),
        ("Hello", " ".join(f"w{i}" for i in range(13)), {}, "far longer"),
        ("Hello", " ".join(f"w{i}" for i in range(12)), {}, ""),
        ("a b c d", "Nein", {"source_tokens": ["x"] * 20}, "far shorter"),
    ],
)  # fmt: skip
def test_what_is_no_translation(source, text, more, fault):
    found = Guard().fault(source, translation(text, **more))
    assert fault in found
    assert bool(found) == bool(fault)


def test_the_guard_takes_what_passes():
    good, bad, worse = translation("das Haus"), translation(""), translation("ja ja ja ja ja ja ja")
    asked = []

    def again(rows: list[int], settings: SearchConfig) -> list[list[Translation]]:
        asked.append((rows, settings.no_repeat_ngram))
        return [[worse, good], [bad]]

    lists = [[good, bad], [bad, good], [bad], [worse]]
    sources = ["a house"] * 4
    found = Guard().keep(sources, lists, SearchConfig(), again)
    assert asked == [([2, 3], 3)]
    assert found[0] == [good, bad]
    assert found[1] == [dataclasses.replace(good, note=found[1][0].note), bad]
    assert found[1][0].note == "another of its beam was taken: of the best one, nothing was written"
    assert (found[2][0].text, len(found[2])) == ("das Haus", 1)
    assert "second search" in found[2][0].note
    assert found[3] == [dataclasses.replace(worse, note="it repeats itself")]
    with pytest.raises(ConfigError):
        Guard(longest=0.5)


def test_the_guard_of_a_translator(by_torch):
    guarded = by_torch.guarded(Guard())
    texts = ["Where is the nearest bank?", "HELP ME NOW", "😀", "", "12"]
    assert guarded.translate(texts) == by_torch.translate(texts) or any(
        many[0].note for many in guarded.hypotheses(texts)
    )
    strict = by_torch.guarded(Guard(from_tokens=1, longest=1.0001))
    (many,) = strict.hypotheses(["Hi"])
    assert many[0].note or len(many[0].tokens) <= 1


def test_a_draft_changes_nothing(by_torch):
    texts = ["Where is the nearest bank?", "He laughed. It was late."]
    greedy = SearchConfig(beam=1)
    plain = by_torch.hypotheses(texts, search=greedy)
    quick = by_torch.drafted(by_torch, ahead=3)  # the best of all drafts
    found = quick.guarded(Guard()).hypotheses(texts, search=greedy)
    assert [many[0].text for many in found] == [many[0].text for many in plain]
    assert quick.tally.texts == 3
    assert quick.tally.guessed == quick.tally.right > 0
    assert quick.tally.steps < quick.tally.tokens / 2
    with pytest.raises(ConfigError, match="one text at a time"):
        quick.translate(texts)  # with the model's own beam


def test_alternatives_at_a_position(by_torch):
    text, prefix = "Where is the nearest bank?", "Wo ist"
    found = by_torch.alternatives(text, prefix, 4)
    assert len(found) == 4
    assert all(one.text.startswith(prefix + " ") for one in found)
    words = [one.text[len(prefix) :].split()[0] for one in found]
    assert len({one.tokens[2] for one in found}) == 4
    assert all(one.tokens[2].startswith("▁") for one in found)  # whole words: not "Wo isten"
    likeliest = [by_torch.score([text], [one.text])[0].token_log_probs[2] for one in found]
    assert likeliest == sorted(likeliest, reverse=True)
    assert found[0].text == by_torch.hypotheses([text], prefixes=[prefix + " " + words[0]])[0][0].text
    first = by_torch.alternatives(text, count=3)
    assert len({one.tokens[0] for one in first}) == 3
    assert by_torch.alternatives("", count=3) == []
    with pytest.raises(ConfigError, match="not from 1 to 64"):
        by_torch.alternatives(text, count=0)
