"""LAMBADA: how often does a language model guess the last word of a passage that can be guessed only from the whole of it?

    python benchmarks/lambada.py --model RUN --data lambada_test.jsonl [--passages 5153]

A line of the file is an object with `text`. The last word (what follows the last white space) is taken off; it counts as guessed
if each of its tokens is the model's likeliest after the passage (as OpenAI measured it), and its perplexity is exp of the mean
negative log-probability of the whole word. Passages longer than the context lose their beginning. One JSON line.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from pathlib import Path

import torch

import regard
from regard.core.types import BOS, EOS, pad_rows
from regard.models.base import NoMemory
from regard.tasks.language_model import TextModel


@torch.inference_mode()
def last_word(model: TextModel, text: str) -> tuple[float, bool, int]:
    """The log-probability of the last word, whether it is guessed, and how many tokens it has."""
    passage, word = text.rsplit(None, 1)
    (whole,), (before,) = model.tokenizer.encode([f"{passage} {word}"]), model.tokenizer.encode([passage])
    shared = next((i for i, (a, b) in enumerate(zip(whole, before, strict=False)) if a != b), len(before))
    wanted = whole[shared:]
    limit = model.model.limits.target
    tokens = [BOS, *whole[:-1]] if limit is None else [BOS, *whole[:-1]][-limit:]
    read = pad_rows([tokens]).tokens.to(model.device)
    if model.model.carries:
        state = model.model.begin(1)
        hidden, _ = model.model.advance(read[:, None], NoMemory(read.new_zeros(1)), state)
        hidden = hidden[0, 0]
    else:
        hidden = model.model(pad_rows([[EOS]]).to(model.device), read).hidden[0]
    scores = model.model.output.scores(hidden[-len(wanted) :])
    target = torch.tensor(wanted, device=scores.device)
    own = scores.gather(1, target[:, None])
    return float(own.double().sum()), bool((scores.argmax(1) == target).all()), len(wanted)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--passages", type=int, default=0, help="only the first so many; 0: all")
    arguments = parser.parse_args()
    model = regard.load(arguments.model)
    lines = arguments.data.read_text(encoding="utf-8").splitlines()
    texts = [json.loads(line)["text"].strip() for line in lines if line.strip()]
    texts = texts[: arguments.passages or None]
    began = time.monotonic()
    found = [last_word(model, text) for text in texts]
    row = {
        "model": str(arguments.model),
        "passages": len(found),
        "accuracy": round(100 * sum(right for _, right, _ in found) / len(found), 2),
        "word_perplexity": round(math.exp(-math.fsum(log_p for log_p, _, _ in found) / len(found)), 2),
        "tokens_of_a_word": round(sum(count for _, _, count in found) / len(found), 2),
        "seconds": round(time.monotonic() - began, 1),
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        "torch": torch.__version__,
    }
    print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
