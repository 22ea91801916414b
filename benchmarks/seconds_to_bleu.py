"""How many seconds of a GPU until the same BLEU: GNMT, ConvS2S and the Transformer on Europarl, one after the other.

    python benchmarks/seconds_to_bleu.py --data DIR [--models gnmt,convs2s,transformer] [--seconds 200] [--every 250] [--out DIR]
        [--goals 15,20] [--stage all] [--pace run] [--steps 0] [section.key=value ...]

DIR holds Europarl as recipe `europarl-en-de` reads it; sizes and learning rates of the models stand in MODELS below. Each model is
trained for about `--seconds` (the number of steps follows from its speed in a trial), and every `--every` steps the first 500
sentences of the development text are translated. The training seconds of a step are its number times the median time of a step:
validation, saving and the recording of graphs are not in it. Where runs have to share the GPU, make the trials with
`--stage trial`, with nothing else on it, the runs with `--stage run` (and `--steps`, where they come before the trials), and then
give `--pace trial`: the time of a step is the trial's. BLEU is sacreBLEU's
of detokenised text. For each goal (default: nine tenths of the BLEU that the weakest model reaches, and all of it) the first
validation that is not below it counts, with a straight line between it and the one before.
One JSON line per model, a table at the end, and OUT/seconds_to_bleu.png. Runs that
are finished in OUT are not made again.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
from pathlib import Path
from typing import NamedTuple

import torch

import regard
from regard.core.files import read_json
from regard.evaluation.plots import COLOURS, LINE_STYLES, save_figure
from regard.tasks.folder import CONFIG, METRICS, RUN
from regard.training.log import read_metrics
from regard.training.progress import Reporter

RECURRENT = ["model.dropout=0.2", "train.lr=2e-3", "train.warmup=500"]
MODELS = {
    "gnmt": ["model.name=gnmt", "model.width=512", "model.layers=4", "model.query=current", "model.tie=auto", *RECURRENT],
    "convs2s": ["model.name=convs2s", "model.embedding=512", "model.width=512", "model.layers=8", "model.kernel=3",
                "model.tie=auto", "model.max_length=256", "model.dropout=0.1", "train.lr=2e-3"],
    "transformer": [],
}  # fmt: skip
TRIAL = 400  # steps


class Point(NamedTuple):
    step: int
    seconds: float
    bleu: float


def step_seconds(folder: Path) -> float:
    """The median time of a step, of stretches of the log's second half in which nothing else was done."""
    rows = [row for row in read_metrics(folder / METRICS) if "tokens_per_second" in row]
    validated = {row["step"] for row in read_metrics(folder / METRICS) if "valid_nll" in row}
    pairs = [(a, b) for a, b in itertools.pairwise(rows) if a["step"] not in validated]
    pairs = pairs[len(pairs) // 2 :]  # all shapes of batches have been met
    return statistics.median((b["seconds"] - a["seconds"]) / (b["step"] - a["step"]) for a, b in pairs)


def train(name: str, folder: Path, settings: list[str]) -> None:
    if (folder / RUN).exists():
        regard.resume(folder, Reporter(quiet=True))
    else:
        regard.train("europarl-en-de", out=folder, settings=settings, report=Reporter(quiet=True))


def one(name: str, arguments: argparse.Namespace) -> tuple[dict, list[Point]]:
    """What a model's run is like, and its curve; of a trial alone, no curve."""
    same = "train.packed=false"  # batches for all
    common = [f"data.folder={arguments.data.absolute()}", same, *MODELS[name], *arguments.settings]
    trial, folder = arguments.out / f"{name}-trial", arguments.out / name
    if arguments.pace == "trial" or arguments.stage == "trial" or not arguments.steps:
        quick = [f"train.{setting}={TRIAL}" for setting in ("steps", "save_every", "validate_every")]
        train(name, trial, [*common, *quick, "train.log_every=10", "search.beam=1"])
        pace = step_seconds(trial)
    else:
        pace = 0.0
    if arguments.stage == "trial":
        return {"model": name, "step_seconds": round(pace, 5)}, []
    steps = arguments.steps or max(arguments.every, round(arguments.seconds / pace / arguments.every) * arguments.every)
    settings = [
        f"train.steps={steps}",
        f"train.validate_every={arguments.every}",
        f"train.save_every={steps}",
        "train.valid_sentences=500",
        f"train.log_every={max(1, arguments.every // 10)}",
    ]
    train(name, folder, [*common, *settings])
    steps = read_json(folder / CONFIG)["train"]["steps"]
    each = pace if arguments.pace == "trial" else step_seconds(folder)
    rows = read_metrics(folder / METRICS)
    points = [Point(row["step"], row["step"] * each, row["valid_bleu"]) for row in rows if "valid_bleu" in row]
    row = {
        "model": name,
        "parameters": regard.load(folder).model.parameters_count(),
        "steps": steps,
        "step_seconds": round(each, 5),
        "pace": arguments.pace,
        "bleu_by_seconds": [(round(point.seconds, 1), round(point.bleu, 2)) for point in points],
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        "torch": torch.__version__,
    }
    return row, points


def seconds_to(points: list[Point], goal: float) -> float | None:
    """When a curve first reaches a BLEU; None if it does not."""
    before = Point(0, 0.0, 0.0)
    for point in points:
        if point.bleu >= goal:
            part = (goal - before.bleu) / (point.bleu - before.bleu) if point.bleu > before.bleu else 1.0
            return before.seconds + max(0.0, part) * (point.seconds - before.seconds)
        before = point
    return None


def draw(curves: dict[str, list[Point]], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    for i, (name, points) in enumerate(curves.items()):
        axes.plot(
            [point.seconds for point in points],
            [point.bleu for point in points],
            color=COLOURS[i % len(COLOURS)],
            linestyle=LINE_STYLES[i % len(LINE_STYLES)],
            label=name,
        )
    axes.set_xlabel("training seconds")
    axes.set_ylabel("BLEU of 500 development sentences")
    axes.grid(alpha=0.3)
    axes.legend()
    save_figure(figure, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--seconds", type=float, default=200)
    parser.add_argument("--every", type=int, default=250, help="steps between two validations")
    parser.add_argument("--goals", default="", help="BLEU scores to reach")
    parser.add_argument("--out", type=Path, default=Path("runs/seconds-to-bleu"))
    parser.add_argument("--stage", choices=("all", "trial", "run"), default="all")
    parser.add_argument("--steps", type=int, default=0, help="of each run; 0: as many as --seconds allow")
    parser.add_argument("--pace", choices=("run", "trial"), default="run", help="where the time of a step comes from")
    parser.add_argument("settings", nargs="*", help="section.key=value over the recipe")
    arguments = parser.parse_args()
    curves: dict[str, list[Point]] = {}
    for name in arguments.models.split(","):
        row, curves[name] = one(name, arguments)
        print(json.dumps(row), flush=True)
    if arguments.stage != "all":
        return
    draw(curves, arguments.out / "seconds_to_bleu.png")
    weakest = min(max(point.bleu for point in points) for points in curves.values())
    goals = [float(goal) for goal in arguments.goals.split(",") if goal] or [0.9 * weakest, weakest]
    print(f"{'model':14}" + "".join(f"{f'BLEU {goal:.1f}':>12}" for goal in goals) + f"{'best':>8}")
    for name, points in curves.items():
        found = [seconds_to(points, goal) for goal in goals]
        cells = "".join(f"{'-' if seconds is None else f'{seconds:.1f} s':>12}" for seconds in found)
        print(f"{name:14}{cells}{max(point.bleu for point in points):8.2f}")


if __name__ == "__main__":
    main()
