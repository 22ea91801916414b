"""Evaluates a language model on plain text: perplexity per token, per word and per byte."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from regard.core.errors import DataError
from regard.data.documents import Unit, read_documents
from regard.tasks.language_model import TextModel
from regard.tasks.pretrained import find_model
from regard.tasks.text_score import TextScore
from regard.tasks.text_scoring import OtherModel


@dataclasses.dataclass(frozen=True)
class TextEvaluation:
    """The outcome of `evaluate_text`."""

    name: str
    files: list[str]
    score: TextScore
    context: int | None  # tokens of a window; None: the text was read from end to end, the state carried
    stride: int | None  # from one window to the next
    seconds: float

    def to_plain(self) -> dict[str, Any]:
        """As JSON shows it: a perplexity beyond all numbers is null."""
        score = {name: value if value < float("inf") else None for name, value in self.score.to_plain().items()}
        return {**dataclasses.asdict(self), "score": score}


def evaluate_text(
    model: str | Path | TextModel,
    text: str | Path | Sequence[str | Path],
    *,
    documents: Unit = "auto",
    context: int = 0,
    stride: int = 0,
    trigram: OtherModel | None = None,
    weight: float = 0.5,
    device: str = "auto",
    progress: Callable[[int, int], None] | None = None,
) -> TextEvaluation:
    """The perplexity of a language model (a run folder) on the documents of one or more files or folders.

    `documents` divides each as `data.documents` does in training: lines of a file and files of a folder, unless it says line,
    file or blank. See `TextModel.perplexity` for the rest, and `TextScore` for what counts as a word and as a byte.
    """
    files = [text] if isinstance(text, str | Path) else list(text)
    if not files:
        raise DataError("text", "no file is given", "Give a file or a folder")
    texts = [document for file in files for document in read_documents(file, documents).texts]
    reader = model if isinstance(model, TextModel) else TextModel.load(find_model(model), device)
    began = time.monotonic()
    score = reader.perplexity(texts, context=context, stride=stride, trigram=trigram, weight=weight, progress=progress)
    seconds = time.monotonic() - began
    window = None if reader.model.carries else context or reader.context
    step = None if window is None else stride or max(1, window // 2)
    return TextEvaluation(str(reader.folder or "model"), [str(file) for file in files], score, window, step, seconds)
