"""The kernels of search against what they stand for, on random searches full of ties, for Triton's interpreter."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from regard.core.types import BOS, EOS, PAD, UNK
from regard.layers.attention.cache import CacheState
from regard.layers.decoding import triton_here
from regard.layers.decoding.decoder import Decoder
from regard.layers.decoding.vocabulary import Logits, _forbid
from regard.search import SearchConfig, fused_beam, fused_greedy, fused_ranking, fused_reading
from regard.search.beam import BeamSearch
from regard.search.constraints import Constraints
from regard.search.greedy import GreedySearch
from regard.search.hypothesis import Live, Scores, Work
from regard.search.ranking import best

CPU = torch.device("cpu")
SENTENCES, ROOM, V = 3, 7, 90
SETTINGS: dict[str, Any] = {
    "greedy": {"beam": 1, "max_repeat": 2},
    "greedy, short": {"beam": 1, "max_repeat": 0, "min_length": 3, "ban_unknown": False},
    "three": {"beam": 3, "max_repeat": 1, "alpha": 1.0, "length_norm": "plain"},
    "exact": {"beam": 4, "max_repeat": 2, "stop": "exact", "min_length": 2},
    "one, exact": {"beam": 1, "max_repeat": 1, "stop": "exact"},
    "two": {"beam": 2, "max_repeat": 0, "length_norm": "none"},
    "nine": {"beam": 9, "max_repeat": 1},
}


def begin(method: Any, constraints: Constraints, beams: int) -> tuple[Any, CacheState]:
    total = torch.zeros(SENTENCES, beams, dtype=torch.float64)
    limit = torch.tensor([2, 5, 5])
    zero, given = torch.zeros_like(limit), torch.tensor([0, 1, 0])  # the second has a prompt
    work = Work(
        row=torch.arange(SENTENCES), at=zero.clone(), limit=limit, keep=torch.ones(SENTENCES, 2, dtype=torch.bool),
        forced=zero[:, None][:, :0], given=given, base=-0.3 * given.double(),
        done=torch.tensor([False, False, True]), broken=zero > 0,
        live=Live.begin(constraints.margin, total, None, ROOM + 1),
    )  # fmt: skip
    state = CacheState.empty(SENTENCES, beams, ROOM, 1, 1, 4, torch.zeros(1))
    return method.begin(work), state.within(ROOM)


def random_logits(rows: int, generator: torch.Generator, group: int) -> Logits:
    """With many equal values, some of them impossible, and EOS often the likeliest."""
    values = torch.randint(-12, 4, (rows, V), generator=generator).float() / 4
    values[torch.rand(rows, V, generator=generator) < 0.3] = -torch.inf
    values[:, EOS] = torch.randint(-4, 5, (rows,), generator=generator).float() / 4
    return as_logits(values, group)


def as_logits(values: Tensor, group: int) -> Logits:
    """Of log-probabilities, which are already normalised, and exactly so."""
    found = _forbid(values, torch.zeros(len(values), 0, dtype=torch.long), 2, PAD, group)
    return found._replace(highest=torch.zeros(len(values), 1), sums=torch.ones(len(values), 1))


def alike(ours: Any, ours_state: CacheState, theirs: Any, theirs_state: CacheState, window: int) -> None:
    for name in ("at", "done", "broken"):
        assert torch.equal(getattr(ours, name), getattr(theirs, name)), name
    assert torch.equal(ours.live.total, theirs.live.total)
    lives = theirs.live.total > -torch.inf  # of others nothing is read
    margin = ours.live.tokens.shape[-1] - ours.live.log_probs.shape[-1]
    for b, k in lives.nonzero().tolist():
        at = int(theirs.at[b])
        for one, other, low, high in (
            (ours.live.tokens, theirs.live.tokens, margin + at - window, margin + at),
            (ours.live.log_probs, theirs.live.log_probs, 0, at),
            *([(ours.came, theirs.came, 0, at)] if hasattr(ours, "came") and ours.came.shape[-1] else []),
        ):
            assert torch.equal(one[b, k, low:high], other[b, k, low:high])
        assert torch.equal(ours_state.hidden[b, k], theirs_state.hidden[b, k])
    assert torch.equal(ours_state.positions, theirs_state.positions)
    if hasattr(ours, "pool"):
        assert torch.equal(ours.pool.score, theirs.pool.score)
        kept = theirs.pool.score > -torch.inf
        assert torch.equal(ours.pool.end[kept], theirs.pool.end[kept])
        assert torch.equal(ours.pool.last[kept], theirs.pool.last[kept])
    else:
        assert torch.equal(ours.finished, theirs.finished)


def check(settings: dict[str, Any], seed: int) -> None:
    config = SearchConfig(max_length=ROOM - 1, **settings)
    constraints, beams = Constraints(config, CPU), config.beam
    method: Any = GreedySearch(config) if GreedySearch.fits(config) else BeamSearch(config, CPU, ROOM)
    generator = torch.Generator().manual_seed(seed)
    (ours, ours_state), (theirs, theirs_state) = (begin(method, constraints, beams) for _ in range(2))
    decoder: Any = Decoder(
        embedding=torch.randn(V, 12, generator=generator), embedding_scale=2.0, positions=torch.randn(ROOM, 12),
        layers=(), last_norm=None, pre=True, residual=True, heads=1, scale=1.0, activation="relu",
    )  # fmt: skip
    for number in range(ROOM - 1 if beams < 9 else 2):
        reads = []
        for here, work, state in ((True, ours, ours_state), (False, theirs, theirs_state)):
            fused_reading.runs_on = lambda tensor, here=here: here  # type: ignore[attr-defined]
            reads.append(fused_reading.read(decoder, constraints, work, state))
        dead = ours.live.total.flatten() == -torch.inf
        for one, other in zip(*reads, strict=True):
            torch.testing.assert_close(one[~dead], other[~dead])
        found = random_logits(SENTENCES * beams, generator, 16 if seed % 2 else 64)
        if number == 0 and config.length_norm == "none":  # a text ends whose score is that of one in the pool
            found.values[0, EOS] = 0.75
            for work in (ours, theirs):
                work.pool.score[0, 0], work.pool.end[0, 0], work.pool.last[0, 0] = 0.75, 7, -5.0
        if beams == 1:  # a text ends where it is as long as it may be
            found.values[0, EOS] = 2.0 if number == 2 else -torch.inf
        found = as_logits(found.values, found.group)
        extend_by_kernels(method, constraints, ours, found, ours_state)
        theirs, parents = method.extend(theirs, scores_of(found, beams), None)
        theirs_state = theirs_state.advanced(1)
        theirs_state = theirs_state if parents is None else theirs_state.reorder(parents)
        alike(ours, ours_state, theirs, theirs_state, len(constraints.margin) - 1)
    assert theirs.done.all() or ours.at.max() > 1
    work, state = begin(method, constraints, beams)
    values = torch.zeros(SENTENCES * beams, V)
    values[beams, 9] = values[2 * beams, 9] = float("nan")  # of a sentence that is open, and of one that is done
    sums = values.sum(1, keepdim=True) + 1
    extend_by_kernels(method, constraints, work, as_logits(values, 64)._replace(sums=sums), state)
    assert work.broken.tolist() == [False, True, False]


def extend_by_kernels(method: Any, constraints: Constraints, work: Any, found: Logits, state: CacheState) -> None:
    if isinstance(method, BeamSearch):
        candidates = fused_ranking.likeliest(found, method.candidates)
        fused_beam.extend(method, constraints, work, candidates, V, state)
    else:
        fused_greedy.write_likeliest(work, found, state.positions)


def scores_of(found: Logits, beams: int) -> Scores:
    return Scores(found.values.unflatten(0, (-1, beams)), torch.zeros(SENTENCES, beams, 1))


def check_ranking() -> None:
    generator = torch.Generator().manual_seed(3)
    for group, count, rows in ((64, 10, 4), (16, 16, 4), (32, 1, 4), (64, V, 3)):
        found = random_logits(rows, generator, group)
        found.values[0, 5], found.values[1, 7] = 0.0, -0.0
        found = _forbid(found.values, torch.zeros(rows, 0, dtype=torch.long), 2, UNK, group)
        ours = fused_ranking.likeliest(found, count)
        expected: Tensor = found.values
        for row in range(rows):
            order = sorted(range(V), key=lambda i: (-float(expected[row, i]), i))[:count]
            assert ours.tokens[row].tolist() == order
        top = best(expected, count)[0] - found.normaliser()
        torch.testing.assert_close(ours.own, top)
    found.values[2, 9] = float("nan")
    broken = _forbid(found.values, torch.zeros(rows, 0, dtype=torch.long), BOS + 1, PAD, 64)
    assert fused_ranking.likeliest(broken, 3).own[2].isnan().all()


if __name__ == "__main__":
    assert triton_here.INTERPRETED
    with torch.inference_mode():
        check_ranking()
        for number, settings in enumerate(SETTINGS.values()):
            check(settings, number)
    print("equal")
