"""Other tiles of training's kernels than the table's, in Triton's interpreter (TRITON_INTERPRET=1)."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from training_cases import both, close, norm_of

from regard.core.types import PAD
from regard.layers import fused_cross_entropy
from regard.layers.decoding import triton_here
from regard.layers.training import activations, dropped, norms, short_attention
from regard.layers.training.tiles import totalled
from regard.layers.training.tiling import TILES, using

STAGES = (1, 3)


def check_norms() -> None:
    for stages, rows, kind in itertools.product(STAGES, (1, 9), (1, 2, 3)):
        width = 8 if rows == 1 else 24
        x, d, past = torch.randn(rows, width) + 1, torch.randn(rows, width), torch.randn(rows, width)
        for more, part in ((None, None), (past, 0.0), (past, 0.4)):
            dropout = None if part is None else norms.Dropout(part, dropped.seeds(1, x.device)[0])
            with using("norm backward", TILES["norm backward"]._replace(stages=stages, cells=64, programs=3)):
                found, expected = both(norms.norm_backward, d, x, norm_of(width, kind), more, dropout)
            for one, other in zip(found, expected, strict=True):
                assert (one is None) == (other is None)
                if other is not None:
                    close(one, other, 1e-4)


def check_sums() -> None:
    d = torch.randn(40, 24)
    for stages, columns, programs in itertools.product(STAGES, (8, 1024), (1, 3)):
        with using("sum", TILES["sum"]._replace(stages=stages, columns=columns, programs=programs)):
            close(*both(activations.summed, d), 1e-4)
    parts = torch.randn(2100, 5)
    close(totalled(parts), parts.sum(0), 1e-4)


def check_loss() -> None:
    for vocabulary, biased in itertools.product((50, 128), (True, False)):
        z, y = 3 * torch.randn(5, vocabulary), torch.randint(PAD + 1, vocabulary, (5,))
        y[2], bias = PAD, torch.randn(vocabulary) if biased else None
        whole, real = z.clone() if bias is None else z + bias, y != PAD
        expected = (whole.softmax(1) - 0.9 * torch.nn.functional.one_hot(y, vocabulary)) * real[:, None]
        with using("loss", TILES["loss"]._replace(columns=32)):
            lse, right = fused_cross_entropy.cross_entropy_in_place(z, bias, y, 0.1)
        close(z, expected)
        close(lse, whole.logsumexp(1) * real)
        close(right, whole.gather(1, y[:, None])[:, 0] * real)


def learnt(function: Callable[..., Tensor], *leaves: Tensor) -> list[Tensor]:
    own = [x.clone().requires_grad_() for x in leaves]
    out = function(*own)
    return [out, *torch.autograd.grad(out, own, torch.arange(out.numel()).sin().view(out.shape))]


def check_attention() -> None:
    """Gradients as they are written, and those of biases, by kernels and by the reference."""

    def of_self(packed: Tensor, bias: Tensor, keep: Tensor) -> Tensor:
        return short_attention.self_attention(packed, 2, keep, True, bias)

    def of_cross(query: Tensor, packed: Tensor, a: Tensor, b: Tensor, keep: Tensor) -> Tensor:
        return short_attention.cross_attention(query, packed, 2, keep, (a, b))

    a, b = torch.randn(32), torch.randn(64)
    for length in (5, 40):
        packed, keep = torch.randn(3, length, 96), torch.rand(3, length) > 0.3
        cases: list[tuple[Any, ...]] = [
            (lambda x, y, keep=keep: of_self(x, y, keep), packed, torch.randn(96)),
            (lambda q, x, y, z, keep=keep: of_cross(q, x, y, z, keep), packed[:, :4, :32], packed[..., 32:], a, b),
        ]
        for function, *leaves in cases:
            found, expected = both(learnt, function, *leaves)
            for one, other in zip(found, expected, strict=True):
                close(one, other, 1e-4)


if __name__ == "__main__":
    assert triton_here.INTERPRETED
    torch.manual_seed(0)
    check_norms()
    check_sums()
    check_loss()
    check_attention()
    print("equal")
