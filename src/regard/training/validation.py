"""Validation while training: the loss on held-out pairs and, where asked, BLEU of really decoded text."""

from __future__ import annotations

import torch

from regard.data.batching import BatchStream, TokenStore
from regard.data.corpus import Pairs
from regard.data.tokenizers import TokenizerPair
from regard.evaluation.metrics import corpus_scores
from regard.models.base import Writer
from regard.search.config import SearchConfig
from regard.tasks.translation import Translator


class Validation:
    """Held-out pairs and how to measure a model on them: the same path as for test text."""

    def __init__(
        self,
        pairs: Pairs,
        tokenizers: TokenizerPair,
        search: SearchConfig,
        *,
        batch_tokens: int,
        max_tokens: int,
        decoded: int,
        target_language: str = "",
    ):
        self.pairs, self.tokenizers, self.search = pairs, tokenizers, search
        self.decoded = pairs.head(decoded)
        self.target_language = target_language
        self.store = TokenStore.from_pairs(pairs, tokenizers, max_tokens)
        self.plan = self.store.plan(batch_tokens, seed=0)

    def measure(self, model: Writer, device: torch.device) -> dict[str, float]:
        values = {"valid_nll": self.nll(model, device)}
        if len(self.decoded):
            translator = Translator(model, self.tokenizers, self.search, device=device)
            written = translator.translate(self.decoded.sources)
            scores = corpus_scores(written, self.decoded.targets, metrics=("bleu", "chrf"), confidence=False)
            values |= {"valid_bleu": scores["bleu"].value, "valid_chrf": scores["chrf"].value}
        return values

    @torch.inference_mode()
    def nll(self, model: Writer, device: torch.device) -> float:
        """Negative log-likelihood per target token, without smoothing."""
        total, tokens = 0.0, 0
        stream = BatchStream(self.store, self.plan, 0, 0)
        with stream:
            for _ in range(len(self.plan.epoch(0))):
                batch = next(stream).batch.to(device)
                sums = model.output.loss(model(batch.source, batch.target_in).hidden, batch.target_out)
                total += float(sums.nll)
                tokens += int(sums.tokens)
        return total / tokens
