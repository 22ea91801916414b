"""The one search: drives any model that keeps the contract, step by step, under beam search or sampling."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, cast

import torch

from regard.core.errors import ModelError
from regard.core.types import EOS, Padded
from regard.models.base import Planner, Writer
from regard.search.bounds import bounds
from regard.search.config import SearchConfig
from regard.search.forcing import attend, check_attends, check_ready, check_sources
from regard.search.hypothesis import Hypothesis
from regard.search.jobs import Jobs, on_host
from regard.search.lengths import merge, tries
from regard.search.recordings import can_replay
from regard.search.replay import CannotReplay
from regard.search.slots import fill_slots
from regard.search.step import Asked, Room, Step
from regard.search.terms import Letters, Term

# Sentences that are done leave once they are a quarter of the batch: taking rows costs a copy of the caches.
DROP_SHARE = 4


class Written(NamedTuple):
    """One token as it is decided, with the model's own log-probability. EOS comes last where the text ends by itself."""

    token: int
    log_prob: float


@torch.inference_mode()
def search(
    model: Writer,
    source: Padded,
    config: SearchConfig,
    prefix: Sequence[Sequence[int]] | None = None,
    *,
    attention: bool = False,
    terms: Sequence[Sequence[Term]] | None = None,
    letters: Letters | None = None,
) -> list[list[Hypothesis]]:
    """Finds text for every source sentence (which ends with EOS): `config.nbest` hypotheses each.

    Beam search gives them best first, finished ones before cut ones, and fewer only if fewer exist; sampling gives them
    in the order of drawing. `prefix` forces the beginning of each sentence's target (empty: nothing forced), scored
    with the model's own log-probabilities; for a language model it is the prompt, whose tokens and log-probabilities are in
    what is returned, but not in the score by which texts are ranked. `attention` fills `Hypothesis.attention`. `terms` must
    be in each sentence's text (see terms.py); one that is cut may lack some. A sentence
    gets the same text whatever its batch mates, up to what float rounding in the model changes.
    """
    host = on_host(source)
    lengths = host.keep.numpy().sum(1).tolist()
    check_sources(model, lengths)
    if config.coverage:
        check_attends(model, "setting search.coverage")
    if attention:
        check_attends(model, "alignment")
    if not len(source.tokens):
        return []
    limits, forced = bounds(model, lengths, config, prefix, terms)
    asked = Asked(source, limits, forced, [] if terms is None else list(map(tuple, terms)), letters, host)
    if "plans" in model.capabilities:
        found = _run_lengths(cast(Planner, model), asked, config)
    else:
        found = run(model, asked, config)
    if attention:
        for hypotheses, weights in zip(found, attend(model, source, found), strict=True):
            for hypothesis, weight in zip(hypotheses, weights, strict=True):
                hypothesis.attention = weight
    return found


def stream(
    model: Writer, source: Padded, config: SearchConfig, prefix: Sequence[Sequence[int]] | None = None
) -> Iterator[Written]:
    """What `search` finds for one source with one hypothesis, token by token as each is decided; forced ones are left out."""
    waits = config.method == "beam" and config.stop != "full"
    if len(source.tokens) != 1 or config.hypotheses != 1 or waits or "plans" in model.capabilities:
        what = "tokens can be given out as they come only where one text is written, without second thoughts"
        raise ModelError("stream", what, 'Give one source, beam=1 and stop="full", or one sample')
    lengths = check_ready(model, source)
    if config.coverage:
        check_attends(model, "setting search.coverage")
    asked = Asked(source, *bounds(model, lengths, config, prefix))
    step = Step(model, config, source.tokens.device, Room.of(asked))
    forced = len(asked.forced[0])
    with torch.inference_mode():  # not while whoever asks does something else
        work, memory, state, at = step.begin(asked)
    while True:
        with torch.inference_mode():
            work, state = step(work, memory, state, at + 1, at < forced)
            if _status(work)[0]:
                break
            margin, at = len(step.constraints.margin), at + 1
            last = work.live.tokens[0, 0, margin + at - 1], work.live.log_probs[0, 0, at - 1]
            written = Written(int(last[0]), float(last[1])) if at > forced else None
        if written is not None:
            yield written
    with torch.inference_mode():
        ((hypothesis,),) = step.method.collect(work.map(lambda tensor: tensor.cpu()))
    if hypothesis.finished:
        yield Written(EOS, hypothesis.token_log_probs[-1])


def _run_lengths(model: Planner, asked: Asked, config: SearchConfig) -> list[list[Hypothesis]]:
    """One search for each length that is tried; texts of all lengths compete, with log P(length) in their scores."""
    found: list[list[Hypothesis]] = [[] for _ in asked.limits]
    for one in tries(model, asked.source, config, asked.limits, [len(tokens) for tokens in asked.forced]):
        texts = run(model, asked.take(one.rows)._replace(limits=one.limits), one.config, planned=True)
        for row, hypotheses in zip(one.rows, one.scored(texts), strict=True):
            found[row] += hypotheses
    return [merge(config, hypotheses) for hypotheses in found]


def run(model: Any, asked: Asked, config: SearchConfig, planned: bool = False) -> list[list[Hypothesis]]:
    """What is found for all that is asked (`model` a Writer; a Planner, if planned: see `Step`)."""
    device = asked.source.tokens.device
    if can_replay(model, config, device):
        host = on_host(asked.source) if asked.host is None else asked.host
        jobs = Jobs.of(host, asked.limits, asked.forced, asked.terms)
        with contextlib.suppress(CannotReplay):
            found: list[list[Hypothesis]] = [[] for _ in asked.limits]
            for some in fill_slots(model, jobs, config, device, planned, letters=asked.letters):
                for number, hypotheses in some:
                    found[number] = hypotheses
            return found
    return _run_plainly(model, asked, config, planned)


def _run_plainly(model: Any, asked: Asked, config: SearchConfig, planned: bool) -> list[list[Hypothesis]]:
    """Step by step, with a look after each; sentences that are done leave."""
    device = asked.source.tokens.device
    step = Step(model, config, device, Room.of(asked), planned, letters=asked.letters)
    results: list[list[Hypothesis]] = [[] for _ in asked.limits]
    work, memory, state, read = step.begin(asked)
    longest = max(map(len, asked.forced))
    for at in range(read, max(asked.limits) + 1):
        work, state = step(work, memory, state, at + 1, at < longest)
        status = _status(work)
        if sum(status) * DROP_SHARE >= len(status):
            leaving = [i for i, done in enumerate(status) if done]
            staying = [i for i, done in enumerate(status) if not done]
            gone = work.take(torch.tensor(leaving, device=device)).map(lambda tensor: tensor.cpu())
            for row, hypotheses in zip(gone.row.tolist(), step.method.collect(gone), strict=True):
                results[row] = hypotheses
            if not staying:
                break
            rows = torch.tensor(staying, device=device)
            work, memory, state = work.take(rows), memory.take(rows), state.take(rows)
    return results


def _status(work: Any) -> list[int]:
    """Which sentences are done. The one place in a step that waits for the device."""
    status = (work.done + 2 * work.broken).tolist()
    if max(status) > 1:
        raise ModelError("search", "the model's scores are not numbers", "Check how it was trained")
    return status
