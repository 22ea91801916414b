"""The figure of 2015: BLEU by the length of the source, of one vector (Cho) and of attention (Bahdanau), from our own runs.

    python benchmarks/length_figure.py --data DIR [--models cho,bahdanau] [--words 30,50] [--seed 1] [--out DIR] [settings]

DIR holds Europarl as recipe `europarl-words` reads it. Each model is trained twice, on pairs of at most 30 and at most 50 words on
either side, with 30,000 whole words and the rest unknown, for the same number of steps; then it translates all test sentences
of up to 60 words. BLEU of detokenised text by sacreBLEU, with 95 % intervals. One JSON line per run, a table at the end, and
OUT/lengths.png. Runs that are finished in OUT are not made again, nor their translations (`written.txt`).
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch

import regard
from regard.core.files import read_json, write_json
from regard.data.corpus import read_pairs
from regard.evaluation.lengths import LengthBin, by_source_length
from regard.evaluation.metrics import Flavour
from regard.evaluation.plots import draw_lengths, save_figure
from regard.tasks.folder import RUN
from regard.tasks.lines import Habits
from regard.training.progress import Reporter

EDGES = (10, 20, 30, 40, 50)
LONGEST = 60
WRITTEN, ABOUT = "written.txt", "lengths.json"


def make(folder: Path, settings: list[str], sources: list[str]) -> None:
    """Trains a model and lets it translate: `written.txt`, and what there is to say of the run in `lengths.json`."""
    if (folder / RUN).exists():
        result = regard.resume(folder, Reporter(quiet=True))
    else:
        result = regard.train("europarl-words", out=folder, settings=settings, report=Reporter(quiet=True))
    translator = regard.load(folder)
    translator.habits = Habits()  # sentences longer than usual stay whole: how it does on these is the question
    written = "".join(f"{text}\n" for text in translator.translate(sources))
    (folder / WRITTEN).write_text(written, encoding="utf-8")
    about = {
        "parameters": translator.model.parameters_count(),
        "training_seconds": result.summary.get("seconds"),
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        "torch": torch.__version__,
    }
    write_json(folder / ABOUT, about)


def one(model: str, words: int, data: Path, out: Path, seed: int, extra: list[str]) -> tuple[dict, list[LengthBin]]:
    folder = out / f"{model}-{words}-{seed}"
    settings = [
        f"data.folder={data.absolute()}",
        f"data.max_words={words}",
        f"model.name={model}",
        f"train.seed={seed}",
    ]
    pairs = [
        (source, target)
        for part in ("test", "dev")  # no model is chosen by dev here
        for source, target in zip(*_sides(data, part), strict=True)
        if len(source.split()) <= LONGEST
    ]
    sources, references = (list(side) for side in zip(*pairs, strict=True))
    if not (folder / ABOUT).exists():
        make(folder, settings + extra, sources)
    written = (folder / WRITTEN).read_text(encoding="utf-8").split("\n")[:-1]
    flavour = Flavour(language="de")
    bins = by_source_length(sources, written, references, flavour, EDGES)
    whole = by_source_length(sources, written, references, flavour, [LONGEST])[0].bleu
    row = {
        "model": model,
        "longest_trained": words,
        "seed": seed,
        "sentences": len(sources),
        "bleu": round(whole.value, 2),
        "by_length": {entry.label: round(entry.bleu.value, 2) for entry in bins},
        "signature": whole.signature,
        **read_json(folder / ABOUT),
    }
    return row, bins


def _sides(data: Path, part: str) -> tuple[list[str], list[str]]:
    pairs = read_pairs(data / f"{part}.en", data / f"{part}.de")
    return pairs.sources, pairs.targets


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--models", default="cho,bahdanau")
    parser.add_argument("--words", default="30,50", help="longest sentences of the training text")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("runs/lengths"))
    parser.add_argument("settings", nargs="*", help="section.key=value over the recipe")
    arguments = parser.parse_args()
    rows, bins = [], {}
    for model in arguments.models.split(","):
        for words in map(int, arguments.words.split(",")):
            row, found = one(model, words, arguments.data, arguments.out, arguments.seed, arguments.settings)
            rows.append(row)
            bins[f"{model}-{words}"] = found
            print(json.dumps(row), flush=True)
    save_figure(draw_lengths(bins), arguments.out / "lengths.png")
    labels = list(rows[0]["by_length"])
    print(f"{'run':16} {'all':>7}" + "".join(f"{label:>9}" for label in labels))
    for row in rows:
        cells = "".join(f"{row['by_length'].get(label, 0):9.2f}" for label in labels)
        print(f"{row['model'] + '-' + str(row['longest_trained']):16} {row['bleu']:7.2f}{cells}")


if __name__ == "__main__":
    main()
