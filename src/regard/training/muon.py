"""Muon (Jordan et al. 2024): momentum whose update is orthogonalised, for the matrices inside the layers.

Departs: torch.optim.Muon multiplies in bfloat16 everywhere, which ends the process with an illegal instruction on some
CPUs; here only CUDA does. Matrices of one shape are orthogonalised together.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

MOMENTUM = 0.95
COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # of the quintic a x + b x^3 + c x^5, which drives singular values towards 1
ITERATIONS = 5


def orthogonalize(matrices: Tensor) -> Tensor:
    """Newton-Schulz: U V^T of each matrix U S V^T in [N, A, B], roughly (singular values end between 0.7 and 1.2)."""
    a, b, c = COEFFICIENTS
    x = matrices.to(torch.bfloat16 if matrices.is_cuda else torch.float32)
    tall = x.shape[-2] > x.shape[-1]
    if tall:
        x = x.mT
    x = x / x.norm(dim=(-2, -1), keepdim=True).clamp(min=1e-7)
    for _ in range(ITERATIONS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return (x.mT if tall else x).to(matrices.dtype)


class Muon(torch.optim.Optimizer):
    """Nesterov momentum, orthogonalised; a tall matrix moves further by the root of its height over its width."""

    def __init__(self, matrices: Iterable[nn.Parameter], lr: float, weight_decay: float = 0.0):
        super().__init__(matrices, {"lr": lr, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        for group in self.param_groups:
            by_shape: dict[torch.Size, list[nn.Parameter]] = {}
            for p in group["params"]:
                if p.grad is not None:
                    by_shape.setdefault(p.shape, []).append(p)
            for shape, matrices in by_shape.items():
                updates = []
                for p in matrices:
                    state, gradient = self.state[p], p.grad
                    assert gradient is not None
                    if not state:
                        state["momentum_buffer"] = torch.zeros_like(p)
                    state["momentum_buffer"].lerp_(gradient, 1 - MOMENTUM)
                    updates.append(gradient.lerp(state["momentum_buffer"], MOMENTUM))
                lr = group["lr"] * max(1.0, shape[0] / shape[1]) ** 0.5
                for p, update in zip(matrices, orthogonalize(torch.stack(updates)), strict=True):
                    p.mul_(1 - group["lr"] * group["weight_decay"])
                    p.add_(update, alpha=-lr)
