"""The Transformer against independent code: torch.nn's layers with the same weights, and float64 NumPy from the equations."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from regard.core.types import EOS, pad_rows
from regard.layers.attention.multihead import SelfAttention, attend_heads
from regard.layers.positions import sinusoids
from regard.models.transformer import Transformer, TransformerConfig

V, D, H, F, N = 19, 16, 4, 24, 2


def _copy_attention(theirs: nn.MultiheadAttention, ours) -> None:
    if isinstance(ours, SelfAttention):
        theirs.in_proj_weight.copy_(ours.query_key_value.weight)
        theirs.in_proj_bias.copy_(ours.query_key_value.bias)
    else:
        theirs.in_proj_weight.copy_(torch.cat((ours.query.weight, ours.key_value.weight)))
        theirs.in_proj_bias.copy_(torch.cat((ours.query.bias, ours.key_value.bias)))
    theirs.out_proj.load_state_dict(ours.out.state_dict())


def _copy_layer(theirs, ours, decoder: bool) -> None:
    _copy_attention(theirs.self_attn, ours.attention)
    theirs.linear1.load_state_dict(ours.feedforward.inner.state_dict())
    theirs.linear2.load_state_dict(ours.feedforward.out.state_dict())
    norms = [ours.around_attention.norm, *([ours.around_cross.norm] if decoder else []), ours.around_feedforward.norm]
    for norm, mine in zip([theirs.norm1, theirs.norm2, *([theirs.norm3] if decoder else [])], norms, strict=True):
        norm.load_state_dict(mine.state_dict())
    if decoder:
        _copy_attention(theirs.multihead_attn, ours.cross)


@pytest.mark.filterwarnings("ignore:.*nested_tensor.*:UserWarning", "ignore:enable_nested_tensor.*:UserWarning")
@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@torch.no_grad()
def test_equals_torch_nn_transformer(norm, activation):
    torch.manual_seed(0)
    config = TransformerConfig(width=D, layers=N, heads=H, inner=F, norm=norm, activation=activation, dropout=0.0)
    ours = Transformer(config, source_vocabulary=V, target_vocabulary=V, shared=True).eval()
    for p in ours.parameters():
        if p.dim() == 1:
            p.add_(torch.randn_like(p) * 0.2)
    theirs = nn.Transformer(D, H, N, N, F, 0.0, activation, batch_first=True, norm_first=norm == "pre").eval()
    for mine, layer in zip(ours.encoder, theirs.encoder.layers, strict=True):
        _copy_layer(layer, mine, decoder=False)
    for mine, layer in zip(ours.decoder, theirs.decoder.layers, strict=True):
        _copy_layer(layer, mine, decoder=True)
    if norm == "pre":
        theirs.encoder.norm.load_state_dict(ours.encoder_norm.state_dict())
        theirs.decoder.norm.load_state_dict(ours.decoder_norm.state_dict())
    else:
        theirs.encoder.norm = theirs.decoder.norm = None
    theirs.encoder.use_nested_tensor = False
    source = pad_rows([[5, 6, 7, 8, EOS], [9, EOS], [4, 4, 4, EOS]])
    target = torch.randint(1, V, (3, 6))

    def embed(tokens):
        return ours.target_embedding(tokens) * math.sqrt(D) + sinusoids(torch.arange(tokens.shape[1]), D)

    hidden = theirs(
        embed(source.tokens),
        embed(target),
        tgt_mask=nn.Transformer.generate_square_subsequent_mask(6).bool(),
        src_key_padding_mask=~source.keep,
        memory_key_padding_mask=~source.keep,
        tgt_is_causal=True,
    )
    torch.testing.assert_close(ours(source, target).hidden, hidden, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("explicit", [True, False])
@pytest.mark.parametrize("causal", [True, False])
def test_attention_is_the_equation(explicit, causal):
    """softmax(Q K^T / sqrt(d) + mask) V, looped over in float64."""
    rng = np.random.default_rng(0)
    q, k, v = rng.normal(size=(2, 3, 5, 8)), rng.normal(size=(2, 3, 5, 8)), rng.normal(size=(2, 3, 5, 6))
    keep = rng.random((2, 1, 1, 5)) > 0.3
    keep[..., 0] = True
    expected, weights = np.zeros((2, 3, 5, 6)), np.zeros((2, 3, 5, 5))
    for b, h, t in np.ndindex(2, 3, 5):
        scores = [q[b, h, t] @ k[b, h, s] / math.sqrt(8) for s in range(5)]
        allowed = [(s <= t) if causal else bool(keep[b, 0, 0, s]) for s in range(5)]
        total = sum(math.exp(score) for score, ok in zip(scores, allowed, strict=True) if ok)
        for s in range(5):
            weights[b, h, t, s] = math.exp(scores[s]) / total if allowed[s] else 0.0
            expected[b, h, t] += weights[b, h, t, s] * v[b, h, s]
    mask = None if causal else torch.from_numpy(keep)
    tensors = (torch.from_numpy(x) for x in (q, k, v))
    mixed, seen = attend_heads(*tensors, mask, causal=causal, explicit=explicit)
    np.testing.assert_allclose(mixed.numpy(), expected, atol=1e-12)
    if explicit:
        np.testing.assert_allclose(seen.numpy(), weights, atol=1e-12)
    else:
        assert seen is None


def test_sinusoids_are_the_equation():
    table = sinusoids(torch.tensor([0, 1, 7, 500]), 10).numpy()
    for row, p in enumerate((0, 1, 7, 500)):
        for i in range(5):
            angle = p / 10000 ** (2 * i / 10)
            assert table[row, 2 * i] == pytest.approx(math.sin(angle), abs=1e-4)
            assert table[row, 2 * i + 1] == pytest.approx(math.cos(angle), abs=1e-4)


def test_parameter_counts_of_the_paper():
    """Base and big with a shared vocabulary of 37,000: 63.1 and 214 million without biases in the output (paper: 65 and 213)."""
    for sizes, expected in (((512, 6, 8, 2048), 63_082_496), ((1024, 6, 16, 4096), 214_245_376)):
        width, layers, heads, inner = sizes
        with torch.device("meta"):
            config = TransformerConfig(width=width, layers=layers, heads=heads, inner=inner, norm="post")
            model = Transformer(config, source_vocabulary=37_000, target_vocabulary=37_000, shared=True)
        assert model.parameters_count() - 37_000 == expected


def test_initialisation_follows_the_sizes():
    torch.manual_seed(0)
    model = Transformer(
        TransformerConfig(width=64, layers=4, norm="pre"), source_vocabulary=500, target_vocabulary=500, shared=True
    )
    assert model.target_embedding.weight.std().item() == pytest.approx(64**-0.5, rel=0.05)
    fused = model.encoder[0].attention.query_key_value.weight
    assert fused.abs().max().item() == pytest.approx(math.sqrt(6 / (64 + 192)), rel=0.02)
    out = model.decoder[0].attention.out.weight
    assert out.abs().max().item() == pytest.approx(math.sqrt(6 / 128) / math.sqrt(12), rel=0.03)


def _sublayer(x: np.ndarray, layer, config: TransformerConfig, which: str) -> np.ndarray:
    """One sub-layer of an encoder layer in float64 NumPy, with what is around it."""
    weights = {name: p.detach().double().numpy() for name, p in layer.named_parameters()}

    def norm(y: np.ndarray) -> np.ndarray:
        g = weights[f"around_{which}.norm.weight"]
        if config.normalise == "rms":
            return y / np.sqrt((y**2).mean(-1, keepdims=True) + 1e-5) * g
        mean, variance = y.mean(-1, keepdims=True), y.var(-1, keepdims=True)
        return (y - mean) / np.sqrt(variance + 1e-5) * g + weights[f"around_{which}.norm.bias"]

    y = norm(x) if config.norm == "pre" else x
    if which == "feedforward":
        inner = np.maximum(0, y @ weights["feedforward.inner.weight"].T + weights["feedforward.inner.bias"])
        written = inner @ weights["feedforward.out.weight"].T + weights["feedforward.out.bias"]
    else:
        size = config.width // config.heads
        qkv = y @ weights["attention.query_key_value.weight"].T + weights["attention.query_key_value.bias"]
        q, k, v = np.split(qkv, 3, -1)
        heads = []
        for h in range(config.heads):
            part = slice(h * size, (h + 1) * size)
            scores = q[:, part] @ k[:, part].T / (math.sqrt(size) if config.scaling else 1)
            e = np.exp(scores - scores.max(-1, keepdims=True))
            heads.append(e / e.sum(-1, keepdims=True) @ v[:, part])
        written = np.concatenate(heads, -1) @ weights["attention.out.weight"].T + weights["attention.out.bias"]
    out = x + written if config.residual else written
    return out if config.norm == "pre" else norm(out)


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize(
    "changes", [{}, {"normalise": "rms"}, {"residual": False}, {"scaling": False}], ids=["paper", "rms", "alone", "raw"]
)
@torch.no_grad()
def test_parts_taken_away_or_exchanged_are_the_equations(norm, changes):
    torch.manual_seed(0)
    config = TransformerConfig(width=12, layers=1, heads=3, inner=20, norm=norm, dropout=0.0, **changes)
    model = Transformer(config, source_vocabulary=V, target_vocabulary=V, shared=True).double().eval()
    layer = model.encoder[0]
    for p in layer.parameters():
        p.add_(torch.randn_like(p) * 0.3)
    x = torch.randn(1, 5, 12, dtype=torch.double)
    expected = _sublayer(_sublayer(x[0].numpy(), layer, config, "attention"), layer, config, "feedforward")
    for explicit in (False, True):
        np.testing.assert_allclose(layer(x, None, explicit)[0][0].numpy(), expected, atol=1e-10)


@torch.no_grad()
def test_unscaled_attention_to_the_source_is_that_of_larger_queries():
    torch.manual_seed(0)
    sizes = {"width": 12, "layers": 1, "heads": 3, "inner": 20, "dropout": 0.0}
    raw, scaled = (
        Transformer(
            TransformerConfig(**sizes, scaling=scaling), source_vocabulary=V, target_vocabulary=V, shared=True
        ).eval()
        for scaling in (False, True)
    )
    scaled.load_state_dict(raw.state_dict())
    root = math.sqrt(4)  # of a head's width
    for stack in (scaled.encoder, scaled.decoder):
        for layer in stack:
            layer.attention.query_key_value.weight[:12] *= root
            layer.attention.query_key_value.bias[:12] *= root
    for layer in scaled.decoder:
        layer.cross.query.weight *= root
        layer.cross.query.bias *= root
    source, target = pad_rows([[5, 6, 7, 8, EOS], [9, EOS]]), torch.tensor([[1, 5, 6], [1, 7, 8]])
    torch.testing.assert_close(raw(source, target).hidden, scaled(source, target).hidden, rtol=1e-4, atol=1e-5)
