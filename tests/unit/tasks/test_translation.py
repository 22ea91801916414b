"""Raw text in, raw text out: lines, paragraphs, batches, prefixes and limits."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest

import regard
from regard.core.errors import CheckpointError, ConfigError, DataError, ModelError
from regard.data.sentences import split_paragraph
from regard.data.split import Pairs
from regard.data.tokenizers import Tokenizer
from regard.search.config import SearchConfig
from regard.tasks.lines import Habits, Translation, sentences_of_line
from regard.tasks.sentences import MAX_LINE_CHARACTERS
from regard.tasks.translation import Translator

TEXTS = [
    "You are here.",
    "I saw Tom yesterday in the park.",
    "Why?",
    "She has never been to Boston, has she?",
    "No.",
    "The dog is barking at the man who lives next door.",
]
FIVE = SearchConfig(beam=5, nbest=5)


@pytest.fixture(scope="module")
def translator(tiny_run: Path) -> Translator:
    """The tiny model; lines are never split unless a test says so."""
    loaded = regard.load(tiny_run, device="cpu")
    loaded.habits = Habits()
    return loaded


@pytest.fixture
def splitting(tiny_run: Path) -> Translator:
    """The tiny model, used to lines of at most 12 tokens."""
    loaded = regard.load(tiny_run, device="cpu")
    loaded.habits = Habits(usual_length=12)
    return loaded


def texts_of(many: list[list[Translation]]) -> list[list[str]]:
    return [[found.text for found in each] for each in many]


def scores_of(many: list[list[Translation]]) -> list[float]:
    return [found.score for each in many for found in each]


# --- one and many


def test_a_text_gives_a_text_and_a_list_a_list(translator: Translator) -> None:
    alone = translator.translate(TEXTS[0])
    assert isinstance(alone, str)
    assert alone
    assert translator.translate([TEXTS[0]]) == [alone]
    assert translator.translate(tuple(TEXTS[:2])) == translator.translate(TEXTS[:2])
    assert translator.translate([]) == []


def test_the_model_says_how_long_lines_usually_are(tiny_run: Path) -> None:
    loaded = regard.load(tiny_run)
    assert loaded.habits.usual_length == loaded.config["usual_source_length"] > 5
    assert loaded.habits.one_sentence
    assert loaded.folder == tiny_run
    assert loaded.search == SearchConfig()


@pytest.mark.parametrize("batch_tokens", [1, 40, 100_000])
def test_batches_do_not_change_results(translator: Translator, batch_tokens: int) -> None:
    """Neither its batch mates nor their order change a sentence's hypotheses."""
    alone = [translator.hypotheses([text], search=FIVE)[0] for text in TEXTS]
    order = [4, 2, 0, 5, 1, 3]
    found = translator.hypotheses([TEXTS[i] for i in order], search=FIVE, batch_tokens=batch_tokens)
    assert texts_of(found) == texts_of([alone[i] for i in order])
    assert scores_of(found) == pytest.approx(scores_of([alone[i] for i in order]), abs=1e-5)


def test_progress_hears_of_every_sentence(translator: Translator) -> None:
    heard: list[int] = []
    translator.hypotheses(TEXTS, beam=1, batch_tokens=30, progress=heard.append)
    assert heard == sorted(heard)
    assert len(heard) > 1
    assert heard[-1] == len(TEXTS)


def test_beam_is_heard(translator: Translator) -> None:
    greedy = translator.hypotheses(TEXTS[:2], search=SearchConfig(beam=1))
    assert translator.translate(TEXTS[:2], beam=1) == [each[0].text for each in greedy]
    assert [len(each) for each in translator.hypotheses(TEXTS[:2], search=FIVE)] == [5, 5]
    assert [len(each) for each in translator.hypotheses(TEXTS[:2], search=FIVE, beam=2)] == [2, 2]
    with pytest.raises(ConfigError, match=r"search\.beam: 0"):
        translator.translate("x", beam=0)


def test_attention_comes_when_asked_for(translator: Translator) -> None:
    assert translator.hypotheses(TEXTS[:1])[0][0].attention is None
    found = translator.hypotheses(TEXTS[:1], attention=True)[0][0]
    assert found.attention is not None
    assert len(found.attention) == len(found.tokens) + found.finished
    for weights in found.attention:
        assert len(weights) == len(found.source_tokens) + 1
        assert math.fsum(weights) == pytest.approx(1, abs=1e-5)
    assert found.to_plain()["attention"] == found.attention


# --- empty and blank


@pytest.mark.parametrize("text", ["", "   ", "\t", "\u00a0", "\n", "\n\n"])
def test_blank_text_stays_as_it_is(translator: Translator, text: str) -> None:
    assert translator.translate(text) == text
    only = translator.hypotheses([text], search=FIVE, attention=True)[0]
    assert [(t.tokens, t.log_prob, t.finished) for t in only] == [([], 0.0, True)]


def test_blank_lines_among_others(translator: Translator) -> None:
    alone = [translator.translate(text) for text in TEXTS[:2]]
    assert translator.translate([TEXTS[0], "", TEXTS[1], " "]) == [alone[0], "", alone[1], " "]


# --- paragraphs


def test_a_long_paragraph_is_split_and_joined(splitting: Translator) -> None:
    sentences = ["You are here.", "I saw Tom.", "Is it you?", "He did not come."]
    parts = splitting.hypotheses(sentences)
    best = [many[0] for many in parts]
    [[joined]] = splitting.hypotheses(["  ".join(sentences[:2]) + " " + " ".join(sentences[2:])])
    first, second, third, fourth = (t.text for t in best)
    assert joined.text == f"{first}  {second} {third} {fourth}", "what stood between the sentences stays"
    ends = [["</s>"] if t.finished else [] for t in best[:3]] + [[]]
    source_ends = [["</s>"]] * 3 + [[]]
    assert joined.tokens == [token for t, end in zip(best, ends, strict=True) for token in t.tokens + end]
    pairs = zip(best, source_ends, strict=True)
    assert joined.source_tokens == [token for t, end in pairs for token in t.source_tokens + end]
    assert joined.log_prob == pytest.approx(sum(t.log_prob for t in best), abs=1e-4)
    assert joined.score == pytest.approx(sum(t.score for t in best), abs=1e-4)
    assert joined.token_log_probs == pytest.approx([p for t in best for p in t.token_log_probs], abs=1e-4)


def test_attention_of_a_split_paragraph_is_a_block_for_each_sentence(splitting: Translator) -> None:
    [[joined]] = splitting.hypotheses(["You are here. I saw Tom. Is it you? He did not come."], attention=True)
    weights = np.array(joined.attention)
    assert weights.shape == (len(joined.token_log_probs), len(joined.source_tokens) + 1)
    np.testing.assert_allclose(weights.sum(1), 1, atol=1e-5)
    first = joined.source_tokens.index("</s>") + 1
    assert weights[0, first:].sum() == 0
    assert weights[-1, :first].sum() == 0


def test_a_model_of_single_sentences_splits_every_line(splitting: Translator) -> None:
    splitting.habits = Habits(usual_length=12, one_sentence=True)
    assert splitting.translate("No. Why?") == " ".join(splitting.translate(["No.", "Why?"]))
    assert splitting.translate("\n\nNo. Why?") == "\n\n" + splitting.translate("No. Why?")


def test_an_endless_sentence_is_cut_to_what_the_model_knows(splitting: Translator) -> None:
    count = lambda text: len(splitting.tokenizers.source.encode([text])[0])  # noqa: E731
    for text in ("and then he came " * 40, "word" * 300, "我喜欢你" * 50, "a, b; c " * 60):
        sentences = sentences_of_line(0, split_paragraph(text, 0), 18, count)
        assert all(count(s.text) <= 18 for s in sentences)
        joined = "".join(s.before + s.text + s.after for s in sentences)
        assert joined == text
    assert len(splitting.hypotheses(["and then he came " * 40])[0]) == 1


def test_many_lines_become_tokens_by_few_calls(splitting: Translator, monkeypatch) -> None:
    """A call for each sentence took two thirds of the host's time where a GPU translates a large text."""
    splitting.habits = Habits(usual_length=30, one_sentence=True)
    texts = [f"{a} {b}" for a in TEXTS for b in TEXTS]
    alone = [splitting.split([text]) for text in texts]
    calls, usual = [], Tokenizer.encode
    monkeypatch.setattr(Tokenizer, "encode", lambda self, many: calls.append(len(many)) or usual(self, many))
    together = splitting.split(texts)
    assert len(calls) == 2  # the lines, and the sentences of all of them
    assert [(s.text, s.after, s.ids) for s in together] == [(s.text, s.after, s.ids) for one in alone for s in one]
    assert [s.line for s in together] == [line for line, one in enumerate(alone) for _ in one]


def test_habits_are_learnt_from_the_text() -> None:
    single, several = ["Hello there.", "Mr. Smith is here."] * 50, ["Hello there. How are you?", "Yes."] * 50
    assert Habits.of(Pairs(single, single), 9) == Habits(9, True)
    assert Habits.of(Pairs(several, several), 9) == Habits(9, False)


def test_short_lines_are_not_split(splitting: Translator) -> None:
    text = "No. Why?"
    assert len(splitting.tokenizers.source.encode([text])[0]) <= splitting.habits.usual_length
    assert splitting.translate(text) != " ".join(splitting.translate(["No.", "Why?"]))


def test_nbest_of_a_paragraph_joins_equal_ranks(splitting: Translator) -> None:
    sentences = ["You are not here at all.", "I saw Tom in the park."]
    first, second = splitting.hypotheses(sentences, search=FIVE)
    [joined] = splitting.hypotheses([" ".join(sentences)], search=FIVE)
    assert [t.text for t in joined] == [f"{a.text} {b.text}" for a, b in zip(first, second, strict=True)]
    assert scores_of([joined]) == sorted(scores_of([joined]), reverse=True)


def test_one_long_sentence_with_space_behind_it_keeps_its_attention(splitting: Translator) -> None:
    text = "He did not come to the park with the dog today"
    [[plain]] = splitting.hypotheses([text], attention=True)
    [[spaced]] = splitting.hypotheses([text + "  "], attention=True)
    assert spaced.text == plain.text + "  "
    assert spaced.attention is not None


def test_line_breaks_are_kept(translator: Translator) -> None:
    lines = ["You are here.", "I saw Tom.", "", "Is it you"]
    assert translator.translate("\n".join(lines)) == "\n".join(translator.translate(lines))
    assert translator.translate(lines[0] + "\n") == translator.translate(lines[0]) + "\n"


# --- prefixes


def test_prefixes(translator: Translator) -> None:
    prefixes = ["Ich bin", "", "Du hast"]
    found = translator.translate(TEXTS[:3])
    many = translator.hypotheses(TEXTS[:3], search=FIVE, prefixes=prefixes)
    assert all(t.text.startswith("Ich bin") for t in many[0])
    assert many[1][0].text == found[1], "an empty prefix forces nothing"
    assert all(t.text.startswith("Du hast") for t in many[2])
    with pytest.raises(DataError, match="2 prefixes for 3 texts"):
        translator.hypotheses(TEXTS[:3], prefixes=prefixes[:2])


def test_a_forced_line_is_not_split(splitting: Translator) -> None:
    text = "You are not here at all. I saw Tom in the park."
    [[forced]] = splitting.hypotheses([text], prefixes=["Ich bin"], search=SearchConfig(beam=1))
    assert forced.text.startswith("Ich bin")
    assert forced.text.count("Ich bin") == 1


# --- streams


def test_a_stream_gives_what_lists_give_in_order_and_in_time(translator: Translator) -> None:
    taken: list[int] = []

    def lines():
        for number, text in enumerate([*TEXTS, ""]):
            taken.append(number)
            yield text

    expected = translator.translate([*TEXTS, ""], beam=1)
    seen = []
    for text, many in translator.translate_stream(lines(), search=SearchConfig(beam=1), chunk=3):
        seen.append((text, many[0].text))
        assert len(taken) <= 3 * -(-len(seen) // 3), "no more is read than a chunk ahead"
    assert seen == list(zip([*TEXTS, ""], expected, strict=True))


def test_a_stream_with_a_prefix(translator: Translator) -> None:
    found = list(translator.translate_stream(TEXTS[:3], prefix="Ich bin", chunk=2))
    assert all(many[0].text.startswith("Ich bin") for _, many in found)


# --- limits


def test_a_very_long_line_is_refused_by_its_number(translator: Translator) -> None:
    long = "a" * (MAX_LINE_CHARACTERS + 1)
    with pytest.raises(DataError, match=r"line 2: it has 100,001 characters, more than 100,000\. Split it\."):
        translator.translate(["a", long])
    with pytest.raises(DataError, match="line 5: it has 100,001 characters"):
        list(
            translator.translate_stream(["a", "a", "a", "a", long], search=SearchConfig(beam=1, max_length=2), chunk=2)
        )


def test_a_model_with_a_limit_splits_and_refuses(tiny_run: Path) -> None:
    """Learned positions end: longer lines are split into sentences, and a sentence too long is refused."""
    import torch

    from regard.models.base import build_model
    from regard.models.transformer import TransformerConfig

    loaded = regard.load(tiny_run, device="cpu")
    size = loaded.tokenizers.source.size
    torch.manual_seed(1)
    config = TransformerConfig(width=16, layers=1, heads=2, inner=32, positions="learned", max_length=16)
    model = build_model("transformer", config, source_vocabulary=size, target_vocabulary=size, shared=True)
    limited = Translator(model, loaded.tokenizers, SearchConfig(beam=2))
    sentences = ["You are here.", "I saw Tom.", "Is it you?"]
    assert limited.translate(" ".join(sentences)) == " ".join(limited.translate(sentences))
    assert len(limited.translate(["You are.", "a b c d e f g h i j k l m n o p q r s t"])) == 2, "cut to fit"
    with pytest.raises(ModelError, match=r"line 2: a sentence of \d+ tokens is beyond the model's limit of 15"):
        limited.hypotheses(["You.", "a b c d e f g h i j k l m n o p q r s t"], prefixes=["", "Du"])  # not split
    with pytest.raises(ModelError, match=r"target line 1: \d+ tokens are beyond the model's limit of 15"):
        limited.score(["You are."], ["a b c d e f g h i j k l m n o p q r s t"])


# --- scoring


def test_scores_do_not_depend_on_batches(translator: Translator) -> None:
    targets = ["Du bist da.", "Ich sah Tom.", "Warum?", "Sie war nie in Boston, oder?", "", "Der Hund bellt."]
    together = translator.score(TEXTS, targets)
    alone = [translator.score([s], [t], batch_tokens=1)[0] for s, t in zip(TEXTS, targets, strict=True)]
    assert [s.log_prob for s in together] == pytest.approx([s.log_prob for s in alone], abs=1e-5)
    assert [len(s.token_log_probs) for s in together] == [len(s.tokens) + 1 for s in together]
    assert together[4].tokens == []
    assert together[0].perplexity == pytest.approx(math.exp(-together[0].log_prob / len(together[0].token_log_probs)))
    assert translator.score([], []) == []
    with pytest.raises(DataError, match="6 source and 5 target lines"):
        translator.score(TEXTS, targets[:5])


# --- loading


def test_loading_by_text_or_path(tiny_run: Path) -> None:
    assert regard.load(str(tiny_run)).translate(TEXTS[2]) == regard.load(tiny_run).translate(TEXTS[2])


def test_the_name_of_the_bundled_model_is_a_path_only_where_there_is_one(
    tiny_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from regard.tasks import pretrained

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(pretrained, "bundled_model", lambda: tiny_run)
    assert pretrained.find_model(None) == tiny_run
    assert pretrained.find_model(pretrained.BUNDLED) == tiny_run
    (tmp_path / pretrained.BUNDLED).mkdir()
    assert pretrained.find_model(pretrained.BUNDLED) == Path(pretrained.BUNDLED)
    assert pretrained.find_model("tatoeba") == Path("tatoeba")


def test_loading_what_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"it is not a run folder.*regard train --out"):
        regard.load(tmp_path)
    run = tmp_path / "runs" / "luong" / "seed-1"
    run.mkdir(parents=True)
    (run / "config.json").write_text("{}")
    with pytest.raises(CheckpointError, match=r"give one of its runs, such as .*seed-1"):
        regard.load(tmp_path)


def test_a_model_that_does_not_translate_is_refused(translator: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(translator.model), "capabilities", frozenset({"attends"}))
    with pytest.raises(ModelError, match="does not translate"):
        Translator(translator.model, translator.tokenizers)


def test_translations_are_values(translator: Translator) -> None:
    found = translator.hypotheses(TEXTS[:1])[0][0]
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.text = "other"  # type: ignore[misc]
