"""Position-wise feed-forward networks (Vaswani et al. 2017, eq. 2) and their gated form (Shazeer 2020)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

Activation = Literal["relu", "gelu", "gelu_tanh", "swish", "swiglu"]
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),  # x/2 (1 + tanh(√(2/π) (x + 0.044715 x³))), GPT's
    "swish": F.silu,
    "swiglu": F.silu,
}


class FeedForward(nn.Module):
    """W₂ f(W₁ x + b₁) + b₂; with `swiglu`, W₂ (swish(W₁ x + b₁) * (W₃ x + b₃)) + b₂."""

    def __init__(
        self, width: int, inner: int, activation: Activation = "relu", dropout: float = 0.0, bias: bool = True
    ):
        super().__init__()
        self.gated, self.function = activation == "swiglu", ACTIVATIONS[activation]
        self.inner = nn.Linear(width, 2 * inner if self.gated else inner, bias=bias)
        self.dropout = nn.Dropout(dropout)
        self.out = nn.Linear(inner, width, bias=bias)

    def forward(self, x: Float[Tensor, "*N D"]) -> Float[Tensor, "*N D"]:
        x = self.inner(x)
        if self.gated:
            gate, x = x.chunk(2, dim=-1)
            x = self.function(gate) * x
        else:
            x = self.function(x)
        return self.out(self.dropout(x))
