"""In which order the programs of attention go over sentences and heads.

Those with numbers near each other run at the same time. A source's heads lie side by side in memory, so programs that go over heads
first read whole rows of it together; programs that go over sentences first read pieces of 128 bytes far apart.
"""

# pyright: reportOptionalMemberAccess=false, reportInvalidTypeForm=false
from __future__ import annotations

from regard.layers.decoding.triton_here import jit, tl

HEADS_FIRST = False  # not measured yet


def grid(sentences: int, heads: int, *more: int) -> tuple[int, ...]:
    return (heads, sentences, *more) if HEADS_FIRST else (sentences, heads, *more)


@jit
def whose(HEADS_FIRST: tl.constexpr):
    """The sentence and the head of a program."""
    if HEADS_FIRST:
        return tl.program_id(1).to(tl.int64), tl.program_id(0)
    else:
        return tl.program_id(0).to(tl.int64), tl.program_id(1)


@jit
def count_of_sentences(HEADS_FIRST: tl.constexpr):
    if HEADS_FIRST:
        return tl.num_programs(1)
    else:
        return tl.num_programs(0)
