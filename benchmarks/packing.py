"""Training on packed batches (`train.packed`) beside padded ones: how full they are, how fast, and whether as much is learnt.

    python benchmarks/packing.py --data DIR [--recipe europarl-en-de] [--steps 400] [--turns 1] [--out DIR] [section.key=value ...]

DIR is what the recipe reads (`data.folder`). First, without training (--steps 0: no more than that): batches of an epoch and their
shapes as a GPU has them, and how much of all places is text. Then each turn has two runs, one after the other, on the same text and
from the same first weights, each in a process of its own that finds no compiled code. Told are the target tokens a second without
padding (the median over the second half of the log), the seconds of the loop until step 50 is done (recordings and what is
compiled in it included; kernels that are tried are compiled before), and the loss of the validation text in the end: after as many
steps, of
which packed ones have read more. One JSON line for each, a table last.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

import regard
from regard.data.batching import BatchPlan
from regard.data.corpus import load_corpus
from regard.data.packing import ROOMS, PackedPlan, room_for
from regard.data.store import TokenStore
from regard.tasks.folder import METRICS
from regard.training.config import RunConfig, build_run_config
from regard.training.log import read_metrics
from regard.training.progress import Reporter
from regard.training.request import gather, nested
from regard.training.text import token_store, train_tokenizers
from timed_training import apart, machine

EVERY = 10  # steps of a line of the log
EARLY = 50
MULTIPLE = 8  # that widths are rounded up to on a GPU
KINDS = {"padded": "false", "packed": "true"}


def text_of(recipe: str, settings: list[str]) -> tuple[RunConfig, TokenStore]:
    config, quiet = build_run_config(gather(recipe, {}, nested(settings), None)), Reporter(quiet=True)
    corpus = load_corpus(config.data)
    return config, token_store(
        corpus, train_tokenizers(corpus, config.tokenizer, quiet), config.train.max_tokens, quiet
    )


def fullness(kind: str, config: RunConfig, store: TokenStore) -> dict[str, Any]:
    """Of an epoch's batches, as a GPU gets them: how many places they have on both sides, and how many of these are text."""
    sides, tokens = (store.source.lengths, store.target.lengths), config.train.batch_tokens
    if kind == "padded":
        plan = BatchPlan.of(store, tokens, config.train.seed, multiple=MULTIPLE)
    else:
        plan = PackedPlan(*sides, tokens, config.train.seed, ROOMS[-1], multiple=MULTIPLE, weights=store.weights)
    batches, shapes, places = plan.epoch(0), set(), 0
    for rows in batches:
        longest = [int(side[rows].max()) + 1 for side in sides]
        if kind == "packed" and max(longest) <= ROOMS[-1]:
            shapes.add(room_for(max(longest)))
            places += 2 * tokens
            continue
        source, target = (-(-length // MULTIPLE) * MULTIPLE for length in longest)
        shapes.add((source, target))
        places += max(len(rows), tokens // max(source, target)) * (source + target)
    text = sum(int(side[rows].sum()) + len(rows) for rows in batches for side in sides)
    return {
        "batches": kind,
        "of_an_epoch": len(batches),
        "shapes": len(shapes),
        "places": places,
        "filled": round(text / places, 4),
    }


def trained(recipe: str, kind: str, settings: list[str], steps: int, out: Path) -> dict[str, Any]:
    own = [f"train.packed={KINDS[kind]}", f"train.log_every={EVERY}", "data.test_src=", "data.test_tgt="]
    of_steps = [f"train.steps={steps}", f"train.save_every={steps}"]
    regard.train(recipe, out=out, settings=[*settings, *own, *of_steps], report=Reporter())
    metrics = read_metrics(out / METRICS)
    rows = [row for row in metrics if "tokens_per_second" in row]
    speeds = [row["tokens_per_second"] for row in rows if row["step"] > steps // 2]
    return {
        "run": kind,
        "steps": steps,
        "tokens_per_second": round(statistics.median(speeds)),
        f"seconds_to_step_{EARLY}": next((row["seconds"] for row in rows if row["step"] >= EARLY), None),
        "seconds": rows[-1]["seconds"],
        "valid_nll": round(next(row["valid_nll"] for row in reversed(metrics) if "valid_nll" in row), 4),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--recipe", default="europarl-en-de")
    parser.add_argument("--steps", type=int, default=400, help="of each run; 0: none")
    parser.add_argument("--turns", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("runs/packing"))
    parser.add_argument("settings", nargs="*", help="section.key=value over the recipe")
    arguments = parser.parse_intermixed_args()
    folder, store = arguments.data.absolute(), (arguments.out / "prepared").absolute()  # tokens are made once
    settings = [f"data.folder={folder}", f"data.store={store}", "data.check=false", *arguments.settings]
    print(json.dumps({**machine(), "recipe": arguments.recipe, "settings": arguments.settings}), flush=True)
    config, text = text_of(arguments.recipe, settings)
    rows = [fullness(kind, config, text) for kind in KINDS]
    print("\n".join(map(json.dumps, rows)), flush=True)
    for turn in range(arguments.turns if arguments.steps else 0):
        for kind in KINDS:
            out = arguments.out / f"{arguments.recipe}-{kind}-{turn + 1}"
            rows.append(apart(trained, arguments.recipe, kind, settings, arguments.steps, out))
            print(json.dumps(rows[-1]), flush=True)
    for row in rows:
        print("".join(f"{name}: {value!s:14}" for name, value in row.items()))


if __name__ == "__main__":
    main()
