"""Recurrent classifiers and taggers against float64 NumPy, text by text and step by step, and against torch's packed rows."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from regard.core.errors import ConfigError
from regard.core.types import EOS, PAD, Padded, pad_rows
from regard.layers.recurrent.stack import GATES, RecurrentStack
from regard.models.base import Recorder
from regard.models.deep_averaging import DeepAveraging, DeepAveragingConfig
from regard.models.recurrent_classifier import RecurrentClassifier, RecurrentClassifierConfig
from regard.models.recurrent_reader import without_tokens
from regard.models.recurrent_tagger import RecurrentTagger, RecurrentTaggerConfig

V, LABELS = 17, 4
TEXTS = [[5, 9, 4, 7, 10], [11], [8, 6, EOS, 7, 7, 12, 4], [6, 6]]
CELLS = list(GATES)


def plain(model: nn.Module) -> dict[str, np.ndarray]:
    for p in model.parameters():  # far from 0 and 1, where mistakes would not show
        nn.init.normal_(p, std=0.5)
    return {n: t.detach().numpy() for n, t in model.double().state_dict().items()}


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def read(xs: list[np.ndarray], w: dict, name: str, cell: str) -> list[np.ndarray]:
    """h_1 .. h_n of one layer in one direction, from the equations."""
    w_in, w_state = w[f"{name}.weight_ih_l0"], w[f"{name}.weight_hh_l0"]
    w_in, bias = w_in[:, :-1], w_in[:, -1]  # the last input is 1
    size = w_state.shape[1]
    h, c, found = np.zeros(size), np.zeros(size), []
    for x in xs:
        a, u = w_in @ x + bias, w_state @ h
        if cell == "rnn":
            h = np.tanh(a + u)
        elif cell == "gru":
            r, z = (sigmoid(a[k * size : (k + 1) * size] + u[k * size : (k + 1) * size]) for k in (0, 1))
            n = np.tanh(a[2 * size :] + r * u[2 * size :])
            h = (1 - z) * n + z * h
        else:
            i, f, g, o = ((a + u)[k * size : (k + 1) * size] for k in range(4))
            c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
            h = sigmoid(o) * np.tanh(c)
        found.append(h)
    return found


def layers_of(text: list[int], w: dict, cell: str, layers: int, bidirectional: bool) -> list[list[np.ndarray]]:
    """The embeddings, and the states of every layer."""
    found = [[w["body.embedding.weight"][token] for token in text]]
    for i in range(layers):
        name, xs = f"body.reader.layers.{i}", found[-1]
        if bidirectional:
            there, back = read(xs, w, f"{name}.forwards", cell), read(xs[::-1], w, f"{name}.backwards", cell)[::-1]
            found.append([np.concatenate(both) for both in zip(there, back, strict=True)])
        else:
            found.append(read(xs, w, name, cell))
    return found


def padded(more: int = 3) -> Padded:
    """The texts, with more padding than any needs, of tokens that are not PAD."""
    tokens, keep = pad_rows(TEXTS)
    return Padded(nn.functional.pad(tokens, (0, more), value=7), nn.functional.pad(keep, (0, more)))


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize("cell", CELLS)
def test_a_tagger_reads_a_label_from_every_state(cell, bidirectional):
    torch.manual_seed(1)
    config = RecurrentTaggerConfig(cell=cell, embedding=3, width=6, layers=2, bidirectional=bidirectional)
    model = RecurrentTagger(config, vocabulary=V, labels=LABELS)
    w, record = plain(model), Recorder()
    places = torch.tensor([[0, 2, 4], [0, 0, 0], [1, 4, 6], [1, 0, 0]])
    forced = model.eval()(padded(), places, record)
    scores = model.output.scores(forced.hidden).exp().detach().numpy()
    for row, text in enumerate(TEXTS):
        expected = layers_of(text, w, cell, 2, bidirectional)
        for i, states in enumerate(expected):
            found = record.tensors[f"reader.{i}.states"][row, : len(text)].detach().numpy()
            np.testing.assert_allclose(found, np.stack(states), rtol=1e-8, atol=1e-10)
        for k, place in enumerate(places[row].tolist()):
            logits = w["output.weight"] @ expected[-1][place] + w["output.bias"]
            chances = np.exp(logits[1:]) / np.exp(logits[1:]).sum()
            assert scores[row, k, PAD] == 0
            np.testing.assert_allclose(scores[row, k, 1:], chances, rtol=1e-5)


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("how", ["last", "mean", "max"])
def test_a_classifier_reads_a_label_from_one_state(cell, bidirectional, how):
    torch.manual_seed(2)
    config = RecurrentClassifierConfig(cell=cell, embedding=3, width=6, layers=2, bidirectional=bidirectional, pool=how)
    model = RecurrentClassifier(config, vocabulary=V, labels=LABELS)
    w = plain(model)
    hidden = model.eval()(padded(), torch.zeros(len(TEXTS), 1, dtype=torch.long)).hidden.detach().numpy()
    for row, text in enumerate(TEXTS):
        states = np.stack(layers_of(text, w, cell, 2, bidirectional)[-1])
        if how == "last":
            expected = np.concatenate((states[-1, :3], states[0, 3:])) if bidirectional else states[-1]
        else:
            expected = states.mean(0) if how == "mean" else states.max(0)
        np.testing.assert_allclose(hidden[row, 0], expected, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize("cell", CELLS)
def test_a_stack_and_its_gradients_are_those_of_torch_with_packed_rows(cell, bidirectional):
    torch.manual_seed(3)
    width, layers, source = 8, 2, padded()
    ours = RecurrentStack(cell, 5, width, layers, bidirectional).double()
    size = width // 2 if bidirectional else width
    library = {"rnn": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}[cell]
    theirs = library(5, size, layers, batch_first=True, bidirectional=bidirectional).double()
    pairs = []  # our parameter, whose last column is the bias, and theirs
    for i, layer in enumerate(ours.layers):
        for one, ending in ((layer.forwards, ""), (layer.backwards, "_reverse")) if bidirectional else ((layer, ""),):
            matrix, bias = (getattr(theirs, f"{kind}_ih_l{i}{ending}") for kind in ("weight", "bias"))
            hidden = getattr(theirs, f"weight_hh_l{i}{ending}")
            with torch.no_grad():
                matrix.copy_(one.weight_ih_l0[:, :-1])
                bias.copy_(one.weight_ih_l0[:, -1])
                hidden.copy_(one.weight_hh_l0)
                getattr(theirs, f"bias_hh_l{i}{ending}").zero_()
            pairs.append((one.weight_ih_l0, lambda m=matrix, b=bias: torch.cat((m.grad, b.grad[:, None]), 1)))
            pairs.append((one.weight_hh_l0, lambda h=hidden: h.grad))
    x = torch.randn(*source.tokens.shape, 5, dtype=torch.double)
    found, end = ours(x, source.keep, lambda x: x)
    packed = pack_padded_sequence(x, source.lengths.cpu(), batch_first=True, enforce_sorted=False)
    expected, last = theirs(packed)
    expected, _ = pad_packed_sequence(expected, batch_first=True, total_length=x.shape[1])
    torch.testing.assert_close(found[-1], expected)  # zero at padding, both
    last = last[0] if cell == "lstm" else last
    torch.testing.assert_close(end, torch.cat(list(last[-2 if bidirectional else -1 :]), -1))
    weight = torch.randn_like(expected)
    (found[-1] * weight).sum().backward()
    (expected * weight).sum().backward()
    for parameter, gradient in pairs:
        torch.testing.assert_close(parameter.grad, gradient())


def test_what_goes_up_passes_between_the_layers_and_nowhere_else():
    torch.manual_seed(7)
    stack, source, seen = RecurrentStack("gru", 5, 8, 3, bidirectional=True), padded(), []
    x = torch.randn(*source.tokens.shape, 5)
    found, _ = stack(x, source.keep, lambda x: (seen.append(x), x * 0)[1])
    assert len(seen) == 2
    assert torch.equal(seen[0], found[0])
    _, first_alone = RecurrentStack("gru", 5, 8, 1, bidirectional=True)(x, source.keep, lambda x: x * 0)
    assert first_alone.abs().min() > 0
    row = found[2][0, 2:3]  # the layers above have read nothing but zeros: their states do not depend on the text
    other, _ = stack(torch.randn_like(x), source.keep, lambda x: x * 0)
    torch.testing.assert_close(other[2][0, 2:3], row)


def test_forget_gates_start_open_and_other_biases_at_zero():
    stack = RecurrentStack("lstm", 5, 8, 1, bidirectional=True)
    biases = stack.layers[0].forwards.weight_ih_l0[:, -1].chunk(4)  # type: ignore[union-attr]
    assert [float(part.detach().mean()) for part in biases] == [0, 1, 0, 0]


def test_whole_words_are_left_out_in_training_only():
    torch.manual_seed(4)
    x = torch.ones(50, 40, 3)
    dropped = without_tokens(x, 0.25, training=True)
    assert set(dropped.unique().tolist()) == {0.0, 1.0}
    assert torch.equal(dropped.amin(-1), dropped.amax(-1))
    assert 0.2 < float((dropped == 0).float().mean()) < 0.3
    assert torch.equal(without_tokens(x, 0.25, training=False), x)


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"width": 7}, "7 is odd"), ({"layers": 0}, "layers"), ({"token_dropout": 1.0}, "not in"), ({"width": 1 << 20}, "more")],
)  # fmt: skip
def test_settings_that_make_no_sense_are_refused(changes, message):
    with pytest.raises(ConfigError, match=message):
        RecurrentTaggerConfig(**changes)


@pytest.mark.parametrize(
    ("layers", "bigrams", "activation"), [(0, 0, "relu"), (0, 9, "relu"), (2, 0, "relu"), (1, 9, "tanh")]
)
def test_a_deep_average_is_that_of_the_paper(layers, bigrams, activation):
    torch.manual_seed(5)
    config = DeepAveragingConfig(embedding=5, width=6, layers=layers, bigrams=bigrams, activation=activation)
    model = DeepAveraging(config, vocabulary=V, labels=LABELS)
    w = plain(model)
    hidden = model.eval()(padded(), torch.zeros(len(TEXTS), 1, dtype=torch.long)).hidden.detach().numpy()
    for row, text in enumerate(TEXTS):
        cut = text.index(EOS) if EOS in text else len(text)
        means = []
        for part in (text[:cut], text[cut + 1 :]):
            vectors = [w["embedding.weight"][token] for token in part]
            if bigrams:
                hashes = [(a * 1_000_003 + b) % bigrams for a, b in itertools.pairwise(part)]
                vectors += [w["bigrams.weight"][h] for h in hashes]
            means.append(sum(vectors) / len(vectors) if vectors else np.zeros(5))
        z = means[0] + w["second.weight"] @ means[1]
        for i in range(layers):
            z = w[f"hidden.{i}.weight"] @ z + w[f"hidden.{i}.bias"]
            z = np.tanh(z) if activation == "tanh" else np.maximum(z, 0)
        np.testing.assert_allclose(hidden[row, 0], z, rtol=1e-8, atol=1e-10)


def test_word_dropout_leaves_words_out_of_the_mean_and_divides_by_those_that_stay():
    torch.manual_seed(6)
    model = DeepAveraging(
        DeepAveragingConfig(embedding=4, layers=0, dropout=0.5, classifier_dropout=0.0), vocabulary=V, labels=LABELS
    )
    nn.init.ones_(model.embedding.weight)
    source = pad_rows([[5, 6, 7, 8, 9]] * 64)
    hidden = model.train()(source, torch.zeros(64, 1, dtype=torch.long)).hidden
    torch.testing.assert_close(hidden[hidden > 0], torch.ones_like(hidden[hidden > 0]))  # a mean of ones, however many
