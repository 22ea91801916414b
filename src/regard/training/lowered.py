"""A copy of a model in lower precision that does the work, beside the model itself, whose weights learn.

All activations and gradients then are of the lower type, and half as large; autocast keeps the sums of residual connections and
what is normalised in float32. What is learnt is still added to float32 weights, so that small changes are not lost.
"""

from __future__ import annotations

import copy

import torch
from torch import nn

from regard.core.errors import ConfigError


class Lowered:
    """The copy, `model`, always as the weights are after the last `refresh`."""

    def __init__(self, model: nn.Module, dtype: torch.dtype):
        kept = model.state_dict()
        if any(b.is_floating_point() for name, b in model.named_buffers() if name in kept):
            what = "the model has running averages, which would be lost in a copy"
            raise ConfigError("setting train.weights", what, "Use train.weights=float32")
        self.model = copy.deepcopy(model).to(dtype).train()
        pairs = zip(model.parameters(), self.model.parameters(), strict=True)
        self.pairs = [(high, low) for high, low in pairs if high.requires_grad]
        self._high = [high.detach() for high, _ in self.pairs]
        self._low = [low.detach() for _, low in self.pairs]

    def take_gradients(self) -> None:
        """Moves the copy's gradients to the model, in the model's precision, and adds them to what is there."""
        there = [(high, low) for high, low in self.pairs if low.grad is not None]
        found = [torch.empty_like(high) for high, _ in there]
        if found:
            torch._foreach_copy_(found, [low.grad for _, low in there])  # type: ignore[attr-defined]
        for (high, low), gradient in zip(there, found, strict=True):
            high.grad = gradient if high.grad is None else high.grad.add_(gradient)
            low.grad = None

    @torch.no_grad()
    def refresh(self) -> None:
        """The copy gets the weights that the model has now."""
        torch._foreach_copy_(self._low, self._high)  # type: ignore[attr-defined]
