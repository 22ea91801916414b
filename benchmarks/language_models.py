"""Language models: trains recipes on the corpora of their papers; perplexity on the test texts, beside the published figure.

    python benchmarks/language_models.py --data DIR [--runs ptb-lstm-small:1,brown-nplm:1] [--out DIR] [section.key=value ...]
    python benchmarks/language_models.py --runs shakespeare-gpt:1

DIR holds `ptb` (ptb.train.txt[.xz], ptb.valid.txt, ptb.test.txt), `wikitext2` (wiki.{train,valid,test}.tokens[.xz]) and `brown`
(brown.tar.xz, the tagged corpus), as far as the runs need them; Shakespeare is bundled. A run is RECIPE:SEED. Perplexity is per
word, and the end of each line counts as a word (Brown has none). One JSON line per run, a table at the end.

Brown as in Bengio et al. 2003: the words of all files in the order of their names; the first 800,000 are trained on, the next
200,000 held out, the rest tested; words that occur three times or less in the whole corpus are one word. All other words of the
corpus belong to the vocabulary, also those that only the held-out parts have. His corpus has 1,181,041 words, 16,383 different
ones; its figure is that of the model mixed with a trigram.

Shakespeare as in nanoGPT, whose figure is nats per character of the last tenth, the mean over whole windows: that is a stride as
long as the context. (nanoGPT draws 200 batches of windows at random; here every window counts once.) A stride of half the
context is what `regard evaluate` takes.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import tarfile
from collections import Counter
from pathlib import Path

import torch

import regard
from regard.core import config as configuration
from regard.core.types import UNK
from regard.data.corpus_config import DataConfig
from regard.data.documents import load_text
from regard.data.token_stream import TokenStream
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
PUBLISHED_NATS = {"shakespeare-gpt": 1.4697}  # per byte
RUNS = (*PUBLISHED, "wikitext2-gpt", *PUBLISHED_NATS)
BROWN_TRAIN, BROWN_VALID = 800_000, 200_000  # words
PARTS = {"train": "text", "valid": "valid_text", "test": "test_text"}
NAMES = {"ptb": "ptb.{}.txt", "wikitext2": "wiki.{}.tokens", "brown": "{}.txt"}


def prepare_brown(data: Path, out: Path) -> None:
    """Writes train.txt, valid.txt and test.txt, one long line of words each, and words.txt, all words of the three."""
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
    tested = BROWN_TRAIN + BROWN_VALID
    parts = {"train": words[:BROWN_TRAIN], "valid": words[BROWN_TRAIN:tested], "test": words[tested:]}
    for name, part in parts.items():
        (out / f"{name}.txt").write_text(" ".join(part) + "\n", encoding="utf-8")
    (out / "words.txt").write_text("".join(f"{word}\n" for word in sorted({*words})), encoding="utf-8")


def settings_of(recipe: str, data: Path | None, out: Path) -> list[str]:
    """Where the recipe's text is; Brown is prepared."""
    corpus = recipe.split("-")[0]
    if corpus == "shakespeare":
        return []
    if data is None:
        raise SystemExit(f"{recipe} needs --data DIR")
    place = data / corpus
    settings = []
    if corpus == "brown":
        prepare_brown(place, out / "brown")
        place = out / "brown"
        settings.append(f"tokenizer.words={(place / 'words.txt').absolute()}")
    settings.append(f"data.folder={place.absolute()}")
    for part, key in PARTS.items():
        name = NAMES[corpus].format(part)
        settings.append(f"data.{key}={name if (place / name).exists() else f'{name}.xz'}")
    return settings


def one(recipe: str, data: Path | None, out: Path, seed: int, extra: list[str]) -> dict:
    folder = out / f"{recipe}-{seed}"
    settings = [f"train.seed={seed}", *settings_of(recipe, data, out), *extra]
    result = regard.train(recipe, out=folder, settings=settings, report=Reporter(quiet=True))
    model = regard.load(folder)
    assert isinstance(model, TextModel)
    corpus = load_text(configuration.build(DataConfig, model.config["data"], "data"))
    texts = {part: getattr(corpus, part) for part in PARTS if len(getattr(corpus, part))}
    row: dict = {"recipe": recipe, "seed": seed, "parameters": model.model.parameters_count()}
    row["vocabulary"] = model.tokenizer.size
    streams = {part: TokenStream.from_documents(texts[part], model.tokenizer).tokens for part in texts}
    for part, tokens in streams.items():
        words = sum(len(text.split()) + 1 for text in texts[part])  # as TextScore counts them
        row |= {f"{part}_words": words, f"{part}_tokens": len(tokens)}
        row[f"{part}_unknown"] = round(float((tokens == UNK).mean()), 5)
    if recipe in PUBLISHED_NATS:
        whole, half = (model.perplexity(texts["valid"], stride=stride) for stride in (model.context, 0))
        row |= {"valid_nats_per_byte": round(whole.nll / whole.bytes, 4)}
        row |= {"valid_nats_per_byte_half_stride": round(half.nll / half.bytes, 4)}
    else:
        for part in ("valid", "test"):
            row[f"{part}_perplexity"] = round(model.perplexity(texts[part]).word_perplexity, 2)
    if recipe.endswith("nplm"):
        trigram = trigram_of(model)
        mixed = model.perplexity(texts["test"], trigram=trigram, weight=0.5)
        row["test_perplexity_with_trigram"] = round(mixed.word_perplexity, 2)
        nats = -float(trigram.log_probs(streams["test"]).sum()) / row["test_words"]
        row["test_perplexity_of_trigram"] = round(math.exp(nats), 2)
    row |= {
        "published": PUBLISHED.get(recipe, PUBLISHED_NATS.get(recipe)),
        "training_seconds": result.summary["seconds"],
        "steps": result.summary["steps"],
    }
    row["device"] = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    return row | {"torch": torch.__version__}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--runs", default=",".join(f"{name}:1" for name in RUNS))
    parser.add_argument("--out", type=Path, default=Path("runs/language-models"))
    parser.add_argument("settings", nargs="*", help="section.key=value over the recipes")
    arguments = parser.parse_args()
    rows = []
    for run in arguments.runs.split(","):
        recipe, _, seed = run.partition(":")
        rows.append(one(recipe, arguments.data, arguments.out, int(seed or 1), arguments.settings))
        print(json.dumps(rows[-1]), flush=True)
    table(rows)


def table(rows: list[dict]) -> None:
    """Means over seeds; of Shakespeare, nats per byte with windows side by side and half over each other."""
    print(f"{'recipe':18} {'seeds':>5} {'parameters':>11} {'valid':>8} {'test':>8} {'published':>9}")
    for recipe in dict.fromkeys(row["recipe"] for row in rows):
        same = [row for row in rows if row["recipe"] == recipe]
        keys = ("valid_perplexity", "test_perplexity")
        if recipe in PUBLISHED_NATS:
            keys = ("valid_nats_per_byte", "valid_nats_per_byte_half_stride")
        digits = 4 if recipe in PUBLISHED_NATS else 2
        first, second = (f"{statistics.mean(row[key] for row in same):8.{digits}f}" for key in keys)
        published = "-" if same[0]["published"] is None else str(same[0]["published"])
        print(f"{recipe:18} {len(same):5} {same[0]['parameters']:11,} {first} {second} {published:>9}")


if __name__ == "__main__":
    main()
