"""Other forms of the kernel of `fused_cross_entropy`, to be measured beside it: the same arguments, the same results.

The first form reads its bias twice for each row, which is more than the row itself, and the row twice. Here rows pass by the first
cache, where the bias can stay; `several` shares a bias among rows and reads these back from their end, and `held` reads a row once.
"""

# pyright: reportOptionalMemberAccess=false, reportInvalidTypeForm=false
from __future__ import annotations

from regard.layers.decoding.triton_here import jit, tl


@jit
def several(
    logits,
    target,
    bias,
    lse,
    right,
    rows,
    vocabulary,
    less,
    HAS_BIAS: tl.constexpr,
    PADDING: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """A program has a few rows, and goes over them in tiles: to the end, and back."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    begin = logits + row.to(tl.int64)[:, None] * vocabulary
    y = tl.load(target + row, mask=row < rows, other=PADDING)
    real = y != PADDING
    z_y = tl.load(logits + row.to(tl.int64) * vocabulary + y, mask=real, other=0.0).to(tl.float32)
    if HAS_BIAS:
        z_y += tl.load(bias + y, mask=real, other=0.0).to(tl.float32)
    highest = tl.full((ROWS,), -1e30, tl.float32)  # not -inf, which less itself would be no number
    total = tl.zeros((ROWS,), tl.float32)
    for at in range(0, vocabulary, COLUMNS):
        columns = at + tl.arange(0, COLUMNS)[None, :]
        inside = columns < vocabulary
        z = tl.load(begin + columns, mask=inside & real[:, None], other=-float("inf"), cache_modifier=".cg").to(
            tl.float32
        )
        if HAS_BIAS:
            z += tl.load(bias + columns, mask=inside, other=0.0).to(tl.float32)
        higher = tl.maximum(highest, tl.max(z, axis=1))
        total = total * tl.exp(highest - higher) + tl.sum(tl.exp(z - higher[:, None]), axis=1)
        highest = higher
    sum_of_all = highest + tl.log(tl.where(real, total, 1.0))
    last = (vocabulary - 1) // COLUMNS * COLUMNS
    for back in range(0, vocabulary, COLUMNS):
        columns = last - back + tl.arange(0, COLUMNS)[None, :]
        inside = columns < vocabulary
        z = tl.load(begin + columns, mask=inside & real[:, None], other=-float("inf"), cache_modifier=".cg").to(
            tl.float32
        )
        if HAS_BIAS:
            z += tl.load(bias + columns, mask=inside, other=0.0).to(tl.float32)
        d_z = tl.exp(z - sum_of_all[:, None]) + tl.where(columns == y[:, None], less, 0.0)
        d_z = tl.where(real[:, None], d_z, 0.0).to(begin.dtype.element_ty)
        tl.store(begin + columns, d_z, mask=inside & (row < rows)[:, None], cache_modifier=".cs")
    tl.store(lse + row, tl.where(real, sum_of_all, 0.0), mask=row < rows)
    tl.store(right + row, z_y, mask=row < rows)


@jit
def widened(z):
    """In float32. Of bfloat16 this is done anew wherever it is asked for: what is held until then takes half of the registers."""
    if z.dtype == tl.bfloat16:
        return tl.inline_asm_elementwise(
            "{ .reg .b32 t; shl.b32 t, $2, 16; mov.b32 $0, t; and.b32 t, $2, 0xffff0000; mov.b32 $1, t; }",
            "=f,=f,r",
            [z],
            dtype=tl.float32,
            is_pure=False,
            pack=2,
        )
    return z.to(tl.float32)


@jit
def with_bias(z, bias, columns, inside, HAS_BIAS: tl.constexpr):
    z = widened(z)
    if HAS_BIAS:
        z += tl.load(bias + columns, mask=inside, other=0.0).to(tl.float32)
    return z


@jit
def held(
    logits,
    target,
    bias,
    lse,
    right,
    vocabulary,
    less,
    HAS_BIAS: tl.constexpr,
    PADDING: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """A program has one row, all of it in registers."""
    row = tl.program_id(0)
    begin = logits + row.to(tl.int64) * vocabulary
    y = tl.load(target + row)
    columns = tl.arange(0, COLUMNS)
    inside = columns < vocabulary
    if y == PADDING:
        tl.store(begin + columns, tl.zeros((COLUMNS,), dtype=begin.dtype.element_ty), mask=inside)
        tl.store(lse + row, 0.0)
        tl.store(right + row, 0.0)
    else:
        kept = tl.load(begin + columns, mask=inside, other=-float("inf"), cache_modifier=".cg")
        z_y = tl.load(begin + y).to(tl.float32)
        if HAS_BIAS:
            z_y += tl.load(bias + y).to(tl.float32)
        highest = tl.max(with_bias(kept, bias, columns, inside, HAS_BIAS), axis=0)
        total = tl.sum(tl.exp(with_bias(kept, bias, columns, inside, HAS_BIAS) - highest), axis=0)
        sum_of_all = highest + tl.log(total)
        d_z = tl.exp(with_bias(kept, bias, columns, inside, HAS_BIAS) - sum_of_all)
        tl.store(begin + columns, d_z.to(begin.dtype.element_ty), mask=inside, cache_modifier=".cs")
        tl.debug_barrier()  # the right one's place is written twice, the second time here
        tl.store(begin + y, (tl.exp(z_y - sum_of_all) + less).to(begin.dtype.element_ty))
        tl.store(lse + row, sum_of_all)
        tl.store(right + row, z_y)
