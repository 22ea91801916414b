"""Reversing sequences: how long may they be, for translators with attention and for those that squeeze them into one vector?

    python benchmarks/reversal.py [--models bahdanau,cho] [--longest 16] [--steps 1000] [--seed 1] [--out DIR] [settings]

All are trained on the same sequences of random letters, of lengths 1 to `longest`, in the same batches and number of steps,
the recurrent ones with the same sizes and learning rate. Their encoders read from left to right, so that the letter read
last is written first: the easiest order for a model without attention. Then each reverses unseen sequences of every length,
also longer ones than it was trained on. A sequence counts if all of it is right. One JSON line per model, a table at the
end, and OUT/reversal.png. Meant for a CPU: some minutes for each model.
"""

from __future__ import annotations

import argparse
import json
import random
import string
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import regard
from regard.evaluation.plots import COLOURS, LINE_STYLES, save_figure
from regard.models.base import MODELS
from regard.training.progress import Reporter

RECURRENT = {"embedding": 64, "width": 96, "dropout": 0.0}
TRANSLATORS = {
    "transformer": {"width": 96, "layers": 2, "heads": 4, "dropout": 0.0},
    "bahdanau": {**RECURRENT},
    "luong": {**RECURRENT, "layers": 1, "reverse": False},
    "gnmt": {**RECURRENT, "layers": 2},
    "convs2s": {**RECURRENT, "layers": 3, "max_length": 64},
    "cho": {**RECURRENT},
    "sutskever": {**RECURRENT, "layers": 1, "reverse": False},
    "rctm1": {"width": 128, "dropout": 0.0},
}
PAIRS, HELD_OUT, BEYOND = 20_000, 100, 4  # training pairs; test sequences of each length; lengths beyond the longest


def sequences(count: int, seed: int, shortest: int, longest: int) -> list[str]:
    draw = random.Random(f"{seed} {shortest} {longest}")
    letters = string.ascii_lowercase
    return [" ".join(draw.choices(letters, k=draw.randint(shortest, longest))) for _ in range(count)]


def one(name: str, folder: Path, longest: int, steps: int, seed: int, extra: Sequence[str]) -> dict:
    """Trains a model, and gives the percentage of sequences of each length that it reverses without a mistake."""
    asked = {length: sequences(HELD_OUT, seed, length, length) for length in range(1, longest + BEYOND + 1)}
    unseen = {line for lines in asked.values() for line in lines if len(line) > 1}  # all letters must be trained on
    text = [line for line in sequences(PAIRS, seed, 1, longest) if line not in unseen]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "text.src").write_text("".join(line + "\n" for line in text))
    (folder / "text.tgt").write_text("".join(line[::-1] + "\n" for line in text))
    settings = [
        *(f"model.{key}={value}" for key, value in {"name": name, **TRANSLATORS[name]}.items()),
        "data.valid_size=50", "data.test_size=50", "data.allow=same-file", "tokenizer.kind=word",
        f"train.steps={steps}", f"train.save_every={steps}", f"train.seed={seed}", "train.batch_tokens=1500",
        f"train.lr={2e-3 if name == 'transformer' else 5e-3}", "train.schedule=linear", "train.warmup=100",
        "train.label_smoothing=0.0", "train.patience=0", "train.select=last", "train.packed=false", *extra,
    ]  # fmt: skip
    files = {"src": str(folder / "text.src"), "tgt": str(folder / "text.tgt")}
    result = regard.train(out=folder / "run", settings=settings, report=Reporter(quiet=True), **files)
    if result.interrupted is not None:
        sys.exit(128 + result.interrupted)
    translator = regard.load(folder / "run")
    right = {}
    for length, lines in asked.items():
        written = translator.translate(lines, beam=1)
        good = sum(answer == line[::-1] for answer, line in zip(written, lines, strict=True))
        right[length] = round(100 * good / len(lines), 1)
    return {
        "model": name,
        "attends": "attends" in MODELS.get(name).capabilities,
        "parameters": translator.model.parameters_count(),
        "training_seconds": result.summary["seconds"],
        "right": right,
    }


def table(rows: Sequence[Mapping], longest: int) -> str:
    """Percentages over ranges of lengths, one line per model."""
    step = -(-longest // 4)
    ranges = [(low, min(low + step - 1, longest)) for low in range(1, longest + 1, step)]
    ranges.append((longest + 1, longest + BEYOND))
    heads = [f"{low}-{high}" for low, high in ranges]
    lines = [
        "| model | parameters | seconds | " + " | ".join(heads) + " |",
        "|" + "---|" * (3 + len(heads)),
    ]
    for row in rows:
        cells = []
        for low, high in ranges:
            values = [row["right"][length] for length in range(low, high + 1)]
            cells.append(f"{sum(values) / len(values):.1f}")
        start = f"| {row['model']} | {row['parameters']:,} | {row['training_seconds']:.0f} | "
        lines.append(start + " | ".join(cells) + " |")
    return "\n".join(lines)


def draw(rows: Sequence[Mapping], longest: int, path: Path) -> None:
    """The percentage of right sequences by length: solid lines for models that attend."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(7.0, 3.6), layout="constrained")
    axes = figure.add_subplot()
    for number, row in enumerate(rows):
        lengths = list(row["right"])
        axes.plot(
            lengths, [row["right"][length] for length in lengths], label=row["model"], color=COLOURS[number % len(COLOURS)],
            linestyle=LINE_STYLES[0 if row["attends"] else 1], marker="o", markersize=3, linewidth=1.4,
        )  # fmt: skip
    axes.axvline(longest + 0.5, color="#8a94a3", linewidth=0.9)
    axes.annotate("not trained on", (longest + 0.6, 102), fontsize=8, color="#5a6472")
    axes.set_xlabel("letters in the sequence")
    axes.set_ylabel("reversed without a mistake, %")
    axes.set_ylim(-3, 108)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_title("Reversing: attention (solid) and one vector (dashed)")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#e4e8ee", linewidth=0.8)
    axes.legend(frameon=False, fontsize=9)
    save_figure(figure, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(TRANSLATORS), help="comma-separated")
    parser.add_argument("--longest", type=int, default=16, help="letters in the longest sequence trained on")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("runs/reversal"))
    parser.add_argument("settings", nargs="*", help="section.key=value over the script's")
    given = parser.parse_args()
    rows = []
    began = time.monotonic()
    for name in given.models.split(","):
        rows.append(one(name, given.out / name, given.longest, given.steps, given.seed, given.settings))
        print(json.dumps(rows[-1]), flush=True)
    print(table(rows, given.longest))
    draw(rows, given.longest, given.out / "reversal.png")
    print(f"{given.out / 'reversal.png'} after {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
