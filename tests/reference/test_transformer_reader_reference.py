"""Transformers that read against the encoder of the Transformer itself, which has references of its own."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from regard.core.errors import ConfigError, ModelError
from regard.core.types import Padded, pad_rows
from regard.models.base import Recorder
from regard.models.transformer import Transformer, TransformerConfig
from regard.models.transformer_classifier import TransformerClassifier, TransformerClassifierConfig
from regard.models.transformer_reader import TransformerBody
from regard.models.transformer_tagger import TransformerTagger, TransformerTaggerConfig

V, LABELS = 17, 4
FORMS = [
    {},
    {"norm": "post", "positions": "learned", "max_length": 20, "activation": "gelu", "inner": 12},
    {"normalise": "batch"},
    {"norm": "post", "normalise": "rms"},
    {"relative": "shaw", "relative_distance": 2, "positions": "none", "residual": True},
    {"relative": "rotary", "positions": "none", "scaling": False},
]
SIZES = {"width": 8, "layers": 2, "heads": 2, "dropout": 0.0}


def texts() -> Padded:
    tokens, keep = pad_rows([[5, 9, 4, 7, 10], [11], [8, 6, 2, 7, 7, 12, 4], [6, 6]])
    return Padded(nn.functional.pad(tokens, (0, 2), value=7), nn.functional.pad(keep, (0, 2)))


def scattered(model: nn.Module) -> None:
    torch.manual_seed(4)
    for p in model.parameters():
        nn.init.normal_(p, std=0.4)
    for n, b in model.named_buffers():
        if "running" in n:
            nn.init.uniform_(b, 0.5, 2.0)


def encoder_of(body: TransformerBody, form: dict) -> Transformer:
    """A Transformer whose encoder has the weights of a body."""
    config = TransformerConfig(**SIZES, tie="none", **form)
    model = Transformer(config, source_vocabulary=V, target_vocabulary=V, shared=False)
    names = {"embedding": "source_embedding", "positions": "source_positions", "encoder": "encoder"}
    names |= {"relative": "encoder_relative", "norm": "encoder_norm"}
    with torch.no_grad():
        own = dict(model.state_dict())
        for name, tensor in body.state_dict().items():
            part, _, rest = name.partition(".")
            own[f"{names[part]}.{rest}"].copy_(tensor)
    return model.eval()


@torch.no_grad()
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_the_states_of_a_tagger_are_those_of_the_transformers_encoder(form):
    model = TransformerTagger(TransformerTaggerConfig(**SIZES, **form), vocabulary=V, labels=LABELS)
    scattered(model)
    other, seen = encoder_of(model.body, form), []
    other.encoder_norm.register_forward_hook(lambda module, given, result: seen.append(result))
    source, record, theirs = texts(), Recorder(), Recorder()
    other.encode(source, theirs)
    states = model.eval().states(source, record)
    torch.testing.assert_close(states[source.keep], seen[0][source.keep], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(record.tensors["reader.2.states"], states)
    for name, weights in theirs.tensors.items():
        torch.testing.assert_close(record.tensors[name], weights, rtol=1e-4, atol=1e-5)
    places = torch.tensor([[0, 4], [0, 0], [6, 2], [1, 0]])
    hidden = model(source, places).hidden
    torch.testing.assert_close(hidden[2], states[2, [6, 2]], rtol=1e-4, atol=1e-5)  # recorded attention is not fused


@torch.no_grad()
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_a_classifier_takes_their_mean(form):
    config = TransformerClassifierConfig(**SIZES, **form)
    model = TransformerClassifier(config, vocabulary=V, labels=LABELS)
    scattered(model)
    source = texts()
    hidden = model.eval()(source, torch.zeros(4, 1, dtype=torch.long)).hidden
    states = model.body.states(source)
    for row, length in enumerate(source.lengths.tolist()):
        torch.testing.assert_close(hidden[row, 0], states[row, :length].mean(0), rtol=1e-4, atol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("form", [form for form in FORMS if form.get("normalise") != "batch"], ids=str)
def test_a_first_vector_is_a_word_more_whose_state_is_read(form):
    config = TransformerClassifierConfig(**SIZES, **form, pool="first")
    model = TransformerClassifier(config, vocabulary=V, labels=LABELS)
    scattered(model)
    assert model.body.first is not None
    other = TransformerTagger(TransformerTaggerConfig(**SIZES, **form), vocabulary=V, labels=LABELS)
    scattered(other)
    own = model.body.state_dict()
    other.body.load_state_dict({n: t for n, t in own.items() if n != "first"})
    other.body.embedding.weight[3] = model.body.first[0, 0]  # a token that no text has
    tokens, keep = texts()
    longer = Padded(nn.functional.pad(tokens, (1, 0), value=3), nn.functional.pad(keep, (1, 0), value=True))
    expected = other.eval().states(longer)[:, 0]
    hidden = model.eval()(texts(), torch.zeros(4, 1, dtype=torch.long)).hidden[:, 0]
    torch.testing.assert_close(hidden, expected, rtol=1e-4, atol=1e-5)


def test_learned_positions_set_a_limit_and_the_first_vector_takes_one_of_them():
    form = {"positions": "learned", "max_length": 9}
    for pool, limit in (("mean", 9), ("first", 8)):
        model = TransformerClassifier(
            TransformerClassifierConfig(**SIZES, **form, pool=pool), vocabulary=V, labels=LABELS
        )
        assert model.limits.source == limit
        target = torch.zeros(1, 1, dtype=torch.long)
        model(pad_rows([[5] * limit]), target)
        with pytest.raises(ModelError, match=f"{limit + 1} tokens are more than the {limit}"):
            model(pad_rows([[5] * (limit + 1)]), target)
    with pytest.raises(ConfigError, match="no room"):
        TransformerClassifierConfig(positions="learned", max_length=1, pool="first")


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"heads": 3}, "do not divide"), ({"token_dropout": 1.5}, "not in"), ({"width": 255, "heads": 5}, "even width")],
)
def test_settings_that_make_no_sense_are_refused(changes, message):
    with pytest.raises(ConfigError, match=message):
        TransformerTaggerConfig(**changes)
