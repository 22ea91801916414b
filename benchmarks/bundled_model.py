"""Makes the model that ships inside the package: trains the recipe `tatoeba-en-de`, stores its weights in half precision,
scores the stored model on held-out text, and writes its card.

    python benchmarks/bundled_model.py --out src/regard/data/bundled/model [--run DIR] [section.key=value ...]

With --run, a finished run is packed without training. The held-out pairs share no sentence with the training text, on
either side (data.split_by = "both").
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from pathlib import Path

import torch

import regard
from regard.core.files import load_tensors, read_json, save_tensors, write_json, write_manifest
from regard.data.corpus import load_corpus
from regard.evaluation.lengths import by_source_length
from regard.evaluation.metrics import corpus_scores
from regard.tasks.folder import CONFIG, DATA, RUN, SCORES, WEIGHTS
from regard.training.config import build_run_config
from regard.training.progress import Reporter

RECIPE = "tatoeba-en-de"


def pack(run: Path, out: Path) -> None:
    """Copies what is needed to translate, with the weights in half precision."""
    out.mkdir(parents=True, exist_ok=True)
    weights = load_tensors(run / WEIGHTS)
    save_tensors(out / WEIGHTS, {name: tensor.half() for name, tensor in weights.items()})
    names = [CONFIG, DATA, *(p.name for p in run.glob("tokenizer*.json"))]
    for name in names:
        shutil.copyfile(run / name, out / name)
    write_manifest(out, [WEIGHTS, *names])


def score(out: Path, run: Path) -> dict:
    config = read_json(out / CONFIG)
    sections = {name: config[name] for name in ("data", "tokenizer", "model", "augment", "train", "search")}
    corpus = load_corpus(build_run_config(sections).data)
    translator = regard.load(out)
    began = time.monotonic()
    written = translator.translate(corpus.test.sources)
    seconds = time.monotonic() - began
    scores = corpus_scores(written, corpus.test.targets)
    bins = by_source_length(corpus.test.sources, written, corpus.test.targets)
    value = {
        "part": "test",
        "sentences": len(corpus.test),
        "seconds": round(seconds, 1),
        "scores": {key: s.to_plain() for key, s in scores.items()},
        "by_length": [part.to_plain() for part in bins],
    }
    write_json(out / SCORES, value)
    request = read_json(run / RUN)
    kept = {key: request[key] for key in ("format", "versions", "status", "summary") if key in request}
    write_json(out / RUN, {**kept, "command": f"regard train {RECIPE} --out RUN"})
    (out / "CARD.md").write_text(card(config, value, request, translator.model.parameters_count()), encoding="utf-8")
    return value


def card(config: dict, scored: dict, request: dict, parameters: int) -> str:
    rows = "\n".join(
        f"| {s['name']} | {s['value']:.2f} [{s['low']:.1f}, {s['high']:.1f}] | `{s['signature']}` |"
        for s in scored["scores"].values()
    )
    bins = "\n".join(f"| {b['words']} | {b['sentences']} | {b['bleu']:.1f} |" for b in scored["by_length"])
    model, summary = config["model"], request.get("summary", {})
    encoders, decoders = (model[f"{side}_layers"] or model["layers"] for side in ("encoder", "decoder"))
    return f"""# English to German, small

A Transformer ({parameters:,} parameters: width {model["width"]}, {encoders} encoder and {decoders} decoder layers)
that ships with regard, so that `regard translate` answers at once. It is made by `benchmarks/bundled_model.py`
from the recipe `{RECIPE}`:
{summary.get("steps", "?"):,} steps in {summary.get("seconds", "?")} s on {summary.get("device", "?")}.
Weights are stored in half precision.

**Trained on:** Tatoeba English-German sentence pairs (tatoeba.org, by way of manythings.org/anki, 2018-05-13), CC BY 2.0 FR; the
corpus is bundled too, with its licence. **Licence of the weights:** CC BY 2.0 FR, with the same attribution.

**Scores** on {scored["sentences"]:,} held-out pairs, one reference, none of whose sentences (English or German, ignoring case and
punctuation) is in the training text; 95 % bootstrap intervals:

| metric | score | signature |
|---|---|---|
{rows}

| source words | sentences | BLEU |
|---|---|---|
{bins}

**Limits:** it knows short everyday sentences. Long sentences, names, numbers, technical or formal text and anything beyond the
corpus come out wrong, often fluently. It repeats the corpus' habits: every other person is called Tom, and "you" is informal or
formal at random. Do not rely on it for anything that matters; train one on your own text instead.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--run", type=Path)
    parser.add_argument("settings", nargs="*", help="section.key=value over the recipe")
    arguments = parser.parse_args()
    run = arguments.run
    if run is None:
        run = Path(tempfile.mkdtemp()) / "run"
        regard.train(RECIPE, out=run, settings=arguments.settings, report=Reporter(quiet=True))
    pack(run, arguments.out)
    scored = score(arguments.out, run)
    size = sum(p.stat().st_size for p in arguments.out.iterdir())
    print(
        json.dumps(
            {key: round(s["value"], 2) for key, s in scored["scores"].items()}
            | {"MiB": round(size / 2**20, 2), "torch": torch.__version__}
        )
    )


if __name__ == "__main__":
    main()
