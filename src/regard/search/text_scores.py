"""Log-probabilities of running text under a language model: every token once, in bounded memory.

The text is one stream, in which each document is followed by EOS; EOS is read as BOS. A model whose state is carried in
training reads it from end to end. Any other reads overlapping windows, and of each only what no window before has scored.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from regard.core.errors import DataError, ModelError
from regard.core.types import EOS, PAD, Padded
from regard.data.batching import ALL, Part
from regard.data.token_stream import TokenStream, scoring_windows
from regard.models.base import LanguageModel
from regard.search.forcing import SCORE_CELLS

CARRIED_TOKENS = 1024  # read at once where the state is carried
LANES, WARM_UP = 32, 256  # of a text that is read in several places at once, and tokens read before each of them
WINDOW_TOKENS = {"cpu": 1 << 12}  # of all windows read at once
WINDOW_TOKENS_ELSEWHERE = 1 << 16


def no_source(rows: int, device: torch.device | str) -> Padded:
    """A source for models that have none: it only says how many rows there are."""
    source = torch.full((rows, 1), EOS, device=device)
    return Padded(source, source != PAD)


def mix(log_p: NDArray[Any], log_p_other: NDArray[Any], weight: int | float = 0.5) -> NDArray[np.float64]:
    """log(weight P + (1 - weight) P_other), token by token. Bengio et al. 2003 mix with equal weights."""
    if not 0 <= weight <= 1:
        raise DataError("mixture", f"a weight of {weight}", "Give one from 0 (the other model alone) to 1")
    one, other = (np.asarray(each, dtype=np.float64) for each in (log_p, log_p_other))
    if one.shape != other.shape:
        what = f"log-probabilities of {one.size:,} and of {other.size:,} tokens"
        raise DataError("mixture", what, "Score the same tokens with both")
    if weight in (0, 1):
        return (one if weight else other).copy()
    return np.logaddexp(one + math.log(weight), other + math.log(1 - weight))


def stream_scores(
    model: LanguageModel, tokens: np.ndarray, device: torch.device, *, context: int, stride: int, part: Part = ALL
) -> Iterator[np.ndarray]:
    """log P(token | all before) of a stream of token ids, in order, in parts, as float64.

    `context` and `stride` (from 1 to `context`) are for models that do not carry their state: a window has `context` tokens
    and begins `stride` after the one before, so that all but the first `context` tokens are scored with at least
    `context - stride` tokens before them; of several workers, each reads its part of the windows.
    """
    if model.training:
        raise ModelError("scoring", "the model is in training mode, with dropout on", "Call model.eval() first")
    if len(tokens) and not 0 <= int(tokens.min()) <= int(tokens.max()) < model.output.vocabulary:
        what = f"the text has a token outside the vocabulary of {model.output.vocabulary}"
        raise ModelError("scoring", what, "Use the model's own tokenizer")
    parts = _carried(model, tokens, device) if model.carries else _windows(model, tokens, device, context, stride, part)
    while True:
        with torch.inference_mode():  # not around a yield: it is for this work alone
            found = next(parts, None)
        if found is None:
            return
        if np.isnan(found).any():
            raise ModelError("scoring", "the model's scores are not numbers", "Check how it was trained")
        yield found


def _carried(model: LanguageModel, tokens: np.ndarray, device: torch.device) -> Iterator[np.ndarray]:
    stream = TokenStream(tokens)
    memory, state = model.start(no_source(1, device), capacity=CARRIED_TOKENS)
    for begin in range(0, len(tokens), CARRIED_TOKENS):
        read, wanted = stream.windows(np.array([begin]), min(CARRIED_TOKENS, len(tokens) - begin))
        hidden, state = model.advance(torch.from_numpy(read)[:, None].to(device), memory, state)
        yield _own(model, hidden[0, 0], wanted[0])


@torch.inference_mode()
def mean_score(
    model: LanguageModel, tokens: np.ndarray, device: torch.device, *, context: int, part: Part = ALL
) -> float:
    """The mean log P(token | all before) of a stream, fast, for validation; of several workers, each one's part of the sum.

    A model that carries its state reads a long text in several lanes at once: each begins with an empty state a few hundred
    tokens before those that it scores. All else is as in `stream_scores`, with windows of `context` that overlap by half.
    """
    if not model.carries or len(tokens) < LANES * 4 * WARM_UP:
        if model.carries and part.rank:  # there is one way through a short text
            return 0.0
        parts = stream_scores(model, tokens, device, context=context, stride=max(1, context // 2), part=part)
        return math.fsum(float(part.sum()) for part in parts) / len(tokens)
    length = -(-(len(tokens) - WARM_UP) // LANES)
    lanes = part.of(np.arange(LANES))
    begins = lanes * length
    stream = TokenStream(np.concatenate([tokens, np.full(WARM_UP + length * LANES - len(tokens), EOS, tokens.dtype)]))
    memory, state = model.start(no_source(len(lanes), device), capacity=CARRIED_TOKENS)
    total = 0.0
    for begin in range(0, WARM_UP + length, WARM_UP):
        read, wanted = stream.windows(begins + begin, min(WARM_UP, WARM_UP + length - begin))
        hidden, state = model.advance(torch.from_numpy(read)[:, None].to(device), memory, state)
        counts = begins[:, None] + begin + np.arange(wanted.shape[1]) < len(tokens)
        if begin == 0:  # only the first lane begins where the text does
            counts[lanes > 0] = False
        if part.rank >= LANES:
            counts[:] = False
        own = _own(model, hidden[:, 0].flatten(0, 1), wanted.reshape(-1))
        total += float(own[counts.reshape(-1)].sum())
    if math.isnan(total):
        raise ModelError("scoring", "the model's scores are not numbers", "Check how it was trained")
    return total / len(tokens)


def _windows(
    model: LanguageModel, tokens: np.ndarray, device: torch.device, context: int, stride: int, part: Part
) -> Iterator[np.ndarray]:
    stream = TokenStream(tokens)
    most = max(1, WINDOW_TOKENS.get(device.type, WINDOW_TOKENS_ELSEWHERE) // context)
    windows = itertools.islice(scoring_windows(len(tokens), context, stride), part.rank, None, part.size)
    for width, same in itertools.groupby(windows, key=lambda window: window.end - window.begin):
        while some := list(itertools.islice(same, most)):
            read, wanted = stream.windows(np.array([window.begin for window in some]), width)
            source = no_source(len(some), device)
            hidden = cast(Any, model)(source, torch.from_numpy(read).to(device)).hidden
            firsts = [window.first - window.begin for window in some]
            scored = torch.cat([rows[first:] for rows, first in zip(hidden, firsts, strict=True)])
            yield _own(model, scored, np.concatenate([w[first:] for w, first in zip(wanted, firsts, strict=True)]))


def _own(model: LanguageModel, hidden: Float[Tensor, "N D"], wanted: np.ndarray) -> np.ndarray:
    rows = max(1, SCORE_CELLS // model.output.vocabulary)
    targets: Int[Tensor, "N"] = torch.from_numpy(wanted).to(hidden.device)
    pairs = zip(hidden.split(rows), targets.split(rows), strict=True)
    own = [model.output.scores(h).gather(-1, w[:, None])[:, 0] for h, w in pairs]
    return torch.cat(own).cpu().double().numpy()
