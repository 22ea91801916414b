"""How well a masked model finds hidden words, and tells what follows from what does not, on held-out text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from regard.core.errors import DataError
from regard.core.types import PAD
from regard.data.batching import ALL, Part
from regard.data.corpus_config import DataConfig
from regard.data.documents import Unit, read_documents
from regard.data.masking import NO_CODE, ExamplePlan, Masking, collate_masked, stream_for_rows
from regard.data.sentence_stream import SentenceStream, documents_are_lines
from regard.evaluation.metrics import Score
from regard.tasks.masked import MaskedText

ROW_TOKENS = {"cpu": 1 << 12}  # of a batch
ROW_TOKENS_ELSEWHERE = 1 << 15
USUAL_WINDOW = 126  # tokens of a row, where neither the run nor the model say how many
SEED = 0  # of what is hidden: always the same words


@dataclass(frozen=True)
class MaskedScore:
    """Sums over hidden tokens, and over pairs of texts."""

    nll: float
    right: int
    words: int
    next_right: int = 0
    pairs: int = 0

    @property
    def accuracy(self) -> float:
        return 100 * self.right / self.words

    @property
    def perplexity(self) -> float:
        return math.exp(min(700.0, self.nll / self.words))

    @property
    def next_accuracy(self) -> float | None:
        return 100 * self.next_right / self.pairs if self.pairs else None

    def scores(self) -> dict[str, Score]:
        hidden = (
            "hidden:15 % of the tokens, 80/10/10 mask/random/kept, seed 0; each predicted once from all that is left"
        )
        details = {"nll": self.nll, "tokens": self.words}
        found = {
            "masked_accuracy": Score("accuracy of hidden words", self.accuracy, signature=hidden, details=details),
            "masked_perplexity": Score(
                "perplexity of hidden words",
                self.perplexity,
                signature=f"{hidden}; exp of their mean nll, no measure of whole texts",
                details=details,
            ),
        }
        if self.next_accuracy is not None:
            pairs = "pairs:half of them from another document, seed 0, their words hidden as in training"
            found["next_sentence_accuracy"] = Score(
                "next-sentence accuracy", self.next_accuracy, signature=pairs, details={"pairs": self.pairs}
            )
        return found


def learns_next_sentence(config: Any) -> bool:
    """Whether a model learns which text follows another, by its configuration."""
    return getattr(config, "next_sentence", False) is True


@torch.inference_mode()
def score_masked(
    model: Any,
    stream: SentenceStream,
    masking: Masking,
    window: int,
    device: torch.device,
    *,
    pairs: bool,
    part: Part = ALL,
) -> MaskedScore:
    """Reads a text once, in rows of `window` tokens. `pairs` asks for the next-sentence task, if there are two documents.

    Of several workers, each reads its part of the batches.
    """
    pairs = pairs and len(stream.documents) > 2
    rows = max(1, ROW_TOKENS.get(device.type, ROW_TOKENS_ELSEWHERE) // window)
    plan = ExamplePlan(stream, rows, window, seed=SEED, pairs=pairs)
    nll, counts = 0.0, np.zeros(4, dtype=np.int64)
    for examples in plan.epoch(0)[part.rank :: part.size]:
        batch = collate_masked(stream, examples, masking, window=window, rows=rows, seed=SEED, epoch=0).to(device)
        there = batch.target_out != PAD
        words = batch.target_out[there]
        log_p = model.output.scores(model(batch.source, batch.target_in).hidden[there])
        nll -= float(log_p.gather(1, words[:, None]).double().sum())
        counts[:2] += int((log_p.argmax(1) == words).sum()), len(words)
        if pairs:
            code = batch.target_in[:, 0]
            guess = model.next_sentence_scores(batch.source).argmax(1) + 1
            counts[2:] += int((guess == code).sum()), int((code != NO_CODE).sum())
    return MaskedScore(nll, *map(int, counts))


def evaluate_masked(
    filler: MaskedText, text: str | Path | Sequence[str | Path], *, documents: Unit = "auto"
) -> MaskedScore:
    """How well a model fills in words of one or more files or folders, in rows as long as those of its training.

    `documents` divides each as `data.documents` does in training: lines of a file and files of a folder, unless it says line,
    file or blank.
    """
    filler.check_head()
    files = [text] if isinstance(text, str | Path) else list(text)
    if not files:
        raise DataError("text", "no file is given", "Give a file or a folder")
    texts = [document for file in files for document in read_documents(file, documents).texts]
    lines = all(documents_are_lines(DataConfig(text=str(file), documents=documents)) for file in files)
    given = filler.config.get("train", {}).get("window", 0)
    known = [n for n in (given, filler.limit) if type(n) is int and n > 0]
    window = min(known, default=USUAL_WINDOW)
    stream = stream_for_rows(texts, filler.tokenizer, window, lines=lines)
    masking = Masking.of(filler.tokenizer, window)
    pairs = learns_next_sentence(filler.model.config)
    return score_masked(filler.model, stream, masking, window, filler.device, pairs=pairs)
