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
    return torch.empty_like(matrices).copy_(x.mT if tall else x)


class Muon(torch.optim.Optimizer):
    """Nesterov momentum, orthogonalised; a tall matrix moves further by the root of its height over its width.

    With `found_inf`, a number that is 0 or 1 on the device, a step is not taken where it is 1: the host need not know. Where the
    rate is a tensor, too, a step can be recorded.
    """

    def __init__(self, matrices: Iterable[nn.Parameter], lr: float | Tensor, weight_decay: float = 0.0):
        super().__init__(matrices, {"lr": lr, "weight_decay": weight_decay})
        self.found_inf: Tensor | None = None
        self._stacks: dict[torch.Size, Tensor] = {}
        self._recorded = False

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        bad, first = self.found_inf, self.param_groups[0]["params"][0]
        self._recorded |= first.is_cuda and torch.cuda.is_current_stream_capturing()
        for group in self.param_groups:
            by_shape: dict[torch.Size, list[nn.Parameter]] = {}
            for p in group["params"]:
                if p.grad is not None:
                    by_shape.setdefault(p.shape, []).append(p)
            lr = group["lr"] if bad is None else group["lr"] * (1 - bad)
            for shape, matrices in by_shape.items():
                gradients = torch.stack([p.grad for p in matrices if p.grad is not None])
                momentum = self._momentum(matrices)
                if bad is None:
                    momentum.lerp_(gradients, 1 - MOMENTUM)
                else:
                    gradients.masked_fill_(bad > 0, 0.0)
                    momentum.lerp_(gradients, (1 - MOMENTUM) * (1 - bad).to(gradients.dtype))
                updates = orthogonalize(gradients.lerp_(momentum, MOMENTUM))
                updates = updates * (-(max(1.0, shape[0] / shape[1]) ** 0.5) * lr)
                if group["weight_decay"]:
                    torch._foreach_mul_(matrices, 1 - lr * group["weight_decay"])  # type: ignore[attr-defined]
                torch._foreach_add_(matrices, list(updates.unbind()))  # type: ignore[attr-defined]

    def _momentum(self, matrices: list[nn.Parameter]) -> Tensor:
        """Of matrices of one shape, in one piece of memory, of which the state of each has a part."""
        shape, states = matrices[0].shape, [self.state[p] for p in matrices]
        stack, kept = self._stacks.get(shape), [state.get("momentum_buffer") for state in states]
        places = [] if stack is None else [part.data_ptr() for part in stack]
        if stack is None or places != [0 if part is None else part.data_ptr() for part in kept]:  # new, or loaded
            if self._recorded:  # recordings have the place of the former
                raise RuntimeError("other matrices have gradients than when steps were recorded")
            pairs = zip(matrices, kept, strict=True)
            stack = torch.stack([torch.zeros_like(p) if part is None else part for p, part in pairs])
            self._stacks[shape] = stack
            for state, part in zip(states, stack, strict=True):
                state["momentum_buffer"] = part
        return stack
