"""Search over lengths against independent code: every text of every length that is tried, and a plain beam for each length."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from plain_beam import Found, allowed, plain_limit, sources_of
from toy_writer import toy_source

from regard.core.types import BOS, EOS, pad_rows
from regard.models.base import build_model
from regard.models.rctm import RCTM2, RCTM2Config
from regard.search import Hypothesis, SearchConfig, score_pairs, search
from regard.search.lengths import tries
from regard.search.sampling import uniforms

torch.set_num_threads(1)


def planner(seed: int, vocabulary: int = 9) -> RCTM2:
    torch.manual_seed(seed)
    config = RCTM2Config(width=6, max_source=16, max_target=16)
    sizes = {"source_vocabulary": vocabulary, "target_vocabulary": vocabulary, "shared": False}
    model: Any = build_model("rctm2", config, **sizes)
    for p in model.parameters():
        if p.dim() > 1:
            torch.nn.init.normal_(p, std=1.0)
    model.length.log_mean.data += 0.4 * torch.randn(16)
    return model.eval()


class Plain:
    """A model as a function from a length and what was written to the next log-probabilities."""

    def __init__(self, model: RCTM2, source: list[int]):
        self.model, self.source = model, source
        self.known: dict[tuple[int, tuple[int, ...]], list[float]] = {}

    def length(self, words: int) -> float:
        mean = math.exp(float(self.model.length.log_mean[len(self.source) - 1].detach()))
        return words * math.log(mean) - mean - math.lgamma(words + 1)

    def __call__(self, words: int, written: tuple[int, ...]) -> list[float]:
        if (words, written) not in self.known:
            self.known[words, written] = self._ask(words, written)
        return self.known[words, written]

    @torch.no_grad()
    def _ask(self, words: int, written: tuple[int, ...]) -> list[float]:
        filled = [BOS, *written, *[4] * (words - len(written))]  # what follows changes nothing, but for how much it is
        hidden = self.model(pad_rows([self.source]), torch.tensor([filled])).hidden
        return self.model.output.scores(hidden[0, len(written)]).tolist()


def score(config: SearchConfig, total: float, n: int) -> float:
    lengths = {"gnmt": ((5 + n) / 6) ** config.alpha, "plain": n**config.alpha, "none": 1}
    return total / lengths[config.length_norm]


def likeliest(model: RCTM2, source: list[int], config: SearchConfig, prefix: list[int]) -> list[int]:
    """The numbers of words to try, EOS not counted."""
    oracle, limit = Plain(model, source), min(plain_limit(config, source), 15)
    fewest = min(limit, max(len(prefix), config.min_length))
    return sorted(range(fewest, limit + 1), key=lambda words: -oracle.length(words))[: config.lengths]


def everything(model: RCTM2, source: list[int], config: SearchConfig, prefix: list[int]) -> list[Found]:
    oracle, found = Plain(model, source), []
    for words in likeliest(model, source, config, prefix):
        for text in itertools.product(range(model.output.vocabulary), repeat=words):
            if EOS in text or not all(allowed(config, text[:i], token, prefix) for i, token in enumerate(text)):
                continue
            each = tuple(oracle(words, text[:i])[token] for i, token in enumerate((*text, EOS)))
            found.append(Found(text, score(config, math.fsum(each) + oracle.length(words), words + 1), each, True))
    return sorted(found, key=lambda f: -f.score)


def beams(model: RCTM2, source: list[int], config: SearchConfig, prefix: list[int]) -> list[Found]:
    """A beam for each length: the best K are kept at every step, and all end after the last word."""
    oracle, found = Plain(model, source), []
    for words in likeliest(model, source, config, prefix):
        live: list[tuple[tuple[int, ...], tuple[float, ...]]] = [((), ())]
        for step in range(words + 1):
            grown = []
            for written, each in live:
                for token, log_prob in enumerate(oracle(words, written)):
                    if (token == EOS) == (step == words) and allowed(config, written, token, prefix):
                        grown.append(((*written, token), (*each, log_prob)))
            live = sorted(grown, key=lambda one: -math.fsum(one[1]))[: config.beam]
        for written, each in live:
            total = math.fsum(each) + oracle.length(words)
            found.append(Found(written[:-1], score(config, total, words + 1), each, True))
    return sorted(found, key=lambda f: -f.score)[: config.nbest]


def agree(found: list[Hypothesis], expected: list[Found], model: RCTM2, source: list[int]) -> None:
    assert [(tuple(h.tokens), h.finished) for h in found] == [(e.tokens, e.finished) for e in expected]
    for h, e in zip(found, expected, strict=True):
        assert h.score == pytest.approx(e.score, abs=1e-5)
        assert h.token_log_probs == pytest.approx(list(e.log_probs), abs=1e-5)
        assert h.log_prob == pytest.approx(score_pairs(model, pad_rows([source]), [h.tokens])[0][0], abs=1e-5)


CASES = {
    "gnmt": {},
    "plain": {"length_norm": "plain", "alpha": 1.0},
    "none": {"length_norm": "none"},
    "exact": {"stop": "exact"},
    "one length": {"lengths": 1},
    "more lengths than there are": {"lengths": 30},
    "no repeat": {"no_repeat_ngram": 2},
    "minimum": {"min_length": 3},
}


@pytest.mark.parametrize("case", CASES)
def test_a_wide_beam_finds_all_there_is(case):
    model, source = planner(0, 6), toy_source(0, 3, vocabulary=6)
    settings = {"max_ratio": 0.0, "max_extra": 4, "max_length": 4, "lengths": 3, **CASES[case]}
    config = SearchConfig(beam=48, nbest=31, **settings)  # type: ignore[arg-type]
    prefix = [[], [4], []]
    found = search(model, source, config, prefix)
    for hypotheses, tokens, forced in zip(found, sources_of(source), prefix, strict=True):
        assert len(hypotheses) > 1 or config.lengths == 1
        agree(hypotheses, everything(model, tokens, config, forced), model, tokens)


@pytest.mark.parametrize("case", CASES)
def test_narrow_beams_equal_the_plain_ones(case):
    for seed in range(2):
        model, source = planner(seed), toy_source(seed, 3, longest=4)
        settings = {"max_ratio": 1.0, "max_extra": 3, **CASES[case]}
        config = SearchConfig(beam=1 + 2 * seed, nbest=1 + 2 * seed, **settings)  # type: ignore[arg-type]
        prefix = [[], [5], [6, 6]] if seed else [[]] * 3
        found = search(model, source, config, prefix)
        for hypotheses, tokens, forced in zip(found, sources_of(source), prefix, strict=True):
            agree(hypotheses, beams(model, tokens, config, forced), model, tokens)


def test_a_minimum_that_no_length_reaches_gives_cut_texts():
    model, source = planner(0), toy_source(0, 2)
    config = SearchConfig(beam=2, min_length=9, max_ratio=0.0, max_extra=3)
    for hypotheses, tokens in zip(search(model, source, config), sources_of(source), strict=True):
        assert [(len(h.tokens), h.finished) for h in hypotheses] == [(3, False)]
        each = score_pairs(model, pad_rows([tokens]), [hypotheses[0].tokens])[0][1][
            :-1
        ]  # without the end and the length
        assert hypotheses[0].token_log_probs == pytest.approx(each, abs=1e-5)
        assert hypotheses[0].log_prob == pytest.approx(math.fsum(each), abs=1e-5)
        assert hypotheses[0].score == pytest.approx(score(config, math.fsum(each), 3), abs=1e-5)


def test_samples_are_drawn_with_their_lengths():
    """Lengths come as often as the model says, words of a given length likewise, and each sample has its own score."""
    model, source = planner(3, 6), pad_rows([[4, 5, EOS]])
    oracle = Plain(model, [4, 5, EOS])
    limits = {"max_ratio": 0.0, "max_extra": 9, "max_repeat": 0, "ban_unknown": False}
    settings = [SearchConfig(method="sample", nbest=64, seed=seed, **limits) for seed in range(12)]  # type: ignore[arg-type]
    with torch.no_grad():
        drawn = [one for config in settings for one in tries(model, source, config, [9], [0])]
    lengths = [one.limits[0] for one in drawn]
    mass = [math.exp(oracle.length(words)) for words in range(10)]
    for words in range(10):
        assert lengths.count(words) / len(lengths) == pytest.approx(mass[words] / sum(mass), abs=0.06)
    of_first_word = [float(uniforms(one.config, source, [0])) for one in drawn]
    assert abs(np.corrcoef(lengths, of_first_word)[0, 1]) < 0.1  # another number than the length's
    samples = [h for config in settings[:1] for h in search(model, source, config)[0]]
    assert [len(h.tokens) for h in samples] == lengths[: len(samples)]
    written = [h for h in samples if h.tokens]
    for token in range(3, 6):  # the others are PAD, BOS and EOS, of which none comes first
        p = [[math.exp(x) for x in oracle(len(h.tokens), ())[3:]] for h in written]
        expected = sum(each[token - 3] / sum(each) for each in p) / len(p)
        assert sum(h.tokens[0] == token for h in written) / len(written) == pytest.approx(expected, abs=0.15)
    for h in samples[:9]:
        assert h.finished
        assert h.log_prob == pytest.approx(score_pairs(model, source, [h.tokens])[0][0], abs=1e-5)


def test_samples_are_the_same_in_any_company():
    model, source = planner(3), toy_source(5, 3)
    config = SearchConfig(method="sample", nbest=4, seed=4)
    together = search(model, source, config)
    for row, found in enumerate(together):
        alone = search(model, source.take(torch.tensor([row])), config)[0]
        assert [h.tokens for h in alone] == [h.tokens for h in found]
    fewer = search(model, source, SearchConfig(method="sample", nbest=2, seed=4))
    assert [[h.tokens for h in found] for found in fewer] == [[h.tokens for h in found[:2]] for found in together]
