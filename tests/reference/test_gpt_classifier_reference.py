"""The fine-tuned GPT against float64 NumPy written from sections 3.1 to 3.3 of the paper, text by text, token by token."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from regard.core.errors import ConfigError, ModelError
from regard.core.types import EOS, PAD, Padded, pad_rows
from regard.models.gpt import GPT, GPTConfig
from regard.models.gpt_classifier import GPTClassifier, GPTClassifierConfig

V, D, H, LAYERS, CONTEXT, LABELS = 19, 8, 2, 2, 16, 3
# one text, two texts with EOS between them, the shortest, the longest that there is room for
TEXTS = [[5, 9, 4, 7, 10], [8, 6, EOS, 7, 7, 12], [11], [4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17]]
CLASSES = [2, 1, 3, 1]
NORMS = ["post", "pre"]


def make(norm: str, **settings) -> GPTClassifier:
    torch.manual_seed(3)
    config = GPTClassifierConfig(
        width=D,
        layers=LAYERS,
        heads=H,
        context=CONTEXT,
        norm=norm,
        dropout=0.0,
        attention_dropout=0.0,
        classifier_dropout=0.0,
        **settings,
    )
    model = GPTClassifier(config, vocabulary=V, labels=LABELS + 1)
    for parameter in model.parameters():  # far from 0 and 1, where mistakes would not show
        torch.nn.init.normal_(parameter, std=0.5)
    return model.double()


def layer_norm(x: np.ndarray, w: dict, name: str) -> np.ndarray:
    return (x - x.mean()) / math.sqrt(x.var() + 1e-5) * w[f"{name}.weight"] + w[f"{name}.bias"]


def affine(x: np.ndarray, w: dict, name: str) -> np.ndarray:
    return w[f"{name}.weight"] @ x + w[f"{name}.bias"]


def attend(states: list[np.ndarray], w: dict, name: str) -> list[np.ndarray]:
    """Each position looks at itself and at what is before it."""
    projected = [affine(x, w, f"{name}.query_key_value") for x in states]
    size, found = D // H, []
    for t in range(len(states)):
        mixed = np.zeros(D)
        for h in range(H):
            part = slice(h * size, (h + 1) * size)
            scores = [projected[t][part] @ projected[s][D:][part] / math.sqrt(size) for s in range(t + 1)]
            weights = np.exp(scores) / np.exp(scores).sum()
            mixed[part] = sum(a * projected[s][2 * D :][part] for s, a in enumerate(weights))
        found.append(affine(mixed, w, f"{name}.out"))
    return found


def feed_forward(x: np.ndarray, w: dict, name: str) -> np.ndarray:
    x = affine(x, w, f"{name}.inner")
    gelu = 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    return affine(gelu, w, f"{name}.out")


def states_of(text: list[int], w: dict, norm: str) -> list[np.ndarray]:
    """h_n at start, at every token and at extract (eq. 2, figure 1)."""
    start, delimiter, extract = w["new.weight"]
    inputs = [start, *(delimiter if token == EOS else w["body.embedding.weight"][token] for token in text), extract]
    h = [x + w["body.positions.table.weight"][t] for t, x in enumerate(inputs)]
    for layer in range(LAYERS):
        name = f"body.decoder.{layer}"
        first, second = f"{name}.attention_norm", f"{name}.feedforward_norm"
        if norm == "post":
            h = [layer_norm(x + a, w, first) for x, a in zip(h, attend(h, w, f"{name}.attention"), strict=True)]
            h = [layer_norm(x + feed_forward(x, w, f"{name}.feedforward"), w, second) for x in h]
        else:
            read = [layer_norm(x, w, first) for x in h]
            h = [x + a for x, a in zip(h, attend(read, w, f"{name}.attention"), strict=True)]
            h = [x + feed_forward(layer_norm(x, w, second), w, f"{name}.feedforward") for x in h]
    return h if norm == "post" else [layer_norm(x, w, "body.norm") for x in h]


def log_softmax(z: np.ndarray) -> np.ndarray:
    return z - z.max() - math.log(np.exp(z - z.max()).sum())


def losses(texts: list[list[int]], classes: list[int], w: dict, norm: str) -> tuple[float, float]:
    """L2, the mean over texts (eq. 4), and L1, the mean over the tokens of all texts (eq. 1)."""
    labels, tokens = [], []
    for text, label in zip(texts, classes, strict=True):
        h = states_of(text, w, norm)
        z = affine(h[-1], w, "output")[1:]  # no text has the label of none
        labels.append(-log_softmax(z)[label - 1])
        for t, token in enumerate(text):  # the state before a token is that of its predecessor, or of start
            if token != EOS:
                tokens.append(-log_softmax(w["body.embedding.weight"] @ h[t])[token])
    return float(np.mean(labels)), float(np.mean(tokens))


def weights(model: GPTClassifier) -> dict[str, np.ndarray]:
    return {name: p.detach().numpy() for name, p in model.named_parameters()}


def padded(texts: list[list[int]], extra: int = 0) -> Padded:
    """Padding that looks like a token, and stands beyond what is kept."""
    source = pad_rows(texts)
    tokens = torch.nn.functional.pad(source.tokens, (0, extra))
    keep = torch.nn.functional.pad(source.keep, (0, extra))
    return Padded(tokens.masked_fill(~keep, 7), keep)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("texts", [[0, 1, 2, 3], [2, 0], [1]], ids=str)
@torch.no_grad()
def test_both_losses_are_those_of_the_paper(norm, texts):
    model = make(norm, auxiliary=0.5).train()
    given, classes = [TEXTS[i] for i in texts], [CLASSES[i] for i in texts]
    forced = model(padded(given), torch.full((len(given), 1), PAD))
    sums = model.output.loss(forced.hidden, torch.tensor(classes)[:, None])
    of_labels, of_tokens = losses(given, classes, weights(model), norm)
    assert float(sums.loss / sums.tokens) == pytest.approx(of_labels, rel=1e-5)
    assert float(forced.losses["language_model"]) == pytest.approx(0.5 * of_tokens, rel=1e-5)


@pytest.mark.parametrize("norm", NORMS)
@torch.no_grad()
def test_the_label_is_read_at_the_extract_token(norm):
    model = make(norm).eval()
    for extra in (0, 2):
        texts = TEXTS[:3]
        hidden = model(padded(texts, extra), torch.zeros(3, 1, dtype=torch.long)).hidden
        for row, text in enumerate(texts):
            np.testing.assert_allclose(hidden[row, 0].numpy(), states_of(text, weights(model), norm)[-1], atol=1e-9)


def test_the_gradient_is_that_of_the_sum_of_both_losses():
    """By differences of the NumPy losses, for new tokens, labels and a row of the embeddings."""
    model = make("post", auxiliary=0.5).train()
    forced = model(padded(TEXTS), torch.full((4, 1), PAD))
    sums = model.output.loss(forced.hidden, torch.tensor(CLASSES)[:, None])
    (sums.loss / sums.tokens + forced.losses["language_model"]).backward()
    w = weights(model)

    def whole() -> float:
        of_labels, of_tokens = losses(TEXTS, CLASSES, w, "post")
        return of_labels + 0.5 * of_tokens

    step = 1e-6
    parameters = dict(model.named_parameters())
    for name, place in [
        ("new.weight", (0, 1)),
        ("new.weight", (1, 2)),
        ("new.weight", (2, 3)),
        ("output.weight", (2, 0)),
        ("output.bias", (1,)),
        ("body.embedding.weight", (7, 4)),
        ("body.positions.table.weight", (6, 0)),
        ("body.decoder.0.attention.query_key_value.weight", (3, 2)),
    ]:
        before = w[name][place]
        w[name][place] = before + step
        more = whole()
        w[name][place] = before - step
        less = whole()
        w[name][place] = before
        assert float(parameters[name].grad[place]) == pytest.approx((more - less) / (2 * step), rel=1e-4, abs=1e-7), (
            name
        )


def test_the_classifiers_dropout_is_of_the_state_that_the_label_is_read_from():
    model, still = (make("pre", auxiliary=0.5).train() for _ in range(2))
    model.dropout.p = 0.5
    target = torch.zeros(4, 1, dtype=torch.long)
    dropped, plain = model(padded(TEXTS), target), still(padded(TEXTS), target)
    gone = dropped.hidden == 0
    assert 5 <= int(gone.sum()) <= 27  # of 32
    torch.testing.assert_close(dropped.hidden[~gone], 2 * plain.hidden[~gone])
    torch.testing.assert_close(dropped.losses["language_model"], plain.losses["language_model"])


@torch.no_grad()
def test_embeddings_have_dropout_as_in_pre_training():
    class Nothing(torch.nn.Module):
        def forward(self, x):
            return 0 * x

    model = make("pre").eval()
    model.body.dropout = Nothing()
    hidden = model(padded(TEXTS[:2]), torch.zeros(2, 1, dtype=torch.long)).hidden
    torch.testing.assert_close(hidden[0], hidden[1])


def test_without_the_auxiliary_loss_there_is_none():
    model = make("pre", auxiliary=0.0).train()
    assert model(padded(TEXTS), torch.zeros(4, 1, dtype=torch.long)).losses == {}


@pytest.mark.parametrize("norm", NORMS)
@torch.no_grad()
def test_a_body_reads_tokens_as_the_pre_trained_model_does(norm):
    model = make(norm).eval()
    plain = GPT(GPTConfig(width=D, layers=LAYERS, heads=H, context=CONTEXT, norm=norm), vocabulary=V).double().eval()
    plain.load_state_dict(model.body.state_dict())
    tokens = torch.tensor([[1, 5, 6, 7], [1, 9, 8, 4]])
    read = model.body.read(model.body.embedding(tokens), None)
    torch.testing.assert_close(read, plain(pad_rows([[EOS]] * 2), tokens).hidden, rtol=0, atol=0)


def test_the_new_parameters_are_few_and_start_small():
    model = GPTClassifier(GPTClassifierConfig(width=64, layers=1, heads=2), vocabulary=50, labels=7)
    new = {name: p.detach() for name, p in model.named_parameters() if not name.startswith("body.")}
    assert {name: tuple(p.shape) for name, p in new.items()} == {
        "new.weight": (3, 64),
        "output.weight": (7, 64),
        "output.bias": (7,),
    }
    for name in ("new.weight", "output.weight"):
        assert 0.015 < float(new[name].std()) < 0.025
    assert float(new["output.bias"].abs().max()) == 0


def test_a_text_that_does_not_fit_is_refused():
    model = make("pre").eval()
    assert model.limits.source == CONTEXT - 2
    with pytest.raises(ModelError, match="15 tokens are more than the 14"):
        model(pad_rows([[5] * 15]), torch.zeros(1, 1, dtype=torch.long))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"auxiliary": -0.1}, "auxiliary"),
        ({"auxiliary": 101.0}, "auxiliary"),
        ({"classifier_dropout": 1.0}, "classifier_dropout"),
        ({"context": 2}, "context"),
        ({"heads": 5}, "heads"),
    ],
)
def test_settings_out_of_bounds_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        GPTClassifierConfig(**settings)
