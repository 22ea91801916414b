"""Kernels of layers/decoding against their references, for Triton's interpreter (see test_decoding)."""

from __future__ import annotations

import torch
from torch import Tensor

from regard.layers.decoding import attention, products, residual_norm, triton_here, vocabulary
from regard.layers.decoding.products import Linear, Norm


def both(function, *arguments, **named):
    """What kernels find, and what the reference does, each with tensors of its own to write into."""
    results = []
    for here in (True, False):
        own = [a.clone() if isinstance(a, Tensor) and a.is_contiguous() else a for a in arguments]
        for module in (attention, products, residual_norm, vocabulary):
            module.runs_on = lambda tensor, here=here: here  # type: ignore[attr-defined]
        results.append((function(*own, **named), own))
    return results


def close(found, expected) -> None:
    if isinstance(found, Tensor):
        torch.testing.assert_close(found, expected, rtol=2e-5, atol=2e-5)
    elif isinstance(found, (tuple, list)):
        for one, other in zip(found, expected, strict=True):
            close(one, other)


def norms(width: int) -> list[Norm | None]:
    weight, bias = torch.randn(width), torch.randn(width)
    return [None, Norm(weight, bias, 1e-5, False), Norm(weight, None, 1e-5, False), Norm(weight, None, 1e-5, True)]


def check_products() -> None:
    for rows, inputs, outputs in ((1, 20, 33), (3, 64, 5), (6, 40, 70), (33, 130, 18)):
        x, r = torch.randn(rows, inputs) + 3, torch.randn(rows, outputs) - 2
        kinds = [None, "relu", "gelu", "gelu_tanh", "swish"]
        for i, (norm, after) in enumerate(zip(norms(inputs), norms(outputs)[::-1], strict=True)):
            linear = Linear(torch.randn(outputs, inputs), torch.randn(outputs) if i % 2 else None)
            close(*both(products.product, x, linear, norm=norm, activation=kinds[i + 1]))
            close(*both(products.product, x, linear, norm=norm, activation=kinds[i], residual=r, residual_norm=after))


def check_residual_norm() -> None:
    x, y = torch.randn(5, 37) + 1, torch.randn(5, 37)
    for norm in norms(37):
        for written in (y, None):
            close(*both(residual_norm.add_and_normalise, x, written, norm))


def check_vocabulary() -> None:
    for rows, inputs, outputs in ((1, 20, 150), (3, 600, 70), (7, 40, 200)):
        x = torch.randn(rows, inputs) / 4
        banned = torch.randint(0, outputs, (rows, 3))
        for norm, n, also in zip(norms(inputs), (0, 1, 3, 2), (0, 3, 0, 3), strict=True):
            linear = Linear(torch.randn(outputs, inputs), torch.randn(outputs) if n else None)
            close(*both(vocabulary.logits, x, linear, norm, banned[:, :n].contiguous(), 2, also))
    for rows in (1, 6):  # tokens that are impossible, as many as a program has
        bias = torch.zeros(150).index_fill_(0, torch.arange(64, 150), -torch.inf)
        x, linear = torch.randn(rows, 600), Linear(torch.randn(150, 600), bias)
        (found, _), (expected, _) = both(vocabulary.logits, x, linear, None, torch.zeros(rows, 0).long(), 2, 3)
        close((found.normaliser(), found.maxima), (expected.normaliser(), expected.maxima))
        torch.testing.assert_close(found.normaliser(), linear(x).logsumexp(-1, keepdim=True))
    vocabulary.PART, vocabulary.CROWD_PART = 128, 64
    for outputs, crowd in ((70, 9), (300, 9), (300, 1)):  # programs with and without something that is forbidden
        vocabulary.CROWD = crowd
        values, banned = torch.randn(5, outputs), torch.randint(0, outputs, (5, 2))
        (found, in_place), (expected, wanted) = both(vocabulary.forbid, values, banned, 2, 3)
        close(
            (found.values, found.maxima, found.normaliser()), (expected.values, expected.maxima, expected.normaliser())
        )
        close(in_place, wanted)
        assert found.highest.shape[1] == -(-outputs // (64 if crowd == 1 else 128))


def check_attention() -> None:
    inf = float("inf")
    for beams, heads, groups, width, capacity in (
        (1, 2, 2, 16, 40),
        (1, 4, 2, 8, 5),
        (3, 2, 1, 24, 30),
        (5, 1, 1, 16, 20),
    ):
        sentences = 3
        positions = torch.tensor([0, capacity + 3, capacity // 2])
        x = torch.randn(sentences * beams, (heads + 2 * groups) * width)
        keys, values = (torch.randn(sentences, groups, capacity, beams, width) for _ in range(2))
        # each hypothesis sees one slot of every position before, and itself
        seen = torch.randint(0, beams, (sentences, beams, capacity, 1))
        hidden = torch.full((sentences, beams, capacity, beams), -inf).scatter_(3, seen, 0.0)
        at = positions.clamp(max=capacity - 1)
        for b in range(sentences):
            hidden[b, :, at[b] :] = -inf
            hidden[b, :, at[b]] = torch.eye(beams).log()
        for places, skips in ((attention.FEWEST_PLACES, False), (8, False), (attention.FEWEST_PLACES, True), (8, True)):
            attention.FEWEST_PLACES, attention.USUAL = places, attention.Cut(places=16, skips=skips)
            rest = hidden.flatten(2), positions, heads, 0.3, capacity
            (found, own), expected = both(attention.attend_cache, x, keys, values, *rest)
            close((found, own), expected)
            if skips and beams > 1:
                unseen = (hidden.amax(1) == -inf)[:, None, :, :, None]
                spoilt = [cache.masked_fill(unseen, torch.nan) for cache in (keys, values)]
                close(both(attention.attend_cache, x, *spoilt, *rest)[0][0], found)
        query, length = torch.randn(sentences * beams, heads * width), capacity
        memory = [torch.randn(sentences, length, heads, width).transpose(1, 2) for _ in range(2)]
        keep = torch.arange(length) < torch.tensor([[length], [1], [length // 2]])
        for places in (256, 4):
            attention.FEWEST_PLACES = places
            close(*both(attention.attend_memory, query, *memory, keep, 0.4))
        attention.FEWEST_PLACES, attention.USUAL = 256, attention.Cut()


def check_halves() -> None:
    """Numbers of 16 bits go in and come out; sums are of float32."""
    for rows in (2, 6):
        x, w, b, r = torch.randn(rows, 40), torch.randn(33, 40), torch.randn(33), torch.randn(rows, 33)
        for norm, after in zip(norms(40), norms(33), strict=True):
            found = [
                both(
                    products.product, x.to(t), Linear(w.to(t), b.to(t)), norm=in_type(norm, t), activation="relu",
                    residual=r.to(t), residual_norm=in_type(after, t),
                )[0 if t == torch.half else 1][0]
                for t in (torch.half, torch.float32)
            ]  # fmt: skip
            assert found[0].dtype == torch.half
            torch.testing.assert_close(found[0].float(), found[1], rtol=0.01, atol=0.05)
    for beams in (1, 3):
        x, cache = torch.randn(2 * beams, 96), [torch.randn(2, 2, 6, beams, 16) for _ in range(2)]
        hidden, at = torch.zeros(2, beams, 6 * beams), torch.tensor([4, 2])
        hidden[0, :, 4 * beams :], hidden[1, :, 2 * beams :] = -torch.inf, -torch.inf
        for k in range(beams):
            hidden[0, k, 4 * beams + k] = hidden[1, k, 2 * beams + k] = 0.0
        found = [
            both(attention.attend_cache, x.to(t), *(c.to(t) for c in cache), hidden.to(t), at, 2, 0.25, 6)
            [0 if t == torch.half else 1] for t in (torch.half, torch.float32)
        ]  # fmt: skip
        assert found[0][0].dtype == torch.half
        for one, other in zip((found[0][0], *found[0][1][1:3]), (found[1][0], *found[1][1][1:3]), strict=True):
            torch.testing.assert_close(one.float(), other, rtol=0.01, atol=0.01)


def in_type(norm: Norm | None, dtype: torch.dtype) -> Norm | None:
    if norm is None:
        return None
    return norm._replace(weight=norm.weight.to(dtype), bias=None if norm.bias is None else norm.bias.to(dtype))


if __name__ == "__main__":
    assert triton_here.INTERPRETED
    torch.manual_seed(0)
    check_products()
    check_residual_norm()
    check_vocabulary()
    check_attention()
    crowd = attention.Cut(32, 1)
    cuts = [attention._cut(*of, crowd) for of in ((4096, 4), (4096, 1), (512, 4))]
    assert cuts == [crowd, attention.USUAL, attention.USUAL]
    attention.CROWD, attention.BACK, attention.OVER = 1, attention.Cut(places=16, skips=True), attention.Cut(places=16)
    check_attention()
    check_halves()
    print("equal")
