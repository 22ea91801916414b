"""Whether training by kernels (`train.fused`) learns as the model's own operations do: loss curves of Multi30k, the same seed.

    python benchmarks/fused_curves.py --data DIR [--recipe multi30k-quick] [--steps 1500] [--plot FILE] [section.key=value ...]

DIR is that of multi30k.py. Four runs on the same batches from the same first weights: with the kernels and without, each without
dropout, where the losses differ by rounding alone, and with the recipe's, where other numbers are drawn. A second seed of the
model's own way (with dropout) says how far two curves lie apart by chance. One JSON line per run, a table of differences last.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import regard
from regard.evaluation.drawing import draw_lines
from regard.evaluation.plots import save_figure
from regard.tasks.folder import METRICS
from regard.training.log import read_metrics
from regard.training.progress import Reporter

LAST = 0.2  # of all steps, whose mean difference is told
RUNS: dict[str, tuple[bool, bool, int]] = {
    "kernels, no dropout": (True, False, 0),
    "own, no dropout": (False, False, 0),
    "kernels": (True, True, 0),
    "own": (False, True, 0),
    "own, another seed": (False, True, 1),
}  # by kernels, with dropout, how much is added to the seed
PAIRS = [("kernels, no dropout", "own, no dropout"), ("kernels", "own"), ("own, another seed", "own")]


def trained(name: str, arguments: argparse.Namespace) -> dict[str, Any]:
    fused, dropped, more = RUNS[name]
    steps, out = arguments.steps, arguments.out / name.replace(", ", "-").replace(" ", "-")
    settings = [
        f"data.folder={arguments.data.absolute()}",
        f"train.seed={arguments.seed + more}",
        f"train.fused={str(fused).lower()}",
        f"train.steps={steps}",
        f"train.save_every={steps}",
        f"train.log_every={arguments.log_every}",
        "train.compile=false",
        "train.packed=false",
        *([] if dropped else ["model.dropout=0"]),
        *arguments.settings,
    ]
    result = regard.train(arguments.recipe, out=out, settings=settings, report=Reporter(quiet=True))
    rows = [row for row in read_metrics(out / METRICS) if "loss" in row]
    valid = next(row["valid_nll"] for row in reversed(read_metrics(out / METRICS)) if "valid_nll" in row)
    seconds = result.summary["seconds"]
    return {
        "run": name,
        "steps": [row["step"] for row in rows],
        "losses": [round(row["loss"], 5) for row in rows],
        "valid_nll": valid,
        "seconds": seconds,
    }


def differences(one: dict[str, Any], other: dict[str, Any]) -> dict[str, float]:
    apart = [a - b for a, b in zip(one["losses"], other["losses"], strict=True)]
    last = apart[-max(1, round(LAST * len(apart))) :]
    return {
        "first": abs(apart[0]),
        "largest": max(map(abs, apart)),
        "mean of the last": sum(last) / len(last),
        "valid_nll": one["valid_nll"] - other["valid_nll"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--recipe", default="multi30k-quick")
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--log-every", type=int, default=25)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("runs/fused-curves"))
    parser.add_argument("--plot", type=Path)
    parser.add_argument("settings", nargs="*", help="section.key=value over the recipe")
    arguments = parser.parse_intermixed_args()
    found = {}
    for name in RUNS:
        found[name] = trained(name, arguments)
        print(json.dumps(found[name]), flush=True)
    print(f"{'':44}{'first':>10}{'largest':>10}{'last mean':>11}{'valid nll':>11}")
    for one, other in PAIRS:
        first, largest, mean, valid = differences(found[one], found[other]).values()
        print(f"{f'{one} - {other}':44}{first:10.5f}{largest:10.5f}{mean:11.5f}{valid:11.5f}")
    if arguments.plot is not None:
        lines = {name: (run["steps"], run["losses"]) for name, run in found.items()}
        save_figure(draw_lines(lines, x="step", y="loss"), arguments.plot)


if __name__ == "__main__":
    main()
