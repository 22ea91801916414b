"""Given texts under a model: their log-probabilities and attention, by teacher forcing in bounded memory."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import cast

import torch
from jaxtyping import Float
from torch import Tensor

from regard.core.errors import ModelError
from regard.core.types import BOS, EOS, Padded, pad_rows
from regard.models.base import Planner, Recorder, Writer
from regard.search.hypothesis import Hypothesis

GROUP_CELLS = 1 << 20  # sentences x (source + target positions)^2 read at once: bounds explicit attention weights
SCORE_CELLS = 1 << 23  # positions x vocabulary scored at once: 32 MiB of log-probabilities


@torch.inference_mode()
def score_pairs(model: Writer, source: Padded, targets: Sequence[Sequence[int]]) -> list[tuple[float, list[float]]]:
    """Each target's log-probability (given without BOS and EOS): the sum, and that of every token, EOS last.

    Of a model that plans, the sum has the log-probability of the target's length, too.
    """
    if len(targets) != len(source.tokens):
        raise _uneven("scoring", len(targets), source)
    check_ready(model, source)
    check_targets(model, targets)
    results = []
    for rows in _groups(source, targets):
        texts = [list(targets[i]) for i in rows]
        hidden = model(*_inputs(source, rows, texts)).hidden
        written = pad_rows([[*text, EOS] for text in texts]).to(hidden.device)
        kept, wanted = hidden[written.keep], written.tokens[written.keep]
        chunk = max(1, SCORE_CELLS // model.output.vocabulary)
        chunks = zip(kept.split(chunk), wanted.split(chunk), strict=True)
        own = [model.output.scores(h).gather(-1, w[:, None])[:, 0] for h, w in chunks]
        lengths = [len(text) + 1 for text in texts]
        planned = _length_scores(model, source, rows, lengths)
        for log_probs, of_length in zip(torch.cat(own).cpu().split(lengths), planned, strict=True):
            results.append((math.fsum([*log_probs.tolist(), of_length]), log_probs.tolist()))
    return results


def _length_scores(model: Writer, source: Padded, rows: range, lengths: Sequence[int]) -> list[float]:
    if "plans" not in model.capabilities:
        return [0.0] * len(lengths)
    sources = source.take(torch.arange(rows.start, rows.stop, device=source.tokens.device))
    scores = cast(Planner, model).length_scores(sources, max(lengths)).cpu()
    return scores[torch.arange(len(lengths)), torch.tensor(lengths) - 1].tolist()


@torch.inference_mode()
def attend(
    model: Writer, source: Padded, hypotheses: Sequence[Sequence[Hypothesis]]
) -> list[list[Float[Tensor, "T S"]]]:
    """The attention under which each hypothesis was written, on the CPU.

    Rows are its tokens, then EOS if it is finished; columns are the source's tokens, its EOS included.
    """
    if len(hypotheses) != len(source.tokens):
        raise _uneven("alignment", len(hypotheses), source)
    check_ready(model, source)
    check_attends(model, "alignment")
    flat = [(b, hypothesis) for b, found in enumerate(hypotheses) for hypothesis in found]
    result: list[list[Tensor]] = [[] for _ in hypotheses]
    if not flat:
        return result
    per_text = source.take(torch.tensor([b for b, _ in flat], device=source.tokens.device))
    weights = attend_targets(model, per_text, [hypothesis.tokens for _, hypothesis in flat])
    for weight, (b, hypothesis) in zip(weights, flat, strict=True):
        result[b].append(weight[: len(hypothesis.tokens) + hypothesis.finished])
    return result


@torch.inference_mode()
def attend_targets(model: Writer, source: Padded, targets: Sequence[Sequence[int]]) -> list[Float[Tensor, "T S"]]:
    """The attention under which each target (given without BOS and EOS) is written, on the CPU.

    Rows are its tokens, then EOS; columns are the source's tokens, its EOS included.
    """
    if len(targets) != len(source.tokens):
        raise _uneven("alignment", len(targets), source)
    check_ready(model, source)
    check_attends(model, "alignment")
    check_targets(model, targets)
    lengths = source.lengths.tolist()
    result: list[Tensor] = []
    for rows in _groups(source, targets):
        record = Recorder()
        model(*_inputs(source, rows, [targets[i] for i in rows]), record)
        weights = model.alignment(record).float().cpu()
        result += [weight[: len(targets[i]) + 1, : lengths[i]].clone() for weight, i in zip(weights, rows, strict=True)]
    return result


def check_ready(model: Writer, source: Padded) -> list[int]:
    """The sources' lengths; raises unless the model can be asked about them."""
    lengths = source.lengths.tolist()
    check_sources(model, lengths)
    return lengths


def check_sources(model: Writer, lengths: Sequence[int]) -> None:
    """Raises unless the model can be asked about sources of these lengths."""
    if model.training:
        raise ModelError("search", "the model is in training mode, with dropout on", "Call model.eval() first")
    if min(lengths, default=1) < 1:
        raise ModelError("search", "a source without any token was given", "End every source with EOS")
    limit, longest = model.limits.source, max(lengths, default=1)
    if limit is not None and longest > limit:
        raise ModelError("search", f"a source has {longest} tokens, the model reads {limit}", "Split it into sentences")


def check_attends(model: Writer, what: str) -> None:
    """Raises unless the model has attention weights to show."""
    if "attends" not in model.capabilities:
        what_is_wrong = f"{type(model).__name__} has no attention over the source"
        raise ModelError(what, what_is_wrong, "Use a model that attends, or do without")


def check_targets(model: Writer, targets: Sequence[Sequence[int]]) -> None:
    """Raises unless the model can read BOS and each of these targets."""
    limit, vocabulary = model.limits.target, model.output.vocabulary
    for i, target in enumerate(targets):
        if limit is not None and len(target) + 1 > limit:
            what = f"{len(target)} tokens and EOS are beyond the model's maximum of {limit}"
            raise ModelError(f"target {i + 1}", what, "Shorten it")
        if target and not 0 <= min(target) <= max(target) < vocabulary:
            what = f"it has a token outside the vocabulary of {vocabulary}"
            raise ModelError(f"target {i + 1}", what, "Use the model's own tokenizer")


def _uneven(where: str, count: int, source: Padded) -> ModelError:
    what = f"targets were given for {count} of {len(source.tokens)} sources"
    return ModelError(where, what, "Give them for every source")


def _inputs(source: Padded, rows: range, texts: Sequence[Sequence[int]]) -> tuple[Padded, Tensor]:
    device = source.tokens.device
    target = pad_rows([[BOS, *text] for text in texts]).tokens.to(device)
    return source.take(torch.arange(rows.start, rows.stop, device=device)), target


def _groups(source: Padded, targets: Sequence[Sequence[int]]) -> Iterator[range]:
    """Consecutive rows, as many at a time as fit the budget (at least one)."""
    start, widest = 0, 0
    for i, (length, target) in enumerate(zip(source.lengths.tolist(), targets, strict=True)):
        width = max(widest, length + len(target) + 1)
        if i > start and (i + 1 - start) * width * width > GROUP_CELLS:
            yield range(start, i)
            start, width = i, length + len(target) + 1
        widest = width
    if targets:
        yield range(start, len(targets))
