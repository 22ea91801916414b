"""Language models by text: what follows a prompt, piece by piece, the next words, and how probable a text is."""

from __future__ import annotations

import dataclasses
import itertools
import math
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from toy_text_model import LINES, ToyTextModel, ToyWindowModel, toy_tokenizers

import regard.search.text_scores as text_scores
import regard.tasks.next_words as next_words_file
from regard.core.errors import ConfigError, DataError, ModelError
from regard.core.types import BOS, EOS, PAD, UNK
from regard.evaluation.trigram import Trigram
from regard.models.gpt import GPT, GPTConfig
from regard.search.config import SearchConfig
from regard.search.text_scores import mix, no_source
from regard.tasks.language_model import TextModel
from regard.tasks.next_words import NextWord
from regard.tasks.text_pieces import Pieces, text_after
from regard.tasks.text_score import TextScore
from regard.tasks.text_scoring import token_scores

KINDS = {"bpe": 60, "unigram": 60, "word": 60, "space": 60, "char": 60, "byte": 300, "bytebpe": 300}


def text_model(kind: str = "bpe", model: type[ToyTextModel] = ToyTextModel, **how: Any) -> TextModel:
    tokenizers = toy_tokenizers(kind, size=KINDS[kind])
    return TextModel(model(tokenizers.target.size, **how), tokenizers)


# --- writing


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("prompt", ["", "the cat", "the cat sat on", "a dog,"])
def test_the_stream_is_what_generate_gives(kind, prompt):
    model = text_model(kind)
    for how in ({"method": "greedy"}, *({"seed": seed} for seed in range(3))):
        pieces = list(model.stream(prompt, max_tokens=25, **how))
        assert "".join(pieces) == model.generate(prompt, max_tokens=25, **how)
        assert all(pieces)
    (found,) = model.generations(prompt, search=model.settings(max_tokens=25, seed=1))
    assert found.text == model.generate(prompt, max_tokens=25, seed=1)
    assert len(found.token_log_probs) == len(found.tokens) + found.finished
    assert found.log_prob == pytest.approx(math.fsum(found.token_log_probs))


@pytest.mark.parametrize("kind", ["byte", "bytebpe"])
def test_no_piece_of_text_holds_a_part_of_a_character(kind):
    tokenizer = text_model(kind).tokenizer
    text = "Ä – 你好 🙂e\u0301 a\n\tb"
    (ids,) = tokenizer.encode([text])
    pieces = Pieces(tokenizer, tokenizer.encode(["the "])[0])
    found = [pieces.add(token) for token in ids]
    assert "".join(found) == text
    assert pieces.end() == ""
    assert not any("\N{REPLACEMENT CHARACTER}" in piece for piece in found)
    assert next(piece for piece in found if piece) == "Ä"
    broken = ids[:3] + tokenizer.encode(["🙂"])[0][:2]  # the text stops within a character
    pieces = Pieces(tokenizer)
    assert "".join([*map(pieces.add, broken), pieces.end()]) == text_after(tokenizer, [], broken)


def test_spaces_come_with_the_word_they_stand_before():
    tokenizer = text_model("bpe").tokenizer
    before, after = tokenizer.encode(["the cat", "sat on"])
    assert text_after(tokenizer, before, after) == " sat on"
    assert text_after(tokenizer, [], after) == "sat on"
    pieces = Pieces(tokenizer, before)
    assert pieces.add(after[0]).startswith(" s")


def test_samples_are_reproducible_and_independent():
    model = text_model(sharpness=0.3)
    three = model.generate("the cat", samples=3, max_tokens=8, seed=5)
    assert isinstance(three, list)
    assert len(set(three)) == 3
    assert three == model.generate("the cat", samples=3, max_tokens=8, seed=5)
    assert three[0] == model.generate("the cat", max_tokens=8, seed=5)
    assert three != model.generate("the cat", samples=3, max_tokens=8, seed=6)
    config = model.settings(samples=3, max_tokens=8, seed=5)
    together = model.generations(["a dog, and", "the cat", ""], search=config)
    assert [found.text for found in together[1]] == three
    assert [found.text for found in model.generations("", search=config)] == [found.text for found in together[2]]


def test_methods_are_those_of_search():
    model = text_model()
    assert model.settings() == SearchConfig(method="sample", max_repeat=0)
    assert model.settings(method="greedy", max_tokens=9).beam == 1
    beam = model.settings(method="beam", samples=7)
    assert (beam.method, beam.beam, beam.nbest) == ("beam", 7, 7)
    assert model.settings(beam=3).method == "beam"
    best, second = model.generations("the", search=model.settings(beam=4, samples=2, max_tokens=6))
    assert best.text != second.text
    own = TextModel(model.model, model.tokenizers, SearchConfig(temperature=0.5, max_length=7, stop="exact"))
    assert (own.settings().temperature, own.settings().max_length) == (0.5, 7)
    assert own.settings(beam=1).stop == "full"


@pytest.mark.parametrize(
    ("wishes", "message"),
    [
        ({"method": "greedy", "top_k": 3}, "top_k: it is for sampling, and the method is greedy"),
        ({"beam": 3, "seed": 3}, "seed: it is for sampling, and the method is beam"),
        ({"method": "sample", "beam": 3}, "beam: it is for a beam search, and the method is sample"),
        ({"method": "greedy", "samples": 2}, "samples: 2 texts"),
        ({"method": "best"}, "method: 'best' is not one of greedy, sample, beam"),
        ({"temperature": 0.0}, "setting search.temperature"),
        ({"max_tokens": 0}, "setting search.max_length: 0"),
        ({"samples": 0}, "setting search.nbest: 0"),
    ],
)
def test_wishes_that_do_not_fit_are_errors(wishes, message):
    with pytest.raises(ConfigError, match=message):
        text_model().generate("the", **wishes)


def test_a_beam_cannot_be_streamed():
    with pytest.raises(ConfigError, match="a beam search knows its text only at the end"):
        text_model().stream("the", method="beam")


# --- prompts


def test_characters_never_seen_are_named():
    model = text_model("bpe")
    with pytest.warns(UserWarning, match=r"never seen, and reads as <unk>: '日', '本', 'Z'\."):
        assert isinstance(model.generate("the 日本 Zat", max_tokens=3), str)
    with pytest.raises(DataError, match=r"prompt: all of it is unknown to the model \('日', '本'\)"):
        model.generate("日本 本", max_tokens=3)
    with pytest.raises(DataError, match="all of it is unknown"):
        model.stream("日本")  # now, not when the first piece is asked for
    with pytest.raises(DataError, match="all of it is unknown"):
        model.next_words("日本")


def test_words_never_seen_are_named():
    for kind in ("word", "space"):
        with pytest.warns(UserWarning, match="reads as <unk>: 'xylophone'"):
            text_model(kind).generate("the xylophone", max_tokens=3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        text_model("space").generate("the <unk>", max_tokens=3)  # there, it is a word of the text
        text_model("byte").generate("日本", max_tokens=3)  # the model does not say what it has seen


def trained_on_lines(kind: str) -> TextModel:
    """Which says what tokens its text did not have, as a run does."""
    model = text_model(kind)
    seen = {token for ids in model.tokenizer.encode(LINES) for token in ids}
    unseen = [i for i in range(UNK + 1, model.tokenizer.size) if i not in seen]
    return TextModel(model.model, model.tokenizers, config={"unseen_tokens": unseen})


@pytest.mark.parametrize("kind", ["byte", "bytebpe"])
def test_bytes_never_seen_are_named_by_character(kind):
    model = trained_on_lines(kind)
    said = r"The prompt has what the model has never seen: '日', '本', '\\n', 'ö'\."
    with pytest.warns(UserWarning, match=said):  # the first byte of ö is that of ï, and was seen
        assert isinstance(model.generate("the cat 日本日\n catö sat", max_tokens=3), str)
    with pytest.warns(UserWarning, match=r"never seen: 'б', 'в', 'г', 'д', 'е', 'ж', 'з', 'и', \.\.\.\.$"):
        model.next_words("the cat бвгдежзик")
    for ask in (model.generate, model.stream, model.next_words, model.generations):
        with pytest.raises(DataError, match=r"prompt: all of it is unknown to the model \('日', '本'\)\. Use words"):
            ask("日 本")
    with pytest.raises(DataError, match="'\N{REPLACEMENT CHARACTER}'"):
        model.generate("\N{REPLACEMENT CHARACTER}")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for line in [*LINES, ""]:
            model.generate(line, max_tokens=3)


def test_tokens_never_seen_are_named_beside_those_that_are_unknown():
    for kind in ("space", "word"):
        model = text_model(kind)
        config = {"unseen_tokens": model.tokenizer.encode(["cat"])[0], "tokenizer": {"kind": kind}}
        model = TextModel(model.model, model.tokenizers, config=config)
        with pytest.warns(UserWarning, match="never seen") as caught:
            model.generate("the cat xylophone", max_tokens=3)
        assert [str(one.message).rpartition(": ")[2] for one in caught] == ["'xylophone'.", "'cat'."]
        with pytest.raises(DataError, match=r"all of it is unknown to the model \('xylophone', 'cat'\)"):
            model.generate("cat xylophone cat")


def test_parts_of_words_that_were_read_only_as_wholes_are_not_named():
    model = trained_on_lines("bytebpe")
    (ids,) = model.tokenizer.encode(["t"])
    assert set(ids) <= set(model.config["unseen_tokens"])  # the text has it only in longer tokens
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.generate("t", max_tokens=3)


def test_an_empty_prompt_is_the_beginning_of_a_text():
    for kind in ("bpe", "char", "space"):
        model = text_model(kind)
        assert model.generate("", seed=2, max_tokens=9) == model.generate(" \n ", seed=2, max_tokens=9)
        assert not model.generate("", seed=2, max_tokens=9).startswith(" ")
    model = text_model("byte", sharpness=0.1)
    assert model.generate("", seed=2, max_tokens=9) != model.generate(
        "\n", seed=2, max_tokens=9
    )  # it keeps white space


def test_prompts_beyond_the_context_are_errors_and_a_short_rest_is_said():
    model = text_model("char", limit=12)
    with pytest.raises(
        ModelError, match="prompt 1: it has 11 tokens, and the model reads at most 10 to write one more"
    ):
        model.generate("the cat sat", max_tokens=3)
    with pytest.raises(ModelError, match="prompt: it has 12 tokens, and the model reads at most 11"):
        model.next_words("the cat sata")
    assert model.next_words("the cat sat", tokens=True)
    with pytest.warns(
        UserWarning, match="At most 4 tokens are written after this prompt, not 9: the model's context is 12"
    ):
        assert len(model.generate("the cat", max_tokens=9, beam=2)) <= 4
    with pytest.raises(DataError, match="more than 1,000,000"):
        text_model().generate("a" * 1_000_001)


# --- beyond the context


CONTEXT = 12


def short_model(kind: str = "char", end: float = 0.0, **how: Any) -> TextModel:
    """With a context of twelve tokens; `end` makes the end of a text more or less probable."""
    model = text_model(kind, ToyWindowModel, limit=CONTEXT, sharpness=0.4, **how)
    with torch.no_grad():
        model.model.output.bias[EOS] += end
    return model


def rotary_model() -> TextModel:
    tokenizers = toy_tokenizers("char")
    torch.manual_seed(3)
    config = GPTConfig(width=16, layers=2, heads=2, context=CONTEXT, positions="none", relative="rotary", tie=False)
    model = GPT(config, vocabulary=tokenizers.target.size)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(5)
    return TextModel(model, tokenizers)


@pytest.mark.parametrize("how", [{"method": "greedy"}, {"seed": 1}, {"seed": 2, "top_k": 5}], ids=str)
@pytest.mark.parametrize("make", [short_model, rotary_model])
def test_text_goes_on_beyond_the_context_in_windows(make, how):
    model = make()
    with torch.no_grad():
        model.model.output.bias = torch.nn.Parameter(torch.zeros(model.tokenizer.size))
        model.model.output.bias[EOS] = -60
    prompt = "the cat"
    (found,) = model.generations(prompt, search=model.settings(max_tokens=43, **how))
    assert (len(found.tokens), len(found.token_log_probs), found.finished) == (43, 43, False)
    assert (
        found.text
        == model.generate(prompt, max_tokens=43, **how)
        == "".join(model.stream(prompt, max_tokens=43, **how))
    )
    shorter = model.generate(prompt, max_tokens=20, **how)
    assert isinstance(shorter, str)
    assert found.text.startswith(shorter)
    # Each log-probability is given the prompt or the last six tokens of a full window, and what was written since.
    number = {piece: i for i, piece in enumerate(model.tokenizer.pieces(range(model.tokenizer.size)))}
    shown, written = model.tokenizer.encode([prompt])[0], [number[piece] for piece in found.tokens]
    for token, expected in zip(written, found.token_log_probs, strict=True):
        if len(shown) == CONTEXT - 1:
            shown = shown[-CONTEXT // 2 :]
        assert log_prob(model, [BOS, *shown], token) == pytest.approx(expected, abs=1e-4)
        shown = [*shown, token]


@pytest.mark.parametrize("kind", ["bpe", "char", "byte", "bytebpe", "space"])
def test_pieces_are_those_of_whole_texts_beyond_the_context(kind):
    ended, longest = set(), 0
    model = short_model(kind)
    with torch.no_grad():  # a text ends with a probability of about 5 % after any token
        model.model.output.weight.mul_(0.1)
        model.model.output.bias.zero_()
        model.model.output.bias[EOS] = math.log(0.05 * model.tokenizer.size)
    for seed in range(10):
        for most in (CONTEXT - 1, 2 * CONTEXT, 30):
            (found,) = model.generations("the", search=model.settings(max_tokens=most, seed=seed))
            assert "".join(model.stream("the", max_tokens=most, seed=seed)) == found.text
            assert len(found.token_log_probs) == len(found.tokens) + found.finished
            assert found.finished or len(found.tokens) == most
            assert len(found.tokens) <= most
            ended.add(found.finished and len(found.tokens) > CONTEXT)
            longest = max(longest, len(found.tokens))
    assert (ended, longest) == ({True, False}, 30)


def test_texts_beyond_the_context_do_not_depend_on_others():
    model = short_model(end=-1.0)
    config = model.settings(samples=3, max_tokens=40, seed=5)
    prompts = ["the cat", "", "a dog, and", "the dog"]
    together = model.generations(prompts, search=config)
    assert max(len(one.tokens) for many in together for one in many) == 40
    for prompt, many in zip(prompts, together, strict=True):
        alone = model.generations(prompt, search=config)
        assert [one.text for one in many] == [one.text for one in alone]
        assert len({one.text for one in many}) == 3
        assert (
            many[0].text
            == model.generate(prompt, max_tokens=40, seed=5)
            == "".join(model.stream(prompt, max_tokens=40, seed=5))
        )
        assert many[0].text != model.generate(prompt, max_tokens=40, seed=6)
    least = dataclasses.replace(config, min_length=35)
    assert all(len(one.tokens) >= 35 for one in model.generations("the cat", search=least))


def test_the_end_is_as_probable_where_a_window_is_full_as_elsewhere():
    """A model that ends a text with probability a half after any token: windows add no second chance."""
    model = short_model()
    with torch.no_grad():
        model.model.output.weight.zero_()
        model.model.output.bias.fill_(-40)
        model.model.output.bias[[EOS, 10]] = 0.0
    config = model.settings(samples=64, max_tokens=40)
    prompt = "the cat sa"  # ten tokens: room for one
    finished = [
        len(one.tokens)
        for seed in range(16)
        for one in model.generations(prompt, search=dataclasses.replace(config, seed=seed))
    ]
    survived = [sum(length >= n for length in finished) / len(finished) for n in range(3)]
    assert survived == pytest.approx([1, 0.5, 0.25], abs=0.05)


def test_a_window_that_shows_the_same_again_draws_other_numbers():
    model = short_model()
    with torch.no_grad():  # a, or rarely b: most windows show a row of a alone
        model.model.output.weight.zero_()
        model.model.output.bias.fill_(-math.inf)
        model.model.output.bias[10], model.model.output.bias[11] = 0.0, -3.0
    (found,) = model.generations("", search=model.settings(max_tokens=600))
    rare = [i for i, piece in enumerate(found.tokens) if piece == model.tokenizer.pieces([11])[0]]
    assert 10 < len(rare) < 60


def test_a_translator_is_no_language_model():
    class Other(ToyTextModel):
        capabilities = frozenset({"translates"})

    tokenizers = toy_tokenizers()
    with pytest.raises(ModelError, match="Other: this model is no language model"):
        TextModel(Other(tokenizers.target.size), tokenizers)


# --- next words


def brute_force(model: TextModel, prompt: str, depth: int) -> dict[str, float]:
    """P of each next word by following every row of tokens, to the first that shows that the word has ended."""
    tokenizer, found = model.tokenizer, dict[str, float]()
    (ids,) = tokenizer.encode([prompt])

    def is_letter(character: str) -> bool:
        return character.isalnum() or character == "_"

    def add(word: str, p: float) -> None:
        found[word] = found.get(word, 0.0) + p

    def follow(path: list[int], p: float) -> None:
        with torch.no_grad():
            source = no_source(1, "cpu")
            hidden = model.model(source, torch.tensor([[BOS, *ids, *path]])).hidden[0, -1]
            next_token = model.model.output.scores(hidden).exp().tolist()
        text = text_after(tokenizer, ids, path)
        for token, q in enumerate(next_token):
            if token in (PAD, BOS):
                continue
            longer = text_after(tokenizer, ids, [*path, token])
            begun = text.strip()
            if token in (EOS, UNK):
                add(text if begun else ("</s>" if token == EOS else "<unk>"), p * q)
                continue
            visible = longer.lstrip()
            space = longer[: len(longer) - len(visible)]
            letters = "".join(itertools.takewhile(is_letter, visible))
            if visible and not letters:
                add(space + visible[0], p * q)
            elif letters and len(letters) < len(visible):
                add(space + letters, p * q)
            elif len(path) < depth:
                follow([*path, token], p * q)

    follow([], 1.0)
    return found


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("prompt", ["ab", "", "b a"])
def test_next_words_equal_brute_force(seed, prompt, monkeypatch):
    """Tokens a, b, ▁, ab, ...: the same word can be written in several ways."""
    for name, value in {"FLOOR": 0.0, "SMALL": 0.0, "EXPANSIONS": 10_000, "DEPTH": 3}.items():
        monkeypatch.setattr(next_words_file, name, value)
    tokenizers = toy_tokenizers("bpe", ["ab a b", "ab ab.", "b a ab"], size=12)
    assert tokenizers.target.size <= 12
    model = TextModel(ToyTextModel(tokenizers.target.size, seed=seed), tokenizers)
    expected = brute_force(model, prompt, 3)
    rows = [row for row in model.next_words(prompt, 8) if row.kind != "token" or row.text == "<unk>"]
    assert [row.probability for row in rows] == sorted((row.probability for row in rows), reverse=True)
    assert len(rows) >= 4
    for row in rows:
        assert row.probability == pytest.approx(expected[row.text], abs=1e-6)
        assert row.kind == {"</s>": "end", "<unk>": "token"}.get(row.text, "word")
    best = sorted(expected, key=lambda word: -expected[word])[: len(rows)]
    assert [row.text for row in rows] == best
    assert sum(row.probability for row in model.next_words(prompt, 1000)) <= 1 + 1e-6


def test_every_bit_of_probability_is_accounted_for(monkeypatch):
    monkeypatch.setattr(next_words_file, "FLOOR", 0.0)
    model = text_model("word")
    with torch.no_grad():
        model.model.output.bias[[PAD, BOS]] = -50
    rows = model.next_words("the cat", 1000)
    assert sum(row.probability for row in rows) == pytest.approx(1, abs=1e-4)


def test_words_of_a_tokenizer_of_words_are_its_tokens():
    model = text_model("space")
    rows = model.next_words("the cat", 5)
    tokens = model.next_words("the cat", 5, tokens=True)
    assert [row[:2] for row in rows] == [row[:2] for row in tokens]
    assert {row.kind for row in tokens} <= {"token", "end"}
    assert {row.kind for row in rows if row.text.startswith(" ")} == {"word"}
    (ids,) = model.tokenizer.encode(["the cat"])
    with torch.no_grad():
        hidden = model.model(no_source(1, "cpu"), torch.tensor([[BOS, *ids]])).hidden[0, -1]
        probabilities = model.model.output.scores(hidden).exp()
    likeliest = max((i for i in range(len(probabilities)) if i not in (PAD, BOS)), key=lambda i: probabilities[i])
    assert tokens[0].probability == pytest.approx(float(probabilities[likeliest]), rel=1e-5)


def test_a_word_that_is_not_followed_to_its_end_is_called_a_part(monkeypatch):
    monkeypatch.setattr(next_words_file, "EXPANSIONS", 0)
    rows = text_model("char").next_words("the", 5)
    assert any(row.kind == "token" for row in rows)
    assert rows == sorted(rows, key=lambda row: -row.probability)


def test_apostrophes_stay_inside_words():
    model = text_model("char")
    search = next_words_file._BestFirst(
        next_words_file._Vocabulary(model.tokenizer), model.tokenizer.encode(["I"])[0], 3
    )
    search._before = "I"
    cases = {
        "'m ": ("'m", True), "'": ("'", False), "' ": ("'", True), " don'": (" don", False), " don' ": (" don", True),
        " don't": (" don't", False), " don't!": (" don't", True), " .": (" .", True), "\n\nThe ": ("\n\nThe", True),
        " ": (" ", False), "mbing": ("mbing", False),
    }  # fmt: skip
    assert {text: search._first_word(text) for text in cases} == cases


def test_rows_unpack():
    text, probability, kind = text_model().next_words("the", 1)[0]
    assert isinstance(text, str)
    assert 0 < probability <= 1
    assert kind in ("word", "token", "end")
    assert NextWord("a", 0.5)[:2] == ("a", 0.5)
    with pytest.raises(ConfigError, match="top: 0 rows"):
        text_model().next_words("the", 0)


# --- reading


def stream_of(model: TextModel, documents: list[str]) -> list[int]:
    return [token for ids in model.tokenizer.encode(documents) for token in (*ids, EOS)]


def log_prob(model: TextModel, read: list[int], token: int) -> float:
    """log P of a token after those read, which stand as they are given."""
    with torch.no_grad():
        hidden = model.model(no_source(1, "cpu"), torch.tensor([read])).hidden[0, -1]
        return float(model.model.output.scores(hidden)[token])


def test_a_carried_state_is_one_long_reading(monkeypatch):
    monkeypatch.setattr(text_scores, "CARRIED_TOKENS", 7)
    model = text_model("bpe", sharpness=0.3)
    tokens = stream_of(model, LINES)
    read = [BOS, *(BOS if token == EOS else token for token in tokens[:-1])]
    with torch.no_grad():
        hidden = model.model(no_source(1, "cpu"), torch.tensor([read])).hidden[0]
        expected = model.model.output.scores(hidden).gather(1, torch.tensor(tokens)[:, None]).double().sum()
    score = model.perplexity(iter(LINES))
    assert score.nll == pytest.approx(-float(expected), rel=1e-6)
    assert score.tokens == len(tokens)
    trained = TextModel(model.model, model.tokenizers, config={"train": {"window": 8}})
    for reader in (model, trained):
        for name in ("context", "stride"):
            with pytest.raises(ConfigError, match=f"{name}: this model carries its state"):
                reader.perplexity(LINES, **{name: 8})
    assert trained.score(LINES)[2].log_prob == pytest.approx(model.score(LINES)[2].log_prob, rel=1e-6)


@pytest.mark.parametrize(("context", "stride"), [(8, 4), (8, 0), (8, 8), (5, 1), (1, 1), (1000, 0)])
def test_windows_score_each_token_once_with_the_promised_context(context, stride, monkeypatch):
    monkeypatch.setattr(text_scores, "WINDOW_TOKENS", {"cpu": 20})
    model = text_model("bpe", ToyWindowModel, sharpness=0.3)
    tokens = stream_of(model, LINES)
    read = [BOS, *(BOS if token == EOS else token for token in tokens[:-1])]
    step = stride or max(1, context // 2)
    expected = []
    for place, token in enumerate(tokens):
        windows = 0 if place < context else -(-(place + 1 - context) // step)
        begin = min(windows * step, max(0, len(tokens) - context))
        assert begin + context > place
        assert place < context or place - begin >= context - step
        expected.append(log_prob(model, read[begin : place + 1], token))
    found = np.concatenate(list(token_scores(model, np.array(tokens), context, stride)))
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, expected, atol=1e-5)
    score = model.perplexity(LINES, context=context, stride=stride)
    assert (score.nll, score.tokens) == (pytest.approx(-math.fsum(expected), rel=1e-6), len(tokens))


def test_windows_beyond_the_model_are_errors():
    model = text_model("bpe", ToyWindowModel, limit=8)
    assert model.context == 8
    with pytest.raises(ConfigError, match="context: 9 tokens are not from 1 to the model's 8"):
        model.perplexity(LINES, context=9)
    with pytest.raises(ConfigError, match="stride: 9 is not from 1 to the context of 8"):
        model.perplexity(LINES, stride=9)
    trained = TextModel(model.model, model.tokenizers, config={"train": {"window": 5}})
    assert trained.context == 5
    assert text_model("bpe", ToyWindowModel).context == 512


def test_words_and_bytes_are_counted_with_the_ends():
    model = text_model("word")
    score = model.perplexity(["the cat  sat", "naïve xylophone"])
    assert (score.documents, score.words, score.bytes, score.unknown) == (2, 3 + 1 + 2 + 1, 12 + 1 + 16 + 1, 1)
    by_hand = TextScore(nll=30.0, tokens=10, words=5, bytes=20, documents=1)
    assert by_hand.perplexity == pytest.approx(math.exp(3))
    assert by_hand.word_perplexity == pytest.approx(math.exp(6))
    assert by_hand.byte_perplexity == pytest.approx(math.exp(1.5))
    assert by_hand.bits_per_byte == pytest.approx(1.5 / math.log(2))
    assert by_hand.to_plain()["word_perplexity"] == by_hand.word_perplexity
    assert dataclasses.replace(by_hand, nll=1e6).perplexity == math.inf
    for wrong in ([], "one text"):
        with pytest.raises(DataError, match="documents"):
            model.perplexity(wrong)


def test_byte_perplexity_does_not_depend_on_how_text_is_cut_into_tokens():
    """A model that knows nothing, of bytes and of characters."""
    for kind in ("byte", "char"):
        model = text_model(kind, sharpness=0.0)
        with torch.no_grad():
            model.model.output.bias.zero_()
        score = model.perplexity(LINES)
        assert score.perplexity == pytest.approx(model.tokenizer.size, rel=1e-5)
        assert score.bits_per_byte == pytest.approx(
            score.tokens * math.log2(model.tokenizer.size) / score.bytes, rel=1e-5
        )


def test_another_model_can_be_mixed_in():
    model = text_model("bpe")
    tokens = np.array(stream_of(model, LINES))
    own = np.concatenate(list(token_scores(model, tokens, 0, 0)))
    flat = np.full(len(tokens), -math.log(model.tokenizer.size))

    class Flat:
        def log_probs(self, tokens: Any) -> np.ndarray:
            return flat[: len(tokens)]

    expected = -np.log(0.25 * np.exp(own) + 0.75 * np.exp(flat)).sum()
    assert model.perplexity(LINES, trigram=Flat(), weight=0.25).nll == pytest.approx(expected, rel=1e-6)
    assert model.perplexity(LINES, trigram=Flat(), weight=1).nll == pytest.approx(-own.sum(), rel=1e-9)
    assert model.perplexity(LINES, trigram=Flat(), weight=0).nll == pytest.approx(-flat.sum(), rel=1e-9)
    with pytest.raises(ConfigError, match="weight: 2 is not from 0"):
        model.perplexity(LINES, trigram=Flat(), weight=2)


def test_the_trigram_can_be_mixed_in():
    model = text_model("bpe")
    tokens = np.array(stream_of(model, LINES))
    trigram = Trigram.count(tokens, model.tokenizer.size)
    own = np.concatenate(list(token_scores(model, tokens, 0, 0)))
    expected = -mix(own, trigram.log_probs(tokens), 0.4).sum()
    assert model.perplexity(LINES, trigram=trigram, weight=0.4).nll == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("model_type", [ToyTextModel, ToyWindowModel])
def test_scores_of_single_texts(model_type, monkeypatch):
    model = text_model("bpe", model_type)
    texts = [*LINES, ""]
    found = model.score(texts, batch_tokens=20)
    for text, score in zip(texts, found, strict=True):
        (ids,) = model.tokenizer.encode([text])
        expected = [log_prob(model, [BOS, *ids[:i]], token) for i, token in enumerate([*ids, EOS])]
        assert score.token_log_probs == pytest.approx(expected, abs=1e-5)
        assert score.log_prob == pytest.approx(math.fsum(expected), abs=1e-4)
        assert score.tokens == model.tokenizer.pieces(ids)
    monkeypatch.setattr("regard.tasks.text_scoring.MOST_AT_ONCE", 4)  # the others as streams
    for a, b in zip(model.score(texts), found, strict=True):
        assert a.token_log_probs == pytest.approx(b.token_log_probs, abs=1e-5)
    with pytest.raises(DataError, match="single text"):
        model.score("the cat")


def test_texts_beyond_the_context_are_scored_in_windows():
    model = text_model("bpe", ToyWindowModel, limit=6)
    (score,) = model.score([LINES[2]])
    (ids,) = model.tokenizer.encode([LINES[2]])
    assert len(ids) > 6
    assert len(score.token_log_probs) == len(ids) + 1
    assert score.log_prob == pytest.approx(-model.perplexity([LINES[2]]).nll, rel=1e-6)


def test_scores_that_are_not_numbers_are_an_error():
    model = text_model()
    with torch.no_grad():
        model.model.output.weight[5] = math.nan
    with pytest.raises(ModelError, match="scoring: the model's scores are not numbers"):
        model.perplexity(LINES)
    with pytest.raises(ModelError, match="next words: the model's scores are not numbers"):
        model.next_words("the")
