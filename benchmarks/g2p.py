"""Letters to phonemes (CMUdict): trains translators on spelling and pronunciation; word and phoneme error rates.

    python benchmarks/g2p.py --data DIR [--models transformer,luong] [--seeds 1] [--out DIR] [section.key=value ...]

DIR holds train.tsv, valid.tsv and test.tsv: letters, a tab, phonemes, all with spaces between. No word is in two of them. A word
with several pronunciations stands on several lines; the answer is compared with the one that it is nearest to, as usual for this
task. The word error rate is the share of words that are not answered without any mistake, the phoneme error rate the edit
distance over the length of the pronunciations compared with. One JSON line per run, a table at the end.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Sequence
from pathlib import Path

import torch

import regard
from regard.training.progress import Reporter

RECURRENT = ["model.embedding=256", "model.width=512", "model.dropout=0.3", "train.lr=3e-3"]
MODELS = {
    "transformer": [],
    "bahdanau": ["model.name=bahdanau", *RECURRENT],
    "luong": ["model.name=luong", "model.layers=2", "model.bidirectional=true", *RECURRENT],
    "gnmt": ["model.name=gnmt", "model.layers=3", "model.query=current", *RECURRENT],
    "convs2s": ["model.name=convs2s", "model.width=256", "model.layers=4", "model.dropout=0.2"],
    "universal": ["model.name=universal", "model.width=256", "model.heads=4", "model.dropout=0.2"],
    "cho": ["model.name=cho", *RECURRENT],
    "sutskever": ["model.name=sutskever", *RECURRENT],
}


def distance(a: Sequence[str], b: Sequence[str]) -> int:
    """The least number of phonemes to insert, delete or replace."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, start=1):
        above, row[0] = row[0], i
        for j, y in enumerate(b, start=1):
            above, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, above + (x != y))
    return row[-1]


def error_rates(answers: dict[str, str], right: dict[str, list[str]]) -> tuple[float, float]:
    """Word and phoneme error rate, in per cent."""
    wrong = mistakes = length = 0
    for word, answer in answers.items():
        found = min((distance(answer.split(), one.split()), -len(one.split())) for one in right[word])
        wrong += found[0] > 0
        mistakes, length = mistakes + found[0], length - found[1]
    return 100 * wrong / len(answers), 100 * mistakes / length


def read(path: Path) -> dict[str, list[str]]:
    words: dict[str, list[str]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        letters, phonemes = line.split("\t")
        words.setdefault(letters, []).append(phonemes)
    return words


def one(name: str, data: Path, out: Path, seed: int, extra: list[str]) -> dict:
    folder = out / f"{name}-{seed}"
    settings = [f"data.folder={data.absolute()}", f"train.seed={seed}", *MODELS[name], *extra]
    recipe = "g2p" if name == "transformer" else str(_without_model(out))
    result = regard.train(recipe, out=folder, settings=settings, report=Reporter(quiet=True))
    translator = regard.load(folder)
    row: dict = {"model": name, "seed": seed, "parameters": translator.model.parameters_count()}
    for part in ("valid", "test"):
        right = read(data / f"{part}.tsv")
        words = list(right)
        answers = dict(zip(words, translator.translate(words), strict=True))
        rates = error_rates(answers, right)
        row |= {f"{part}_words": len(words), f"{part}_wer": round(rates[0], 2), f"{part}_per": round(rates[1], 2)}
    row["training_seconds"] = result.summary["seconds"]
    row["device"] = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    return row | {"torch": torch.__version__}


def _without_model(out: Path) -> Path:
    """The recipe without the sizes of its Transformer, which other models may not know."""
    from importlib import resources

    text = (resources.files("regard.recipes") / "g2p.toml").read_text()
    before, _, rest = text.partition("[model]")
    path = out / "g2p-without-model.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(before + "[train]" + rest.partition("[train]")[2])
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--seeds", default="1", help="comma-separated")
    parser.add_argument("--out", type=Path, default=Path("runs/g2p"))
    parser.add_argument("settings", nargs="*", help="section.key=value over the recipe")
    arguments = parser.parse_args()
    rows = []
    for name in arguments.models.split(","):
        for seed in arguments.seeds.split(","):
            rows.append(one(name, arguments.data, arguments.out, int(seed), arguments.settings))
            print(json.dumps(rows[-1]), flush=True)
    print(f"{'model':14} {'seeds':>5} {'parameters':>11} {'WER':>7} {'PER':>7}")
    for name in dict.fromkeys(row["model"] for row in rows):
        same = [row for row in rows if row["model"] == name]
        wer, per = (statistics.mean(row[key] for row in same) for key in ("test_wer", "test_per"))
        print(f"{name:14} {len(same):5} {same[0]['parameters']:11,} {wer:7.2f} {per:7.2f}")


if __name__ == "__main__":
    main()
