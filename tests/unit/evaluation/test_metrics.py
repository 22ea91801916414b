"""Scores against sacreBLEU's own and against BLEU and chrF computed from their definitions."""

from __future__ import annotations

import logging
import math
import random
from collections import Counter

import numpy as np
import pytest

from regard.core.errors import ConfigError, DataError
from regard.evaluation.metrics import (
    USUAL,
    Flavour,
    Score,
    Statistics,
    corpus_scores,
    perplexity,
    resample,
)

TEXT = "the cat dog sat on mat ran to a house , and then it slept . Why ? Über Straße (no) don't 3.5 %"
WORDS = TEXT.split()


def corpus(size: int = 60, seed: int = 0) -> tuple[list[str], list[str]]:
    rng = random.Random(seed)
    references = [" ".join(rng.choices(WORDS, k=rng.randint(1, 14))) for _ in range(size)]
    hypotheses = [" ".join(rng.choice(WORDS) if rng.random() < 0.2 else w for w in r.split()) for r in references]
    return hypotheses, references


def bleu_by_hand(hypotheses: list[str], references: list[str]) -> float:
    matches, totals, hyp_len, ref_len = Counter(), Counter(), 0, 0
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        h, r = hypothesis.split(), reference.split()
        hyp_len, ref_len = hyp_len + len(h), ref_len + len(r)
        for n in range(1, 5):
            mine = Counter(tuple(h[i : i + n]) for i in range(len(h) - n + 1))
            theirs = Counter(tuple(r[i : i + n]) for i in range(len(r) - n + 1))
            matches[n] += sum((mine & theirs).values())
            totals[n] += sum(mine.values())
    geometric = math.exp(sum(math.log(matches[n] / totals[n]) for n in range(1, 5)) / 4)
    return 100 * geometric * min(1.0, math.exp(1 - ref_len / hyp_len))


def chrf_by_hand(hypotheses: list[str], references: list[str]) -> float:
    precisions, recalls = [], []
    for n in range(1, 7):
        match = mine = theirs = 0
        for hypothesis, reference in zip(hypotheses, references, strict=True):
            h, r = "".join(hypothesis.split()), "".join(reference.split())
            hyp = Counter(h[i : i + n] for i in range(len(h) - n + 1))
            ref = Counter(r[i : i + n] for i in range(len(r) - n + 1))
            match += sum((hyp & ref).values())
            mine += sum(hyp.values()) if ref else 0
            theirs += sum(ref.values())
        precisions.append(match / mine)
        recalls.append(match / theirs)
    p, r = sum(precisions) / 6, sum(recalls) / 6
    return 100 * 5 * p * r / (4 * p + r)


def test_bleu_of_one_pair_worked_on_paper():
    score = corpus_scores(["the cat sat on a mat"], ["the cat sat on the mat"], metrics=("bleu",))["bleu"]
    precisions = [5 / 6, 3 / 5, 2 / 4, 1 / 3]  # all but "a"; all but "on a", "a mat"; and so on
    assert score.value == pytest.approx(100 * math.prod(precisions) ** 0.25)
    assert score.details["precisions"] == pytest.approx([100 * p for p in precisions])
    assert (score.details["hyp_len"], score.details["ref_len"], score.details["brevity_penalty"]) == (6, 6, 1.0)


def test_against_definitions():
    hypotheses, references = corpus()
    short = [" ".join(h.split()[:-1]) if len(h.split()) > 4 else h for h in hypotheses]  # a brevity penalty
    for hyps in (hypotheses, short):
        scores = corpus_scores(hyps, references, Flavour(tokenized=True), ("bleu", "chrf"), confidence=False)
        assert scores["bleu"].value == pytest.approx(bleu_by_hand(hyps, references))
        assert scores["chrf"].value == pytest.approx(chrf_by_hand(hyps, references))


def test_against_sacrebleu():
    from sacrebleu import corpus_bleu, corpus_chrf, corpus_ter

    hypotheses, references = corpus(80, seed=1)
    scores = corpus_scores(hypotheses, references)
    assert scores["bleu"].value == corpus_bleu(hypotheses, [references]).score
    assert scores["chrf"].value == corpus_chrf(hypotheses, [references]).score
    assert scores["ter"].value == corpus_ter(hypotheses, [references], case_sensitive=True).score
    lower = corpus_scores(hypotheses, references, Flavour(lowercase=True))
    assert lower["ter"].value == corpus_ter(hypotheses, [references]).score
    assert lower["bleu"].value == corpus_bleu(hypotheses, [references], lowercase=True).score


def test_the_bootstrap_is_sacrebleus(monkeypatch: pytest.MonkeyPatch):
    from sacrebleu.metrics import BLEU, CHRF

    monkeypatch.setenv("SACREBLEU_SEED", "12345")
    hypotheses, references = corpus(90, seed=2)
    scores = corpus_scores(hypotheses, references, metrics=("bleu", "chrf"))
    for name, metric in (("bleu", BLEU()), ("chrf", CHRF())):
        theirs = metric.corpus_score(hypotheses, [references], n_bootstrap=1000)
        mine = scores[name]
        assert mine.low is not None
        assert mine.high is not None
        assert mine.signature == metric.get_signature().format()
        assert (mine.high - mine.low) / 2 == pytest.approx(theirs._ci, abs=1e-3)  # theirs is in float32


@pytest.mark.parametrize("metric", USUAL)
def test_vectorised_scores_equal_sacrebleus(metric: str):
    hypotheses, references = corpus(25, seed=3)
    hypotheses[:4], references[4:6] = ["", "qqq", "a", "the the the the"], ["", ""]
    statistics = Statistics.of(metric, hypotheses, references, Flavour())
    rows = statistics.rows.astype(int).tolist()
    one_by_one = [statistics.measure.scorer._compute_score_from_stats(row).score for row in rows]  # pyright: ignore
    np.testing.assert_allclose(statistics.scores(statistics.rows), one_by_one, atol=1e-9)


def test_deterministic_whatever_the_surroundings(monkeypatch: pytest.MonkeyPatch):
    hypotheses, references = corpus()
    first = corpus_scores(hypotheses, references)
    monkeypatch.setenv("SACREBLEU_SEED", "none")
    np.random.seed(7)  # noqa: NPY002 (the caller's global state)
    assert corpus_scores(hypotheses, references) == first


def test_resampling_in_chunks_draws_the_same(monkeypatch: pytest.MonkeyPatch):
    rows = np.random.default_rng(0).integers(0, 9, size=(37, 3)).astype(float)
    whole = resample(rows, 200, seed=1)
    monkeypatch.setattr("regard.evaluation.metrics._statistics.CHUNK_CELLS", 37 * 11)
    np.testing.assert_array_equal(resample(rows, 200, seed=1), whole)
    np.testing.assert_array_equal(whole, rows[np.random.default_rng(1).choice(37, size=(200, 37))].sum(1))


def test_intervals_contain_the_value_and_narrow_with_data():
    widths = []
    for size in (1, 3, 30, 1000):
        scores = corpus_scores(*corpus(size, seed=5))
        for score in scores.values():
            assert score.low is not None
            assert score.high is not None
            assert score.low <= score.value <= score.high
        widths.append(scores["chrf"].high - scores["chrf"].low)  # pyright: ignore
    assert widths[3] < widths[2] / 3


def test_signatures_say_how(caplog: pytest.LogCaptureFixture):
    hypotheses, references = ["it works ."] * 120, ["it works well ."] * 120
    with caplog.at_level(logging.WARNING):
        scores = corpus_scores(hypotheses, references, Flavour(tokenized=True, lowercase=True))
    assert not caplog.records
    assert "tok:none" in scores["bleu"].signature
    for score in scores.values():
        assert "case:lc" in score.signature
        assert "bs:1000" in score.signature
        assert "version:" in score.signature
    plain = corpus_scores(hypotheses[:5], references[:5], confidence=False)
    assert "tok:13a" in plain["bleu"].signature
    for score in plain.values():
        assert "case:mixed" in score.signature
        assert "bs:" not in score.signature
        assert score.low is None


def test_text_that_looks_tokenised_is_told_of(caplog: pytest.LogCaptureFixture):
    hypotheses, references = ["it works ."] * 120, ["it works well ."] * 120
    said = 'Many translations end in " \\.": the text looks tokenised, .*regard evaluate --tokenized'
    with caplog.at_level(logging.WARNING):
        with pytest.warns(UserWarning, match=said) as caught:
            scores = corpus_scores(hypotheses, references)
        assert len(caught) == 1
        assert "tok:13a" in scores["bleu"].signature
        corpus_scores(hypotheses[:99] + ["it works."] * 21, references)
        corpus_scores(hypotheses, references, metrics=("chrf", "ter"))
        corpus_scores(hypotheses, references, Flavour(tokenize="none"))
    assert not caplog.records  # sacreBLEU says nothing of its own


def test_tokenised_text_is_scored_as_it_stands():
    hypotheses, references = ["he said: hello there world"], ["he said : hello there world"]
    assert corpus_scores(hypotheses, references)["bleu"].value == pytest.approx(100)
    tokenized = corpus_scores(hypotheses, references, Flavour(tokenized=True))["bleu"]
    assert tokenized.value < 60
    assert (tokenized.details["hyp_len"], tokenized.details["ref_len"]) == (5, 6)


def test_tokenizer_follows_the_language():
    assert Flavour().tokenizer == Flavour(language="de").tokenizer == "13a"
    assert Flavour(language="zh-CN").tokenizer == Flavour(language="zho_Hans").tokenizer == "zh"
    assert Flavour(language="ja").tokenizer in ("char", "ja-mecab")
    assert Flavour(language="zh", tokenize="char").tokenizer == "char"
    assert Flavour(language="zh", tokenized=True).tokenizer == "none"
    chinese = corpus_scores(["我喜欢机器翻译。"], ["我爱机器翻译。"], Flavour(language="zh"))
    assert chinese["bleu"].value > 40
    assert "tok:zh" in chinese["bleu"].signature
    assert chinese["ter"].value < 50
    assert "asian:yes" in chinese["ter"].signature


def test_empty_hypotheses_score_nothing():
    scores = corpus_scores(["", ""], ["a house .", "the cat"])
    assert (scores["bleu"].value, scores["chrf"].value, scores["ter"].value) == (0.0, 0.0, 100.0)
    assert scores["bleu"].details["brevity_penalty"] == 0.0
    assert (scores["bleu"].low, scores["bleu"].high) == (0.0, 0.0)
    assert corpus_scores(["", "a"], ["", ""])["bleu"].value == 0.0


def test_bad_input():
    with pytest.raises(DataError, match=r"differ in length \(1, 2 lines\)"):
        corpus_scores(["a"], ["a", "b"])
    with pytest.raises(DataError, match="nothing to score"):
        corpus_scores([], [])
    with pytest.raises(DataError, match="list of lines"):
        corpus_scores("ab", ["a", "b"])
    with pytest.raises(ConfigError, match="there is none of that name"):
        corpus_scores(["a"], ["a"], metrics=("blue",))
    with pytest.raises(ConfigError, match="Use one of none"):
        corpus_scores(["a"], ["a"], Flavour(tokenize="31a"))
    with pytest.raises(ConfigError, match="tokenised already"):
        Flavour(tokenized=True, tokenize="13a")
    with pytest.raises(ConfigError, match="bootstrap"):
        Flavour(bootstrap=-1)


def test_score_reads_well():
    score = Score("BLEU", 27.314, 25.94, 28.81, "nrefs:1", {"hyp_len": 3})
    assert str(score) == "BLEU 27.31 [25.9, 28.8]"
    assert str(Score("TER", 60.0)) == "TER 60.00"
    assert Score(**score.to_plain()) == score


def test_perplexity():
    assert perplexity(20 * math.log(7), 20) == pytest.approx(7)
    assert perplexity(1e6, 3) == math.inf
    assert math.isnan(perplexity(math.nan, 3))
    with pytest.raises(DataError, match="perplexity"):
        perplexity(0.0, 0)
