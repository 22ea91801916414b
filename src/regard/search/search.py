"""The one search: drives any model that keeps the contract, step by step, under beam search or sampling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from jaxtyping import Int
from torch import Tensor

from regard.core.errors import ModelError
from regard.core.types import BOS, EOS, PAD, Padded
from regard.models.base import Planner, Recorder, Writer
from regard.search.beam import BeamSearch
from regard.search.config import SearchConfig
from regard.search.constraints import Constraints
from regard.search.forcing import attend, check_attends, check_ready
from regard.search.hypothesis import Hypothesis, Live, Work
from regard.search.lengths import merge, tries
from regard.search.ranking import precise
from regard.search.sampling import Sampling

# Sentences that are done leave once they are a quarter of the batch: taking rows costs a copy of the caches.
DROP_SHARE = 4


@torch.inference_mode()
def search(
    model: Writer,
    source: Padded,
    config: SearchConfig,
    prefix: Sequence[Sequence[int]] | None = None,
    *,
    attention: bool = False,
) -> list[list[Hypothesis]]:
    """Finds text for every source sentence (which ends with EOS): `config.nbest` hypotheses each.

    Beam search gives them best first, finished ones before cut ones, and fewer only if fewer exist; sampling gives them
    in the order of drawing. `prefix` forces the beginning of each sentence's target (empty: nothing forced), scored
    with the model's own log-probabilities. `attention` fills `Hypothesis.attention`. A sentence gets the same text
    whatever its batch mates, up to what float rounding in the model changes.
    """
    check_ready(model, source)
    if config.coverage:
        check_attends(model, "setting search.coverage")
    if attention:
        check_attends(model, "alignment")
    if not len(source.tokens):
        return []
    limits = length_limits(model, source, config)
    forced = _forced(model, prefix, limits, source.tokens.device)
    if "plans" in model.capabilities:
        found = _run_lengths(cast(Planner, model), source, config, limits, forced)
    else:
        found = _run(model, source, config, limits, forced)
    if attention:
        for hypotheses, weights in zip(found, attend(model, source, found), strict=True):
            for hypothesis, weight in zip(hypotheses, weights, strict=True):
                hypothesis.attention = weight
    return found


def length_limits(model: Writer, source: Padded, config: SearchConfig) -> list[int]:
    """The most tokens each sentence may write, EOS not counted: a function of its own source's length, less EOS.

    At least 1. A model that can read N target positions reads BOS in the first of them, which leaves N - 1.
    """
    most = config.max_length
    if model.limits.target is not None:
        most = min(most, model.limits.target - 1)
    return [max(1, min(int(config.max_ratio * (n - 1) + config.max_extra), most)) for n in source.lengths.tolist()]


def _forced(
    model: Writer, prefix: Sequence[Sequence[int]] | None, limits: Sequence[int], device: torch.device
) -> Int[Tensor, "B P"]:
    """The forced prefixes as one rectangle, filled up with -1."""
    if prefix is None:
        return torch.zeros((len(limits), 0), dtype=torch.long, device=device)
    if len(prefix) != len(limits):
        what = f"{len(prefix)} prefixes for {len(limits)} sentences"
        raise ModelError("prefix", what, "Give one per sentence, empty where nothing is forced")
    for i, (tokens, limit) in enumerate(zip(prefix, limits, strict=True)):
        where = f"prefix of sentence {i + 1}"
        if len(tokens) > limit:
            what = f"it has {len(tokens)} tokens, the sentence may have {limit}"
            raise ModelError(where, what, "Shorten it or raise search.max_extra")
        if any(not 0 <= token < model.output.vocabulary or token in (PAD, BOS, EOS) for token in tokens):
            what = "it has a token that is padding, BOS, EOS or outside the vocabulary"
            raise ModelError(where, what, "Give text tokens only")
    width = max(len(tokens) for tokens in prefix)
    rows = [[*tokens, *[-1] * (width - len(tokens))] for tokens in prefix]
    return torch.tensor(rows, dtype=torch.long, device=device).reshape(len(limits), width)


def _run_lengths(
    model: Planner, source: Padded, config: SearchConfig, limits: Sequence[int], forced: Int[Tensor, "B P"]
) -> list[list[Hypothesis]]:
    """One search for each length that is tried; texts of all lengths compete, with log P(length) in their scores."""
    found: list[list[Hypothesis]] = [[] for _ in limits]
    for one in tries(model, source, config, limits, (forced >= 0).sum(1).tolist()):
        rows = torch.tensor(one.rows, device=source.tokens.device)
        texts = _run(model, source.take(rows), one.config, one.limits, forced[rows], planned=True)
        for row, hypotheses in zip(one.rows, one.scored(texts), strict=True):
            found[row] += hypotheses
    return [merge(config, hypotheses) for hypotheses in found]


def _run(
    model: Any,  # a Writer; a Planner, if planned
    source: Padded,
    config: SearchConfig,
    limits: Sequence[int],
    forced: Int[Tensor, "B P"],
    planned: bool = False,
) -> list[list[Hypothesis]]:
    """`planned`: every text gets as many tokens as its limit says, and the model is told so beforehand."""
    method = BeamSearch(config) if config.method == "beam" else Sampling(config, source, limits)
    device, b, k = source.tokens.device, len(limits), config.hypotheses
    constraints = Constraints(config, device)
    total = torch.zeros((b, k), dtype=precise(device), device=device)
    covered = torch.zeros((b, k, source.tokens.shape[1]), device=device) if config.coverage else None
    no = torch.zeros(b, dtype=torch.bool, device=device)
    # `Any`: the methods take and give their own kind of work, and each sees only its own
    step_method: Any = method
    work: Any = step_method.begin(
        Work(
            row=torch.arange(b, device=device),
            limit=torch.tensor(limits, device=device),
            keep=source.keep,
            forced=forced,
            done=no,
            broken=no,
            live=Live.begin(constraints.margin, total, covered),
        )
    )
    length = work.limit + 1 if planned else None
    memory, state = model.start(source, beams=k, capacity=max(limits) + 1, target_length=length)
    results: list[list[Hypothesis]] = [[] for _ in limits]
    for step in range(max(limits) + 1):
        record = Recorder() if config.coverage else None
        hidden, state = model.step(work.live.tokens[..., -1], memory, state, record)
        log_probs = constraints.apply(model.output.scores(hidden), work.live.tokens, work.forced)
        if planned:
            log_probs = constraints.end_at(log_probs, work.limit, step)
        seen = None if record is None else work.live.covered + model.alignment(record)[:, :, 0].float()
        work, parents = step_method.extend(work, log_probs, seen, step)

        status = (work.done + 2 * work.broken).tolist()  # the one place in a step that waits for the device
        if max(status) > 1:
            raise ModelError("search", "the model's scores are not numbers", "Check how it was trained")
        if sum(status) * DROP_SHARE >= len(status):
            leaving = [i for i, done in enumerate(status) if done]
            staying = [i for i, done in enumerate(status) if not done]
            gone = work.take(torch.tensor(leaving, device=device)).map(lambda tensor: tensor.cpu())
            for row, hypotheses in zip(gone.row.tolist(), step_method.collect(gone), strict=True):
                results[row] = hypotheses
            if not staying:
                break
            rows = torch.tensor(staying, device=device)
            work, memory, state = work.take(rows), memory.take(rows), state.take(rows)
            parents = None if parents is None else parents[rows]
        if parents is not None:
            state = state.reorder(parents)
    return results
