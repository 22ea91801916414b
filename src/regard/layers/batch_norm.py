"""Batch normalisation (Ioffe and Szegedy 2015, algorithms 1 and 2) over the tokens of a batch, for sequences with padding.

    training      μ = mean of x over the counted tokens of all rows, σ² = their variance, of each feature
                  y = γ (x - μ) / √(σ² + ε) + β
    evaluation    the same with running averages of μ and σ², so that a token's output depends on no other token

The averages go on by `momentum` in every training pass, σ² without bias, as in torch. They are buffers, written in place and
only where they are finite: a pass can be recorded and replayed, and a bad one spoils nothing. Nothing is asked of the device.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from regard.core.workers import over_all_workers
from regard.layers.recurrent.cells import precise, without_autocast

MOMENTUM = 0.1
EPSILON = 1e-5


class BatchNorm(nn.Module):
    """Normalises each feature over the tokens of a batch that count; all get an output."""

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, width: int, momentum: float = MOMENTUM):
        super().__init__()
        self.momentum = momentum
        self.weight = nn.Parameter(torch.ones(width))  # γ
        self.bias = nn.Parameter(torch.zeros(width))  # β
        self.register_buffer("running_mean", torch.zeros(width))
        self.register_buffer("running_var", torch.ones(width))

    def forward(self, x: Float[Tensor, "*N D"], counted: Bool[Tensor, "*N"] | None = None) -> Float[Tensor, "*N D"]:
        """In float32 at least. Without `counted`, every token counts; where none does, the running averages are used."""
        with without_autocast(x):
            x = precise(x)
            mean, var = self._of_batch(x, counted) if self.training else (self.running_mean, self.running_var)
            return (x - mean) * ((var + EPSILON).rsqrt() * self.weight) + self.bias

    def _of_batch(self, x: Float[Tensor, "*N D"], counted: Bool[Tensor, "*N"] | None) -> tuple[Tensor, Tensor]:
        rows = x.flatten(0, -2)
        if counted is None:
            counted = torch.ones(rows.shape[:1], dtype=torch.bool, device=x.device)
        real = counted.flatten()[:, None]
        count = over_all_workers(real.sum().to(x.dtype))
        mean = over_all_workers(torch.where(real, rows, 0).sum(0)) / count.clamp(min=1)
        var = over_all_workers(torch.where(real, rows - mean, 0).square().sum(0)) / count.clamp(min=1)
        none = count < 1
        mean, var = torch.where(none, self.running_mean, mean), torch.where(none, self.running_var, var)
        self._go_on(mean.detach(), var.detach(), count)
        return mean, var

    @torch.no_grad()
    def _go_on(self, mean: Tensor, var: Tensor, count: Tensor) -> None:
        unbiased = var * (count / (count - 1).clamp(min=1))
        for running, new in ((self.running_mean, mean), (self.running_var, torch.where(count < 1, var, unbiased))):
            new = new.to(running.dtype)
            running.copy_(torch.where(new.isfinite(), torch.lerp(running, new, self.momentum), running))
