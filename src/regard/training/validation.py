"""Validation while training: the loss on held-out pairs and, where asked, scores of really decoded text."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Protocol, cast

import torch

from regard.core.types import PAD
from regard.data.batching import Batch, BatchPlan, collate
from regard.data.split import Pairs
from regard.data.store import TokenStore
from regard.evaluation.metrics import METRICS, Flavour, Score, corpus_scores
from regard.models.base import Planner, Writer
from regard.tasks.translation import Translator
from regard.training.config import OF_LABELS
from regard.training.distributed.spreading import spread, summed
from regard.training.distributed.team import current_team


def score_text(
    translator: Translator, pairs: Pairs, metrics: Sequence[str], language: str, confidence: bool
) -> dict[str, Score]:
    """Scores of a translator on raw text: the one path for validation and test."""
    settings = dataclasses.replace(translator.search, nbest=1)
    tags = pairs.tags or None

    def translate(rows: list[int]) -> list[str]:
        marks = [tags[row] for row in rows] if tags is not None else None
        return translator.translate([pairs.sources[row] for row in rows], search=settings, tags=marks)

    written = spread(range(len(pairs)), translate)
    flavour = Flavour(language=language)
    return corpus_scores(written, pairs.targets, flavour, metrics, confidence)


class Measure(Protocol):
    """How good a model is, while it is trained: `valid_nll` per token, and more by name."""

    def measure(self, model: Writer, device: torch.device) -> dict[str, float]: ...


def goodness(values: Mapping[str, float], best_by: str) -> float:
    """What `train.best_by` names among the values of a validation, so that more is better."""
    if best_by == "loss":
        return -values["valid_nll"]
    value = values[f"valid_{best_by}"]
    return -value if best_by not in OF_LABELS and METRICS.get(best_by).lower_is_better else value


class Validation:
    """Held-out pairs and how to measure a model on them."""

    def __init__(
        self,
        pairs: Pairs,
        translator: Translator,
        *,
        batch_tokens: int,
        max_tokens: int,
        decoded: int,
        metrics: Sequence[str],
        language: str,
    ):
        self.translator, self.decoded, self.metrics, self.language = translator, pairs.head(decoded), metrics, language
        self.store = TokenStore.from_pairs(pairs, translator.tokenizers, max_tokens, "the validation text")
        self.plan = BatchPlan.of(self.store, batch_tokens, seed=0)

    def measure(self, model: Writer, device: torch.device) -> dict[str, float]:
        values = {"valid_nll": self.nll(model, device)}
        if len(self.decoded):
            scores = score_text(self.translator, self.decoded, self.metrics, self.language, confidence=False)
            values |= {f"valid_{name}": score.value for name, score in scores.items()}
        return values

    def nll(self, model: Writer, device: torch.device) -> float:
        return nll_per_token(model, self.store, self.plan, device)


@torch.inference_mode()
def nll_per_token(model: Writer, store: TokenStore, plan: BatchPlan, device: torch.device) -> float:
    """Negative log-likelihood per target token, without smoothing; with that of lengths, where the model plans them."""
    rank, size = current_team().part
    total, tokens = 0.0, 0
    for rows in plan.epoch(0)[rank::size]:
        batch = collate(store.source, store.target, rows).to(device)
        sums = model.output.loss(model(batch.source, batch.target_in).hidden, batch.target_out)
        total += float(sums.nll) - _length_log_probs(model, batch)
        tokens += int(sums.tokens)
    total, tokens = summed(total, tokens)
    return total / tokens


def _length_log_probs(model: Writer, batch: Batch) -> float:
    """log P(length) of all targets, EOS included; 0 for models that do not plan."""
    if "plans" not in model.capabilities:
        return 0.0
    lengths = (batch.target_out != PAD).sum(1, keepdim=True)
    scores = cast(Planner, model).length_scores(batch.source, batch.target_out.shape[1])
    return float(scores.gather(1, lengths - 1).double().sum())
