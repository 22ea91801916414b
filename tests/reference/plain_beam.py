"""Beam search once more, in plain Python: one sentence, lists and tuples, every score recomputed by teacher forcing.

It shares no code with regard.search beyond the settings, so that a mistake would have to be made twice.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch

from regard.core.types import BOS, EOS, PAD, UNK, Padded, pad_rows
from regard.models.base import Recorder, Writer
from regard.search import SearchConfig


class Found(NamedTuple):
    tokens: tuple[int, ...]
    score: float
    log_probs: tuple[float, ...]
    finished: bool


class Oracle:
    """A model as a function from what was written to the next log-probabilities, and to the attention so far."""

    def __init__(self, model: Writer, source: list[int]):
        self.model, self.source = model, source
        self.known: dict[tuple[int, ...], tuple[list[float], list[list[float]]]] = {}

    def __call__(self, written: tuple[int, ...]) -> tuple[list[float], list[list[float]]]:
        if written not in self.known:
            record = Recorder()
            with torch.no_grad():
                hidden = self.model(pad_rows([self.source]), torch.tensor([[BOS, *written]]), record).hidden
                last = self.model.output.scores(hidden[0, -1])
            self.known[written] = (last.tolist(), self.model.alignment(record)[0].tolist())
        return self.known[written]


def plain_score(config: SearchConfig, log_probs: tuple[float, ...], attention: list[list[float]]) -> float:
    n = len(log_probs)
    score = math.fsum(log_probs)
    if config.length_norm == "gnmt":
        score /= ((5 + n) / 6) ** config.alpha
    elif config.length_norm == "plain":
        score /= n**config.alpha
    if config.coverage:
        for column in zip(*attention[:n], strict=True):
            score += config.coverage * math.log(min(max(sum(column), 1e-6), 1))
    return score


def allowed(config: SearchConfig, written: tuple[int, ...], token: int, prefix: list[int]) -> bool:
    if len(written) < len(prefix):
        return token == prefix[len(written)]
    if token in (PAD, BOS) or (token == UNK and config.ban_unknown):
        return False
    if token == EOS:
        return len(written) >= config.min_length
    text, n = [*written, token], config.no_repeat_ngram
    if n:
        grams = [tuple(text[i : i + n]) for i in range(len(text) - n + 1)]
        if grams and grams[-1] in grams[:-1]:
            return False
    if config.max_repeat:
        for n in (1, 2, 3, 4):
            tail = text[-n * (config.max_repeat + 1) :]
            if len(tail) == n * (config.max_repeat + 1) and tail == tail[-n:] * (config.max_repeat + 1):
                return False
    return True


def plain_limit(config: SearchConfig, source: list[int]) -> int:
    return max(1, min(int(config.max_ratio * (len(source) - 1) + config.max_extra), config.max_length))


def plain_beam(model: Writer, source: list[int], config: SearchConfig, prefix: list[int]) -> list[Found]:
    oracle, limit, k = Oracle(model, source), plain_limit(config, source), config.beam
    live: list[tuple[tuple[int, ...], tuple[float, ...]]] = [((), ())]
    pool: list[Found] = []
    for step in range(limit + 1):
        continuations = []
        for place, (written, log_probs) in enumerate(live):
            for token, log_prob in enumerate(oracle(written)[0]):
                if allowed(config, written, token, prefix):
                    longer = (*log_probs, log_prob)
                    continuations.append((-math.fsum(longer), place, token, longer))
        continuations.sort()
        just_ended = set()
        for _, place, token, log_probs in continuations[:k]:
            if token == EOS:
                written = live[place][0]
                pool.append(Found(written, plain_score(config, log_probs, oracle(written)[1]), log_probs, True))
                just_ended.add(written)
        pool = sorted(pool, key=lambda found: -found.score)[:k]
        going = [c for c in continuations[: 2 * k] if c[2] != EOS][:k]
        going = [((*live[place][0], token), log_probs) for _, place, token, log_probs in going]
        full = len(pool) == k
        if full and config.stop == "exact" and going:
            longest = {"gnmt": ((6 + limit) / 6) ** config.alpha, "plain": (limit + 1) ** config.alpha, "none": 1}
            most = max(math.fsum(log_probs) for _, log_probs in going) / longest[config.length_norm]
            full = most <= pool[-1].score
        if full or step == limit or not going:
            cut = [
                Found(written, plain_score(config, log_probs, oracle(written)[1]), log_probs, False)
                for written, log_probs in live
                if written not in just_ended
            ]
            return (pool + sorted(cut, key=lambda found: -found.score))[: config.nbest]
        live = going
    raise AssertionError("the loop returns at its last step")


def sources_of(source: Padded) -> list[list[int]]:
    return [tokens[keep].tolist() for tokens, keep in zip(source.tokens, source.keep, strict=True)]
