"""Luong's models against float64 NumPy written from the paper's equations: one sentence, one word, one gate at a time."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch

from regard.core.errors import ConfigError, ModelError
from regard.core.types import BOS, EOS, pad_rows
from regard.models.base import Recorder
from regard.models.luong import Luong, LuongConfig

V, M, N, T = 17, 5, 6, 9
SOURCES = [[5, 6, 7, 8, EOS], [9, EOS], [EOS], [4, 16, 4, EOS]]  # local-m passes the end of all of them
CHOICES = [
    {"score": score, "attention": attention, "input_feeding": feeding}
    for score, attention, feeding in itertools.product(
        ("dot", "general", "concat", "location"), ("global", "local-m", "local-p"), (True, False)
    )
] + [
    {"reverse": False},
    {"reverse": False, "input_feeding": False, "layers": 3},
    {"bidirectional": True},
    {"bidirectional": True, "input_feeding": False, "attention": "local-p"},
    {"layers": 1, "readout": 4},
    {"layers": 3, "readout": 5, "tie": "target"},
    {"layers": 1, "readout": 7, "input_feeding": False},
]


def make(choices: dict, **more) -> Luong:
    """A model whose parameters, biases too, are far from zero."""
    torch.manual_seed(3)
    config = LuongConfig(
        **{"embedding": M, "width": N, "window": 2, "max_source": 8, "dropout": 0.0, **choices, **more}
    )
    model = Luong(config, source_vocabulary=V, target_vocabulary=V, shared=False)
    for p in model.parameters():
        torch.nn.init.normal_(p, std=0.6)
    return model.double()


def inputs() -> torch.Tensor:
    tokens = torch.randint(4, V, (len(SOURCES), T), generator=torch.Generator().manual_seed(4))
    tokens[:, 0] = BOS
    return tokens


# The paper, in NumPy.


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def lstm(z: np.ndarray, cell: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Zaremba et al. 2015, eq. 4, from the sums before the gates, which stand in the order input, forget, new, output."""
    n = len(cell)
    new_h, new_cell = np.zeros(n), np.zeros(n)
    for k in range(n):
        i, f, g, o = z[k], z[n + k], z[2 * n + k], z[3 * n + k]
        new_cell[k] = sigmoid(f) * cell[k] + sigmoid(i) * math.tanh(g)
        new_h[k] = sigmoid(o) * math.tanh(new_cell[k])
    return new_h, new_cell


def read(w: dict, prefix: str, xs: list) -> tuple[list, np.ndarray, np.ndarray]:
    """One LSTM over a sequence, from zero: its states, and the last state and cell."""
    w_x, b, w_h = w[prefix + "weight_ih_l0"][:, :-1], w[prefix + "weight_ih_l0"][:, -1], w[prefix + "weight_hh_l0"]
    h, cell, states = np.zeros(w_h.shape[1]), np.zeros(w_h.shape[1]), []
    for x in xs:
        h, cell = lstm(w_x @ x + w_h @ h + b, cell)
        states.append(h)
    return states, h, cell


def encode(w: dict, config: LuongConfig, source: list[int]) -> tuple[list, list, list]:
    """The top states in the order of the sentence, and the last states and cells of all layers."""
    xs, hs, cells = [w["source_embedding.weight"][token] for token in source], [], []
    if config.reverse and not config.bidirectional:
        xs = xs[::-1]
    for i in range(config.layers):
        if config.bidirectional:
            there, h_there, cell_there = read(w, f"encoder.{i}.forwards.", xs)
            back, h_back, cell_back = read(w, f"encoder.{i}.backwards.", xs[::-1])
            xs = [np.concatenate(both) for both in zip(there, back[::-1], strict=True)]
            hs.append(np.concatenate((h_there, h_back)))
            cells.append(np.concatenate((cell_there, cell_back)))
        else:
            xs, h, cell = read(w, f"encoder.{i}.", xs)
            hs.append(h)
            cells.append(cell)
    if config.reverse and not config.bidirectional:
        xs = xs[::-1]
    return xs, hs, cells


def score(w: dict, config: LuongConfig, h: np.ndarray, h_s: np.ndarray, s: int) -> float:
    """The three content-based functions of section 3.1, and the location-based one, which does not look at h_s."""
    if config.score == "dot":
        return float(h @ h_s)
    if config.score == "general":
        return float(h @ w["score.key.weight"] @ h_s)
    if config.score == "concat":
        w_a = np.concatenate((w["score.query.weight"], w["score.key.weight"]), 1)
        return float(w["score.v"] @ np.tanh(w_a @ np.concatenate((h, h_s))))
    return float((w["score.positions.weight"] @ h)[s])


def align(w: dict, config: LuongConfig, h: np.ndarray, top: list, t: int) -> np.ndarray:
    """a_t over all source positions: global, local-m or local-p (section 3.1 and 3.2)."""
    length = len(top)
    p, window = 0.0, list(range(length))
    if config.attention == "local-m":
        p = min(t, length - 1)
    if config.attention == "local-p":
        p = length * sigmoid(w["centre.v"] @ np.tanh(w["centre.hidden.weight"] @ h))
    if config.attention != "global":
        window = [s for s in range(length) if p - config.window <= s <= p + config.window]
    scores = {s: score(w, config, h, top[s], s) for s in window}
    total = sum(math.exp(x) for x in scores.values())
    a = np.zeros(length)
    for s in window:
        a[s] = math.exp(scores[s]) / total
        if config.attention == "local-p":
            sigma = config.window / 2
            a[s] *= math.exp(-((s - p) ** 2) / (2 * sigma**2))
    return a


def write(w: dict, config: LuongConfig, source: list[int], target: list[int]) -> tuple[np.ndarray, list]:
    """h~_t for every target word, and the weights a_t."""
    top, hs, cells = encode(w, config, source)
    fed = np.zeros(len(w["combine.weight"]))
    hidden, weights = [], []
    for t, token in enumerate(target):
        x = w["target_embedding.weight"][token]
        if config.input_feeding:
            x = np.concatenate((x, fed))
        for i in range(config.layers):
            if config.input_feeding:
                z = w[f"decoder.{i}.weight"] @ np.concatenate((x, hs[i])) + w[f"decoder.{i}.bias"]
            else:
                z = w[f"decoder.{i}.weight_ih_l0"] @ x + w[f"decoder.{i}.bias_ih_l0"]
                z = z + w[f"decoder.{i}.weight_hh_l0"] @ hs[i] + w[f"decoder.{i}.bias_hh_l0"]
            hs[i], cells[i] = lstm(z, cells[i])
            x = hs[i]
        a = align(w, config, hs[-1], top, t)
        c = sum(a[s] * top[s] for s in range(len(top)))
        fed = np.tanh(w["combine.weight"] @ np.concatenate((c, hs[-1])))
        hidden.append(fed)
        weights.append(a)
    return np.array(hidden), weights


@pytest.mark.parametrize("choices", CHOICES, ids=lambda c: "-".join(map(str, c.values())))
@torch.no_grad()
def test_equals_the_equations(choices):
    model = make(choices).eval()
    weights = {name: p.numpy() for name, p in model.state_dict().items()}
    tokens, record = inputs(), Recorder()
    hidden = model(pad_rows(SOURCES), tokens, record).hidden.numpy()
    seen = model.alignment(record).numpy()
    for row, source in enumerate(SOURCES):
        expected, alignment = write(weights, model.config, source, tokens[row].tolist())
        np.testing.assert_allclose(hidden[row], expected, rtol=1e-9, atol=1e-11)
        np.testing.assert_allclose(seen[row, :, : len(source)], alignment, rtol=1e-9, atol=1e-11)
        assert not seen[row, :, len(source) :].any()


@pytest.mark.parametrize(
    "choices",
    [
        {"score": "general"},
        {"score": "concat", "attention": "local-p", "readout": 4},
        {"score": "location", "bidirectional": True},
        {"attention": "local-m", "input_feeding": False, "reverse": False},
    ],
)
def test_gradients_are_slopes(choices):
    """Products whose gradients are deferred get the whole of them: every parameter, against differences of the loss."""
    model = make(choices).train()
    source, target = pad_rows(SOURCES), inputs()
    weight = torch.randn(len(SOURCES), T, model.combine.out_features, dtype=torch.double)

    def loss() -> torch.Tensor:
        return (model(source, target).hidden * weight).sum()

    loss().backward()
    for name, p in model.named_parameters():
        if name.startswith("output."):
            continue
        direction, gradient, step = torch.randn_like(p), p.grad, 1e-6
        assert gradient is not None, name
        with torch.no_grad():
            p.add_(direction, alpha=step)
            above = loss()
            p.sub_(direction, alpha=2 * step)
            slope = (above - loss()) / (2 * step)
            p.add_(direction, alpha=step)
        torch.testing.assert_close((gradient * direction).sum(), slope, rtol=1e-5, atol=1e-6, msg=name)


def test_local_attention_sees_its_window_only():
    """In local-m that around the target position."""
    model = make({"attention": "local-m", "window": 1}).eval()
    record = Recorder()
    with torch.no_grad():
        model(pad_rows([[5, 6, 7, 8, 9, EOS]]), inputs()[:1, :4], record)
    assert [[s for s in range(6) if row[s] > 0] for row in model.alignment(record)[0].tolist()] == [
        [0, 1],
        [0, 1, 2],
        [1, 2, 3],
        [2, 3, 4],
    ]


def test_the_weights_of_local_p_are_not_made_to_sum_to_one():
    model, record = make({"attention": "local-p"}).eval(), Recorder()
    with torch.no_grad():
        model(pad_rows(SOURCES), inputs(), record)
    sums = model.alignment(record).sum(-1)
    assert 0 < float(sums.min()) < 0.9
    assert float(sums.max()) <= 1


def test_what_is_dropped_is_fed():
    """The attentional vector goes to the output and to the next step under one dropout."""
    model = make({}, dropout=0.5).train()
    memory, state = model.start(pad_rows(SOURCES))
    assert not state.fed.any()
    hidden, state = model.advance(inputs()[:, None], memory, state)
    torch.testing.assert_close(state.fed, hidden[:, :, -1], rtol=0, atol=0)
    assert 0.3 < float((hidden == 0).double().mean()) < 0.7
    assert 0.3 < float((memory.states[0] == 0).double().mean()) < 0.7
    assert not memory.states[1, 2:].any(), "padding stays zero"


@pytest.mark.parametrize("feeding", [True, False])
@torch.no_grad()
def test_dropout_acts_on_what_goes_up(feeding):
    """Not on what goes on in time: its calls, by the widths of what they drop."""
    model, widths = make({"input_feeding": feeding, "readout": 3}), []
    model.dropout.register_forward_hook(lambda _, inputs, __: widths.append(inputs[0].shape[-1]))
    memory, state = model.start(pad_rows(SOURCES))
    assert widths == [M, N, N], "words, between the layers, what attention reads"
    widths.clear()
    model.advance(inputs()[:, None, :3], memory, state)
    assert widths == ([M, *[N, 3] * 3] if feeding else [M, N, 3]), "words, between the layers, h~_t"
    model.dropout = torch.nn.Dropout(1.0)
    for name, p in model.named_parameters():  # the biases of the encoder
        if name.endswith("weight_ih_l0"):
            p.data[:, -1] = 0.0
    memory, state = model.train().start(pad_rows(SOURCES))
    assert not any(bool(x.any()) for x in (memory.states, *state.h, *state.c)), "nothing gets round the dropout"


def test_a_state_does_not_grow():
    model = make({}).eval()
    with torch.no_grad():
        memory, state = model.start(pad_rows(SOURCES), beams=2)
        sizes = []
        for count in (1, 5):
            _, state = model.advance(torch.full((len(SOURCES), 2, count), 5), memory, state)
            sizes.append([x.shape for x in (*state.h, *state.c, state.fed, state.t)])
    assert sizes[0] == sizes[1]
    assert state.t.tolist() == [[6, 6]] * len(SOURCES)


def test_parameter_counts_of_the_paper():
    """4 layers of 1000 cells, embeddings of 1000, 50,000 words (section 4.1; the paper gives no count of parameters)."""
    n, words = 1000, 50_000
    tables = 2 * words * n + words * n + words  # both embeddings, W_s and its bias
    encoder = 4 * 4 * n * (2 * n + 1)
    fed = 4 * n * 3 * n + 3 * 4 * n * 2 * n + 4 * 4 * n  # first-layer input of 2n, as section 3.3 says
    plain = 4 * 4 * n * 2 * n + 2 * 4 * 4 * n  # torch's LSTM has two biases
    w_c = 2 * n * n
    cases: list[tuple[dict[str, Any], int]] = [
        ({"score": "dot"}, tables + encoder + fed + w_c),
        ({"score": "general", "attention": "local-p"}, tables + encoder + fed + w_c + n * n + (n * n + n)),
        ({"score": "concat"}, tables + encoder + fed + w_c + 2 * n * n + n),
        ({"score": "location", "max_source": 50}, tables + encoder + fed + w_c + 50 * n),
        ({"score": "general", "input_feeding": False}, tables + encoder + plain + w_c + n * n),
        ({"score": "dot", "bidirectional": True}, tables + 4 * 2 * 4 * 500 * (1000 + 500 + 1) + fed + w_c),
    ]
    for choices, expected in cases:
        with torch.device("meta"):
            config = LuongConfig(embedding=n, width=n, layers=4, **choices)
            model = Luong(config, source_vocabulary=words, target_vocabulary=words, shared=False)
        assert model.parameters_count() == expected, choices


def test_initialisation():
    """Paper: U(-0.1, 0.1) everywhere. Scaled: no matrix shrinks or blows up what goes through it."""
    sizes: dict[str, Any] = {"embedding": 40, "width": 64, "score": "concat", "attention": "local-p"}
    torch.manual_seed(0)
    for feeding in (True, False):
        config = LuongConfig(**sizes, input_feeding=feeding, initialise="paper")
        for name, p in Luong(config, source_vocabulary=99, target_vocabulary=99, shared=False).named_parameters():
            values = p.detach()
            assert values.abs().max() <= 0.1, name
            assert values.abs().max() > 0.09, name
            assert float(values.std()) == pytest.approx(0.2 / math.sqrt(12), rel=0.25), name
    config = LuongConfig(**sizes, initialise="scaled")
    model = Luong(config, source_vocabulary=99, target_vocabulary=99, shared=False)
    for name, p in model.named_parameters():
        p.requires_grad_(False)
        if name.endswith("bias") and name.startswith("decoder"):
            assert p.chunk(4)[1].eq(1).all(), name
            assert float(p.sum()) == len(p) / 4, name
        else:
            assert bool(p.any()) == (p.dim() > 1), name
        if name.endswith("weight_ih_l0"):
            assert p[:, -1].chunk(4)[1].eq(1).all(), name
            assert float(p[:, -1].sum()) == len(p) / 4, name
    assert float(model.source_embedding.weight.std()) == pytest.approx(40**-0.5, rel=0.1)
    assert float(model.output.weight.std()) == pytest.approx(64**-0.5, rel=0.1)
    for gate in model.decoder[1].weight.chunk(4):
        assert float(gate.std()) == pytest.approx(math.sqrt(2 / (128 + 64)), rel=0.1)
    assert float(model.combine.weight.std()) == pytest.approx(math.sqrt(2 / (128 + 64)), rel=0.1)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"tie": "target", "embedding": 256}, "only if h~_t has the width of the embedding (256)"),
        ({"bidirectional": True, "width": 7}, "7 is odd"),
        ({"layers": 0}, "model.layers"),
        ({"window": 0}, "model.window"),
        ({"width": 1 << 20}, "model.width"),
        ({"max_source": 1 << 30}, "model.max_source"),
        ({"dropout": 1.0}, "model.dropout"),
    ],
)
def test_settings_that_cannot_be(settings, message):
    with pytest.raises(ConfigError) as caught:
        LuongConfig(**settings)
    assert message in str(caught.value)


def test_only_location_limits_the_source():
    assert make({"score": "general"}).limits.source is None
    model = make({"score": "location"})
    assert model.limits.source == 8
    with pytest.raises(ModelError, match="8"):
        model(pad_rows([[5] * 9]), inputs()[:1])


def test_any_score_by_its_name():
    """Those of the paper and all others in layers/attention/scores: one that is added there can be trained at once."""
    model = make({"score": "cosine"})
    assert type(model.score).__name__ == "Cosine"
    assert type(make({"score": "bilinear"}).score) is type(make({"score": "general"}).score)
    with pytest.raises(
        ConfigError,
        match=r"model\.score: there is no score 'cosinus'\. Perhaps you mean 'cosine' .*dot, general, concat, location, additive",
    ):
        LuongConfig(score="cosinus")
    with pytest.raises(ConfigError, match="Perhaps you mean 'general'"):  # the paper's names, too
        LuongConfig(score="generel")
