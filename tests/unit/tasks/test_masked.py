"""A masked model in use: hidden words, vectors of texts, states of layers, and what it refuses."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest
import torch

import regard
from regard.cli.evaluate_text import run_evaluate_text
from regard.cli.fill import run_fill
from regard.core.errors import ConfigError, DataError, ModelError
from regard.core.files import save_tensors, write_json, write_manifest
from regard.core.types import EOS, pad_rows
from regard.data.masking import ExamplePlan, Masking, collate_masked, stream_for_rows
from regard.data.tokenizers import TokenizerConfig, TokenizerPair
from regard.evaluation.masked import evaluate_masked, score_masked
from regard.models.bert import Bert, BertConfig
from regard.models.gpt import GPT, GPTConfig
from regard.tasks import row_batches
from regard.tasks.folder import CONFIG, FORMAT, WEIGHTS, tokenizer_names, weights_of
from regard.tasks.masked import MaskedText, WordSpan

TEXTS = ["I went to the gym", "the line is long", "it isn't a gym, I say", "a", "I play in the long line"]
SIZES = {"width": 8, "layers": 2, "heads": 2, "context": 12}


@pytest.fixture(scope="module")
def tokenizers() -> TokenizerPair:
    return TokenizerPair.train_on_text(TEXTS * 2, TokenizerConfig(kind="word"), ("<mask>",))


def make(tokenizers: TokenizerPair, **changes) -> Bert:
    torch.manual_seed(0)
    model = Bert(BertConfig(**{**SIZES, **changes}), vocabulary=tokenizers.target.size)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return model.eval()


@pytest.fixture
def filler(tokenizers) -> MaskedText:
    return MaskedText(make(tokenizers), tokenizers)


@pytest.fixture
def folder(tokenizers, tmp_path):
    """A run's folder, as training writes it."""
    size = tokenizers.target.size
    tokenizers.save(tmp_path)
    save_tensors(tmp_path / WEIGHTS, weights_of(make(tokenizers)))
    vocabulary = {"source": size, "target": size, "shared": True}
    config = {"format": FORMAT, "resolved": True, "model": {"name": "bert", **SIZES}, "vocabulary": vocabulary}
    write_json(tmp_path / CONFIG, config)
    write_manifest(tmp_path, [WEIGHTS, CONFIG, *tokenizer_names(tmp_path)])
    return tmp_path


class TestFill:
    def test_words_are_those_of_the_model_by_their_probability(self, filler, tokenizers):
        text = "I [MASK] to the <mask>"
        found = filler.fill(text, top=4)
        assert [len(words) for words in found] == [4, 4]
        i, to, the = (tokenizers.target.encode([word])[0][0] for word in ("I", "to", "the"))
        source = pad_rows([[i, 4, to, the, 4]])
        with torch.inference_mode():
            log_p = filler.model.output.scores(filler.model(source, torch.tensor([[0, 1, 4]])).hidden)[0, 1:]
        for words, row in zip(found, log_p.exp().numpy(), strict=True):
            for word, probability, goes_on in words:
                assert probability == pytest.approx(row[tokenizers.target.encode([word])[0][0]])
                assert not goes_on
            assert sorted((word.probability for word in words), reverse=True) == [w.probability for w in words]
        pieces = tokenizers.target.pieces(range(tokenizers.target.size))
        best = max((i for i, piece in enumerate(pieces) if piece.startswith("▁")), key=lambda i: log_p[0, i])
        assert found[0][0].word == pieces[best].removeprefix("▁")

    def test_each_mask_is_filled_in_alone(self, filler):
        one = filler.fill("I went to the [MASK]", top=3)
        assert filler.fill("I went to the <mask>", top=3) == one
        assert filler.fill("[MASK] went to the [MASK]", top=3)[1] != one[0]

    def test_all_words_are_there_if_asked_for(self, filler, tokenizers):
        words = filler.fill("the [MASK]", top=10_000)[0]
        pieces = tokenizers.target.pieces(range(tokenizers.target.size))
        assert {f"▁{word.word}" for word in words} == {piece for piece in pieces if piece.startswith("▁")}
        assert sum(word.probability for word in words) < 1

    def test_what_goes_on_with_a_word_is_marked(self, filler):
        assert filler.fill("gym[MASK]", top=1)[0][0].goes_on

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("I went to the gym", r"the text: no \[MASK\] stands in it"),
            ("", "nothing stands in it"),
            (" \n", "nothing stands in it"),
            ("the " * 10 + "[MASK]", "11 tokens are more than the 10 that the model can read at once"),
            (None, "it is no text"),
        ],
    )
    def test_texts_that_are_refused(self, filler, text, message):
        with pytest.raises(DataError, match=message):
            filler.fill(text)

    def test_no_words_at_all_are_refused(self, filler):
        with pytest.raises(ConfigError, match="Ask for at least 1 word"):
            filler.fill("the [MASK]", top=0)

    def test_a_model_without_a_head_gives_vectors_only(self, tokenizers):
        encoder = MaskedText(make(tokenizers, head=False, next_sentence=False), tokenizers)
        with pytest.raises(ModelError, match="no masked-word head"):
            encoder.fill("the [MASK]")
        assert encoder.embed(["the gym"]).shape == (1, 8)
        with pytest.raises(ModelError, match="did not learn which text follows"):
            encoder.follows("the gym", "a line")

    def test_other_models_are_refused(self, tokenizers):
        model = GPT(GPTConfig(width=8, layers=1, heads=2, context=8), vocabulary=tokenizers.target.size)
        with pytest.raises(ModelError, match="fills in no words"):
            MaskedText(model, tokenizers)


def test_whether_a_text_follows_another(filler, tokenizers):
    first, second = tokenizers.target.encode(["the gym", "a line"])
    with torch.inference_mode():
        expected = filler.model.next_sentence_scores(pad_rows([[*first, EOS, *second]]))[0].exp()
    assert filler.follows("the gym", "a line") == pytest.approx(float(expected[0]))
    with pytest.raises(DataError, match="the two texts: 11 tokens"):
        filler.follows("the " * 5, "the " * 5)


class TestEmbed:
    def test_the_mean_is_that_of_all_that_is_read(self, filler, tokenizers):
        ids = tokenizers.target.encode([TEXTS[0]])[0]
        with torch.inference_mode():
            states, keep = filler.model.whole_states(pad_rows([ids]))
        assert keep.all()
        assert states.shape[1] == len(ids) + 2
        found = filler.embed([TEXTS[0]])
        assert found.dtype == np.float32
        np.testing.assert_allclose(found[0], states[0].mean(0), atol=1e-6)
        np.testing.assert_allclose(filler.embed(TEXTS[0], "first")[0], states[0, 0], atol=1e-6)

    @pytest.mark.parametrize("pooling", ["mean", "first"])
    def test_a_text_is_the_same_alone_and_among_others(self, filler, monkeypatch, pooling):
        together = filler.embed(TEXTS, pooling)
        monkeypatch.setitem(row_batches.BATCH_TOKENS, "cpu", 7)  # few at a time
        np.testing.assert_allclose(filler.embed(TEXTS, pooling), together, atol=1e-5)
        alone = np.concatenate([filler.embed([text], pooling) for text in TEXTS])
        np.testing.assert_allclose(alone, together, atol=1e-5)

    def test_a_long_text_is_read_in_parts(self, filler):
        first, second = "the gym is in the long line I say a", "the long line"
        parts = filler.embed([first, second]).astype(np.float64)
        lengths = [12, 5]  # with [CLS] and [SEP]
        expected = (parts * np.array(lengths)[:, None]).sum(0) / sum(lengths)
        np.testing.assert_allclose(filler.embed([f"{first} {second}"])[0], expected, atol=1e-5)
        with pytest.raises(DataError, match="text 2: 13 tokens are more than the 10"):
            filler.embed(["a", f"{first} {second}"], "first")

    def test_a_model_without_states_around_the_text(self, tokenizers):
        class Plain(Bert):
            whole_states = None  # type: ignore[assignment]

            def states(self, source, record=None):
                return self.embedding(source.tokens)

        plain = MaskedText(Plain(BertConfig(**SIZES), vocabulary=tokenizers.target.size), tokenizers)
        ids = tokenizers.target.encode(["the gym"])[0]
        rows = plain.model.embedding.weight.detach()[ids]
        np.testing.assert_allclose(plain.embed(["the gym", TEXTS[2]])[0], rows.mean(0), atol=1e-6)
        with pytest.raises(ModelError, match="does not say what its layers see"):
            plain.layers("the gym")

    def test_what_is_refused(self, filler):
        with pytest.raises(DataError, match="text 8: nothing stands in it"):
            filler.embed(["a", " "], first=7)
        with pytest.raises(ConfigError, match="'last' is unknown"):
            filler.embed(["a"], "last")  # type: ignore[arg-type]
        assert filler.embed([]).shape[0] == 0


class TestLayers:
    def test_words_and_the_states_of_every_layer(self, filler):
        words, layers = filler.layers("it isn't a gym, I say")
        assert [word.word for word in words] == ["it", "isn't", "a", "gym", ",", "I", "say"]
        assert words[1] == WordSpan("isn't", 1, 4)  # cut at the apostrophe
        assert [layer.shape for layer in layers] == [(9, 8)] * 3
        assert (words[-1].end, words[0].begin) == (9, 0)
        np.testing.assert_array_equal(filler.states("it isn't a gym, I say"), layers[-1])
        with torch.inference_mode():
            ids = filler.tokenizer.encode(["it isn't a gym, I say"])
            np.testing.assert_allclose(layers[-1], filler.model.states(pad_rows(ids))[0], atol=1e-5)

    @pytest.mark.parametrize("kind", ["bpe", "wordpiece", "unigram", "char", "byte", "bytebpe", "word"])
    def test_spans_fit_the_words_of_every_tokenizer(self, kind):
        tokenizers = TokenizerPair.train_on_text(TEXTS * 2, TokenizerConfig(kind=kind, size=300), ("<mask>",))
        reader = MaskedText(make(tokenizers, context=80), tokenizers)
        text = "The long  gym, I say"
        words, layers = reader.layers(text)
        assert [word.word for word in words] == ["The", "long", "gym", ",", "I", "say"]
        assert words[-1].end == len(layers[0]) == len(tokenizers.target.encode([text])[0])
        assert all(one.end == other.begin for one, other in itertools.pairwise(words))

    def test_one_word_in_two_sentences(self, filler):
        """Its embedding is not the same (its position is another), and so are all its states."""
        words, layers = filler.layers("the line is a long line")
        one, two = [word.begin for word in words if word.word == "line"]
        assert all(not np.allclose(layer[one], layer[two]) for layer in layers)

    def test_what_is_refused(self, filler):
        with pytest.raises(DataError, match="11 tokens are more than the 10"):
            filler.layers("the " * 11)
        with pytest.raises(DataError, match="nothing stands in it"):
            filler.states("")


def test_a_folder_and_the_verb(folder, capsys):
    filler = regard.load(folder, device="cpu")
    assert isinstance(filler, MaskedText)
    run_fill(["I", "went to the [MASK]"], folder, 3, False, "cpu")
    shown = capsys.readouterr().out
    best = filler.fill("I went to the [MASK]", 3)[0]
    assert all(word.word in shown for word in best)
    assert f"{100 * best[0].probability:.2f} %" in shown
    run_fill(["[MASK] to [MASK]"], folder, 2, True, "cpu")
    plain = json.loads(capsys.readouterr().out)
    assert plain["text"] == "[MASK] to [MASK]"
    assert [[word["word"] for word in words] for words in plain["masks"]] == [
        [word.word for word in words] for words in filler.fill("[MASK] to [MASK]", 2)
    ]
    run_fill(["[MASK] to [MASK]"], folder, 2, False, "cpu")
    assert "[MASK] 2" in capsys.readouterr().out
    with pytest.raises(ConfigError, match="--top"):
        run_fill(["[MASK]"], folder, 0, False, "cpu")


def test_how_well_it_fills_in_words(filler, folder, tmp_path, capsys):
    text = tmp_path / "text"
    text.write_text("the gym is long . the line is a gym .\n\nI went to the line . a gym is the gym .\n" * 3)
    found = evaluate_masked(filler, text, documents="blank")
    assert found == evaluate_masked(filler, [text], documents="blank")  # always the same words
    assert found.words > 10
    assert found.pairs > 2
    assert found.perplexity > 1
    assert 0 <= found.right <= found.words
    assert set(found.scores()) == {"masked_accuracy", "masked_perplexity", "next_sentence_accuracy"}
    run_evaluate_text([text], folder, "blank", None, None, True, "cpu")
    plain = json.loads(capsys.readouterr().out)
    assert plain["scores"]["masked_accuracy"]["value"] == found.accuracy
    run_evaluate_text([text], folder, "line", None, None, False, "cpu")
    assert "hidden words: accuracy of hidden words" in capsys.readouterr().out
    with pytest.raises(ConfigError, match="Leave --context"):
        run_evaluate_text([text], folder, "blank", 4, None, False, "cpu")
    encoder = MaskedText(make(filler.tokenizers, head=False, next_sentence=False), filler.tokenizers)
    with pytest.raises(ModelError, match="no masked-word head"):
        evaluate_masked(encoder, text)


def test_scores_count_what_is_right(filler):
    """Against a plain loop over the rows of a text."""
    texts = ["the gym is long . the line is a gym .", "I went to the line . a gym is the gym ."]
    stream = stream_for_rows(texts, filler.tokenizer, 10, lines=False)
    masking = Masking.of(filler.tokenizer, 10)
    found = score_masked(filler.model, stream, masking, 10, torch.device("cpu"), pairs=True)
    nll, right, words, next_right, pairs = 0.0, 0, 0, 0, 0
    for examples in ExamplePlan(stream, 3, 10, seed=0, pairs=True).epoch(0):
        batch = collate_masked(stream, examples, masking, window=10, rows=len(examples), seed=0, epoch=0)
        for i in range(len(examples)):
            source = pad_rows([batch.source.tokens[i, : batch.source.lengths[i]].tolist()])
            with torch.inference_mode():
                log_p = filler.model.output.scores(filler.model(source, batch.target_in[i : i + 1]).hidden)[0]
                follows = int(filler.model.next_sentence_scores(source)[0].argmax()) + 1
            for place, word in enumerate(batch.target_out[i].tolist()):
                if word:
                    nll, words = nll - float(log_p[place, word]), words + 1
                    right += int(log_p[place].argmax()) == word
            if code := int(batch.target_in[i, 0]):
                pairs, next_right = pairs + 1, next_right + (follows == code)
    assert (found.right, found.words, found.next_right, found.pairs) == (right, words, next_right, pairs)
    assert found.nll == pytest.approx(nll, rel=1e-4)
