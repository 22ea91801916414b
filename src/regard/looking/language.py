"""Language models at work: how surprising each token of a text is, what may come next, and what may stand for a mask."""

from __future__ import annotations

import math
from typing import Any

from regard.core.errors import ModelError
from regard.looking.tracing import make_trace
from regard.tasks.language_model import TextModel
from regard.tasks.masked import MaskedText


def next_tokens(task: Any, text: str, top: int) -> dict[str, Any]:
    """The tokens of a text with their surprisal in bits, and the likeliest that follow."""
    if not isinstance(task, TextModel):
        raise ModelError("the model", "it does not continue texts", "Choose a language model")
    tokens = []
    if text.strip():
        shown = make_trace(task, text).source
        bits = [-value / math.log(2) for value in shown.log_probs or []]
        tokens = [
            {"token": token, "surprisal": bit}
            for token, bit, special in zip(shown.tokens, bits, shown.special, strict=True)
            if not special
        ]
    following = [{"token": row.text, "probability": row.probability} for row in task.next_words(text, top, tokens=True)]
    return {"tokens": tokens, "next": following}


def filled(task: Any, text: str, top: int) -> dict[str, Any]:
    """For each [MASK] of a text, the likeliest words."""
    if not isinstance(task, MaskedText):
        raise ModelError("the model", "it fills in no words", "Choose a masked model, such as a BERT")
    return {
        "masks": [
            [{"word": one.word, "probability": one.probability} for one in words] for words in task.fill(text, top)
        ]
    }
