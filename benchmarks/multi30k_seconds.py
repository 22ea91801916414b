"""How long it takes to a good translator of Multi30k, English to German: a whole `regard.train` by the clock, and its BLEU.

    python benchmarks/multi30k_seconds.py --data DIR [--recipe multi30k-quick] [--seeds 1,2,3] [--out DIR] [section.key=value ...]

DIR is that of multi30k.py, which does the work. The seconds are those of `regard.train` from its call to the final weights:
reading the text, the tokenizer, compiling and recording, training, validation, saving. Translating test2016 comes after it and is
told apart. Each seed has a process of its own, which finds no compiled code; starting Python and its imports do not count. BLEU
is that of tokenised lower-cased text. One JSON line per seed, a table at the end.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

from multi30k import one
from regard.core.files import read_json
from regard.tasks.folder import SCORES
from timed_training import apart

DIRECTION, KIND = "en-de", "lc"
GOAL_BLEU, GOAL_SECONDS = 41.0, 60.0


def timed(recipe: str, data: Path, out: Path, seed: int, settings: list[str]) -> dict[str, Any]:
    row = one(recipe, data, out, DIRECTION, KIND, seed, settings)
    translating = read_json(out / f"{recipe}-{DIRECTION}-{KIND}-{seed}" / SCORES)["seconds"]  # inside of regard.train
    whole = row.pop("train_and_test_seconds") - translating
    return {**row, "settings": settings, "seconds": round(whole, 1), "translating_seconds": translating}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--recipe", default="multi30k-quick")
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--out", type=Path, default=Path("runs/multi30k-seconds"))
    parser.add_argument("settings", nargs="*", help="section.key=value over the recipe")
    arguments = parser.parse_intermixed_args()
    rows = []
    for seed in map(int, arguments.seeds.split(",")):
        rows.append(apart(timed, arguments.recipe, arguments.data, arguments.out, seed, arguments.settings))
        print(json.dumps(rows[-1]), flush=True)
    print(f"{'seed':8}{'BLEU':>7}{'valid':>7}{'seconds':>9}{'training':>10}{'translating':>13}")
    names = ("bleu", "valid_bleu", "seconds", "training_seconds", "translating_seconds")
    mean: dict[str, Any] = {name: statistics.mean(row[name] for row in rows) for name in names}
    for row in [*rows, {"seed": "mean", **mean}]:
        bleu, valid, seconds, training, translating = (row[name] for name in names)
        print(f"{row['seed']!s:8}{bleu:7.2f}{valid:7.2f}{seconds:9.1f}{training:10.1f}{translating:13.1f}")
    reached = mean["bleu"] >= GOAL_BLEU and mean["seconds"] < GOAL_SECONDS
    print(
        f"BLEU {GOAL_BLEU:.1f} in under {GOAL_SECONDS:.0f} s, by the means: {'reached' if reached else 'not reached'}"
    )


if __name__ == "__main__":
    main()
