"""Reading texts with a language model: how probable single texts are, and running text from end to end or in windows."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from regard.core.errors import ConfigError, DataError
from regard.core.specials import EOS, UNK
from regard.data.token_stream import TokenStream
from regard.search.forcing import score_pairs
from regard.search.text_scores import mix, no_source, stream_scores
from regard.tasks.line_batches import batches
from regard.tasks.pair_score import PairScore
from regard.tasks.text_score import TextScore

if TYPE_CHECKING:
    from regard.tasks.language_model import TextModel

MOST_AT_ONCE = 2048  # tokens of a text that is scored in one piece; longer ones are read as a stream


class OtherModel(Protocol):
    """What a language model can be mixed with, such as `regard.evaluation.trigram.Trigram`."""

    def log_probs(self, tokens: Any) -> np.ndarray:
        """log P of each token of a stream (EOS ends a document)."""
        ...


def score_texts(task: TextModel, texts: Sequence[str], batch_tokens: int) -> list[PairScore]:
    """See `TextModel.score`."""
    if isinstance(texts, str):
        raise DataError("texts", "they are a single text", "Give a list of texts")
    ids = task.tokenizer.encode(list(texts))
    at_once = min(MOST_AT_ONCE, task.context)
    results: list[PairScore | None] = [None] * len(ids)
    task.model.eval()
    short = [row for row, tokens in enumerate(ids) if len(tokens) + 1 <= at_once]
    for group in batches([len(ids[row]) + 1 for row in short], batch_tokens):
        rows = [short[i] for i in group]
        scored = score_pairs(task.model, no_source(len(rows), task.device), [ids[row] for row in rows])
        for row, (total, each) in zip(rows, scored, strict=True):
            results[row] = PairScore(total, task.tokenizer.pieces(ids[row]), each)
    for row, tokens in enumerate(ids):
        if results[row] is None:
            text, stride = np.array([*tokens, EOS]), max(1, task.context // 2)
            parts = stream_scores(task.model, text, task.device, context=task.context, stride=stride)
            each = np.concatenate(list(parts)).tolist()
            results[row] = PairScore(math.fsum(each), task.tokenizer.pieces(tokens), each)
    return [result for result in results if result is not None]


def perplexity_of(
    task: TextModel,
    documents: Iterable[str],
    *,
    context: int,
    stride: int,
    trigram: OtherModel | None,
    weight: float,
    progress: Callable[[int, int], None] | None,
) -> TextScore:
    """See `TextModel.perplexity`."""
    if isinstance(documents, str):
        raise DataError("documents", "they are a single text", "Give a list of documents")
    if not 0 <= weight <= 1:
        raise ConfigError("weight", f"{weight} is not from 0 (the trigram alone) to 1", "Give such a part")
    tokens, count = _stream_of(task, documents)
    task.model.eval()
    other = None if trigram is None else np.asarray(trigram.log_probs(tokens), dtype=np.float64)
    total, done = [], 0
    for part in token_scores(task, tokens, context, stride):
        if other is not None:
            part = mix(part, other[done : done + len(part)], weight)
        total.append(float(part.sum()))
        done += len(part)
        if progress is not None:
            progress(done, len(tokens))
    return dataclasses.replace(count, nll=-math.fsum(total), tokens=done, unknown=int((tokens == UNK).sum()))


def token_scores(task: TextModel, tokens: np.ndarray, context: int, stride: int) -> Iterator[np.ndarray]:
    """log P of each token of a stream, in parts as they come."""
    if (context or stride) and task.model.carries:
        what = "this model carries its state through the whole text, and reads no windows"
        raise ConfigError("context" if context else "stride", what, "Leave context and stride out")
    limit = task.model.limits.target
    context = context or task.context
    stride = stride or max(1, context // 2)
    if context < 1 or (limit is not None and context > limit):
        raise ConfigError("context", f"{context} tokens are not from 1 to the model's {limit}", "Give fewer")
    if not 1 <= stride <= context:
        raise ConfigError("stride", f"{stride} is not from 1 to the context of {context}", "Give fewer")
    return stream_scores(task.model, tokens, task.device, context=context, stride=stride)


def _stream_of(task: TextModel, documents: Iterable[str]) -> tuple[np.ndarray, TextScore]:
    """The tokens of all documents, each followed by EOS; and what is counted of the text."""
    counts = [0, 0, 0]

    def counted() -> Iterator[str]:
        for text in documents:
            for i, more in enumerate((len(text.split()) + 1, len(text.encode()) + 1, 1)):
                counts[i] += more
            yield text

    tokens = TokenStream.from_documents(counted(), task.tokenizer).tokens
    if not len(tokens):
        raise DataError("documents", "there are none", "Give at least one")
    words, size, count = counts
    return tokens, TextScore(0.0, 0, words, size, count)
