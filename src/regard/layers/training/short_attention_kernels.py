"""Kernels of `short_attention`: a program has one head of one sentence, all of whose keys and values fit in its registers.

Queries come in blocks. The weights are made anew in the backward pass: nothing but the inputs is kept for it. Sentences that are
packed have no row of their own: where they start is read, and how long they are.
"""

# pyright: reportOptionalMemberAccess=false, reportInvalidTypeForm=false
from __future__ import annotations

from regard.layers.decoding.triton_here import jit, tl
from regard.layers.training.tiles import jit as jit_for_any

VARYING = ("tokens", "keys", "keep_sentence")


@jit
def rows_at(start, length, token, WIDTH: tl.constexpr, ROWS: tl.constexpr):
    """Rows of a head from `start` on: where they lie, and which there are."""
    row = start + tl.arange(0, ROWS)
    return row[:, None] * token + tl.arange(0, WIDTH)[None, :], (row < length)[:, None]


@jit
def seen_keys(keep, sentence, keys, keep_sentence, HAS_KEEP: tl.constexpr, KEYS: tl.constexpr):
    """Which of the padded keys are there, and not hidden."""
    key = tl.arange(0, KEYS)
    seen = key < keys
    if HAS_KEEP:
        seen = seen & (tl.load(keep + sentence * keep_sentence + key, mask=seen, other=0) != 0)
    return seen


@jit
def weights_of(
    q, k, seen, start, scale,
    CAUSAL: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The softmax of a block of queries, in float32; of a query that sees no key, zeros."""
    scores = tl.dot(q, tl.trans(k), input_precision=PRECISION) * (scale * 1.4426950408889634)  # powers of 2, not of e
    visible = seen[None, :]
    if CAUSAL:
        visible = visible & (tl.arange(0, KEYS)[None, :] <= start + tl.arange(0, QUERIES)[:, None])
    scores = tl.where(visible, scores, float("-inf"))
    best = tl.maximum(tl.max(scores, axis=1), -1e30)  # not -inf, which less itself would be no number
    weights = tl.exp2(scores - best[:, None])
    total = tl.sum(weights, axis=1)
    return weights * (1.0 / tl.where(total > 0.0, total, 1.0))[:, None]


@jit
def span_of(starts, sentence):
    """The number of a packed sentence's first token, and how many it has."""
    first = tl.load(starts + sentence)
    return first.to(tl.int64), tl.load(starts + sentence + 1) - first


@jit_for_any(*VARYING)
def attend(
    query,
    key_value,
    keep,
    out,
    query_starts,
    key_starts,
    tokens,
    keys,
    query_sentence,
    query_token,
    key_sentence,
    key_token,
    keep_sentence,
    scale,
    HEADS: tl.constexpr,
    WIDTH: tl.constexpr,
    QUERIES: tl.constexpr,
    BLOCKS: tl.constexpr,
    KEYS: tl.constexpr,
    CAUSAL: tl.constexpr,
    HAS_KEEP: tl.constexpr,
    PACKED: tl.constexpr,
    PRECISION: tl.constexpr,
):
    program = tl.program_id(0)
    sentence, head = (program // HEADS).to(tl.int64), program % HEADS
    first, first_key = sentence * tokens, sentence * keys
    query_from, key_from = sentence * query_sentence, sentence * key_sentence
    if PACKED:
        first, tokens = span_of(query_starts, sentence)
        first_key, keys = span_of(key_starts, sentence)
        query_from, key_from = first * query_token, first_key * key_token
        if tokens + keys == 0:  # room for a sentence that is not there
            return
    stored, there = rows_at(0, keys, key_token, WIDTH, KEYS)
    stored += key_from + head * WIDTH
    k = tl.load(key_value + stored, mask=there, other=0.0)
    v = tl.load(key_value + stored + HEADS * WIDTH, mask=there, other=0.0)
    seen = seen_keys(keep, sentence, keys, keep_sentence, HAS_KEEP, KEYS)
    for block in range(BLOCKS):
        start = block * QUERIES
        asked, inside = rows_at(start, tokens, query_token, WIDTH, QUERIES)
        q = tl.load(query + query_from + head * WIDTH + asked, mask=inside, other=0.0)
        weights = weights_of(q, k, seen, start, scale, CAUSAL, QUERIES, KEYS, PRECISION)
        mixed = tl.dot(weights.to(v.dtype), v, input_precision=PRECISION)
        written, inside = rows_at(start, tokens, HEADS * WIDTH, WIDTH, QUERIES)
        written += first * (HEADS * WIDTH) + head * WIDTH
        tl.store(out + written, mixed.to(v.dtype), mask=inside)


@jit_for_any(*VARYING)
def attend_backward(
    d_out,
    query,
    key_value,
    keep,
    d_query,
    d_key_value,
    query_sums,
    key_sums,
    query_starts,
    key_starts,
    tokens,
    keys,
    out_sentence,
    out_token,
    query_sentence,
    query_token,
    key_sentence,
    key_token,
    keep_sentence,
    d_query_token,
    d_key_token,
    scale,
    HEADS: tl.constexpr,
    WIDTH: tl.constexpr,
    QUERIES: tl.constexpr,
    BLOCKS: tl.constexpr,
    KEYS: tl.constexpr,
    CAUSAL: tl.constexpr,
    HAS_KEEP: tl.constexpr,
    PACKED: tl.constexpr,
    PRECISION: tl.constexpr,
    SUMS: tl.constexpr,
):
    program = tl.program_id(0)
    sentence, head = (program // HEADS).to(tl.int64), program % HEADS
    first, first_key, out_from = sentence * tokens, sentence * keys, sentence * out_sentence
    query_from, key_from = sentence * query_sentence, sentence * key_sentence
    if PACKED:
        first, tokens = span_of(query_starts, sentence)
        first_key, keys = span_of(key_starts, sentence)
        query_from, key_from, out_from = first * query_token, first_key * key_token, first * out_token
        if tokens + keys == 0:  # its sums are 0 already
            return
    stored, there = rows_at(0, keys, key_token, WIDTH, KEYS)
    stored += key_from + head * WIDTH
    k = tl.load(key_value + stored, mask=there, other=0.0)
    v = tl.load(key_value + stored + HEADS * WIDTH, mask=there, other=0.0)
    seen = seen_keys(keep, sentence, keys, keep_sentence, HAS_KEEP, KEYS)
    kept, there = rows_at(0, keys, d_key_token, WIDTH, KEYS)
    kept += first_key * d_key_token + head * WIDTH
    d_k = tl.zeros((KEYS, WIDTH), tl.float32)
    d_v = tl.zeros((KEYS, WIDTH), tl.float32)
    of_query = tl.zeros((WIDTH,), tl.float32)
    for block in range(BLOCKS):
        start = block * QUERIES
        asked, inside = rows_at(start, tokens, query_token, WIDTH, QUERIES)
        q = tl.load(query + query_from + head * WIDTH + asked, mask=inside, other=0.0)
        given, inside = rows_at(start, tokens, out_token, WIDTH, QUERIES)
        d_o = tl.load(d_out + out_from + head * WIDTH + given, mask=inside, other=0.0)
        weights = weights_of(q, k, seen, start, scale, CAUSAL, QUERIES, KEYS, PRECISION)
        d_v = tl.dot(tl.trans(weights.to(v.dtype)), d_o, d_v, input_precision=PRECISION)
        if BLOCKS == 1:  # as soon as they are there
            tl.store(d_key_value + kept + HEADS * WIDTH, d_v.to(v.dtype), mask=there)
        d_weights = tl.dot(d_o, tl.trans(v), input_precision=PRECISION)
        shared = tl.sum(weights * d_weights, axis=1)
        d_scores = (weights * (d_weights - shared[:, None]) * scale).to(v.dtype)
        d_k = tl.dot(tl.trans(d_scores), q, d_k, input_precision=PRECISION)
        if BLOCKS == 1:  # as soon as they are there
            tl.store(d_key_value + kept, d_k.to(v.dtype), mask=there)
        d_q = tl.dot(d_scores, k, input_precision=PRECISION)
        if SUMS:
            of_query += tl.sum(d_q, axis=0)
        written, inside = rows_at(start, tokens, d_query_token, WIDTH, QUERIES)
        written += first * d_query_token + head * WIDTH
        tl.store(d_query + written, d_q.to(v.dtype), mask=inside)
    if SUMS:
        one = head * WIDTH + tl.arange(0, WIDTH)
        tl.store(query_sums + sentence * (HEADS * WIDTH) + one, of_query)
        tl.store(key_sums + sentence * (2 * HEADS * WIDTH) + one, tl.sum(d_k, axis=0))
        tl.store(key_sums + sentence * (2 * HEADS * WIDTH) + HEADS * WIDTH + one, tl.sum(d_v, axis=0))
    if BLOCKS != 1:
        tl.store(d_key_value + kept, d_k.to(v.dtype), mask=there)
        tl.store(d_key_value + kept + HEADS * WIDTH, d_v.to(v.dtype), mask=there)
