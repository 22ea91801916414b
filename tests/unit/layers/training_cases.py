"""Kernels of training against their references, in Triton's interpreter (TRITON_INTERPRET=1)."""

from __future__ import annotations

import itertools

import numpy as np
import torch

from regard.core.types import EOS, pad_rows
from regard.data.packing import collate_packed
from regard.data.store import TokenRows
from regard.layers.decoding import triton_here
from regard.layers.decoding.products import KINDS, Norm
from regard.layers.training import activations, dropped, embedded, library_attention, norms, relu_product
from regard.models.base import build_model
from regard.models.fused_forward import fused_forward
from regard.models.gpt import GPTConfig
from regard.models.transformer import TransformerConfig


def close(found, expected, tolerance: float = 2e-5) -> None:
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


def norm_of(width: int, kind: int) -> Norm:
    weight = torch.rand(width) + 0.5
    return Norm(weight, torch.randn(width) if kind == 2 else None, 1e-5, rms=kind == 3)


def both(function, *arguments):
    """What a function gives by kernels, and by its reference."""
    by_kernels = function(*arguments)
    seen, triton_here.INTERPRETED = triton_here.INTERPRETED, False
    try:
        return by_kernels, function(*arguments)
    finally:
        triton_here.INTERPRETED = seen


def check_norms() -> None:
    for (rows, width), kind in itertools.product(((1, 8), (37, 24), (1100, 16), (3, 2500)), (1, 2, 3)):
        x, d, past = torch.randn(rows, width) + 1, torch.randn(rows, width), torch.randn(rows, width)
        norm, seed = norm_of(width, kind), dropped.seeds(1, x.device)[0]
        for more, part in ((None, None), (past, 0.0), (past, 0.4)):
            dropout = None if part is None else norms.Dropout(part, seed)
            for one, other in zip(*both(norms.add_and_norm, x, more, dropout, norm, torch.float32), strict=True):
                close(one, other)
            for one, other in zip(*both(norms.norm_backward, d, x, norm, more, dropout), strict=True):
                if other is None:
                    assert one is None
                else:
                    close(one, other, 1e-4)


def check_copies() -> None:
    for length in (5, 70):
        what, packed = torch.randn(2, 3, length, 8), torch.zeros(2, length, 2, 3, 8)
        library_attention.copy_heads(packed[:, :, 1].transpose(1, 2), what)
        assert torch.equal(packed[:, :, 1], what.transpose(1, 2))
        assert not packed[:, :, 0].any()


def check_dropout() -> None:
    for (rows, width), part in itertools.product(((1, 8), (37, 24), (5, 1500)), (0.0, 0.1, 0.7)):
        x = torch.randn(rows, width)
        for seed in dropped.seeds(2, torch.device("cpu")):
            for one, other in zip(*both(dropped.dropped_gradient, x, part, seed, torch.float32, 1.5), strict=True):
                close(one, other, 1e-4)


def check_activations() -> None:
    for (rows, width), name in itertools.product(((1, 8), (1100, 24), (5, 1500)), KINDS):
        z, d = torch.randn(rows, width) * 2, torch.randn(rows, width)
        (found, total), (expected, sums) = both(
            lambda d, z, name: activations.activation_backward(d.clone(), z, name), d, z, name
        )
        close(found, expected)
        close(total, sums, 1e-4)
        close(*both(activations.summed, d), 1e-4)


def check_relu_product() -> None:
    """Tiles that are full and not, more than one of them, and depths that are no multiple of a turn."""
    for rows, depth, width in ((1, 8, 8), (37, 24, 40), (130, 72, 136)):
        d, weight = torch.randn(rows, depth), torch.randn(depth, width)
        active = torch.randn(rows, width).relu()
        (found, total), (expected, sums) = both(relu_product.product_through_relu, d, weight, active)
        close(found, expected, 1e-4)
        close(total, sums, 1e-3)


def check_embedded() -> None:
    table, tokens, places = torch.randn(9, 24), torch.randint(9, (3, 5)), torch.randn(5, 24)
    for part, positions in itertools.product((0.0, 0.4), (None, places)):
        given = table, 3.0, positions, part, dropped.seeds(1, table.device)[0]
        close(*both(embedded.embed, tokens, *given))
        at = torch.tensor(
            [0, 1, 2, 3, 4, 0, 0, 1, 0, 1, 2, 0, 1, 2, 3], dtype=torch.int32
        )  # of sentences that are packed
        close(*both(embedded.embed, tokens.view(1, -1), *given, at))


def check_models() -> None:
    """Whole models, with attention over short sequences and, for its dropout, with the library's."""
    for config in (
        TransformerConfig(width=32, heads=2, layers=1, dropout=0.3),
        TransformerConfig(width=24, heads=2, layers=1, dropout=0.3, attention_dropout=0.2, normalise="rms"),
        TransformerConfig(width=32, heads=2, layers=1, dropout=0.3, positions="none", relative="rotary"),
        TransformerConfig(width=32, heads=2, layers=1, relative="rotary", rotary_layout="halves"),
        GPTConfig(width=32, heads=2, layers=1, context=16, dropout=0.3, attention_dropout=0.0),
        GPTConfig(width=32, heads=2, layers=1, context=16, dropout=0.3, bias=False),
    ):
        model = build_model(config.name, config, source_vocabulary=9, target_vocabulary=9, shared=True).train()
        forward, source = fused_forward(model), pad_rows([[4, 5, 6, 7, EOS], [5, EOS], [EOS]])
        assert forward is not None
        packs = config.name == "transformer" and config.attention_dropout == 0

        def learnt(packed: bool = False, forward=forward, source=source, model=model) -> list[torch.Tensor]:
            torch.manual_seed(3)
            if packed:
                pairs = (
                    TokenRows.from_lists([[4, 5, 6, 7], [5], []]),
                    TokenRows.from_lists([[5, 8], [4, 6, 7, 8, 4], []]),
                )
                batch = collate_packed(*pairs, np.arange(3), 24)
                hidden = forward(batch.source, batch.target_in).hidden
            else:
                hidden = forward(source, torch.arange(21).view(3, 7) % 9).hidden
            leaves = [p for name, p in model.named_parameters() if not name.startswith("output")]
            total = (hidden * torch.linspace(-1, 1, hidden.numel()).view(hidden.shape)).sum()
            return [hidden.detach(), *torch.autograd.grad(total, leaves)]

        for packed in (False, True)[: 1 + packs]:
            for one, other in zip(*both(learnt, packed), strict=True):
                close(one, other, 1e-4)


if __name__ == "__main__":
    assert triton_here.INTERPRETED
    torch.manual_seed(1)
    check_norms()
    check_dropout()
    check_activations()
    check_embedded()
    check_relu_product()
    check_copies()
    check_models()
    print("equal")
