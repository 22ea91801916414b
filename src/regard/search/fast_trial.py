"""A step made of few kernels against the model's own, for the search that is under way: states, logits, and what is written.

Kernels that were never run on a kind of GPU can be wrong there and nowhere else. States and logits are compared up to rounding.
What is then written depends on near ties, so it is compared from the same logits, by kernels and by the rule's own operations.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import Tensor

from regard.layers.attention.cache import CacheState
from regard.layers.decoding import triton_here
from regard.layers.decoding.vocabulary import Logits

TOLERANCE = {torch.float32: 0.01}  # mean difference, as a part of the mean size
TOLERANCE_OF_16_BITS = 0.1
MOST_SENTENCES = 32  # whose states and logits are compared: a trial must not need much more memory than a step
TURNED_AT = (0, 1, 7, 100, 511)
EXACTLY = 1e-3  # of sums of the same logits, as a part of their size


def is_right(steps: Any, work: Any, memory: Any, state: CacheState) -> bool | None:
    """Whether all agrees; None where there is nothing to compare: no sentence is open, or the model gives no numbers.

    `steps`: a FastSteps. Caches are written, as the next step will write them again; nothing else changes.
    """
    constraints = steps.constraints
    token = constraints.read(work.live.tokens, work.at).token
    expected: Tensor = steps.model.step(token, memory, state)[0]
    here = some_of((~work.done).nonzero()[:, 0])  # rows that are done may be beyond what means something
    expected = expected[here]
    if not len(here) or not bool(expected.isfinite().all()):
        return None
    most = TOLERANCE.get(steps.decoder.embedding.dtype, TOLERANCE_OF_16_BITS)
    if not _turns_right(steps.decoder, state, most):
        return False
    if not close(steps.states(work, memory, state)[here], expected, most):
        return False
    if not steps.ranks:
        return True
    found: Logits = steps.logits(work, memory, state)
    values, norm = (one.unflatten(0, work.live.total.shape)[here].float() for one in (found.values, found.normaliser()))
    raw: Tensor = steps.model.output.logits(expected).float()
    some, plain = work.take(here), torch.zeros_like(raw)
    recent = constraints.read(some.live.tokens, some.at)
    constraints.apply(
        plain, recent, some.live.tokens, some.at, some.live.log_probs.shape[-1], some.forced[:, :0], some.given
    )
    allowed = plain == 0
    if not (torch.equal(values > -torch.inf, allowed) and close(values[allowed], raw[allowed], most)):
        return False
    if not close(norm, raw.logsumexp(-1, keepdim=True), most, least=1.0):
        return False
    return not triton_here.runs_on(values) or _writes_right(steps, work, found, state)


def some_of(rows: Tensor) -> Tensor:
    """At most so many, the first and the last: programs of a kernel share rows out."""
    return (
        rows if len(rows) <= MOST_SENTENCES else torch.cat((rows[: MOST_SENTENCES // 2], rows[-MOST_SENTENCES // 2 :]))
    )


def _turns_right(decoder: Any, state: CacheState, most: float) -> bool:
    """Whether rotary positions are right further on, too: a step is tried at its first place, where nothing is turned."""
    if decoder.rotary is None:
        return True
    table, groups = decoder.embedding, state.keys[0].shape[1]
    positions = torch.tensor(TURNED_AT)
    width = (decoder.heads + 2 * groups) * decoder.rotary.head_width
    projected = torch.randn(len(positions), width, generator=torch.Generator().manual_seed(1)).to(table.dtype)
    expected = decoder.rotary.plainly(projected.clone(), positions, decoder.heads)
    found = decoder.rotary(projected.to(table.device), positions.to(table.device), decoder.heads)
    return close(found.cpu(), expected, most / 10)


def close(found: Tensor, expected: Tensor, most: float, least: float = 0.0) -> bool:
    """Whether they are apart by no more than a part of what they are, or of `least`; false where one is no number."""
    apart = (found.float() - expected.float()).abs().mean()
    return bool(apart <= most * expected.float().abs().mean().clamp(min=least))


def _writes_right(steps: Any, work: Any, found: Logits, state: CacheState) -> bool:
    """What is written from these logits, by kernels and otherwise, each with tensors of its own."""
    results = []
    for extend in (steps.extend, steps.extend_plainly):
        own = dataclasses.replace(state, hidden=state.hidden.clone(), positions=state.positions.clone())
        results.append(extend(work.clone(), found, own))
    (ours, our_state), (theirs, their_state) = results
    same = [(ours.at, theirs.at), (ours.done, theirs.done), (ours.broken, theirs.broken)]
    lives = theirs.live.total > -torch.inf  # of others nothing is read
    same += [(our_state.positions, their_state.positions), (our_state.hidden[lives], their_state.hidden[lives])]
    sums = [(ours.live.total, theirs.live.total)]
    if hasattr(ours, "pool"):
        sums.append((ours.pool.score, theirs.pool.score))
    return all(torch.equal(one, other) for one, other in same) and all(
        torch.allclose(one, other, rtol=EXACTLY, atol=EXACTLY) for one, other in sums
    )
