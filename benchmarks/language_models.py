"""Language models: trains recipes on the corpora of their papers; perplexity on the test texts, beside the published figure.

    python benchmarks/language_models.py --data DIR [--runs ptb-lstm-small:1,brown-nplm:1] [--out DIR] [section.key=value ...]

DIR holds `ptb` (ptb.train.txt[.xz], ptb.valid.txt, ptb.test.txt), `wikitext2` (wiki.{train,valid,test}.tokens[.xz]) and `brown`
(brown.tar.xz, the tagged corpus), as far as the runs need them. A run is RECIPE:SEED. Perplexity is per word, and the end of
each line counts as a word (Brown has none). One JSON line per run, a table at the end.

Brown as in Bengio et al. 2003: the words of all files in the order of their names; the first 800,000 are trained on, the next
200,000 held out, the rest tested; words that occur three times or less in the whole corpus are one word.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tarfile
from collections import Counter
from pathlib import Path

import torch

import regard
from regard.data.documents import read_documents
from regard.evaluation.run_trigram import trigram_of
from regard.tasks.language_model import TextModel
from regard.training.progress import Reporter

PUBLISHED = {
    "ptb-nplm": 140.2,
    "ptb-rnnlm": 124.7,
    "ptb-lstm-small": 114.5,
    "ptb-lstm-medium": 82.7,
    "ptb-lstm-large": 78.4,
    "brown-nplm": 252.0,
}
PARTS = {"train": "text", "valid": "valid_text", "test": "test_text"}
NAMES = {"ptb": "ptb.{}.txt", "wikitext2": "wiki.{}.tokens", "brown": "{}.txt"}


def prepare_brown(data: Path, out: Path) -> None:
    """Writes train.txt, valid.txt and test.txt: one long line of words each."""
    words: list[str] = []
    with tarfile.open(data / "brown.tar.xz") as archive:
        files = sorted(
            (m for m in archive.getmembers() if m.isfile() and len(Path(m.name).name) == 4), key=lambda m: m.name
        )
        for member in files:
            content = archive.extractfile(member)
            assert content is not None
            words += [token.rpartition("/")[0] for token in content.read().decode("latin-1").split() if "/" in token]
    counts = Counter(words)
    words = [word if counts[word] > 3 else "<unk>" for word in words]
    out.mkdir(parents=True, exist_ok=True)
    for name, part in (("train", words[:800_000]), ("valid", words[800_000:1_000_000]), ("test", words[1_000_000:])):
        (out / f"{name}.txt").write_text(" ".join(part) + "\n", encoding="utf-8")


def one(recipe: str, data: Path, out: Path, seed: int, extra: list[str]) -> dict:
    corpus = recipe.split("-")[0]
    place = data / corpus
    if corpus == "brown":
        prepare_brown(place, out / "brown")
        place = out / "brown"
    settings = [f"train.seed={seed}", f"data.folder={place.absolute()}"]
    texts = {}
    for part, key in PARTS.items():
        name = NAMES[corpus].format(part)
        texts[part] = name if (place / name).exists() else f"{name}.xz"
        settings.append(f"data.{key}={texts[part]}")
    folder = out / f"{recipe}-{seed}"
    result = regard.train(recipe, out=folder, settings=[*settings, *extra], report=Reporter(quiet=True))
    model = regard.load(folder)
    assert isinstance(model, TextModel)
    row: dict = {"recipe": recipe, "seed": seed, "parameters": model.model.parameters_count()}
    unit = model.config["data"]["documents"]
    documents = {part: read_documents(place / texts[part], unit).texts for part in ("valid", "test")}
    for part in ("valid", "test"):
        score = model.perplexity(documents[part])
        row |= {f"{part}_words": score.words, f"{part}_perplexity": round(score.word_perplexity, 2)}
    if recipe.endswith("nplm"):
        trigram = trigram_of(model)
        mixed = model.perplexity(documents["test"], trigram=trigram, weight=0.5)
        row["test_perplexity_with_trigram"] = round(mixed.word_perplexity, 2)
        row["test_perplexity_of_trigram"] = round(
            model.perplexity(documents["test"], trigram=trigram, weight=0.0).word_perplexity, 2
        )
    row |= {
        "published": PUBLISHED.get(recipe),
        "training_seconds": result.summary["seconds"],
        "steps": result.summary["steps"],
    }
    row["device"] = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    return row | {"torch": torch.__version__}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--runs", default=",".join(f"{name}:1" for name in PUBLISHED))
    parser.add_argument("--out", type=Path, default=Path("runs/language-models"))
    parser.add_argument("settings", nargs="*", help="section.key=value over the recipes")
    arguments = parser.parse_args()
    rows = []
    for run in arguments.runs.split(","):
        recipe, _, seed = run.partition(":")
        rows.append(one(recipe, arguments.data, arguments.out, int(seed or 1), arguments.settings))
        print(json.dumps(rows[-1]), flush=True)
    print(f"{'recipe':18} {'seeds':>5} {'parameters':>11} {'valid':>8} {'test':>8} {'published':>9}")
    for recipe in dict.fromkeys(row["recipe"] for row in rows):
        same = [row for row in rows if row["recipe"] == recipe]
        valid, test = (statistics.mean(row[key] for row in same) for key in ("valid_perplexity", "test_perplexity"))
        print(
            f"{recipe:18} {len(same):5} {same[0]['parameters']:11,} {valid:8.2f} {test:8.2f} {PUBLISHED.get(recipe, 0):9.1f}"
        )


if __name__ == "__main__":
    main()
