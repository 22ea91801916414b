"""Positions in the Transformer: how well does each scheme translate at the lengths it was trained on, and at twice these?

    python benchmarks/positions.py --data DIR [--schemes rotary,alibi] [--seeds 1] [--out DIR] [section.key=value ...]

DIR holds Multi30k as for multi30k.py. Recipe `multi30k-en-de`, trained on pairs whose source has at most 12 words only. Tested on
those of test2016 with at most 12 words, and on up to 1,000 pairs of 21 to 27 words, about twice as many: from all parts, since
none of these was trained on. Tokenised lower-cased BLEU, beam 5. One JSON line per run, a table at the end.
"""

from __future__ import annotations

import argparse
import json
import lzma
import statistics
from pathlib import Path

import torch

import regard
from regard.data.corpus import read_pairs
from regard.evaluation.metrics import Flavour, corpus_scores, perplexity
from regard.tasks.lines import Habits
from regard.training.progress import Reporter

LONGEST, LONG, MOST = 12, range(21, 28), 1000  # source words
SCHEMES = {
    "none": ["model.positions=none"],
    "fraction": ["model.positions=fraction"],
    "sine": ["model.positions=sine"],
    "sinusoidal": ["model.positions=sinusoidal"],
    "sinusoidal-halves": ["model.positions=sinusoidal-halves"],
    "learned": ["model.positions=learned"],
    "shaw": ["model.positions=none", "model.relative=shaw"],
    "music": ["model.positions=none", "model.relative=music"],
    "t5": ["model.positions=none", "model.relative=t5"],
    "alibi": ["model.positions=none", "model.relative=alibi"],
    "rotary": ["model.positions=none", "model.relative=rotary"],
    "sinusoidal and shaw": ["model.positions=sinusoidal", "model.relative=shaw"],
}
Pairs = list[tuple[str, str]]


def read(data: Path, part: str) -> Pairs:
    sides = []
    for language in ("en", "de"):
        path = data / f"{part}.lc.norm.tok.{language}"
        content = lzma.decompress(Path(f"{path}.xz").read_bytes()) if part == "train" else path.read_bytes()
        sides.append(content.decode("utf-8").splitlines())
    return list(zip(*sides, strict=True))


def words(pair: tuple[str, str]) -> int:
    return len(pair[0].split())


def prepare(data: Path, out: Path) -> dict[str, int]:
    """Writes the texts of the experiment. Gives their sizes."""
    train, valid, test = (read(data, part) for part in ("train", "val", "test_2016_flickr"))
    parts = {
        "train": [pair for pair in train if words(pair) <= LONGEST],
        "valid": [pair for pair in valid if words(pair) <= LONGEST],
        "short": [pair for pair in test if words(pair) <= LONGEST],
        "long": [pair for pair in (*test, *valid, *train) if words(pair) in LONG][:MOST],
    }
    out.mkdir(parents=True, exist_ok=True)
    for name, pairs in parts.items():
        for number, language in enumerate(("en", "de")):
            (out / f"{name}.{language}").write_text("".join(pair[number] + "\n" for pair in pairs), encoding="utf-8")
    return {name: len(pairs) for name, pairs in parts.items()}


def one(scheme: str, out: Path, seed: int, extra: list[str]) -> dict:
    files = {"src": "train.en", "tgt": "train.de", "valid_src": "valid.en", "valid_tgt": "valid.de",
             "test_src": "short.en", "test_tgt": "short.de", "folder": str(out.absolute())}  # fmt: skip
    settings = [f"data.{key}={value}" for key, value in files.items()] + [f"train.seed={seed}", *SCHEMES[scheme]]
    folder = out / f"{scheme.replace(' ', '-')}-{seed}"
    result = regard.train("multi30k-en-de", out=folder, settings=settings + extra, report=Reporter(quiet=True))
    row: dict = {"scheme": scheme, "seed": seed}
    translator = regard.load(folder)
    translator.habits = Habits()  # sentences longer than usual stay whole: how it does on these is the question
    flavour = Flavour(tokenized=True, lowercase=True)
    for part in ("short", "long"):
        pairs = read_pairs(out / f"{part}.en", out / f"{part}.de")
        written = translator.translate(pairs.sources)
        bleu = corpus_scores(written, pairs.targets, flavour)["bleu"]
        scored = translator.score(pairs.sources, pairs.targets)
        nats = -sum(pair.log_prob for pair in scored), sum(len(pair.token_log_probs) for pair in scored)
        row |= {
            f"{part}_bleu": round(bleu.value, 2),
            f"{part}_interval": [round(bleu.low or 0, 1), round(bleu.high or 0, 1)],
            f"{part}_length_ratio": round(sum(len(line.split()) for line in written) / bleu.details["ref_len"], 3),
            f"{part}_perplexity": round(perplexity(*nats), 2),
            "signature": bleu.signature,
        }
    row["training_seconds"] = result.summary["seconds"]
    row["device"] = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    return row | {"torch": torch.__version__}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--schemes", default=",".join(SCHEMES))
    parser.add_argument("--seeds", default="1", help="comma-separated")
    parser.add_argument("--out", type=Path, default=Path("runs/positions"))
    parser.add_argument("settings", nargs="*", help="section.key=value over the recipe")
    arguments = parser.parse_args()
    print(json.dumps(prepare(arguments.data, arguments.out)), flush=True)
    rows = []
    for scheme in arguments.schemes.split(","):
        for seed in arguments.seeds.split(","):
            rows.append(one(scheme, arguments.out, int(seed), arguments.settings))
            print(json.dumps(rows[-1]), flush=True)
    print(f"{'scheme':22} {'seeds':>5} {'short':>7} {'long':>7} {'length ratio, long':>20}")
    for scheme in dict.fromkeys(row["scheme"] for row in rows):
        same = [row for row in rows if row["scheme"] == scheme]
        short, long, ratio = (
            statistics.mean(row[key] for row in same) for key in ("short_bleu", "long_bleu", "long_length_ratio")
        )
        print(f"{scheme:22} {len(same):5} {short:7.2f} {long:7.2f} {ratio:20.2f}")


if __name__ == "__main__":
    main()
