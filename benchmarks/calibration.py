"""How far confidences are from the truth, before and after calibration; with a reliability diagram.

    python benchmarks/calibration.py [--model RUN] [--pairs 2000] [--picture docs/pictures/reliability.png] [--device cpu]

Without a model the bundled one. The curves (tasks/confidence.py) are fitted on the validation pairs of the run's own data and
measured on its test pairs, both of which it was not trained on. `before` is the model's own probability of a token, and the
geometric mean of those of a translation's tokens. The error (ECE) is the mean distance of what was said and what was true, over
ten bins of equal width. One JSON line, and a table.
"""

from __future__ import annotations

import argparse
import itertools
import json
from pathlib import Path

import regard
from regard.core import config as configuration
from regard.data.corpus import load_corpus
from regard.data.corpus_config import DataConfig
from regard.data.split import Pairs, gathered
from regard.evaluation.drawing import draw_lines
from regard.evaluation.plots import save_figure
from regard.tasks.calibrating import calibrate
from regard.tasks.translation import Translator


def interleaved(fitted: Pairs, measured: Pairs) -> tuple[list[str], list[str]]:
    """One pair of each in turns: `calibrate` fits on the first of every two, and measures on the second."""
    sides = (fitted.sources, measured.sources), (fitted.targets, measured.targets)
    both = [list(itertools.chain(*zip(*side, strict=True))) for side in sides]
    return both[0], both[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=None)
    parser.add_argument("--pairs", type=int, default=2000, help="to fit, and as many to measure")
    parser.add_argument("--picture", type=Path)
    parser.add_argument("--device", default="cpu")
    asked = parser.parse_args()
    translator: Translator = regard.load(asked.model, engine="torch", device=asked.device)  # type: ignore[arg-type]
    corpus = load_corpus(configuration.build(DataConfig, translator.config["data"], "data"))
    valid, test = (gathered(part.chunks()) for part in (corpus.valid, corpus.test))
    count = min(asked.pairs, len(valid), len(test))
    made = calibrate(translator, *interleaved(valid.head(count), test.head(count)))
    errors = {name: round(one["error"], 4) for name, one in made.measured.items()}
    print(json.dumps({"pairs": count, "token": made.token, "sentence": made.sentence, **errors}))
    print("\n| | counted | error before | after |\n|---|---|---|---|")
    for name in ("tokens", "sentences"):
        one = made.measured[name]
        print(f"| {name} | {one['count']:,} | {errors[f'{name}_before']:.4f} | {errors[name]:.4f} |")
    for name, one in made.measured.items():
        print(f"\n{name}: " + ", ".join(f"{said:.2f} -> {true:.2f} ({n})" for n, said, true in one["bins"] if n))
    if asked.picture is not None:
        lines = {"as it should be": ([0, 1], [0, 1])}
        for name in ("sentences_before", "sentences", "tokens_before", "tokens"):
            kind, _, before = name.partition("_")
            label = f"{kind}, {before or 'after'}"
            bins = [(said, true) for n, said, true in made.measured[name]["bins"] if n >= 10]
            lines[label] = ([said for said, _ in bins], [true for _, true in bins])
        figure = draw_lines(lines, x="confidence", y="truth", title=f"{count:,} held-out sentences")
        save_figure(figure, asked.picture)


if __name__ == "__main__":
    main()
