"""Translation by torch: search, and the scores of given translations, for whatever model regard has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from regard.core.device import choose_device
from regard.core.errors import ConfigError, ModelError
from regard.core.search_config import SearchConfig
from regard.core.types import BOS, EOS, PAD, UNK, pad_rows
from regard.data.tokenizers import TokenizerPair
from regard.models.base import Writer
from regard.search.forcing import attend, score_pairs
from regard.search.hypothesis import Hypothesis
from regard.search.many import most_rows, search_many, usual_tokens
from regard.search.search import search
from regard.search.speculative import Tally, speculate
from regard.search.terms import Letters
from regard.tasks.folder import load_model
from regard.tasks.line_batches import batches
from regard.tasks.lines import Sentence, Translation
from regard.tasks.search_request import SearchRequest


class TorchEngine:
    """A model with its tokenizers, on a device."""

    def __init__(self, model: Writer, tokenizers: TokenizerPair, device: torch.device | str):
        if "translates" not in model.capabilities:
            raise ModelError(type(model).__name__, "this model does not translate", "Use a translation model")
        self.model, self.tokenizers, self.device = model.to(device), tokenizers, torch.device(device)
        self.draft: Writer | None = None  # guesses what the model writes
        self.ahead = 0
        self.tally = Tally()

    @classmethod
    def load(cls, folder: Path, tokenizers: TokenizerPair, device: str) -> TorchEngine:
        chosen = choose_device(device)
        return cls(load_model(folder)[0], tokenizers, chosen)

    @property
    def source_limit(self) -> int | None:
        return self.model.limits.source

    def batch_tokens(self, settings: SearchConfig) -> int:
        rows = max(1, settings.beam if settings.method == "beam" else settings.nbest)
        return usual_tokens(self.device, rows)

    def _most_rows(self, settings: SearchConfig) -> int:
        """Sentences in a batch, so that a step's scores of all their hypotheses stay within bounds."""
        return most_rows(self.device, settings.hypotheses * self.model.output.vocabulary)

    def search(
        self, sentences: Sequence[Sentence], request: SearchRequest, letters: Letters | None = None
    ) -> list[list[Translation]]:
        """The n-best translations of each sentence. `letters` says where words end, for sentences with terms."""
        found: list[list[Translation]] = [[] for _ in sentences]
        self.model.eval()
        settings, attention = request.settings, request.attention
        tokens = request.batch_tokens or self.batch_tokens(settings)
        searched = self._with_attention if attention else self._without_attention
        if self.draft is not None and settings.hypotheses == 1:  # a guard may look for more
            searched = self._drafted_with_attention if attention else self._drafted
        for done, (row, many) in enumerate(searched(sentences, settings, tokens, letters), start=1):
            found[row] = self._translations(sentences[row], many)
            if request.progress is not None:
                request.progress(done)
        return found

    def _without_attention(
        self, sentences: Sequence[Sentence], settings: SearchConfig, tokens: int, letters: Letters | None
    ) -> Iterator[tuple[int, list[Hypothesis]]]:
        sources, prefixes = [[*s.ids, EOS] for s in sentences], [s.prefix for s in sentences]
        terms = _terms(sentences)
        return search_many(self.model, sources, settings, prefixes, batch_tokens=tokens, terms=terms, letters=letters)

    def certainties(
        self, sources: Sequence[list[int]], targets: Sequence[list[int]], batch_tokens: int = 4096
    ) -> list[list[tuple[float, bool]]]:
        """At each place of given targets, the log-probability of the likeliest token, and whether it is the target's."""
        found: list[list[tuple[float, bool]]] = [[] for _ in sources]
        self.model.eval()
        for rows in batches([max(len(s), len(t)) + 1 for s, t in zip(sources, targets, strict=True)], batch_tokens):
            source = pad_rows([[*sources[row], EOS] for row in rows]).to(self.device)
            target = pad_rows([[BOS, *targets[row]] for row in rows]).tokens.to(self.device)
            with torch.inference_mode():
                hidden = self.model(source, target).hidden
                for row, states in zip(rows, hidden, strict=True):
                    wanted = torch.tensor([*targets[row], EOS], device=self.device)
                    best = self.model.output.scores(states[: len(wanted)]).max(-1)
                    right = (best.indices == wanted).tolist()
                    found[row] = list(zip(best.values.tolist(), right, strict=True))
        return found

    def next_tokens(
        self, sentence: Sentence, count: int, settings: SearchConfig, never: torch.Tensor | None
    ) -> list[int]:
        """The likeliest tokens after a sentence's prefix, but those of a mask."""
        self.model.eval()
        source = pad_rows([[*sentence.ids, EOS]]).to(self.device)
        with torch.inference_mode():
            target = torch.tensor([[BOS, *sentence.prefix]], device=self.device)
            scores = self.model.output.scores(self.model(source, target).hidden[:, -1])[0]
            scores[[PAD, BOS, *([UNK] if settings.ban_unknown else [])]] = float("-inf")
            if never is not None:
                scores[never.to(self.device)] = float("-inf")
            if not sentence.prefix:
                scores[EOS] = float("-inf")  # a translation has words
            best = scores.topk(min(count, len(scores)))
        return [int(token) for token, score in zip(best.indices, best.values, strict=True) if score > float("-inf")]

    def drafted(self, draft: Writer, ahead: int) -> TorchEngine:
        """The same model, which another one guesses for."""
        other = TorchEngine(self.model, self.tokenizers, self.device)
        other.draft, other.ahead = draft.to(self.device).eval(), ahead
        return other

    def _drafted(
        self,
        sentences: Sequence[Sentence],
        settings: SearchConfig,
        tokens: int,
        letters: Letters | None,
        attention: bool = False,
    ) -> Iterator[tuple[int, list[Hypothesis]]]:
        assert self.draft is not None
        if _terms(sentences) is not None:
            raise ConfigError("draft", "it does not know the terms of a glossary", "Use one of the two")
        for row, sentence in enumerate(sentences):
            source = pad_rows([[*sentence.ids, EOS]]).to(self.device)
            found = speculate(self.model, self.draft, source, settings, sentence.prefix, self.ahead)
            self.tally.add(found)
            if attention:
                found.hypothesis.attention = attend(self.model, source, [[found.hypothesis]])[0][0]
            yield row, [found.hypothesis]

    def _drafted_with_attention(
        self, sentences: Sequence[Sentence], settings: SearchConfig, tokens: int, letters: Letters | None
    ) -> Iterator[tuple[int, list[Hypothesis]]]:
        return self._drafted(sentences, settings, tokens, letters, attention=True)

    def _with_attention(
        self, sentences: Sequence[Sentence], settings: SearchConfig, tokens: int, letters: Letters | None
    ) -> Iterator[tuple[int, list[Hypothesis]]]:
        for rows in batches([len(s.ids) + 1 for s in sentences], tokens, self._most_rows(settings)):
            source = pad_rows([[*sentences[row].ids, EOS] for row in rows]).to(self.device)
            prefix = [sentences[row].prefix for row in rows]
            with torch.inference_mode():
                how = {"terms": _terms([sentences[row] for row in rows]), "letters": letters, "attention": True}
                yield from zip(rows, search(self.model, source, settings, prefix, **how), strict=True)

    def _translations(self, sentence: Sentence, many: Sequence[Hypothesis]) -> list[Translation]:
        texts = self.tokenizers.target.decode([h.tokens for h in many])
        pieces = self.tokenizers.source.pieces(sentence.ids)
        return [
            Translation(
                text=text,
                score=h.score,
                log_prob=h.log_prob,
                tokens=self.tokenizers.target.pieces(h.tokens),
                token_log_probs=h.token_log_probs,
                source_tokens=pieces,
                finished=h.finished,
                attention=None if h.attention is None else h.attention.tolist(),
            )
            for text, h in zip(texts, many, strict=True)
        ]

    def score(
        self, sources: Sequence[list[int]], targets: Sequence[list[int]], batch_tokens: int
    ) -> list[tuple[float, list[float]]]:
        """The log-probability of each target, and of each of its tokens and its end."""
        limits = self.model.limits
        for number, (s, t) in enumerate(zip(sources, targets, strict=True), start=1):
            for name, ids, limit in (("source", s, limits.source), ("target", t, limits.target)):
                if limit is not None and len(ids) + 1 > limit:
                    raise ModelError(
                        f"{name} line {number}",
                        f"{len(ids)} tokens are beyond the model's limit of {limit - 1}",
                        "Split it",
                    )
        results: list[tuple[float, list[float]]] = [(0.0, [])] * len(sources)
        lengths = [max(len(s), len(t)) + 1 for s, t in zip(sources, targets, strict=True)]
        self.model.eval()
        for rows in batches(lengths, batch_tokens):
            source = pad_rows([sources[row] + [EOS] for row in rows]).to(self.device)
            with torch.inference_mode():
                scored = score_pairs(self.model, source, [targets[row] for row in rows])
            for row, result in zip(rows, scored, strict=True):
                results[row] = result
        return results


def _terms(sentences: Sequence[Sentence]) -> list[tuple[Any, ...]] | None:
    return [s.terms for s in sentences] if any(s.terms for s in sentences) else None
