"""Multi30k: trains a recipe (`multi30k-en-de`, or `--recipe`) for several seeds, directions and kinds of text; scores test2016.

    python benchmarks/multi30k.py --data DIR [--recipe NAME] [--runs en-de:lc:1,en-de:lc:2,de-en:lc:1,en-de:raw:1] [--out DIR]

DIR holds train/val/test_2016_flickr in `.xx` (raw) and `.lc.norm.tok.xx` (lower-cased, normalised, tokenised) form, the
training files as .xz. `lc` runs are scored on tokenised lower-cased text, as published (German reference length 12,103);
`raw` runs by sacreBLEU on detokenised, cased text. `word` runs read the `lc` text as whole words (those that occur twice,
each language its own), and search greedily, as courses do; unknown words stay unknown. One JSON line per run, a table at the end.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path

import torch

import regard
from regard.training.progress import Reporter

WORDS = [
    "tokenizer.kind=word",
    "tokenizer.min_count=2",
    "tokenizer.size=100000",
    "tokenizer.joint=false",
    "search.beam=1",
]
RUNS = "en-de:lc:1,en-de:lc:2,en-de:lc:3,de-en:lc:1,en-fr:lc:1,en-de:raw:1"


def one(recipe: str, data: Path, out: Path, direction: str, kind: str, seed: int, extra: list[str]) -> dict:
    source, target = direction.split("-")
    ending = "" if kind == "raw" else ".lc.norm.tok"
    files = {
        "src": f"train{ending}.{source}.xz",
        "tgt": f"train{ending}.{target}.xz",
        "valid_src": f"val{ending}.{source}",
        "valid_tgt": f"val{ending}.{target}",
        "test_src": f"test_2016_flickr{ending}.{source}",
        "test_tgt": f"test_2016_flickr{ending}.{target}",
        "source_language": source,
        "target_language": target,
        "folder": str(data.absolute()),
    }
    settings = [f"data.{key}={value}" for key, value in files.items()] + [f"train.seed={seed}"]
    settings += (WORDS if kind == "word" else []) + extra
    began = time.monotonic()
    folder = out / f"{recipe}-{direction}-{kind}-{seed}"
    result = regard.train(recipe, out=folder, settings=settings, report=Reporter(quiet=True))
    wall = time.monotonic() - began
    evaluation = regard.evaluate(
        folder,
        src=data / files["test_src"],
        ref=data / files["test_tgt"],
        tokenized=kind != "raw",
        lowercase=kind != "raw",
    ).system
    valid = regard.evaluate(
        folder,
        src=data / files["valid_src"],
        ref=data / files["valid_tgt"],
        tokenized=kind != "raw",
        lowercase=kind != "raw",
    ).system  # what recipes are chosen by
    bleu, chrf = evaluation.scores["bleu"], evaluation.scores["chrf"]
    return {
        "recipe": recipe,
        "parameters": regard.load(folder).model.parameters_count(),
        "direction": direction,
        "text": kind,
        "seed": seed,
        "bleu": round(bleu.value, 2),
        "bleu_interval": [round(bleu.low or 0, 1), round(bleu.high or 0, 1)],
        "chrf": round(chrf.value, 2),
        "valid_bleu": round(valid.scores["bleu"].value, 2),
        "valid_perplexity": round(valid.perplexity or 0, 3),
        "reference_length": bleu.details["ref_len"],
        "perplexity": round(evaluation.perplexity or 0, 2),
        "train_and_test_seconds": round(wall, 1),
        "training_seconds": result.summary["seconds"],
        "decoding_seconds": round(evaluation.seconds or 0, 2),
        "signature": bleu.signature,
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        "torch": torch.__version__,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--recipe", default="multi30k-en-de")
    parser.add_argument("--out", type=Path, default=Path("runs/multi30k"))
    parser.add_argument("--runs", default=RUNS, help="direction:text:seed, comma-separated")
    parser.add_argument("settings", nargs="*", help="section.key=value over the recipe")
    arguments = parser.parse_args()
    rows = []
    for run in arguments.runs.split(","):
        direction, kind, seed = run.split(":")
        rows.append(
            one(arguments.recipe, arguments.data, arguments.out, direction, kind, int(seed), arguments.settings)
        )
        print(json.dumps(rows[-1]), flush=True)
    print(f"{'run':14} {'seeds':>5} {'BLEU':>7} {'chrF':>7} {'seconds':>8}")
    for key in dict.fromkeys((row["direction"], row["text"]) for row in rows):
        same = [row for row in rows if (row["direction"], row["text"]) == key]
        mean = {name: statistics.mean(row[name] for row in same) for name in ("bleu", "chrf", "train_and_test_seconds")}
        print(
            f"{key[0]} {key[1]:8} {len(same):5} {mean['bleu']:7.2f} {mean['chrf']:7.2f} {mean['train_and_test_seconds']:8.1f}"
        )


if __name__ == "__main__":
    main()
