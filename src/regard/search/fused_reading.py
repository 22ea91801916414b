"""The beginning of a step in one kernel: what each hypothesis reads next, what it may not write, and the embedding of its token."""

# pyright: reportOptionalMemberAccess=false, reportInvalidTypeForm=false
from __future__ import annotations

from jaxtyping import Float, Int
from torch import Tensor

from regard.core.types import EOS, PAD
from regard.layers.attention.cache import CacheState
from regard.layers.decoding.decoder import Decoder
from regard.layers.decoding.triton_here import jit, launch, power_of_2, ready, runs_on, tl
from regard.search.constraints import LOOP_SIZES, Constraints
from regard.search.hypothesis import Work


def read(
    decoder: Decoder, constraints: Constraints, work: Work, state: CacheState
) -> tuple[Float[Tensor, "N D"], Int[Tensor, "N n"]]:
    """Embeddings of the tokens that are read next, and the tokens that may not be written: see `Constraints.bans`.

    What is read now becomes visible in the state.
    """
    live, config = work.live, constraints.config
    (sentences, beams, places), width = live.tokens.shape, decoder.width
    if not runs_on(live.tokens):
        recent = constraints.read(live.tokens, work.at)
        state.visible(1)
        at = state.next_positions(1).expand(-1, beams)
        x = decoder.embed(recent.token, at).flatten(0, 1)
        return x, constraints.bans(recent, work.at, work.given).flatten(0, 1)
    loops = len(LOOP_SIZES) if config.max_repeat else 0
    x = decoder.embedding.new_empty((sentences * beams, width))
    bans = live.tokens.new_empty((sentences * beams, loops + bool(config.min_length)))
    table = decoder.embedding if decoder.positions is None else decoder.positions
    cells = power_of_2(width)
    launch(
        _read,
        (sentences * beams,),
        live.tokens,
        work.at,
        work.given,
        decoder.embedding,
        table,
        state.positions,
        state.hidden,
        x,
        bans,
        decoder.embedding_scale,
        places,
        state.capacity,
        BEAMS=beams,
        WIDTH=width,
        POSITIONS=decoder.positions is not None,
        MARGIN=len(constraints.margin),
        REPEAT=config.max_repeat,
        LOOPS=loops,
        PAIRS=power_of_2(max(1, constraints.pairs)),
        SHORTEST=config.min_length,
        BANS=bans.shape[1],
        END=EOS,
        NONE=PAD,
        CELLS=cells,
        num_warps=max(1, min(8, cells // 256)),
    )
    return x, bans


@jit
def _read(
    history,
    lengths,
    given,
    embedding,
    table,
    positions,
    hidden,
    x,
    bans,
    scale,
    places,
    capacity,
    BEAMS: tl.constexpr,
    WIDTH: tl.constexpr,
    POSITIONS: tl.constexpr,
    MARGIN: tl.constexpr,
    REPEAT: tl.constexpr,
    LOOPS: tl.constexpr,
    PAIRS: tl.constexpr,
    SHORTEST: tl.constexpr,
    BANS: tl.constexpr,
    END: tl.constexpr,
    NONE: tl.constexpr,
    CELLS: tl.constexpr,
    EARLY: tl.constexpr,
):
    ready(EARLY)
    row = tl.program_id(0).to(tl.int64)
    sentence, beam = row // BEAMS, row % BEAMS
    at = tl.load(lengths + sentence)
    end = history + row * places + at + MARGIN  # one beyond the last token
    token = tl.load(end - 1)
    place = tl.minimum(tl.load(positions + sentence), capacity - 1)
    cells = tl.arange(0, CELLS)
    there = cells < WIDTH
    z = tl.load(embedding + token * WIDTH + cells, mask=there, other=0.0).to(tl.float32) * scale
    if POSITIONS:
        z += tl.load(table + place * WIDTH + cells, mask=there, other=0.0).to(tl.float32)
    tl.store(x + row * WIDTH + cells, z.to(x.dtype.element_ty), mask=there)
    tl.store(hidden + row * (capacity * BEAMS) + place * BEAMS + beam, 0.0)
    # x would be the n-gram's (REPEAT + 1)-th time in a row: see Constraints
    back = tl.arange(0, PAIRS)
    for i in tl.static_range(LOOPS):
        n = i + 1
        compared = back < n * REPEAT - 1
        late = tl.load(end - 1 - back, mask=compared, other=0)
        early = tl.load(end - 1 - n - back, mask=compared, other=0)
        differ = tl.sum(tl.where(late == early, 0, 1), axis=0)
        tl.store(bans + row * BANS + i, tl.where(differ == 0, tl.load(end - n), NONE))
    if SHORTEST:
        short = at - tl.load(given + sentence) < SHORTEST
        tl.store(bans + row * BANS + LOOPS, tl.where(short, END, NONE).to(tl.int64))
