"""Beam search in NumPy, by the rules of `regard.search.beam`, which says them in words."""

from __future__ import annotations

import dataclasses

import numpy as np

from regard.core.search_config import SearchConfig
from regard.core.specials import EOS
from regard.onnx.hypothesis import Hypothesis, check_numbers, hypothesis, largest, normalised

NONE = -np.inf


@dataclasses.dataclass
class Beam:
    """K hypotheses of every sentence that is not done, and the K best finished ones."""

    config: SearchConfig
    limit: np.ndarray  # [B] most tokens, EOS not counted
    given: np.ndarray  # [B] tokens of a prompt, which do not count in scores
    base: np.ndarray  # [B] the log-probability of those
    history: np.ndarray  # [B, K, T]
    own: np.ndarray  # [B, K, T] log-probabilities of what was written
    total: np.ndarray  # [B, K] their sum; -inf: no hypothesis
    pool: list[list[tuple[float, Hypothesis]]]  # best first

    @classmethod
    def begin(
        cls, config: SearchConfig, limit: np.ndarray, given: np.ndarray, read: np.ndarray, own: np.ndarray
    ) -> Beam:
        """All hypotheses begin with the tokens [B, T] that were read, of which only the first lives."""
        beams = config.beam
        total = np.full((len(limit), beams), NONE)
        total[:, 0] = own.astype(np.float64).sum(1)
        history, log_probs = (np.repeat(x[:, None], beams, 1) for x in (read, own))
        return cls(config, limit, given, total[:, 0].copy(), history, log_probs, total, [[] for _ in limit])

    def extend(self, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Writes a token of every hypothesis. Gives the parents [B, K], and which sentences are done now: these are as before."""
        check_numbers(scores)
        rows, beams, vocabulary = scores.shape
        at = self.history.shape[2]
        values, places = largest(scores, 2 * beams)
        code = (places + np.arange(beams)[:, None] * vocabulary).reshape(rows, -1)  # by hypothesis, then token
        own = values.reshape(rows, -1)
        sums = (self.total[..., None] + values).reshape(rows, -1)
        order = np.argsort(-sums, 1, kind="stable")[:, : 2 * beams]
        sums, code, own = (np.take_along_axis(x, order, 1) for x in (sums, code, own))
        parents, tokens = code // vocabulary, code % vocabulary
        ends = (tokens == EOS) & (sums > NONE)
        self._finish(at, ends[:, :beams], parents, sums, own)
        going = np.argsort(ends, 1, kind="stable")[:, :beams]  # the first K that do not end
        total = np.take_along_axis(np.where(ends, NONE, sums), going, 1)
        done = self._stops(at, total.max(1))
        ended = (ends[:, :beams, None] & (parents[:, :beams, None] == np.arange(beams))).any(1)
        self.total = np.where(done[:, None], np.where(ended, NONE, self.total), total)
        parents, tokens, own = (np.take_along_axis(x, going, 1) for x in (parents, tokens, own))
        parents = np.where(done[:, None], np.arange(beams), parents)
        row = np.arange(rows)[:, None]
        self.history = np.concatenate([self.history[row, parents], tokens[..., None]], 2)
        self.own = np.concatenate([self.own[row, parents], own[..., None]], 2)
        reading = at < self.given
        self.base = np.where(reading, self.total[:, 0], self.base)
        return parents, done

    def _finish(self, at: int, ends: np.ndarray, parents: np.ndarray, sums: np.ndarray, own: np.ndarray) -> None:
        length = np.maximum(at - self.given, 0) + 1
        scores = normalised(self.config, sums - self.base[:, None], length[:, None])
        for b, c in zip(*np.nonzero(ends), strict=True):
            k = parents[b, c]
            log_probs = [*self.own[b, k].tolist(), float(own[b, c])]
            one = hypothesis(self.history[b, k], log_probs, scores[b, c], True)
            self.pool[b].append((float(scores[b, c]), one))
        for pool in self.pool:
            pool.sort(key=lambda pair: -pair[0])  # of equal scores, the one finished earlier stays before
            del pool[self.config.beam :]

    def _stops(self, at: int, likeliest: np.ndarray) -> np.ndarray:
        full = np.array([len(pool) == self.config.beam for pool in self.pool])
        if self.config.stop == "exact" and full.any():
            worst = np.array([pool[-1][0] if pool else NONE for pool in self.pool])
            reachable = normalised(self.config, likeliest - self.base, self.limit - self.given + 1)
            full &= reachable <= worst
        return full | (at >= self.limit) | (likeliest == NONE)

    def collect(self, row: int) -> list[Hypothesis]:
        """The n-best list of a sentence that is done now: finished ones first, then those that were cut."""
        found = [one for _, one in self.pool[row]]
        at = self.history.shape[2] - 1  # what was written last was written for the others
        cut = normalised(self.config, self.total[row] - self.base[row], at - self.given[row])
        for k in np.argsort(-cut, kind="stable"):
            if cut[k] > NONE:
                log_probs = self.own[row, k, :at].tolist()
                found.append(hypothesis(self.history[row, k, :at], log_probs, cut[k], False))
        return found[: self.config.nbest]

    def take(self, rows: np.ndarray) -> Beam:
        arrays = {name: getattr(self, name)[rows] for name in ("limit", "given", "base", "history", "own", "total")}
        return dataclasses.replace(self, **arrays, pool=[self.pool[row] for row in rows])
