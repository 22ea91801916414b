"""Kernels of whole sub-layers against their references, for Triton's interpreter (see test_whole_layers)."""

from __future__ import annotations

import torch
from decoding_cases import close, in_type, norms
from torch import Tensor

from regard.layers.decoding import (
    attention,
    pending,
    triton_here,
    whole_attention,
    whole_feed_forward,
    whole_source_attention,
)
from regard.layers.decoding.pending import Pending, settle
from regard.layers.decoding.products import Linear
from regard.layers.decoding.whole_attention import attend_text
from regard.layers.decoding.whole_feed_forward import feed
from regard.layers.decoding.whole_source_attention import attend_source


def both(function, *arguments, **named):
    """What kernels find, and what the reference does, each with caches of its own to write into: the parts' sum is compared too."""
    results = []
    for here in (True, False):
        own = [a.clone() if isinstance(a, Tensor) and a.is_contiguous() else a for a in arguments]
        for module in (attention, pending, whole_attention, whole_source_attention, whole_feed_forward):
            module.runs_on = lambda tensor, here=here: here  # type: ignore[attr-defined]
        found = function(*own, **named)
        results.append((list(found[:2]) if isinstance(found, Pending) else found, [a for a in own if a is not None]))
    return results


def linear(outputs: int, inputs: int, bias: bool = True) -> Linear:
    return Linear(torch.randn(outputs, inputs) / inputs**0.5, torch.randn(outputs) if bias else None)


def beginnings(rows: int, width: int) -> list[tuple[Pending, object]]:
    """States with all that can be still to do, and the norm before a sub-layer."""
    x, parts, bias = torch.randn(rows, width) + 1, torch.randn(3, rows, width), torch.randn(width)
    none, layer, no_bias, rms = norms(width)
    return [
        (Pending(x), none),
        (Pending(x), layer),
        (Pending(x, parts, bias), no_bias),
        (Pending(x, parts, bias), none),
        (Pending(x, parts, None), rms),
        (Pending(x, parts, bias, rms), none),
        (Pending(x, parts, bias, layer, residual=False), none),
        (Pending(x, parts[:1], None, None, residual=False), layer),
    ]


def check_settle() -> None:
    for rows, width in ((1, 20), (3, 64)):
        for states, norm in beginnings(rows, width):
            close(*both(settle, states, norm, torch.float32))


def check_feed() -> None:
    for rows, width, inner in ((1, 24, 37), (2, 24, 12), (1, 64, 600), (5, 40, 300)):
        kinds = ["relu", "gelu", "gelu_tanh", "swish"] * 2
        for i, (states, norm) in enumerate(beginnings(rows, width)):
            first, second = linear(inner, width, bool(i % 2)), linear(width, inner, bool(i % 3))
            (found, _), (expected, _) = both(
                feed, states, norm, first, second, kinds[i], after=None, residual=True
            )  # parts and what goes on
            close(found, expected)


def check_text() -> None:
    for beams, heads, groups, head, capacity in (
        (1, 2, 2, 16, 40),
        (1, 4, 2, 8, 5),
        (3, 2, 1, 24, 30),
        (5, 3, 3, 20, 9),
    ):
        sentences, width = 2, 40
        positions = torch.tensor([capacity // 2, capacity + 3])
        keys, values = (torch.randn(sentences, groups, capacity, beams, head) for _ in range(2))
        hidden = hides(sentences, beams, capacity, positions)
        for i, (states, norm) in enumerate(beginnings(sentences * beams, width)):
            qkv, out = linear((heads + 2 * groups) * head, width, bool(i % 2)), linear(width, heads * head)
            whole_attention.PLACES = 16 if i % 2 else 64
            close(
                *both(
                    attend_text, states, norm, qkv, out, keys, values, hidden, positions,
                    heads=heads, scale=0.3, longest=capacity, after=None, residual=True,
                )
            )  # fmt: skip


def hides(sentences: int, beams: int, capacity: int, positions: Tensor) -> Tensor:
    """Each hypothesis sees one slot of every position before, and itself."""
    seen = torch.randint(0, beams, (sentences, beams, capacity, 1))
    hidden = torch.full((sentences, beams, capacity, beams), -torch.inf).scatter_(3, seen, 0.0)
    for b, at in enumerate(positions.clamp(max=capacity - 1).tolist()):
        hidden[b, :, at:] = -torch.inf
        hidden[b, :, at] = torch.eye(beams).log()
    return hidden.flatten(2)


def check_source() -> None:
    for beams, heads, head, length in ((1, 2, 16, 40), (3, 3, 20, 7)):
        sentences, width = 2, 24
        memory = [torch.randn(sentences, length, heads, head).transpose(1, 2) for _ in range(2)]
        keep = torch.arange(length) < torch.tensor([[length], [2]])
        for i, (states, norm) in enumerate(beginnings(sentences * beams, width)):
            query, out = linear(heads * head, width, bool(i % 2)), linear(width, heads * head)
            whole_source_attention.PLACES = 16 if i % 2 else 64
            close(*both(attend_source, states, norm, query, out, *memory, keep, scale=0.4, after=None, residual=True))


def check_halves() -> None:
    """Numbers of 16 bits go in, and into caches; states and parts stay float32."""
    x, parts, norm = torch.randn(4, 40), torch.randn(3, 4, 40), norms(40)[1]
    keys, values = (torch.randn(2, 2, 6, 2, 16) for _ in range(2))
    positions = torch.tensor([4, 2])
    hidden, keep = hides(2, 2, 6, positions), torch.arange(6) < torch.tensor([[6], [3]])
    first, second, qkv, out = linear(48, 40), linear(40, 48), linear(96, 40), linear(40, 32)
    query = linear(32, 40)
    found = []
    for t in (torch.half, torch.float32):

        def cast(*linears: Linear, t: torch.dtype = t) -> list[Linear]:
            return [Linear(one.weight.to(t), None if one.bias is None else one.bias.to(t)) for one in linears]

        states, before, place = Pending(x.to(t), parts), in_type(norm, t), int(t != torch.half)
        cache, rest = (keys.to(t), values.to(t)), {"scale": 0.25, "after": None, "residual": True}
        memory = [one[:, :, :, 0] for one in cache]
        fed = both(feed, states, before, *cast(first, second), "relu", after=None, residual=True)[place]
        text = both(
            attend_text, states, before, *cast(qkv, out), *cache, hidden.to(t), positions, heads=2, longest=6, **rest
        )[place]
        source = both(attend_source, states, before, *cast(query, out), *memory, keep, **rest)[place]
        found.append([*fed[0], *text[0], *source[0], *text[1][4:6]])
        assert [one.dtype for one in found[-1]] == [torch.float32] * 6 + [t] * 2
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one.float(), other, rtol=0.01, atol=0.05)


if __name__ == "__main__":
    assert triton_here.INTERPRETED
    torch.manual_seed(0)
    check_settle()
    check_feed()
    check_text()
    check_source()
    check_halves()
    print("equal")
