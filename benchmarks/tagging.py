"""Tagging: parts of speech of UD English EWT and chunks of CoNLL-2000, by an LSTM and by a Transformer encoder.

    python benchmarks/tagging.py --data DIR [--runs ud-ewt-lstm:1,conll2000-lstm:1] [--out DIR] [--device cuda] [--threads 1]
                                 [section.key=value ...]

DIR holds `ud-ewt` ({train,dev,test}.conllu.xz) and `conll2000.zip` (train.txt and test.txt inside). A run is RECIPE:SEED; one that
is finished in --out is not trained again, one that stopped goes on. Accuracy is per word, chunk F1 as CoNLL's script counts, both
on the test text, with 95 % intervals over sentences; beside them each word's most frequent tag, measured on the same text. One
JSON line per run, a table at the end.

Published, CoNLL-2000: 94.46 is the BI-LSTM-CRF of Huang, Xu and Yu 2015, with pre-trained vectors, features of spelling and a
CRF. Here the words are all that is given.
"""

from __future__ import annotations

import argparse
import json
import statistics
import zipfile
from pathlib import Path

import torch

import regard
from regard.core.files import read_json
from regard.tasks.folder import RUN
from regard.tasks.tagging import TextTagger
from regard.training.progress import Reporter

RUNS = ("ud-ewt-lstm", "ud-ewt-transformer", "conll2000-lstm", "conll2000-transformer")
PUBLISHED = {"conll2000": 94.46}
MOST_BYTES = 64 << 20  # of a file inside the archive


def folder_of(recipe: str, data: Path, out: Path) -> Path:
    """Where the recipe's text is; CoNLL-2000 is unpacked."""
    if recipe.startswith("ud-ewt"):
        return data / "ud-ewt"
    place = out / "conll2000"
    place.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(data / "conll2000.zip") as archive:
        for name in ("train.txt", "test.txt"):
            if archive.getinfo(f"conll2000/{name}").file_size > MOST_BYTES:
                raise SystemExit(f"conll2000.zip: {name} is too large")
            (place / name).write_bytes(archive.read(f"conll2000/{name}"))
    return place


def one(recipe: str, seed: int, arguments: argparse.Namespace) -> dict:
    folder = arguments.out / f"{recipe}-{seed}"
    report = Reporter(quiet=not arguments.verbose)
    if (folder / RUN).exists():
        result = regard.resume(folder, report)
    else:
        settings = [f"train.seed={seed}", f"data.folder={folder_of(recipe, arguments.data, arguments.out).absolute()}"]
        settings += [f"train.device={arguments.device}", f"train.threads={arguments.threads}", *arguments.settings]
        result = regard.train(recipe, out=folder, settings=settings, report=report)
    if result.interrupted is not None:
        raise SystemExit(128 + result.interrupted)
    tagger = TextTagger.load(folder, "cpu")
    row: dict = {"recipe": recipe, "seed": seed, "parameters": tagger.model.parameters_count()}
    row["vocabulary"] = tagger.tokenizer.size
    for name, score in result.scores.items():
        row[name] = round(score.value, 2)
        row[f"{name}_interval"] = [round(score.low or 0.0, 2), round(score.high or 0.0, 2)]
    row["published_f1"] = PUBLISHED.get(recipe.split("-")[0])
    done = read_json(folder / RUN)["summary"]
    row |= {"steps": done["steps"], "best_step": done["best_step"], "training_seconds": done["seconds"]}
    return row | {"device": done["device"], "torch": torch.__version__}


def table(rows: list[dict]) -> None:
    """Means over seeds."""
    heads = (f"{'recipe':22} {'seeds':>5} {'parameters':>11} {'accuracy':>9} {'unknown':>8} {'F1':>7}"
             f" {'baseline':>9} {'its F1':>7} {'published':>9}")  # fmt: skip
    print(heads)
    for recipe in dict.fromkeys(row["recipe"] for row in rows):
        same = [row for row in rows if row["recipe"] == recipe]
        cells = []
        for name, width in (
            ("accuracy", 9),
            ("unknown_accuracy", 8),
            ("f1", 7),
            ("baseline_accuracy", 9),
            ("baseline_f1", 7),
        ):
            values = [row[name] for row in same if name in row]
            cells.append(f"{statistics.mean(values):{width}.2f}" if values else f"{'-':>{width}}")
        published = same[0]["published_f1"] or "-"
        print(f"{recipe:22} {len(same):5} {same[0]['parameters']:11,} {' '.join(cells)} {published:>9}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--runs", default=",".join(f"{name}:1" for name in RUNS))
    parser.add_argument("--out", type=Path, default=Path("runs/tagging"))
    parser.add_argument("--device", default="auto")
    parser.add_argument("--threads", type=int, default=0, help="of the CPU; 0: torch's choice")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("settings", nargs="*", help="section.key=value over the recipes")
    arguments = parser.parse_args()
    rows = []
    for run in arguments.runs.split(","):
        recipe, _, seed = run.partition(":")
        rows.append(one(recipe, int(seed or 1), arguments))
        print(json.dumps(rows[-1]), flush=True)
    table(rows)


if __name__ == "__main__":
    main()
