"""The end of a step of beam search in one kernel: which hypotheses go on, end and are kept. In place.

What it does is `BeamSearch.extend`, by the same rules; the candidates of each hypothesis are given. A program does one sentence.
"""

# pyright: reportOptionalMemberAccess=false, reportInvalidTypeForm=false
from __future__ import annotations

import torch

from regard.core.types import EOS
from regard.layers.attention.cache import CacheState
from regard.layers.decoding.triton_here import jit, launch, power_of_2, ready, tl
from regard.search.beam import BeamSearch, BeamWork
from regard.search.config import MAX_HYPOTHESES
from regard.search.constraints import Constraints
from regard.search.fused_ranking import Candidates

MOST_BEAM = 16  # beyond, a program would have too much to do


def extend(
    method: BeamSearch,
    constraints: Constraints,
    work: BeamWork,
    found: Candidates,
    vocabulary: int,
    state: CacheState,
) -> None:
    """Writes a token of every hypothesis into `work`, and lets the state's rows follow.

    Of histories, only as much is reordered as loops are looked for in; so `constraints.few` must hold.
    """
    live, pool, beams = work.live, work.pool, method.width
    count, long = found.own.shape[1], state.hidden.shape[2] > 512
    launch(
        _extend,
        (len(work.at),),
        found.own,
        found.tokens,
        live.tokens,
        live.log_probs,
        live.total,
        work.at,
        work.limit,
        work.given,
        work.base,
        work.done.view(torch.uint8),
        work.broken.view(torch.uint8),
        pool.score,
        pool.end,
        pool.last,
        work.came,
        method.divisors,
        state.hidden,
        state.positions,
        live.tokens.shape[-1],
        live.log_probs.shape[-1],
        state.capacity,
        COUNT=count,
        COUNT_CELLS=power_of_2(count),
        BEAMS=beams,
        BEAM_CELLS=power_of_2(beams),
        RANKS=power_of_2(2 * beams),
        VOCABULARY=vocabulary,
        END=EOS,
        CODES=MAX_HYPOTHESES,
        WINDOW=len(constraints.margin) - 1,
        EXACT=method.config.stop == "exact",
        CELLS=256 if long else 64,
        num_warps=4 if long or beams > 8 else 1,
    )


@jit
def ordered_double(value):
    """A float64 as a number that is larger if it is; nan is the largest, and the zeros are one."""
    value = tl.where(value == 0.0, 0.0, value)
    bits = value.to(tl.int64, bitcast=True)
    bits = tl.where(bits < 0, bits ^ 0x7FFFFFFFFFFFFFFF, bits)
    return tl.where(value != value, 0x7FF8000000000000, bits)


@jit
def picked(chosen, values):
    """Of each row of a matrix of which one place at most is chosen, the value of that place, or 0."""
    return tl.sum(tl.where(chosen, values[None, :], 0), axis=1)


@jit
def _extend(
    own,
    candidates,
    history,
    log_probs,
    totals,
    lengths,
    limits,
    givens,
    bases,
    dones,
    brokens,
    pool_score,
    pool_end,
    pool_last,
    came,
    divisors,
    hidden,
    positions,
    places,
    room,
    capacity,
    COUNT: tl.constexpr,
    COUNT_CELLS: tl.constexpr,
    BEAMS: tl.constexpr,
    BEAM_CELLS: tl.constexpr,
    RANKS: tl.constexpr,
    VOCABULARY: tl.constexpr,
    END: tl.constexpr,
    CODES: tl.constexpr,
    WINDOW: tl.constexpr,
    EXACT: tl.constexpr,
    CELLS: tl.constexpr,
    EARLY: tl.constexpr,
):
    ready(EARLY)
    sentence = tl.program_id(0).to(tl.int64)
    first = sentence * BEAMS  # row of its first hypothesis
    at, limit, given = tl.load(lengths + sentence), tl.load(limits + sentence), tl.load(givens + sentence)
    base = tl.load(bases + sentence)
    was_done, was_broken = tl.load(dones + sentence) != 0, tl.load(brokens + sentence) != 0
    read = tl.load(positions + sentence)

    # all candidates, ranked by their sums, of equal ones by lower hypothesis, then lower token
    flat = tl.arange(0, BEAM_CELLS * COUNT_CELLS)
    beam, number = flat // COUNT_CELLS, flat % COUNT_CELLS
    there = (beam < BEAMS) & (number < COUNT)
    place = (first + beam) * COUNT + number
    value = tl.load(own + place, mask=there, other=0.0)
    code = beam.to(tl.int64) * VOCABULARY + tl.load(candidates + place, mask=there, other=0)
    code = tl.where(there, code, 0x7FFFFFFFFFFFFFFF)
    before = tl.load(totals + first + beam, mask=there, other=0.0)
    sums = tl.where(was_done, float("-inf"), before) + value.to(before.dtype)
    keys = tl.where(there, ordered_double(sums), -0x7FFFFFFFFFFFFFFF)
    rank = tl.arange(0, RANKS)
    total = tl.zeros((RANKS,), before.dtype)
    log_prob = tl.zeros((RANKS,), tl.float32)
    codes = tl.zeros((RANKS,), tl.int64)
    for i in range(2 * BEAMS):
        top = tl.max(keys, axis=0)
        chosen = tl.min(tl.where(keys == top, code, 0x7FFFFFFFFFFFFFFF), axis=0)
        this = code == chosen
        total = tl.where(rank == i, tl.sum(tl.where(this, sums, 0.0), axis=0), total)
        log_prob = tl.where(rank == i, tl.sum(tl.where(this, value, 0.0), axis=0), log_prob)
        codes = tl.where(rank == i, chosen, codes)
        keys = tl.where(this, -0x7FFFFFFFFFFFFFFF, keys)
    parent, token = codes // VOCABULARY, codes % VOCABULARY
    leading = tl.sum(tl.where(rank == 0, total, 0.0), axis=0)
    broken = was_broken | ((leading != leading) & (was_done == 0))
    is_candidate, is_beam = rank < 2 * BEAMS, rank < BEAMS
    ends = (token == END) & (total > float("-inf")) & is_candidate
    finishes = ends & is_beam

    # the pool: those in it stand before new ones of equal score
    divisor = tl.load(divisors + tl.maximum(at - given, 0))
    score = tl.where(finishes, (total - base) / divisor, float("-inf"))
    old = tl.load(pool_score + first + rank, mask=is_beam, other=float("-inf"))
    column, line = rank[None, :], rank[:, None]
    ahead = (score[:, None] > old[None, :]) & is_beam[:, None]
    old_rank = rank + tl.sum(ahead.to(tl.int32), axis=0)
    behind = ((old[:, None] >= score[None, :]) & is_beam[:, None]).to(tl.int32)
    earlier = (score[:, None] > score[None, :]) | ((score[:, None] == score[None, :]) & (line < column))
    new_rank = tl.sum(behind + (earlier & is_beam[:, None]).to(tl.int32), axis=0)
    keeps = (old_rank[None, :] == line) & is_beam[None, :]
    takes = (new_rank[None, :] == line) & is_beam[None, :]
    end = tl.load(pool_end + first + rank, mask=is_beam, other=0)
    last = tl.load(pool_last + first + rank, mask=is_beam, other=0.0)
    best = picked(keeps, old) + picked(takes, score)
    end = picked(keeps, end) + picked(takes, at * CODES + parent)
    last = picked(keeps, last) + picked(takes, log_prob)

    # the first that do not end go on
    goes = is_candidate & (ends == 0)
    order = tl.sum((goes[:, None] & (line < column)).to(tl.int32), axis=0)
    follows = (order[None, :] == line) & goes[None, :] & is_beam[:, None]
    going = tl.where(is_beam, picked(follows, total), float("-inf"))
    going_token, going_parent, going_own = picked(follows, token), picked(follows, parent), picked(follows, log_prob)
    likeliest = tl.max(going, axis=0)
    worst = tl.sum(tl.where(rank == BEAMS - 1, best, 0.0), axis=0)
    full = worst > float("-inf")
    if EXACT:
        reach = (likeliest - base) / tl.load(divisors + tl.maximum(limit - given, 0))
        full = full & (reach <= worst)
    done = was_done | full | (at >= limit) | (likeliest == float("-inf"))

    # sentences that are done keep their hypotheses, less those that ended just now
    ended = tl.sum((finishes[None, :] & (parent[None, :] == line)).to(tl.int32), axis=1) > 0
    kept = tl.load(totals + first + rank, mask=is_beam, other=0.0)
    going = tl.where(done, tl.where(ended, float("-inf"), kept), going)
    going_parent = tl.where(done, rank.to(tl.int64), going_parent)

    tl.debug_barrier()  # all is read that is written now
    row = first + rank
    tl.store(totals + row, going, mask=is_beam)
    tl.store(pool_score + row, best, mask=is_beam)
    tl.store(pool_end + row, end, mask=is_beam)
    tl.store(pool_last + row, last, mask=is_beam)
    tl.store(log_probs + row * room + at, going_own, mask=is_beam)
    if BEAMS > 1:
        tl.store(came + row * room + at, going_token * CODES + going_parent, mask=is_beam)
    tl.store(dones + sentence, tl.where(done, 1, 0).to(tl.uint8))
    tl.store(brokens + sentence, tl.where(broken, 1, 0).to(tl.uint8))
    tl.store(lengths + sentence, at + tl.where(done, 0, 1))
    tl.store(positions + sentence, read + 1)

    # histories and what hypotheses see follow them
    source = first + tl.where(is_beam, going_parent, 0)
    end_of_history = (places - room) + at
    for start in range(0, WINDOW, CELLS):
        cell = start + tl.arange(0, CELLS)
        inside = is_beam[:, None] & (cell < WINDOW)[None, :]
        column_of = end_of_history - WINDOW + cell
        moved = tl.load(history + source[:, None] * places + column_of[None, :], mask=inside, other=0)
        tl.debug_barrier()
        tl.store(history + row[:, None] * places + column_of[None, :], moved, mask=inside)
    tl.store(history + row * places + end_of_history, going_token, mask=is_beam)
    width = tl.minimum(read + 1, capacity) * BEAMS
    for start in range(0, width, CELLS):
        cell = start + tl.arange(0, CELLS)
        inside = is_beam[:, None] & (cell < width)[None, :]
        seen = tl.load(hidden + source[:, None] * (capacity * BEAMS) + cell[None, :], mask=inside, other=0.0)
        tl.debug_barrier()
        tl.store(hidden + row[:, None] * (capacity * BEAMS) + cell[None, :], seen, mask=inside)
