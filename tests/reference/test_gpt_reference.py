"""GPT and GPT-2 against float64 NumPy written from their equations, token by token and head by head; and their sizes."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from regard.core import config as configuration
from regard.core.errors import ConfigError, ModelError
from regard.core.types import BOS, EOS, PAD, SPECIALS, UNK, pad_rows
from regard.models.base import Recorder
from regard.models.gpt import GPT, GPTConfig

V, D, H, CONTEXT = 17, 24, 4, 12
TEXTS = torch.tensor([[BOS, 7, 12, 4, 9, 9, 16], [BOS, 5, 5, BOS, 3, 8, 11]])
SOURCE = pad_rows([[EOS]] * len(TEXTS))


def build(seed: int = 0, **settings) -> GPT:
    torch.manual_seed(seed)
    sizes = {"width": D, "layers": 3, "heads": H, "context": CONTEXT}
    model = GPT(configuration.build(GPTConfig, {"name": "gpt", **sizes, **settings}, "model"), vocabulary=V)
    for parameter in model.parameters():  # away from where they start, or mistakes stay unseen
        torch.nn.init.normal_(parameter, mean=float(parameter.dim() == 1) * 0.5, std=0.3)
    return model.double().eval()


def layer_norm(x, w, name: str):
    mean = sum(x) / len(x)
    variance = sum((x - mean) ** 2) / len(x)
    return w[f"{name}.weight"] * (x - mean) / math.sqrt(variance + 1e-5) + w.get(f"{name}.bias", 0.0)


def rms_norm(x, gain):
    return gain * x / math.sqrt(sum(x * x) / len(x) + 1e-5)


def turned(x, position: int):
    """Each neighbouring pair of dimensions is turned by position · 10000^(-2i/d)."""
    y = np.array(x)
    for i in range(len(x) // 2):
        angle = position * 10000 ** (-2 * i / len(x))
        a, b = x[2 * i], x[2 * i + 1]
        y[2 * i], y[2 * i + 1] = a * math.cos(angle) - b * math.sin(angle), a * math.sin(angle) + b * math.cos(angle)
    return y


def attention(inputs, w, name: str, c: GPTConfig):
    """What every position gets from itself and those before it."""
    heads, groups, size = c.heads, c.kv_heads or c.heads, c.width // c.heads
    matrix, bias = w[f"{name}.query_key_value.weight"], w.get(f"{name}.query_key_value.bias")
    rows = [matrix @ x + (0 if bias is None else bias) for x in inputs]
    mixed = [np.zeros(c.width) for _ in inputs]
    for h in range(heads):
        g = h // (heads // groups)
        q = [r[h * size : (h + 1) * size] for r in rows]
        k = [r[(heads + g) * size : (heads + g + 1) * size] for r in rows]
        v = [r[(heads + groups + g) * size : (heads + groups + g + 1) * size] for r in rows]
        if c.qk_norm:
            q = [rms_norm(x, w[f"{name}.query_norm.weight"]) for x in q]
            k = [rms_norm(x, w[f"{name}.key_norm.weight"]) for x in k]
        if c.relative == "rotary":
            q, k = ([turned(x, i) for i, x in enumerate(xs)] for xs in (q, k))
        for i in range(len(inputs)):
            scores = [q[i] @ k[j] / math.sqrt(size) for j in range(i + 1)]
            if c.relative == "alibi":
                scores = [s - 2 ** (-8 * (h + 1) / heads) * (i - j) for j, s in enumerate(scores)]
            parts = np.exp(np.array(scores) - max(scores))
            mixed[i][h * size : (h + 1) * size] = sum(p * v[j] for j, p in enumerate(parts / parts.sum()))
    return [w[f"{name}.out.weight"] @ x + w.get(f"{name}.out.bias", 0.0) for x in mixed]


def feedforward(x, w, name: str, activation: str):
    z = w[f"{name}.inner.weight"] @ x + w.get(f"{name}.inner.bias", 0.0)
    if activation == "gelu_tanh":
        z = 0.5 * z * (1 + np.tanh(math.sqrt(2 / math.pi) * (z + 0.044715 * z**3)))
    elif activation == "gelu":
        z = np.array([0.5 * x * (1 + math.erf(x / math.sqrt(2))) for x in z])
    elif activation == "swiglu":
        gate, z = np.split(z, 2)
        z = gate / (1 + np.exp(-gate)) * z
    else:
        z = np.maximum(z, 0)
    return w[f"{name}.out.weight"] @ z + w.get(f"{name}.out.bias", 0.0)


def paper(model: GPT, text: list[int]):
    """The hidden states and the log-probabilities of one text."""
    c = model.config
    w = {name: tensor.detach().numpy() for name, tensor in model.named_parameters()}

    def norm(x, name: str):
        return rms_norm(x, w[f"{name}.weight"]) if c.normalise == "rms" else layer_norm(x, w, name)

    hidden = [w["embedding.weight"][token] for token in text]
    if c.positions == "learned":
        hidden = [x + w["positions.table.weight"][i] for i, x in enumerate(hidden)]
    for layer in range(c.layers):
        at = f"decoder.{layer}"
        if c.norm == "post":
            hidden = [x + y for x, y in zip(hidden, attention(hidden, w, f"{at}.attention", c), strict=True)]
            hidden = [norm(x, f"{at}.attention_norm") for x in hidden]
            hidden = [x + feedforward(x, w, f"{at}.feedforward", c.activation) for x in hidden]
            hidden = [norm(x, f"{at}.feedforward_norm") for x in hidden]
        else:
            read = [norm(x, f"{at}.attention_norm") for x in hidden]
            hidden = [x + y for x, y in zip(hidden, attention(read, w, f"{at}.attention", c), strict=True)]
            read = [norm(x, f"{at}.feedforward_norm") for x in hidden]
            hidden = [
                x + feedforward(y, w, f"{at}.feedforward", c.activation) for x, y in zip(hidden, read, strict=True)
            ]
    if c.norm == "pre":
        hidden = [norm(x, "norm") for x in hidden]
    table = w["embedding.weight"] if c.tie else w["output.weight"]
    logits = [table @ x for x in hidden]
    if c.silent:
        for row in logits:
            row[[PAD, BOS, UNK]] = -np.inf
    return np.array(hidden), np.array([z - z.max() - math.log(np.exp(z - z.max()).sum()) for z in logits])


@torch.no_grad()
@pytest.mark.parametrize(
    "settings",
    [
        {"norm": "post"},
        {"norm": "pre"},
        {"norm": "pre", "silent": True, "activation": "gelu", "inner": 10},
        {"norm": "post", "bias": False, "tie": False, "activation": "relu"},
        {"kv_heads": 2, "qk_norm": True},
        {"norm": "post", "kv_heads": 1, "relative": "alibi", "positions": "none"},
        {
            "kv_heads": 2,
            "qk_norm": True,
            "relative": "rotary",
            "positions": "none",
            "normalise": "rms",
            "activation": "swiglu",
            "bias": False,
            "tie": False,
        },
    ],
    ids=lambda settings: "-".join(map(str, settings.values())),
)
def test_hidden_states_and_probabilities_are_those_of_the_equations(settings):
    model = build(**settings)
    found = model(SOURCE, TEXTS).hidden
    scores = model.output.scores(found).double()
    for row, text in enumerate(TEXTS.tolist()):
        hidden, log_p = paper(model, text)
        near = 1e-5 if model.config.relative == "rotary" else 1e-9  # its angles are float32
        np.testing.assert_allclose(found[row].numpy(), hidden, rtol=near, atol=near)
        written = np.isfinite(log_p)
        np.testing.assert_allclose(scores[row].numpy()[written], log_p[written], rtol=1e-5, atol=1e-5)
        assert (scores[row].numpy()[~written] < -9000).all()


@torch.no_grad()
def test_as_many_heads_of_keys_as_of_queries_are_plain_attention_and_fewer_are_repeated_ones():
    plain, same = build(), build(kv_heads=H)
    assert torch.equal(plain(SOURCE, TEXTS).hidden, same(SOURCE, TEXTS).hidden)
    grouped, size = build(kv_heads=2), D // H
    weights = dict(grouped.state_dict())
    for name, tensor in grouped.state_dict().items():
        if "query_key_value" in name:
            q, k, v = tensor.split((D, 2 * size, 2 * size))
            again = [x.unflatten(0, (2, size)).repeat_interleave(2, 0).flatten(0, 1) for x in (k, v)]
            weights[name] = torch.cat((q, *again))
    plain.load_state_dict(weights)
    torch.testing.assert_close(grouped(SOURCE, TEXTS).hidden, plain(SOURCE, TEXTS).hidden, rtol=1e-12, atol=1e-12)
    state = grouped.begin(2, beams=3, capacity=5)
    assert {tuple(x.shape) for x in (*state.keys, *state.values)} == {(2, 2, 5, 3, size)}


@torch.no_grad()
@pytest.mark.parametrize("settings", [{}, {"kv_heads": 2, "qk_norm": True, "relative": "rotary", "positions": "none"}])
def test_recorded_attention_is_causal_and_the_same_in_steps(settings):
    model = build(**settings)
    record = Recorder()
    recorded = model(SOURCE, TEXTS, record).hidden
    torch.testing.assert_close(recorded, model(SOURCE, TEXTS).hidden)
    assert list(record.tensors) == ["decoder.0.self", "decoder.1.self", "decoder.2.self"]
    memory, state = model.start(SOURCE, beams=1, capacity=8)
    for t in range(TEXTS.shape[1]):
        stepped = Recorder()
        _, state = model.step(TEXTS[:, None, t], memory, state, stepped)
        for name, weights in record.tensors.items():
            assert weights.shape == (2, H, 7, 7)
            torch.testing.assert_close(weights.sum(-1), torch.ones(2, H, 7, dtype=torch.double))
            assert weights.triu(1).abs().max() == 0
            torch.testing.assert_close(stepped.tensors[name][:, 0, :, 0], weights[:, :, t, : t + 1])


def count(vocabulary: int, **settings) -> int:
    with torch.device("meta"):
        return GPT(GPTConfig(width=768, layers=12, heads=12, **settings), vocabulary=vocabulary).parameters_count()


def test_sizes_are_those_of_the_papers():
    gpt2 = count(50256 + len(SPECIALS), context=1024)  # all but <|endoftext|>, and regard's four: three rows more
    assert gpt2 - 3 * 768 == 124_439_808
    assert count(40_478, context=512, norm="post") == 116_534_784  # "116.5M"


def test_weights_start_as_the_papers_say():
    torch.manual_seed(0)
    sizes = {"width": 256, "layers": 8, "heads": 4, "context": 256}
    for norm, positions, residual in (("pre", 0.01, 0.02 / 4), ("post", 0.02, 0.02)):
        model = GPT(GPTConfig(norm=norm, **sizes), vocabulary=500)  # type: ignore[arg-type]
        for name, p in model.named_parameters():
            if p.dim() == 1:
                assert p.unique().tolist() == [float(name.endswith("norm.weight"))], name
                continue
            expected = positions if name.startswith("positions") else residual if name.endswith("out.weight") else 0.02
            assert float(p.detach().std()) == pytest.approx(expected, rel=0.03), name


def test_swiglu_has_as_many_weights_as_two_matrices():
    sizes = {"width": 768, "heads": 12}
    assert GPTConfig(**sizes).inner_width == 3072
    assert GPTConfig(**sizes, activation="swiglu").inner_width == 2048
    assert GPTConfig(width=384, activation="swiglu").inner_width == 1024
    assert GPTConfig(width=512, heads=8, activation="swiglu").inner_width == 1408  # 1365.3, up to a multiple of 64
    assert GPTConfig(**sizes, activation="swiglu", inner=100).inner_width == 100


@pytest.mark.parametrize(
    "choices", [{}, {"positions": "none"}, {"positions": "none", "relative": "rotary"}, {"relative": "alibi"}], ids=str
)
@torch.no_grad()
def test_the_context_is_a_limit_whatever_the_positions(choices):
    model = build(**choices)
    assert model.limits.target == CONTEXT
    one = pad_rows([[EOS]])
    long = torch.full((1, CONTEXT + 1), 5)
    with pytest.raises(ModelError, match="13 tokens are more than the model's context, 12"):
        model(one, long)
    memory, state = model.start(one, capacity=20)
    _, state = model.advance(long[:, None, :CONTEXT], memory, state)
    with pytest.raises(ModelError, match="13 tokens are more than the model's context, 12"):
        model.step(long[:, :1], memory, state)
    assert torch.isfinite(model(one, long[:, :CONTEXT]).hidden).all()
    memory, state = model.start(one, capacity=4)
    with pytest.raises(ModelError, match="capacity 4"):
        model.advance(long[:, None, :CONTEXT], memory, state)


def test_settings_that_do_not_fit_are_refused():
    with pytest.raises(ConfigError, match="5 heads do not divide"):
        GPTConfig(heads=5)
    with pytest.raises(ConfigError, match="4 heads of keys and values do not divide the 6"):
        GPTConfig(kv_heads=4)
    with pytest.raises(ConfigError, match="even width"):
        GPTConfig(width=9, heads=3, relative="rotary")
    with pytest.raises(ConfigError, match=r"model\.context"):
        GPTConfig(context=0)
