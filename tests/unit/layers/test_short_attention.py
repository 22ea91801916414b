"""Short attention in training: the reference against torch's, the kernels against the reference and for a GPU that is not there."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
import torch
from interpreted import interpreted
from torch import Tensor

from regard.core.types import Spans
from regard.layers.attention.multihead import CrossAttention, SelfAttention, attend_heads, merge_heads
from regard.layers.attention.relative import Layout, Places, SchemeAtPlaces
from regard.layers.attention.relative.rotary import Rotary
from regard.layers.decoding import triton_here
from regard.layers.training import short_attention
from regard.layers.training.short_attention import cross_attention, self_attention, usable
from regard.layers.training.turned import Turning

NEEDS_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
SIZES = [(2, 5, 7, 2, 4), (1, 16, 16, 1, 16), (3, 33, 20, 3, 8), (1, 130, 129, 1, 16)]


@pytest.fixture(autouse=True)
def the_same_numbers_each_time() -> None:
    torch.manual_seed(0)


def gradients(out: Tensor, *inputs: Tensor) -> tuple[Tensor, ...]:
    d_out = torch.arange(out.numel(), device=out.device).sin().view(out.shape).to(out.dtype)
    return (out.detach(), *torch.autograd.grad(out, inputs, d_out))


def by_torch(query: Tensor, key: Tensor, value: Tensor, keep: Tensor | None, causal: bool) -> Tensor:
    mask = None if keep is None else keep[:, None, None]
    if mask is not None and causal:
        mask, causal = mask & torch.ones(query.shape[2], query.shape[2], device=mask.device).tril().bool(), False
    return merge_heads(attend_heads(query, key, value, mask, causal=causal)[0])


def some(rows: int, columns: int, device: str = "cpu") -> Tensor:
    """A mask that leaves every query something to see."""
    keep = torch.rand(rows, columns, device=device) > 0.4
    keep[:, 0] = True
    return keep


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("hides", [False, True])
@pytest.mark.parametrize("causal", [False, True])
def test_self_attention_is_that_of_the_layer(size: tuple[int, ...], hides: bool, causal: bool) -> None:
    sentences, tokens, _, heads, width = size
    layer = SelfAttention(heads * width, heads)
    x = torch.randn(sentences, tokens, heads * width, requires_grad=True)
    keep = some(sentences, tokens) if hides else None
    weights = layer.query_key_value.weight
    found = gradients(self_attention(layer.query_key_value(x), heads, keep, causal), x, weights)
    expected = gradients(by_torch(*layer.project(x), keep, causal), x, weights)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("layout", ["interleaved", "halves"])
@pytest.mark.parametrize("causal", [False, True])
def test_rotary_positions_are_those_of_the_layer(layout: Layout, causal: bool) -> None:
    layer, scheme = SelfAttention(48, 3), Rotary(16, layout=layout, base=100.0)
    x, keep = torch.randn(2, 9, 48, requires_grad=True), some(2, 9)
    weights, placed = layer.query_key_value.weight, scheme.place(Places.whole_sequence(9, x.device))
    packed = layer.query_key_value(x)
    found = gradients(self_attention(packed, 3, keep, causal, None, Turning.of(scheme, placed)), x, weights)
    expected = gradients(by_torch(*layer.project(x, SchemeAtPlaces(scheme, placed)), keep, causal), x, weights)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("hides", [False, True])
def test_cross_attention_is_that_of_the_layer(size: tuple[int, ...], hides: bool) -> None:
    sentences, tokens, keys, heads, width = size
    layer = CrossAttention(heads * width, heads)
    query = torch.randn(sentences, tokens, heads * width, requires_grad=True)
    memory = torch.randn(sentences, keys, heads * width, requires_grad=True)
    keep = some(sentences, keys) if hides else None
    inputs = (query, memory, layer.key_value.weight)
    found = gradients(cross_attention(query, layer.key_value(memory), heads, keep), *inputs)
    split = query.unflatten(-1, (heads, -1)).transpose(1, 2)
    expected = gradients(by_torch(split, *layer.project_memory(memory), keep, False), *inputs)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_what_sees_nothing_is_nothing_and_changes_nothing() -> None:
    x = torch.randn(2, 4, 48, requires_grad=True)
    keep = torch.tensor([[True, True, False, True], [False, False, True, True]])
    out, d = gradients(self_attention(x, 1, keep, causal=True), x)
    assert out[1, :2].eq(0).all()
    assert out[0].ne(0).all()
    assert d[1, :2].eq(0).all()  # neither as queries nor as keys
    assert d[0, 2, 16:].eq(0).all()  # hidden as a key
    assert d.isfinite().all()
    _, d_query, d_memory = gradients(cross_attention(x[..., :16], x[..., 16:], 1, torch.zeros(2, 4).bool()), *(x, x))
    assert d_query.eq(0).all()
    assert d_memory.eq(0).all()


def test_which_sizes_kernels_take() -> None:
    assert usable(1, 128, 64)
    assert usable(128, 1, 16)
    assert usable(32, 64, 128)
    assert not usable(32, 65, 128)  # too much for one program
    assert not usable(129, 32, 64)
    assert not usable(32, 129, 64)
    assert not usable(0, 32, 64)
    assert not usable(32, 0, 64)
    assert not usable(32, 32, 48)
    assert usable(64, 64, 64, torch.float32)
    assert not usable(128, 64, 64, torch.float32)
    assert not usable(32, 65, 64, torch.float32)
    assert not usable(32, 32, 64, torch.float64)


@pytest.mark.skipif(triton_here.triton is None, reason="needs Triton")
def test_the_kernels_of_short_attention_by_tritons_interpreter() -> None:
    assert interpreted("short_attention_cases.py") == "equal"


@pytest.mark.skipif(triton_here.triton is None or triton_here.INTERPRETED, reason="needs Triton's compiler")
@pytest.mark.parametrize(
    ("dtype", "precision"), [(torch.bfloat16, "high"), (torch.float32, "high"), (torch.float32, "highest")]
)
def test_the_kernels_compile_for_a_gpu_and_stay_in_its_registers(monkeypatch, dtype, precision: str) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "search"))
    from compiled_for import Launches, resources  # pyright: ignore[reportMissingImports]

    launches, heads = Launches(), 2
    monkeypatch.setattr(short_attention, "_launch", lambda kernel, n, *a, **named: launches(kernel, (n,), *a, **named))
    monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: precision)
    sizes = [(16, 16, 64), (32, 32, 64), (64, 64, 64), (128, 128, 64), (40, 20, 64), (128, 64, 128), (128, 128, 32)]
    for tokens, keys, width in sizes:
        if not usable(tokens, keys, width, dtype):
            continue
        query = torch.empty(3, tokens, heads * width, dtype=dtype, device="meta")
        memory = torch.empty(3, keys, 2 * heads * width, dtype=dtype, device="meta")
        keep = torch.empty(3, keys, dtype=torch.bool, device="meta")
        short_attention.attention_forward(query, memory, heads, keep, True)
        sums = short_attention.sums_of(query, memory)
        for some in ((), sums):  # rotary positions do without
            short_attention.attention_backward(query, query, memory, heads, keep, True, query, memory, *some)
        query, memory = (x.flatten(0, 1)[None] for x in (query, memory))
        starts = torch.empty(4, dtype=torch.int32, device="meta")
        both = tuple(Spans(starts, starts, longest) for longest in (tokens, keys))
        short_attention.attention_forward(query, memory, heads, None, True, both)
        sums = short_attention.sums_of(query, memory, spans=both)
        for some in ((), sums):
            short_attention.attention_backward(
                query, query, memory, heads, None, True, query, memory, *some, spans=both
            )
    assert 2 * launches.count["attend"] == launches.count["attend_backward"] >= 20
    for what, (compiled, _) in launches.done.items():
        assert compiled.metadata.shared <= 99 << 10, what  # what every GPU has from sm_80 on
        # the assembler may put a few bytes aside where products are not those of tensor cores
        assert resources(compiled.asm["cubin"])["STACK"] <= (16 if dtype == torch.float32 else 0), what


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=NEEDS_GPU)])
def test_packed_sentences_attend_as_each_by_itself(causal: bool, device: str) -> None:
    lengths, heads = (5, 1, 0, 9, 0), 2
    starts = torch.tensor([0, 5, 6, 6, 15, 15], dtype=torch.int32)
    spans = Spans(starts, torch.cat([torch.arange(n, dtype=torch.int32) for n in lengths]), 16).to(device)
    packed, bias = torch.randn(1, 15, 96, device=device, requires_grad=True), torch.zeros(96, device=device)
    bias.requires_grad_()
    found = gradients(self_attention(packed, heads, None, causal, bias, None, spans), packed, bias)
    alone = [self_attention(packed[:, a:b], heads, None, causal) for a, b in pairwise(starts.tolist()) if a < b]
    expected = gradients(torch.cat(alone, 1), packed)
    torch.testing.assert_close(found[:2], expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(found[2], expected[1].sum((0, 1)), rtol=1e-4, atol=1e-4)  # it is in what is read already


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize(
    "size", [(3, 32, 32, 8, 64), (2, 7, 19, 2, 16), (2, 64, 40, 4, 64), (2, 128, 128, 2, 64), (2, 100, 50, 2, 128)]
)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("layout", [None, "interleaved", "halves"])
def test_on_a_gpu_errors_are_those_of_torch(
    dtype: torch.dtype, size: tuple[int, ...], causal: bool, layout: Layout | None
) -> None:
    """Both against float64: what kernels find is no farther off than three times what torch's find: some are one number rounded."""
    sentences, tokens, keys, heads, width = size
    of_self = causal or layout is not None
    query = torch.randn(sentences, tokens, heads * width, device="cuda").to(dtype)
    memory = torch.randn(sentences, tokens if of_self else keys, 2 * heads * width, device="cuda").to(dtype)
    keep = some(*memory.shape[:2], device="cuda")
    turning = None
    if layout is not None:
        scheme = Rotary(width, layout=layout, base=100.0)
        turning = Turning.of(scheme, scheme.place(Places.whole_sequence(tokens, query.device)))

    def ours(q: Tensor, kv: Tensor) -> Tensor:
        if of_self:
            return self_attention(torch.cat([q, kv], -1), heads, keep, causal, None, turning)
        return cross_attention(q, kv, heads, keep)

    def plain(q: Tensor, kv: Tensor) -> Tensor:
        k, v = kv.unflatten(-1, (2, heads, -1)).permute(2, 0, 3, 1, 4)
        q = q.unflatten(-1, (heads, -1)).transpose(1, 2)
        q, k = (q, k) if turning is None else (turning(q), turning(k))
        return by_torch(q, k, v, keep, causal)

    found = []
    for function, numbers in ((ours, dtype), (plain, dtype), (plain, torch.float64)):
        inputs = [x.to(numbers).requires_grad_() for x in (query, memory)]
        found.append(gradients(function(*inputs), *inputs))
    for one, other, right in zip(*found, strict=True):
        assert (one - right).abs().max() <= 3 * (other - right).abs().max() + 1e-6
