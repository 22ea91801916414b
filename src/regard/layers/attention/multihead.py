"""Multi-head attention (Vaswani et al. 2017, section 3.2), fused when nobody looks and explicit when a recorder does.

With fewer heads of keys and values than of queries it is grouped-query attention (Ainslie et al. 2023, arXiv 2305.13245): heads
of queries that follow each other share one head of keys and values.

Masks say what to keep: True means that a query may look at a key.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from regard.layers.attention.few_queries import attend_few, is_few, is_short
from regard.layers.attention.relative import SchemeAtPlaces

Heads = Float[Tensor, "B H N Dh"]
KeyValueHeads = Float[Tensor, "B G N Dh"]


def attend_heads(
    query: Float[Tensor, "B H T Dh"],
    key: Float[Tensor, "B G S Dh"],
    value: Float[Tensor, "B G S Dv"],
    keep: Bool[Tensor, "B #H #T S"] | Float[Tensor, "B #H #T S"] | None = None,
    *,
    causal: bool = False,
    dropout: float = 0.0,
    explicit: bool = False,
    relative: SchemeAtPlaces | None = None,
) -> tuple[Float[Tensor, "B H T Dv"], Float[Tensor, "B H T S"] | None]:
    """softmax(Q Kᵀ / √d) V (eq. 1). The weights come back only from the explicit form; both agree to float tolerance.

    `relative` adds to the scores, and may add to the values; the queries and keys given are turned already. `keep` may also be
    what `as_added` made of it.
    """
    bias = None if relative is None else relative.bias(query)
    fused = not explicit and not (relative is not None and relative.adds_values)
    grouped = key.shape[1] < query.shape[1]
    if grouped and fused and bias is None and keep is None:
        mixed = F.scaled_dot_product_attention(query, key, value, dropout_p=dropout, is_causal=causal, enable_gqa=True)
        return mixed, None
    if grouped:  # fused kernels do not take groups and a mask together
        key, value = (x.repeat_interleave(query.shape[1] // x.shape[1], dim=1) for x in (key, value))
    if fused and bias is None and not causal and not dropout and is_few(query, key, value):
        return attend_few(query, key, value, keep), None
    if fused and bias is None and is_short(query, key):
        return attend_few(query, key, value, keep, causal=causal, dropout=dropout), None
    if fused and bias is None:
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=keep, dropout_p=dropout, is_causal=causal)
        return mixed, None
    if causal:
        keep = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool, device=query.device).tril()
    if fused:
        mask = _hide(bias.to(query.dtype), keep)  # type: ignore[union-attr]
        return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=dropout), None
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])
    weights = _hide(scores if bias is None else scores + bias, keep).softmax(-1)
    dropped = F.dropout(weights, dropout, training=dropout > 0)
    mixed = dropped @ value
    if relative is not None and relative.adds_values:
        mixed = mixed + relative.values(dropped)
    return mixed, weights if explicit else None


def as_added(keep: Bool[Tensor, "B #H #T S"] | None, like: Float[Tensor, "*M"]) -> Float[Tensor, "B #H #T S"] | None:
    """A mask as what is added to scores: 0 or -inf. The fused kernel would make it so anew in every layer."""
    return None if keep is None else keep.to(like.dtype).log_()


def _hide(
    scores: Float[Tensor, "#B H T S"], keep: Bool[Tensor, "*#B S"] | Float[Tensor, "*#B S"] | None
) -> Float[Tensor, "B H T S"]:
    if keep is None:
        return scores
    return scores + keep if keep.is_floating_point() else scores.masked_fill(~keep, float("-inf"))


def unscaled(query: Heads) -> Heads:
    """Queries whose dot products `attend_heads` will find undivided."""
    return query * math.sqrt(query.shape[-1])


def _normalised(x: Heads, norm: nn.RMSNorm) -> Heads:
    """In the norm's own precision, which under autocast is higher than that of the heads."""
    return norm(x.to(norm.weight.dtype)).to(x.dtype)


class SelfAttention(nn.Module):
    """Projections of self-attention: queries, keys and values from one sequence in one matrix product.

    `kv_heads` (0: as `heads`) divides `heads`. `qk_norm` normalises the queries and the keys of each head by their root mean
    square, each with a learned scale (Henry et al. 2020; Dehghani et al. 2023), before positions turn them.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        dropout: float = 0.0,
        scaling: bool = True,
        *,
        kv_heads: int = 0,
        qk_norm: bool = False,
        bias: bool = True,
    ):
        super().__init__()
        self.heads, self.dropout, self.scaling = heads, dropout, scaling
        self.kv_heads, self.head_width = kv_heads or heads, width // heads
        self.query_key_value = nn.Linear(width, (heads + 2 * self.kv_heads) * self.head_width, bias=bias)
        self.out = nn.Linear(width, width, bias=bias)
        self.query_norm = nn.RMSNorm(self.head_width, eps=1e-5) if qk_norm else None
        self.key_norm = nn.RMSNorm(self.head_width, eps=1e-5) if qk_norm else None

    def packed(self) -> list[tuple[Tensor, tuple[int, ...]]]:
        """Which weight is several matrices, and their heights: optimizers may treat each by itself."""
        heights = (self.heads, self.kv_heads, self.kv_heads)
        return [(self.query_key_value.weight, tuple(number * self.head_width for number in heights))]

    def project(
        self, x: Float[Tensor, "B N D"], relative: SchemeAtPlaces | None = None
    ) -> tuple[Heads, KeyValueHeads, KeyValueHeads]:
        heads = self.query_key_value(x).unflatten(-1, (-1, self.head_width)).transpose(1, 2)
        q, k, v = heads.split((self.heads, self.kv_heads, self.kv_heads), dim=1)
        if self.query_norm is not None and self.key_norm is not None:
            q, k = _normalised(q, self.query_norm), _normalised(k, self.key_norm)
        q = q if self.scaling else unscaled(q)
        return (q, k, v) if relative is None else (relative.turn(q), relative.turn(k), v)

    def forward(
        self,
        x: Float[Tensor, "B N D"],
        keep: Bool[Tensor, "B #H #N N"] | None,
        causal: bool,
        explicit: bool,
        relative: SchemeAtPlaces | None = None,
    ) -> tuple[Float[Tensor, "B N D"], Float[Tensor, "B H N N"] | None]:
        q, k, v = self.project(x, relative)
        dropout = self.dropout if self.training else 0.0
        mixed, weights = attend_heads(
            q, k, v, keep, causal=causal, dropout=dropout, explicit=explicit, relative=relative
        )
        return self.out(merge_heads(mixed)), weights


class CrossAttention(nn.Module):
    """Projections of attention from one sequence (queries) to another (keys and values), which may differ in width."""

    def __init__(
        self, width: int, heads: int, dropout: float = 0.0, memory_width: int | None = None, scaling: bool = True
    ):
        super().__init__()
        self.heads, self.dropout, self.scaling = heads, dropout, scaling
        self.query = nn.Linear(width, width)
        self.key_value = nn.Linear(memory_width or width, 2 * width)
        self.out = nn.Linear(width, width)

    def packed(self) -> list[tuple[Tensor, tuple[int, ...]]]:
        width = len(self.query.weight)
        return [(self.key_value.weight, (width, width))]

    def project_memory(self, memory: Float[Tensor, "B S M"]) -> tuple[Heads, Heads]:
        """Keys and values, computed once per source sentence."""
        k, v = self.key_value(memory).unflatten(-1, (2, self.heads, -1)).permute(2, 0, 3, 1, 4)
        return k, v

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        key: Heads,
        value: Heads,
        keep: Bool[Tensor, "B 1 1 S"] | Float[Tensor, "B 1 1 S"] | None,
        explicit: bool,
    ) -> tuple[Float[Tensor, "B T D"], Float[Tensor, "B H T S"] | None]:
        q = self.query(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        q = q if self.scaling else unscaled(q)
        dropout = self.dropout if self.training else 0.0
        mixed, weights = attend_heads(q, key, value, keep, dropout=dropout, explicit=explicit)
        return self.out(merge_heads(mixed)), weights


def merge_heads(x: Float[Tensor, "B H N Dh"]) -> Float[Tensor, "B N D"]:
    return x.transpose(1, 2).flatten(2)
