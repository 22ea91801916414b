"""Translation with ONNX graphs, without torch: the interface of `regard.load`'s translators."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from regard.core.errors import DataError, ModelError
from regard.core.search_config import SearchConfig
from regard.core.specials import EOS
from regard.onnx.folder import Opened
from regard.onnx.searching import forced_scores, search
from regard.onnx.writing import Writer
from regard.tasks.line_batches import batches
from regard.tasks.lines import Habits, Sentence, Translation
from regard.tasks.pair_score import PairScore
from regard.tasks.search_request import SearchRequest
from regard.tasks.translation import Translator

BATCH_TOKENS = 2048  # of sources, times hypotheses
STEP_SCORES = 1 << 25  # of all hypotheses of a batch


class OnnxTranslator(Translator):
    """A translator that searches in onnxruntime. `regard.onnx.load(folder)` makes one.

    What it gives for the same settings is what `regard.load` gives with the torch engine, up to rounding. Attention weights and
    alignments it cannot give.
    """

    def __init__(self, opened: Opened, folder: Path):
        habits = Habits(opened.manifest.usual_source_length, opened.manifest.one_sentence_lines)
        super().__init__(None, opened.tokenizers, opened.search, folder=folder, habits=habits, only_fast=True)
        self.writer = Writer(opened.manifest, opened.sessions)
        self.manifest = opened.manifest
        self.engine = "onnxruntime"

    @property
    def source_limit(self) -> int | None:
        return self.writer.source_limit

    @property
    def model(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
        raise ModelError(
            "model", "this is a folder of ONNX graphs, without a torch model", "Load the run folder instead"
        )

    def batch_tokens(self, settings: SearchConfig) -> int:
        return max(256, BATCH_TOKENS // settings.hypotheses)

    def _search(self, sentences: list[Sentence], request: SearchRequest) -> list[list[Translation]]:
        if request.attention:
            what = "the graphs give no attention weights"
            raise ModelError("engine onnxruntime", what, "Use the torch model for alignments")
        found: list[list[Translation]] = [[] for _ in sentences]
        settings = request.settings
        tokens = request.batch_tokens or self.batch_tokens(settings)
        most = max(1, STEP_SCORES // (settings.hypotheses * self.writer.vocabulary))
        done = 0
        for rows in batches([len(s.ids) + 1 for s in sentences], tokens, most):
            sources = [[*sentences[row].ids, EOS] for row in rows]
            results = search(self.writer, sources, settings, [sentences[row].prefix for row in rows])
            for row, many in zip(rows, results, strict=True):
                texts = self.tokenizers.target.decode([one.tokens for one in many])
                pieces = self.tokenizers.source.pieces(sentences[row].ids)
                found[row] = [
                    Translation(
                        text=text,
                        score=one.score,
                        log_prob=one.log_prob,
                        tokens=self.tokenizers.target.pieces(one.tokens),
                        token_log_probs=one.token_log_probs,
                        source_tokens=pieces,
                        finished=one.finished,
                    )
                    for text, one in zip(texts, many, strict=True)
                ]
            done += len(rows)
            if request.progress is not None:
                request.progress(done)
        return found

    def score(
        self,
        sources: Sequence[str],
        targets: Sequence[str],
        *,
        tags: Sequence[str] | None = None,
        batch_tokens: int = 4096,
    ) -> list[PairScore]:
        """How probable the model finds given translations, and each of their tokens and their ends."""
        if len(sources) != len(targets):
            raise DataError("score", f"{len(sources)} source and {len(targets)} target lines", "Give as many of each")
        rows = self.tokenizers.source.encode(list(sources))
        leads, wanted = self.leads(tags, len(sources)), self.tokenizers.target.encode(list(targets))
        texts = [[*lead, *row, EOS] for lead, row in zip(leads, rows, strict=True)]
        for number, (source, target) in enumerate(zip(texts, wanted, strict=True), start=1):
            for side, count, limit in (
                ("source", len(source), self.writer.source_limit),
                ("target", len(target) + 1, self.writer.target_limit),
            ):
                if limit is not None and count > limit:
                    what = f"{count - 1} tokens are beyond the model's limit of {limit - 1}"
                    raise ModelError(f"{side} line {number}", what, "Split it")
        found: list[PairScore | None] = [None] * len(texts)
        sizes = [max(len(s), len(t) + 1) for s, t in zip(texts, wanted, strict=True)]
        for chosen in batches(sizes, batch_tokens):
            scored = forced_scores(self.writer, [texts[i] for i in chosen], [wanted[i] for i in chosen])
            lengths = self.writer.length_scores([texts[i] for i in chosen]) if self.writer.plans else None
            for place, (i, scores) in enumerate(zip(chosen, scored, strict=True)):
                own = [float(row[token]) for row, token in zip(scores, [*wanted[i], EOS], strict=True)]
                of_length = 0.0 if lengths is None else float(lengths[place, len(wanted[i])])
                total = math.fsum([*own, of_length])
                found[i] = PairScore(total, self.tokenizers.target.pieces(wanted[i]), own)
        return [one for one in found if one is not None]

    def align(self, *texts: Any, **how: Any) -> Any:
        """Alignments need attention weights."""
        raise ModelError("alignment", "the graphs give no attention weights", "Use the torch model")
