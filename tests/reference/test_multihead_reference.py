"""Multi-head attention with masks against torch.nn.MultiheadAttention and Hugging Face, with the same weights."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from regard.layers.attention.multihead import CrossAttention, SelfAttention
from regard.layers.attention.windows import causal_keep

B, T, S, D, H = 3, 4, 6, 12, 3


def padding(length: int) -> torch.Tensor:
    return torch.arange(length) < torch.tensor([length, length - 1, 2])[:, None]


def parts(ours: SelfAttention | CrossAttention) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Weight and bias of the query, key and value projections, each by itself."""
    if isinstance(ours, SelfAttention):
        fused = ours.query_key_value
        return list(zip(fused.weight.chunk(3), fused.bias.chunk(3), strict=True))
    fused = ours.key_value
    return [(ours.query.weight, ours.query.bias), *zip(fused.weight.chunk(2), fused.bias.chunk(2), strict=True)]


def torch_attention(ours: SelfAttention | CrossAttention, memory_width: int) -> nn.MultiheadAttention:
    theirs = nn.MultiheadAttention(D, H, kdim=memory_width, vdim=memory_width, batch_first=True).double().eval()
    (qw, qb), (kw, kb), (vw, vb) = parts(ours)
    if memory_width == D:
        theirs.in_proj_weight.copy_(torch.cat((qw, kw, vw)))
    else:
        theirs.q_proj_weight.copy_(qw)
        theirs.k_proj_weight.copy_(kw)
        theirs.v_proj_weight.copy_(vw)
    theirs.in_proj_bias.copy_(torch.cat((qb, kb, vb)))
    theirs.out_proj.load_state_dict(ours.out.state_dict())
    return theirs


def hugging_face_attention(ours: SelfAttention | CrossAttention) -> nn.Module:
    from transformers import BartConfig  # seconds, which only the process that runs these tests is to spend
    from transformers.models.bart.modeling_bart import BartAttention

    config = BartConfig(d_model=D, decoder_attention_heads=H, attn_implementation="eager")
    theirs = BartAttention(D, H, is_decoder=True, config=config).double().eval()
    for projection, (weight, bias) in zip((theirs.q_proj, theirs.k_proj, theirs.v_proj), parts(ours), strict=True):
        projection.weight.copy_(weight)
        projection.bias.copy_(bias)
    theirs.out_proj.load_state_dict(ours.out.state_dict())
    return theirs


def added(keep: torch.Tensor) -> torch.Tensor:
    """A mask as Hugging Face adds it to the scores."""
    return torch.zeros(keep.shape, dtype=torch.float64).masked_fill(~keep, torch.finfo(torch.float64).min)


@pytest.mark.parametrize("explicit", [True, False])
@pytest.mark.parametrize("kind", ["all", "padded", "causal"])
@torch.no_grad()
def test_self_attention(kind, explicit):
    torch.manual_seed(0)
    ours = SelfAttention(D, H).double().eval()
    x, keep = torch.randn(B, S, D, dtype=torch.float64), padding(S)
    visible = {
        "all": torch.ones(B, 1, S, S, dtype=torch.bool),
        "padded": keep[:, None, None].expand(B, 1, S, S),
        "causal": causal_keep(S).expand(B, 1, S, S),
    }[kind]
    mixed, weights = ours(x, keep[:, None, None] if kind == "padded" else None, kind == "causal", explicit)
    theirs = torch_attention(ours, D)
    hidden = ~visible.expand(B, H, S, S).reshape(B * H, S, S)
    expected, expected_weights = theirs(x, x, x, attn_mask=hidden, average_attn_weights=False)
    torch.testing.assert_close(mixed, expected, rtol=0, atol=1e-12)
    other, other_weights = hugging_face_attention(ours)(x, attention_mask=added(visible))
    torch.testing.assert_close(mixed, other, rtol=0, atol=1e-12)
    if explicit:
        torch.testing.assert_close(weights, expected_weights, rtol=0, atol=1e-12)
        torch.testing.assert_close(weights, other_weights, rtol=0, atol=1e-12)


@pytest.mark.parametrize("explicit", [True, False])
@pytest.mark.parametrize("memory_width", [D, 7])
@torch.no_grad()
def test_cross_attention(memory_width, explicit):
    torch.manual_seed(1)
    ours = CrossAttention(D, H, memory_width=memory_width).double().eval()
    x = torch.randn(B, T, D, dtype=torch.float64)
    memory, keep = torch.randn(B, S, memory_width, dtype=torch.float64), padding(S)
    mixed, weights = ours(x, *ours.project_memory(memory), keep[:, None, None], explicit)
    theirs = torch_attention(ours, memory_width)
    expected, expected_weights = theirs(x, memory, memory, key_padding_mask=~keep, average_attn_weights=False)
    torch.testing.assert_close(mixed, expected, rtol=0, atol=1e-12)
    if explicit:
        torch.testing.assert_close(weights, expected_weights, rtol=0, atol=1e-12)
    if memory_width == D:  # theirs has one width only
        mask = added(keep[:, None, None].expand(B, 1, T, S))
        other, other_weights = hugging_face_attention(ours)(x, key_value_states=memory, attention_mask=mask)
        torch.testing.assert_close(mixed, other, rtol=0, atol=1e-12)
        if explicit:
            torch.testing.assert_close(weights, other_weights, rtol=0, atol=1e-12)
