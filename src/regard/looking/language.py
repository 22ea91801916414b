"""Language models at work: how surprising each token of a text is, what may come next, and what may stand for a mask."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn

from regard.core.errors import ModelError
from regard.core.types import BOS, PAD, pad_rows
from regard.looking.tracing import make_trace
from regard.looking.watching import Watched
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
    return {"tokens": tokens, "next": following, "layers": guesses_by_layer(task, text, top)}


@torch.inference_mode()
def guesses_by_layer(task: TextModel, text: str, top: int) -> list[list[dict[str, Any]]]:
    """What would come next if the model ended after each of its layers: the state there, normed and scored as the last one is."""
    blocks = getattr(task.model, "decoder", None)
    norm = getattr(task.model, "norm", None)
    if not isinstance(blocks, nn.ModuleList) or norm is None:
        return []
    (ids,) = task.tokenizer.encode([text])
    read = torch.tensor([[BOS, *ids]], device=task.device)
    with Watched({str(i): block for i, block in enumerate(blocks)}) as seen:
        task.model.eval()(pad_rows([[PAD]]).to(task.device), read)
    found = []
    for i in range(len(blocks)):
        scores = task.model.output.scores(norm(seen.output(str(i))[0, -1:]))[0]
        best = scores.topk(min(top, len(scores)))
        names = task.tokenizer.pieces(best.indices.tolist())
        values = best.values.exp().tolist()
        found.append([{"token": name, "probability": p} for name, p in zip(names, values, strict=True)])
    return found


def filled(task: Any, text: str, top: int) -> dict[str, Any]:
    """For each [MASK] of a text, the likeliest words."""
    if not isinstance(task, MaskedText):
        raise ModelError("the model", "it fills in no words", "Choose a masked model, such as a BERT")
    return {
        "masks": [
            [{"word": one.word, "probability": one.probability} for one in words] for words in task.fill(text, top)
        ]
    }
