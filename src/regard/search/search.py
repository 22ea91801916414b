"""The one search: drives any model that keeps the contract, step by step, under beam search or sampling."""

from __future__ import annotations

import dataclasses
from collections.abc import Generator, Iterator, Sequence
from typing import Any, NamedTuple, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.core.errors import ModelError
from regard.core.types import BOS, EOS, PAD, Padded, pad_rows
from regard.models.base import Planner, Recorder, Writer
from regard.search.beam import BeamSearch
from regard.search.config import SearchConfig
from regard.search.constraints import Constraints
from regard.search.forcing import SCORE_CELLS, attend, check_attends, check_ready
from regard.search.hypothesis import Hypothesis, Live, Work
from regard.search.lengths import merge, tries
from regard.search.ranking import precise
from regard.search.sampling import Sampling

# Sentences that are done leave once they are a quarter of the batch: taking rows costs a copy of the caches.
DROP_SHARE = 4
READ_CELLS = 1 << 24  # (rows x tokens) x (hypotheses x tokens) of a prompt read at once: bounds masks and attention


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
) -> list[list[Hypothesis]]:
    """Finds text for every source sentence (which ends with EOS): `config.nbest` hypotheses each.

    Beam search gives them best first, finished ones before cut ones, and fewer only if fewer exist; sampling gives them
    in the order of drawing. `prefix` forces the beginning of each sentence's target (empty: nothing forced), scored
    with the model's own log-probabilities; for a language model it is the prompt, whose tokens and log-probabilities are in
    what is returned, but not in the score by which texts are ranked. `attention` fills `Hypothesis.attention`. A sentence
    gets the same text whatever its batch mates, up to what float rounding in the model changes.
    """
    check_ready(model, source)
    if config.coverage:
        check_attends(model, "setting search.coverage")
    if attention:
        check_attends(model, "alignment")
    if not len(source.tokens):
        return []
    limits, forced = _bounds(model, source, config, prefix)
    if "plans" in model.capabilities:
        found = _run_lengths(cast(Planner, model), source, config, limits, forced)
    else:
        found = _run(model, source, config, limits, forced)
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
    check_ready(model, source)
    if config.coverage:
        check_attends(model, "setting search.coverage")
    limits, forced = _bounds(model, source, config, prefix)
    steps = _steps(model, source, config, limits, forced)
    while True:
        with torch.inference_mode():  # not while whoever asks does something else
            try:
                live, done = next(steps)
            except StopIteration as end:
                ((hypothesis,),) = end.value
                break
            new = not done and live.log_probs.shape[-1] > forced.shape[1]
            written = Written(int(live.tokens[0, 0, -1]), float(live.log_probs[0, 0, -1])) if new else None
        if written is not None:
            yield written
    if hypothesis.finished:
        yield Written(EOS, hypothesis.token_log_probs[-1])


def _bounds(
    model: Writer, source: Padded, config: SearchConfig, prefix: Sequence[Sequence[int]] | None
) -> tuple[list[int], Int[Tensor, "B P"]]:
    """The most tokens of each sentence, and the forced prefixes, checked."""
    if prefix is not None and len(prefix) != len(source.tokens):
        what = f"{len(prefix)} prefixes for {len(source.tokens)} sentences"
        raise ModelError("prefix", what, "Give one per sentence, empty where nothing is forced")
    if "continues" in model.capabilities:
        limits = _prompt_limits(model, len(source.tokens), config, prefix)
    else:
        limits = length_limits(model, source, config)
    return limits, _forced(model, prefix, limits, source.tokens.device)


def _prompt_limits(model: Writer, rows: int, config: SearchConfig, prefix: Sequence[Sequence[int]] | None) -> list[int]:
    """The most tokens of each text of a language model, its prompt counted, EOS not: `max_length` new ones, if it reads so many."""
    limits, context = [], model.limits.target
    for i, prompt in enumerate(prefix if prefix is not None else [()] * rows):
        if context is not None and len(prompt) > context - 2:
            what = f"it has {len(prompt)} tokens, and the model reads at most {max(0, context - 2)} to write one more"
            todo = f"Shorten it, for instance to its last {max(0, context - 2)} tokens, or use a model with a longer context"
            raise ModelError(f"prompt {i + 1}", what, todo)
        most = len(prompt) + config.max_length
        limits.append(most if context is None else min(most, context - 1))
    return limits


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
    steps = _steps(model, source, config, limits, forced, planned)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


def _steps(
    model: Any,  # a Writer; a Planner, if planned
    source: Padded,
    config: SearchConfig,
    limits: Sequence[int],
    forced: Int[Tensor, "B P"],
    planned: bool = False,
) -> Generator[tuple[Live, bool], None, list[list[Hypothesis]]]:
    """Gives, after every step, what is being written and whether all of it is done; returns what was found.

    `planned`: every text gets as many tokens as its limit says, and the model is told so beforehand.
    """
    continues = "continues" in model.capabilities
    device, b, k = source.tokens.device, len(limits), config.hypotheses
    given = (forced >= 0).sum(1) * int(continues)
    text = _prompts(forced) if continues else source
    method = BeamSearch(config) if config.method == "beam" else Sampling(config, text, limits)
    constraints = Constraints(config, device)
    total = torch.zeros((b, k), dtype=precise(device), device=device)
    covered = torch.zeros((b, k, source.tokens.shape[1]), device=device) if config.coverage else None
    no = torch.zeros(b, dtype=torch.bool, device=device)
    live = Live.begin(constraints.margin, total, covered)
    shared = int(given.min()) if continues else 0  # tokens that every row is given: read at once
    length = torch.tensor(limits, device=device) + 1 if planned else None
    room = {"beams": k, "capacity": max(limits) + 1, "target_length": length}
    memory, state = model.start(source, **room)
    if shared:
        own, state = _read(model, memory, state, forced[:, :shared], k)
        if bool(own.isfinite().all()):
            live = live.after(forced[:, :shared], own)
        else:  # a token that is impossible, or scores that are no numbers: step by step, as if nothing had been read
            shared, (memory, state) = 0, model.start(source, **room)
    # `Any`: the methods take and give their own kind of work, and each sees only its own
    step_method: Any = method
    work: Any = step_method.begin(
        Work(
            row=torch.arange(b, device=device),
            limit=torch.tensor(limits, device=device),
            keep=source.keep,
            forced=forced,
            given=given,
            base=live.total[:, 0],
            done=no,
            broken=no,
            live=live,
        )
    )
    results: list[list[Hypothesis]] = [[] for _ in limits]
    for step in range(shared, max(limits) + 1):
        record = Recorder() if config.coverage else None
        hidden, state = model.step(work.live.tokens[..., -1], memory, state, record)
        minimum = work.given if continues else None
        log_probs = constraints.apply(model.output.scores(hidden), work.live.tokens, work.forced, minimum)
        if planned:
            log_probs = constraints.end_at(log_probs, work.limit, step)
        seen = None if record is None else work.live.covered + model.alignment(record)[:, :, 0].float()
        work, parents = step_method.extend(work, log_probs, seen, step)
        if continues and step < forced.shape[1]:
            work = dataclasses.replace(work, base=work.base.where(step >= work.given, work.live.total[:, 0]))

        status = (work.done + 2 * work.broken).tolist()  # the one place in a step that waits for the device
        if max(status) > 1:
            raise ModelError("search", "the model's scores are not numbers", "Check how it was trained")
        yield work.live, min(status) == 1
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


def _prompts(forced: Int[Tensor, "B P"]) -> Padded:
    """Prompts as texts of their own, whose tokens the random numbers of sampling depend on; an empty one is BOS alone."""
    rows = [[BOS, *(token for token in row if token >= 0)] for row in forced.tolist()]
    return pad_rows(rows).to(forced.device)


def _read(
    model: Any, memory: Any, state: Any, tokens: Int[Tensor, "B T"], beams: int
) -> tuple[Float[Tensor, "B T"], Any]:
    """Reads BOS and the given tokens but the last, which the next step reads: the tokens' log-probabilities, and the state."""
    rows, count = tokens.shape
    inputs = torch.cat([torch.full_like(tokens[:, :1], BOS), tokens[:, :-1]], 1)
    piece = max(1, READ_CELLS // (rows * beams * beams * count))
    scored = max(1, SCORE_CELLS // model.output.vocabulary)
    own = []
    for begin in range(0, count, piece):
        part = inputs[:, begin : begin + piece]
        hidden, state = model.advance(part[:, None].expand(-1, beams, -1), memory, state)
        flat, wanted = hidden[:, 0].flatten(0, 1), tokens[:, begin : begin + piece].flatten()
        chunks = zip(flat.split(scored), wanted.split(scored), strict=True)
        found = [model.output.scores(h).gather(-1, w[:, None])[:, 0] for h, w in chunks]
        own.append(torch.cat(found).unflatten(0, part.shape))
    return torch.cat(own, 1), state
