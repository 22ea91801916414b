"""Muon (Jordan et al. 2024): momentum whose update is orthogonalised, for the matrices inside the layers.

Departs: torch.optim.Muon multiplies in bfloat16 everywhere, which ends the process with an illegal instruction on some
CPUs; here only CUDA does. Matrices of one shape are orthogonalised together; queries, keys and values, which lie in one matrix for
the sake of a single product, each by itself. Gates that lie in one (SwiGLU, recurrent cells) stay one: that was not measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn

MOMENTUM = 0.95
COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # of the quintic a x + b x^3 + c x^5, which drives singular values towards 1
ITERATIONS = 5
Kind = tuple[torch.Size, tuple[int, ...]]  # the shape of a matrix, and the heights of those in it


def orthogonalize(matrices: Tensor) -> Tensor:
    """Newton-Schulz: U V^T of each matrix U S V^T in [N, A, B], roughly (singular values end between 0.7 and 1.2)."""
    x = matrices.to(torch.bfloat16 if matrices.is_cuda else torch.float32)
    tall = x.shape[-2] > x.shape[-1]
    if tall:
        x = x.mT
    x = x / x.norm(dim=(-2, -1), keepdim=True).clamp(min=1e-7)
    x = _iterate_products(x) if x.dtype == torch.float32 and x.shape[-1] > x.shape[-2] else _iterate(x)
    return torch.empty_like(matrices).copy_(x.mT if tall else x)


def _iterate(x: Tensor) -> Tensor:
    """x <- (a + b x x^T + c (x x^T)^2) x."""
    a, b, c = COEFFICIENTS
    for _ in range(ITERATIONS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x


def _iterate_products(x: Tensor) -> Tensor:
    """The same by x x^T alone, which is smaller than x: all factors are polynomials of it, and x is multiplied once, at the end.

    It squares what is small beside the rest, so it is not for numbers of 16 bits.
    """
    a, b, c = COEFFICIENTS
    gram, factors = x @ x.mT, None
    for i in range(ITERATIONS):
        factor = torch.baddbmm(gram, gram, gram, beta=b, alpha=c)
        factor.diagonal(dim1=-2, dim2=-1).add_(a)
        factors = factor if factors is None else factor @ factors
        if i < ITERATIONS - 1:
            gram = factor @ gram @ factor
    return x if factors is None else factors @ x


def stretched(matrices: Tensor) -> Tensor:
    """Orthogonalised; a tall matrix moves further by the root of its height over its width."""
    return orthogonalize(matrices) * max(1.0, matrices.shape[-2] / matrices.shape[-1]) ** 0.5


class Muon(torch.optim.Optimizer):
    """Nesterov momentum, orthogonalised.

    `packed`: of which heights the matrices are that lie in one below each other, by its id.

    With `found_inf`, a number that is 0 or 1 on the device, a step is not taken where it is 1: the host need not know. Where the
    rate is a tensor, too, a step can be recorded.
    """

    def __init__(
        self,
        matrices: Iterable[nn.Parameter],
        lr: float | Tensor,
        weight_decay: float = 0.0,
        packed: Mapping[int, tuple[int, ...]] | None = None,
    ):
        super().__init__(matrices, {"lr": lr, "weight_decay": weight_decay})
        self.packed = dict(packed or {})
        self.found_inf: Tensor | None = None
        self._stacks: dict[Kind, Tensor] = {}
        self._recorded = False

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        bad, first = self.found_inf, self.param_groups[0]["params"][0]
        self._recorded |= first.is_cuda and torch.cuda.is_current_stream_capturing()
        for group in self.param_groups:
            alike: dict[Kind, list[nn.Parameter]] = {}
            for p in group["params"]:
                if p.grad is not None:
                    alike.setdefault((p.shape, self.packed.get(id(p), ())), []).append(p)
            lr = group["lr"] if bad is None else group["lr"] * (1 - bad)
            for kind, matrices in alike.items():
                gradients = torch.stack([p.grad for p in matrices if p.grad is not None])
                momentum = self._momentum(kind, matrices)
                if bad is None:
                    momentum.lerp_(gradients, 1 - MOMENTUM)
                else:
                    gradients.masked_fill_(bad > 0, 0.0)
                    momentum.lerp_(gradients, (1 - MOMENTUM) * (1 - bad).to(gradients.dtype))
                updates = _apart(gradients.lerp_(momentum, MOMENTUM), kind[1]) * -lr
                if group["weight_decay"]:
                    torch._foreach_mul_(matrices, 1 - lr * group["weight_decay"])  # type: ignore[attr-defined]
                torch._foreach_add_(matrices, list(updates.unbind()))  # type: ignore[attr-defined]

    def _momentum(self, kind: Kind, matrices: list[nn.Parameter]) -> Tensor:
        """Of matrices of one kind, in one piece of memory, of which the state of each has a part."""
        states = [self.state[p] for p in matrices]
        stack, kept = self._stacks.get(kind), [state.get("momentum_buffer") for state in states]
        places = [] if stack is None else [part.data_ptr() for part in stack]
        if stack is None or places != [0 if part is None else part.data_ptr() for part in kept]:  # new, or loaded
            if self._recorded:  # recordings have the place of the former
                raise RuntimeError("other matrices have gradients than when steps were recorded")
            pairs = zip(matrices, kept, strict=True)
            stack = torch.stack([torch.zeros_like(p) if part is None else part for p, part in pairs])
            self._stacks[kind] = stack
            for state, part in zip(states, stack, strict=True):
                state["momentum_buffer"] = part
        return stack


def _apart(stack: Tensor, heights: tuple[int, ...]) -> Tensor:
    """Updates of [N, A, B], each of the matrices inside by itself; those of one height together."""
    if not heights:
        return stretched(stack)
    if len({*heights}) == 1:
        return stretched(stack.unflatten(1, (len(heights), -1)).flatten(0, 1)).view_as(stack)
    return torch.cat([stretched(part) for part in stack.split(heights, 1)], 1)
