"""Training on packed batches (`train.packed`) beside padded ones: how fast, how full, and whether the same is learnt.

    python benchmarks/packing.py --data DIR [--recipe europarl-en-de] [--steps 400] [--turns 1] [--out DIR] [section.key=value ...]

DIR is what the recipe reads (`data.folder`). Each turn has two runs, one after the other, on the same text and from the same first
weights, each in a process of its own that finds no compiled code; the text is prepared before and shared. Told are the target
tokens a second without padding (the median over the second half of the log), milliseconds of a step, how much of a batch's target
side is text, the seconds until step 50 is done (compiling and recording included), and the loss of the validation text in the end:
after as many steps, of which packed ones have read more. One JSON line per run, a table last.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

import regard
from regard.core.files import read_json
from regard.tasks.folder import CONFIG, METRICS
from regard.training.log import read_metrics
from regard.training.progress import Reporter
from regard.training.text import prepare
from timed_training import apart, machine

EVERY = 10  # steps of a line of the log
EARLY = 50
KINDS = {"padded": "false", "packed": "true"}


def settings_of(arguments: argparse.Namespace) -> list[str]:
    folder, store = arguments.data.absolute(), (arguments.out / "prepared").absolute()
    return [f"data.folder={folder}", f"data.store={store}", "data.check=false", *arguments.settings]


def trained(recipe: str, kind: str, settings: list[str], steps: int, out: Path) -> dict[str, Any]:
    own = [f"train.packed={KINDS[kind]}", f"train.log_every={EVERY}", "data.test_src=", "data.test_tgt="]
    of_steps = [f"train.steps={steps}", f"train.save_every={steps}"]
    regard.train(recipe, out=out, settings=[*settings, *own, *of_steps], report=Reporter(quiet=True))
    metrics = read_metrics(out / METRICS)
    rows = [row for row in metrics if "tokens_per_second" in row]
    late = [row for row in rows if row["step"] > steps // 2] or rows
    before = [0, *(row["step"] for row in rows)]
    tokens = [
        row["tokens_per_second"] * (row["seconds"] - earlier) / (row["step"] - step)
        for row, earlier, step in zip(rows, [0.0, *(row["seconds"] for row in rows)], before, strict=False)
    ]
    speed = statistics.median(row["tokens_per_second"] for row in late)
    filled = statistics.mean(tokens[-len(late) :]) / read_json(out / CONFIG)["train"]["batch_tokens"]
    early = next((row["seconds"] for row in rows if row["step"] >= EARLY), rows[-1]["seconds"])
    return {
        "run": kind,
        "steps": steps,
        "tokens_per_second": round(speed),
        "step_ms": round(1e3 * statistics.mean(tokens[-len(late) :]) / speed, 2),
        "filled": round(filled, 4),
        f"seconds_to_step_{EARLY}": round(early, 2),
        "seconds": rows[-1]["seconds"],
        "tokens": round(sum(n * (row["step"] - step) for n, row, step in zip(tokens, rows, before, strict=False))),
        "valid_nll": next(row["valid_nll"] for row in reversed(metrics) if "valid_nll" in row),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--recipe", default="europarl-en-de")
    parser.add_argument("--steps", type=int, default=400, help="of each run")
    parser.add_argument("--turns", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("runs/packing"))
    parser.add_argument("settings", nargs="*", help="section.key=value over the recipe")
    arguments = parser.parse_intermixed_args()
    settings, rows = settings_of(arguments), []
    print(json.dumps(machine()), flush=True)
    prepare(arguments.recipe, settings=settings, report=Reporter(quiet=True))
    for turn in range(arguments.turns):
        for kind in KINDS:
            out = arguments.out / f"{arguments.recipe}-{kind}-{turn + 1}"
            rows.append(apart(trained, arguments.recipe, kind, settings, arguments.steps, out))
            print(json.dumps(rows[-1]), flush=True)
    print("".join(f"{name:>22}" for name in rows[0]))
    for row in rows:
        print("".join(f"{value!s:>22}" for value in row.values()))


if __name__ == "__main__":
    main()
