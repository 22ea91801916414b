"""BERT against float64 NumPy written from the paper and its released code, text by text, token by token."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from regard.core.errors import ConfigError, ModelError
from regard.core.types import BOS, EOS, PAD, pad_rows
from regard.models.bert import IS_NEXT, NOT_NEXT, UNKNOWN_NEXT, Bert, BertConfig
from regard.models.bert_classifier import BertClassifier, BertClassifierConfig
from regard.models.bert_tagger import BertTagger, BertTaggerConfig

V, D, H, LAYERS, CONTEXT, LABELS = 19, 8, 2, 2, 12, 3
# one text, two texts with EOS between them, two texts of which nothing is known, the shortest, the longest there is room for
TEXTS = [[5, 9, 4, 7, 10], [8, 6, EOS, 7, 7, 12], [8, EOS, 5], [11], [4, 5, 6, 7, EOS, 9, 10, 11, 12, 13]]
CODES = [UNKNOWN_NEXT, IS_NEXT, UNKNOWN_NEXT, UNKNOWN_NEXT, NOT_NEXT]
HIDDEN = [{1: 14, 4: 10}, {5: 3, 0: 8, 3: 7}, {2: 5}, {}, {9: 13}]  # places, and what stood there
SIZES = {
    "width": D,
    "layers": LAYERS,
    "heads": H,
    "inner": 12,
    "context": CONTEXT,
    "dropout": 0.0,
    "attention_dropout": 0.0,
}
erf = np.vectorize(math.erf)


def make(kind=Bert, config=BertConfig, **settings):
    torch.manual_seed(3)
    sizes = {"vocabulary": V} if kind is Bert else {"vocabulary": V, "labels": LABELS + 1}
    more = {} if kind is Bert else {"classifier_dropout": 0.0}
    model = kind(config(**SIZES, **more, **settings), **sizes)
    for parameter in model.parameters():  # far from 0 and 1, where mistakes would not show
        torch.nn.init.normal_(parameter, std=0.5)
    return model.double()


def weights(model) -> dict[str, np.ndarray]:
    return {name: tensor.detach().numpy() for name, tensor in model.state_dict().items()}


def layer_norm(x: np.ndarray, w: dict, name: str) -> np.ndarray:
    return (x - x.mean()) / math.sqrt(x.var() + 1e-12) * w[f"{name}.weight"] + w[f"{name}.bias"]


def affine(x: np.ndarray, w: dict, name: str) -> np.ndarray:
    return w[f"{name}.weight"] @ x + w[f"{name}.bias"]


def gelu(x: np.ndarray) -> np.ndarray:
    return x * 0.5 * (1 + erf(x / math.sqrt(2)))


def attend(states: list[np.ndarray], w: dict, name: str) -> list[np.ndarray]:
    """Each position looks at all."""
    projected = [affine(x, w, f"{name}.query_key_value") for x in states]
    size, found = D // H, []
    for q in projected:
        mixed = np.zeros(D)
        for h in range(H):
            part = slice(h * size, (h + 1) * size)
            scores = [q[part] @ k[D:][part] / math.sqrt(size) for k in projected]
            a = np.exp(scores) / np.exp(scores).sum()
            mixed[part] = sum(a_s * v[2 * D :][part] for a_s, v in zip(a, projected, strict=True))
        found.append(affine(mixed, w, f"{name}.out"))
    return found


def states_of(text: list[int], w: dict, body: str = "") -> list[np.ndarray]:
    """[CLS], every token, [SEP]."""
    read = [BOS, *text, EOS]
    middle = read.index(EOS)
    x = []
    for i, token in enumerate(read):
        second = int(middle < len(read) - 1 and i > middle)
        vector = w[f"{body}embedding.weight"][token] + w[f"{body}segments.weight"][second]
        x.append(layer_norm(vector + w[f"{body}positions.weight"][i], w, f"{body}norm"))
    for layer in range(LAYERS):
        name = f"{body}encoder.{layer}"
        x = [
            layer_norm(a + b, w, f"{name}.attention_norm")
            for a, b in zip(x, attend(x, w, f"{name}.attention"), strict=True)
        ]
        inner = [gelu(affine(a, w, f"{name}.feedforward.inner")) for a in x]
        written = [affine(a, w, f"{name}.feedforward.out") for a in inner]
        x = [layer_norm(a + b, w, f"{name}.feedforward_norm") for a, b in zip(x, written, strict=True)]
    return x


def log_softmax(z: np.ndarray) -> np.ndarray:
    return z - z.max() - math.log(np.exp(z - z.max()).sum())


def losses(w: dict) -> tuple[float, float]:
    """The mean over hidden words, and the mean over the pairs of texts of which it is known."""
    words, pairs = [], []
    for text, code, hidden in zip(TEXTS, CODES, HIDDEN, strict=True):
        x = states_of(text, w)
        for place, word in hidden.items():
            h = layer_norm(gelu(affine(x[place + 1], w, "head.dense")), w, "head.norm")
            words.append(-log_softmax(w["embedding.weight"] @ h + w["output.bias"])[word])
        if code != UNKNOWN_NEXT:
            pooled = np.tanh(affine(x[0], w, "pooler.dense"))
            pairs.append(-log_softmax(affine(pooled, w, "next_sentence"))[0 if code == IS_NEXT else 1])
    return float(np.mean(words)), float(np.mean(pairs))


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    most = max(map(len, HIDDEN))
    places = [[code, *hidden, *[PAD] * (most - len(hidden))] for code, hidden in zip(CODES, HIDDEN, strict=True)]
    words = [[PAD, *hidden.values(), *[PAD] * (most - len(hidden))] for hidden in HIDDEN]
    return torch.tensor(places), torch.tensor(words)


def trained(model: Bert) -> tuple[torch.Tensor, torch.Tensor]:
    target, words = batch()
    forced = model.train()(pad_rows(TEXTS), target)
    sums = model.output.loss(forced.hidden, words)
    return sums.loss / sums.tokens, forced.losses["next_sentence"]


@torch.no_grad()
def test_states_of_every_token():
    model = make()
    states, keep = model.whole_states(pad_rows(TEXTS))
    for row, text in enumerate(TEXTS):
        expected = np.stack(states_of(text, weights(model)))
        assert keep[row].tolist() == [i < len(text) + 2 for i in range(keep.shape[1])]
        np.testing.assert_allclose(states[row, : len(text) + 2].numpy(), expected, atol=1e-9)
        np.testing.assert_allclose(model.states(pad_rows(TEXTS))[row, : len(text)].numpy(), expected[1:-1], atol=1e-9)


def test_both_losses():
    model = make()
    words, pairs = trained(model)
    expected = losses(weights(model))
    assert words.item() == pytest.approx(expected[0], abs=1e-6)  # the fused loss sums in float32
    assert pairs.item() == pytest.approx(expected[1], abs=1e-6)


def test_the_gradient_is_that_of_the_sum_of_both_means():
    model = make()
    sum(trained(model), torch.zeros(())).backward()
    for name, place in (
        ("embedding.weight", (7, 2)),
        ("embedding.weight", (BOS, 1)),
        ("segments.weight", (1, 3)),
        ("positions.weight", (4, 0)),
        ("encoder.0.attention.query_key_value.weight", (9, 4)),
        ("pooler.dense.bias", (5,)),
        ("next_sentence.weight", (1, 6)),
        ("head.dense.weight", (3, 3)),
        ("output.bias", (10,)),
    ):
        parts = []
        for step in (1e-5, -1e-5):
            w = {n: tensor.copy() for n, tensor in weights(model).items()}
            w[name][place] += step
            parts.append(sum(losses(w)))
        gradient = dict(model.named_parameters())[name].grad
        assert gradient is not None
        assert gradient[place].item() == pytest.approx((parts[0] - parts[1]) / 2e-5, abs=1e-6), name


@torch.no_grad()
def test_the_next_sentence():
    model = make().eval()
    scores = model.next_sentence_scores(pad_rows(TEXTS))
    w = weights(model)
    for row, text in enumerate(TEXTS):
        pooled = np.tanh(affine(states_of(text, w)[0], w, "pooler.dense"))
        np.testing.assert_allclose(model.pooled(pad_rows(TEXTS))[row].numpy(), pooled, atol=1e-9)
        np.testing.assert_allclose(scores[row].numpy(), log_softmax(affine(pooled, w, "next_sentence")), atol=1e-6)


@pytest.mark.parametrize("settings", [{}, {"pooler": True}, {"next_sentence": True, "head": True}], ids=str)
@torch.no_grad()
def test_the_classifier_reads_the_first_token_through_a_pooler(settings):
    model = make(BertClassifier, BertClassifierConfig, **settings).eval()
    w = weights(model)
    pooler = "body.pooler.dense" if settings else "pooler.dense"  # the body's where it has one
    scores = model.output.scores(model(pad_rows(TEXTS), torch.zeros(5, 1, dtype=torch.long)).hidden)
    for row, text in enumerate(TEXTS):
        pooled = np.tanh(affine(states_of(text, w, "body.")[0], w, pooler))
        expected = log_softmax(affine(pooled, w, "output")[1:])  # no text has the label of none
        np.testing.assert_allclose(scores[row, 0, 1:].numpy(), expected, atol=1e-5)


@torch.no_grad()
def test_the_tagger_reads_each_place():
    model = make(BertTagger, BertTaggerConfig, next_sentence=True).eval()
    w = weights(model)
    places = torch.tensor([[0, 2, 4], [5, 0, 0], [2, 0, 1], [0, 0, 0], [9, 8, 1]])
    scores = model.output.scores(model(pad_rows(TEXTS), places).hidden)
    for row, text in enumerate(TEXTS):
        x = states_of(text, w, "body.")
        for column, place in enumerate(places[row].tolist()):
            expected = log_softmax(affine(x[place + 1], w, "output")[1:])
            np.testing.assert_allclose(scores[row, column, 1:].numpy(), expected, atol=1e-5)


@pytest.mark.parametrize(("kind", "config"), [(BertClassifier, BertClassifierConfig), (BertTagger, BertTaggerConfig)])
def test_heads_of_pre_training_are_kept_and_neither_trained_nor_counted(kind, config):
    model, bare = (make(kind, config, head=head, next_sentence=True) for head in (True, False))
    assert model.parameters_count() == bare.parameters_count()
    kept = {"body.head.dense.weight", "body.output.bias", "body.next_sentence.bias"}
    assert kept <= model.state_dict().keys()
    assert not kept & dict(model.named_parameters()).keys()
    assert ("body.pooler.dense.weight" in dict(model.named_parameters())) == (kind is BertClassifier)


def test_parts_that_are_not_there_are_asked_for_in_vain():
    model = make(head=False, next_sentence=False)
    source = pad_rows(TEXTS)
    with pytest.raises(ModelError, match="no masked-word head"):
        model(source, batch()[0])
    with pytest.raises(ModelError, match="no pooler"):
        model.pooled(source)
    with pytest.raises(ModelError, match="which sentence follows"):
        model.next_sentence_scores(source)
    assert make(head=False, next_sentence=False, pooler=True).pooled(source).shape == (5, D)


def test_more_texts_than_segments_share_the_last():
    model = make(segments=1)
    assert torch.isfinite(model.states(pad_rows(TEXTS))).all()


def test_weights_start_small_and_cut():
    torch.manual_seed(0)
    model = Bert(BertConfig(width=64, layers=1, heads=2, context=64), vocabulary=500)
    table = model.embedding.weight.detach()
    assert 0.0398 < table.abs().max() <= 0.04
    assert table.std().item() == pytest.approx(0.0176, abs=2e-4)  # of a normal distribution cut at two deviations
    assert model.pooler is not None
    assert float(model.pooler.dense.bias.detach().abs().max()) == 0


@pytest.mark.parametrize(
    ("config", "settings", "message"),
    [
        (BertConfig, {"heads": 5}, "heads"),
        (BertConfig, {"context": 2}, "context"),
        (BertConfig, {"segments": 0}, "segments"),
        (BertConfig, {"dropout": 1.0}, "dropout"),
        (BertConfig, {"width": 1 << 20}, "width"),
        (BertClassifierConfig, {"classifier_dropout": -0.1}, "classifier_dropout"),
        (BertTaggerConfig, {"classifier_dropout": 1.5}, "classifier_dropout"),
    ],
)
def test_settings_out_of_bounds_are_refused(config, settings, message):
    with pytest.raises(ConfigError, match=message):
        config(**settings)
