"""How fast and how good word2vec is: regard beside gensim, on the same words, with the same settings and threads.

    python benchmarks/word2vec.py --text train-1.en.xz [--text train-2.en.xz] --questions FOLDER [--gensim FOLDER]

FOLDER of --questions holds questions-words.txt, men.csv, simlex999.csv and wordsim353_combined.csv; that of --gensim is one that
`pip install --target FOLDER gensim` has filled (without it, gensim has to be importable, or regard stands alone).

The text is lower-cased and punctuation cut off once, and both read that. Both learn 100 numbers for each word that occurs 5
times, with windows of 5, 5 negatives (or the tree), subsampling from 1e-3 on, and the usual rates: 0.025, or 0.05 for CBOW.
Only training is timed, not counting words or reading text. A word counts once for every epoch, whether it was sampled away or
not, if it is in the vocabulary. Systems take turns; each training is a process of its own. Where others use the machine too,
words for each second that the process was given (of all its threads together) are steadier than those by the clock.

One JSON line for each training, a table at the end: medians over the rounds.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

SETTINGS = [("skipgram", "negative"), ("cbow", "negative"), ("skipgram", "tree"), ("cbow", "tree")]
RATES = {"skipgram": 0.025, "cbow": 0.05}
FILES = {"men": "men.csv", "simlex999": "simlex999.csv", "wordsim353": "wordsim353_combined.csv"}
_WORD = re.compile(r"\w+|[^\w\s]")


def write_words(files: list[str], most: int, out: Path) -> int:
    """Puts the words of lines, with spaces between them, into one file; gives how many they are."""
    from regard.data.reading.files import ByteFile
    from regard.data.reading.lines import line_blocks

    count = 0
    with open(out, "w", encoding="utf-8") as file:
        for name in files:
            for line in itertools.chain.from_iterable(line_blocks(ByteFile(name))):
                words = _WORD.findall(line.lower())
                if most and count + len(words) > most:
                    return count
                count += len(words)
                file.write(" ".join(words) + "\n")
    return count


def train_gensim(text: Path, out: Path, architecture: str, objective: str, options: argparse.Namespace) -> dict:
    from gensim.models import Word2Vec  # pyright: ignore[reportMissingImports]

    documents = [line.split() for line in text.read_text(encoding="utf-8").splitlines()]
    model = Word2Vec(
        vector_size=100,
        window=5,
        min_count=5,
        sample=1e-3,
        sg=int(architecture == "skipgram"),
        hs=int(objective == "tree"),
        negative=5 if objective == "negative" else 0,
        alpha=RATES[architecture],
        min_alpha=RATES[architecture] * 1e-4,
        workers=options.threads,
        seed=options.seed,
    )
    model.build_vocab(documents)
    words = sum(int(model.wv.get_vecattr(word, "count")) for word in model.wv.index_to_key)
    began, given = time.monotonic(), time.process_time()
    model.train(documents, total_examples=model.corpus_count, epochs=options.epochs)
    seconds, cpu = time.monotonic() - began, time.process_time() - given
    model.wv.save_word2vec_format(str(out), binary=True)
    return {"words": words, "vocabulary": len(model.wv), "seconds": seconds, "cpu_seconds": cpu}


def train_regard(text: Path, out: Path, architecture: str, objective: str, options: argparse.Namespace) -> dict:
    import regard
    from regard.core.files import read_json
    from regard.tasks.word_vectors import WordVectors
    from regard.training.loop import Trainer
    from regard.training.progress import Reporter
    from regard.training.word2vec_sizes import choose_word2vec_sizes

    taken: dict[str, float] = {}
    run = Trainer.run

    def timed(self: Trainer) -> int | None:
        given = time.process_time()
        result = run(self)
        taken["cpu"] = time.process_time() - given
        return result

    Trainer.run = timed
    places = sum(1 + len(line.split()) for line in text.read_text(encoding="utf-8").splitlines())
    batch = choose_word2vec_sizes(places, architecture, "space", False, None, None)["train"]["batch_tokens"]
    with tempfile.TemporaryDirectory() as folder:
        settings = {
            "data": {"valid_part": 0, "test_part": 0},
            "tokenizer": {"kind": "space", "min_count": 5},
            "model": {"name": "word2vec", "architecture": architecture, "objective": objective},
            "train": {
                "threads": options.threads,
                "seed": options.seed,
                "batch_tokens": batch,
                "device": options.device,
                "steps": options.epochs * -(-places // batch),
                "save_every": 1 << 30,
            },
        }
        result = regard.train(out=Path(folder) / "run", text=str(text), settings=settings, report=Reporter(quiet=True))
        rows = [json.loads(row) for row in (Path(folder) / "run" / "metrics.jsonl").read_text().splitlines()]
        vocabulary = read_json(Path(folder) / "run" / "config.json")["vocabulary"]["source"] - 4
        WordVectors.load(Path(folder) / "run").save(out, binary=True)
    words = result.summary["training_words"]
    return {"words": words, "vocabulary": vocabulary, "seconds": rows[-1]["seconds"], "cpu_seconds": taken["cpu"]}


def measured(vectors: Path, questions: Path) -> dict[str, Any]:
    from regard.evaluation.word_vectors import evaluate_analogies, evaluate_similarity
    from regard.tasks.word_vectors import WordVectors

    loaded = WordVectors.load(vectors)
    found: dict[str, Any] = {}
    for name, file in FILES.items():
        score = evaluate_similarity(loaded, questions / file)
        found[name] = round(score.rho, 4) if score.rho is not None else None
    report = evaluate_analogies(loaded, questions / "questions-words.txt")
    for row in (report.total, report.semantic, report.syntactic):
        name = "analogies" if row.section == "total" else row.section
        found[name] = round(row.accuracy, 2) if row.accuracy is not None else None
    return {**found, "asked": report.total.asked}


def one(system: str, architecture: str, objective: str, text: Path, options: argparse.Namespace) -> dict[str, Any]:
    """A training in a process of its own, and its row."""
    environment = {**os.environ, "OMP_NUM_THREADS": str(options.threads if system == "regard" else 1)}
    if system == "gensim" and options.gensim:
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [options.gensim, environment.get("PYTHONPATH", "")]))
    with tempfile.TemporaryDirectory() as folder:
        vectors, row = Path(folder) / "vectors.bin", Path(folder) / "row.json"
        same = [
            "--threads",
            options.threads,
            "--epochs",
            options.epochs,
            "--seed",
            options.seed,
            "--device",
            options.device,
        ]
        parts = [sys.executable, __file__, "--child", system, architecture, objective, text, vectors, row, *same]
        subprocess.run([str(part) for part in parts], check=True, env=environment)
        result = json.loads(row.read_text())
        quality = measured(vectors, Path(options.questions)) if options.questions else {}
    total = options.epochs * result["words"]
    speed = {
        "words_per_second": round(total / result["seconds"]),
        "words_per_cpu_second": round(total / result["cpu_seconds"]),
    }
    settings = {
        "architecture": architecture,
        "objective": objective,
        "epochs": options.epochs,
        "threads": options.threads,
    }
    return {"system": system, **settings, **result, **speed, **quality}


def child(options: argparse.Namespace) -> None:
    system, architecture, objective, text, vectors, row = options.child
    train = train_gensim if system == "gensim" else train_regard
    result = train(Path(text), Path(vectors), architecture, objective, options)
    Path(row).write_text(json.dumps(result))


def table(rows: list[dict[str, Any]]) -> str:
    """Medians over the rounds, and regard's speed as a multiple of gensim's."""
    shown = ["words_per_second", "words_per_cpu_second", *FILES, "analogies", "semantic", "syntactic"]
    lines = ["| model | system | " + " | ".join(shown) + " |", "|---" * (len(shown) + 2) + "|"]
    for architecture, objective in SETTINGS:
        medians: dict[str, dict[str, float]] = {}
        for system in ("gensim", "regard"):
            of = [
                row
                for row in rows
                if (row["system"], row["architecture"], row["objective"]) == (system, architecture, objective)
            ]
            values = {name: [row[name] for row in of if row.get(name) is not None] for name in shown}
            medians[system] = {name: statistics.median(some) for name, some in values.items() if some}
            if of:
                form = {name: ",.0f" if "second" in name else ".4g" for name in shown}
                cells = [f"{medians[system][name]:{form[name]}}" if name in medians[system] else "" for name in shown]
                lines.append(f"| {architecture}, {objective} | {system} | " + " | ".join(cells) + " |")
        if all(medians.values()):
            ratios = [f"{medians['regard'][name] / medians['gensim'][name]:.2f}" for name in shown[:2]]
            lines.append(f"| | regard / gensim | {' | '.join(ratios)} |" + " |" * (len(shown) - 2))
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", action="append", default=[], help="a file of lines, .xz and .gz too")
    parser.add_argument("--questions", default="", help="the folder of analogies and similarities")
    parser.add_argument("--gensim", default="", help="a folder with gensim in it")
    parser.add_argument("--systems", default="gensim,regard")
    parser.add_argument(
        "--models", default=",".join(map("-".join, SETTINGS)), help="such as skipgram-negative,cbow-tree"
    )
    parser.add_argument("--words", type=int, default=0, help="of the text, at most; 0: all")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", default="cpu", help="of regard")
    parser.add_argument("--child", nargs=6, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        return child(options)
    if not options.text:
        parser.error("give --text")
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder) / "words.txt"
        print(f"{write_words(options.text, options.words, text):,} words", file=sys.stderr)
        for turn in range(options.rounds):
            for model in options.models.split(","):
                architecture, objective = model.split("-")
                for system in options.systems.split(","):
                    rows.append({"round": turn + 1, **one(system, architecture, objective, text, options)})
                    print(json.dumps(rows[-1]), flush=True)
    print(table(rows))


if __name__ == "__main__":
    main()
