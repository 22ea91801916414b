"""Whether the kernels of training run on a device, and rightly: each is tried once, beside its reference."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor

from regard.layers.decoding.products import Norm
from regard.layers.decoding.triton_here import usable
from regard.layers.training import short_attention
from regard.layers.training.activations import activation_backward, summed
from regard.layers.training.dropped import dropped_gradient, dropped_sum
from regard.layers.training.norms import Dropout, add_and_norm, norm_backward

MOST_APART = 3e-2  # of numbers about 1, in bfloat16


def kernels_work(device: torch.device) -> bool:
    return usable(device.type) and _work(device)


@cache
def _work(device: torch.device) -> bool:
    try:
        with torch.autocast(device.type, enabled=False):
            there, here = _tried(device), _tried(torch.device("cpu"))
        pairs = [(a.cpu(), b) for a, b in zip(there, here, strict=True)]
        return all(bool(((a - b).abs() <= MOST_APART * (1 + b.abs())).all()) for a, b in pairs)
    except Exception:  # whatever keeps a compiler from working (Triton needs one for C, too): there is another way
        return False


def _tried(device: torch.device) -> list[Tensor]:
    """What kernels give for some numbers; on a CPU, what their references give for the same."""
    generator = torch.Generator().manual_seed(1)
    low = torch.bfloat16 if device.type == "cuda" else torch.float32

    def numbers(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator).bfloat16().float().to(device)

    x, d, past, seed = (
        numbers(33, 64),
        numbers(33, 64),
        numbers(33, 64),
        torch.tensor(-12345678901234567, device=device),
    )
    norm = Norm(numbers(64), numbers(64), 1e-5, rms=False)
    packed, weight, keep = (
        numbers(3, 11, 3 * 64),
        numbers(3, 11, 64),
        torch.ones(3, 11, dtype=torch.bool, device=device),
    )
    keep[1, 7:] = False
    packed = packed.to(low).requires_grad_()
    dropout = Dropout(0.3, seed)
    found: list[Any] = [
        *add_and_norm(x, past.to(low), dropout, norm, low),
        *norm_backward(d.to(low), x, norm, past, dropout),
    ]
    found += [dropped_sum(x, d.to(low), 0.3, seed), *dropped_gradient(d, 0.3, seed, low), summed(d)]
    found += activation_backward(d.to(low).clone(), x.to(low), "relu")
    for causal in (False, True):
        mixed = short_attention.self_attention(packed, 2, None if causal else keep, causal)
        (d_packed,) = torch.autograd.grad(mixed, packed, weight.to(low))
        found += [mixed.detach(), d_packed]
    return [tensor.float() for tensor in found]
