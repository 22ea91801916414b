"""Sampling in NumPy, by the rules of `regard.search.sampling`: the same random numbers give the same texts."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Sequence

import numpy as np

from regard.core.search_config import SearchConfig
from regard.core.specials import EOS
from regard.onnx.hypothesis import Hypothesis, check_numbers, hypothesis, normalised

NONE = -np.inf


@dataclasses.dataclass
class Samples:
    """Samples of every sentence that is not done."""

    config: SearchConfig
    limit: np.ndarray
    given: np.ndarray
    base: np.ndarray
    history: np.ndarray
    own: np.ndarray
    total: np.ndarray
    uniform: np.ndarray  # [B, K, T]
    length: np.ndarray  # [B, K] log-probabilities of a sample, EOS included if it is finished
    over: np.ndarray
    finished: np.ndarray

    @classmethod
    def begin(
        cls,
        config: SearchConfig,
        limit: np.ndarray,
        given: np.ndarray,
        read: np.ndarray,
        own: np.ndarray,
        texts: Sequence[Sequence[int]],
    ) -> Samples:
        """`texts` are the sources, or prompts with BOS before them, that the random numbers depend on."""
        count = config.nbest
        total = np.repeat(own.astype(np.float64).sum(1)[:, None], count, 1)
        history, log_probs = (np.repeat(x[:, None], count, 1) for x in (read, own))
        numbers = uniforms(config, texts, limit)
        none = np.zeros(total.shape, np.bool_)
        length = np.full(total.shape, read.shape[1])
        return cls(
            config, limit, given, total[:, 0].copy(), history, log_probs, total, numbers, length, none, none.copy()
        )

    def extend(self, scores: np.ndarray) -> tuple[None, np.ndarray]:
        """Draws a token of every sample. Gives which sentences are done now."""
        check_numbers(scores)
        at = self.history.shape[2]
        tokens = draw(self.config, scores, self.uniform[..., at])
        own = np.take_along_axis(scores, tokens[..., None], -1)[..., 0]
        dead = own == NONE  # the constraints left nothing
        ends = (tokens == EOS) & ~self.over & ~dead
        writes = ~self.over & ~dead & ((at < self.limit)[:, None] | ends)
        self.over = self.over | ends | ~writes
        with np.errstate(invalid="ignore"):
            self.total = np.where(writes, self.total + own, self.total)
        self.history = np.concatenate([self.history, tokens[..., None]], 2)
        self.own = np.concatenate([self.own, own[..., None]], 2)
        self.base = np.where(at < self.given, self.total[:, 0], self.base)
        self.length, self.finished = self.length + writes, self.finished | ends
        return None, np.asarray(self.over.all(1))

    def collect(self, row: int) -> list[Hypothesis]:
        """The samples of a sentence that is done, in the order of drawing."""
        score = normalised(self.config, self.total[row] - self.base[row], self.length[row] - self.given[row])
        return [
            hypothesis(self.history[row, k, : n - finished], self.own[row, k, :n].tolist(), score[k], bool(finished))
            for k, (n, finished) in enumerate(zip(self.length[row].tolist(), self.finished[row].tolist(), strict=True))
        ]

    def take(self, rows: np.ndarray) -> Samples:
        names = [f.name for f in dataclasses.fields(self) if f.name != "config"]
        return dataclasses.replace(self, **{name: getattr(self, name)[rows] for name in names})


def draw(config: SearchConfig, log_probs: np.ndarray, uniform: np.ndarray) -> np.ndarray:
    """One token of each filtered distribution. Where every token is forbidden, any one of them."""
    tokens = None  # in the order of the vocabulary, unless a filter ranks them
    if 0 < config.top_k < log_probs.shape[-1]:
        tokens = np.argsort(-log_probs, -1, kind="stable")[..., : config.top_k]
        log_probs = np.take_along_axis(log_probs, tokens, -1)
    mass = _softmax(log_probs / np.float32(config.temperature))
    if config.top_p < 1:
        if tokens is None:
            tokens = np.argsort(-mass, -1, kind="stable")
            mass = np.take_along_axis(mass, tokens, -1)
        mass = np.where(mass.cumsum(-1, dtype=np.float32) - mass < config.top_p, mass, np.float32(0))
    if config.min_p > 0:
        mass = np.where(mass >= config.min_p * mass.max(-1, keepdims=True), mass, np.float32(0))
    reached = mass.cumsum(-1, dtype=np.float64)
    whole = reached[..., -1:]
    place = (reached <= uniform[..., None] * whole).sum(-1)  # the first place beyond
    place = np.minimum(place, (reached < whole).sum(-1))  # if rounding made the product the whole
    place = np.minimum(place, reached.shape[-1] - 1)
    return place if tokens is None else np.take_along_axis(tokens, place[..., None], -1)[..., 0]


def _softmax(x: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore"):
        e = np.exp(x - x.max(-1, keepdims=True))
        return np.nan_to_num(e / e.sum(-1, keepdims=True))


def uniforms(config: SearchConfig, texts: Sequence[Sequence[int]], limits: Sequence[int] | np.ndarray) -> np.ndarray:
    """Random numbers in [0, 1): a counter-based stream per sentence and sample, one number per step."""
    numbers = np.zeros((len(texts), config.nbest, int(max(limits, default=0)) + 1))
    for b, (text, limit) in enumerate(zip(texts, limits, strict=True)):
        sentence = np.asarray(text, "<i8").tobytes()
        for k in range(config.nbest):
            name = config.seed.to_bytes(8, "little") + k.to_bytes(8, "little") + sentence
            key = int.from_bytes(hashlib.blake2b(name, digest_size=16).digest(), "little")
            numbers[b, k, : limit + 1] = np.random.Generator(np.random.Philox(key=key)).random(int(limit) + 1)
    return numbers
