"""What guesses of a small model gain: one text at a time, with and without a draft, and whether both write the same.

    python benchmarks/drafts.py --make DIR [--device cuda] [--scale 1] [--only gpt]        # trains the pairs of models
    python benchmarks/drafts.py --gpt LARGE SMALL --translator LARGE SMALL [--device cpu] [--ahead 2,4,8] [--threads 2]

A pair is a folder of a large model and one of a small model with the same tokens; `bundled` stands for the bundled translator. The
GPT continues passages of the end of the bundled Shakespeare, greedily and by sampling (the same seed with and without a draft); the
translator translates held-out sentences that come with regard, with a beam of 1. Plain and drafted writing take turns on each
text. `ms` are milliseconds per token, the median over texts of their means; `gain` is the ratio of the two sums of times, and
`cpu_gain` that of processor time, for a busy machine; `taken` the share of guesses that the large model wrote, too; `per_step` its
tokens for each of its steps. `same` counts equal texts. On CUDA, plain steps are recorded and replayed (`search.capture`), which
is the default, and drafted ones are not. One JSON line per case.

`--make` trains `gpt` (the recipe shakespeare-gpt) with `gpt-draft`, and `translator` (6 + 6 layers of width 512) with
`translator-draft` (2 + 1 of width 128, the bundled tokenizer), all at the same time; `--scale` multiplies the numbers of steps.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import lzma
import multiprocessing
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import regard
from regard.core import config as configuration
from regard.core.files import read_json
from regard.data.bundle import bundled_path
from regard.data.corpus import load_corpus
from regard.data.corpus_config import DataConfig
from regard.tasks.language_model import TextModel
from regard.tasks.pretrained import bundled_model
from regard.tasks.translation import Translator
from regard.training.progress import Reporter

MADE: dict[str, tuple[str, int, list[str]]] = {  # recipe, steps, settings
    "gpt": ("shakespeare-gpt", 2000, []),
    "gpt-draft": ("shakespeare-gpt", 3000, ["model.width=128", "model.layers=1", "model.heads=2", "model.dropout=0.0",
                                            "model.attention_dropout=0.0"]),
    "translator": ("tatoeba-en-de", 4000, ["model.width=512", "model.encoder_layers=6", "model.decoder_layers=6", "model.heads=8",
                                           "model.inner=2048", "train.lr=1e-3"]),
    "translator-draft": ("tatoeba-en-de", 6000, ["model.width=128", "model.encoder_layers=2", "model.decoder_layers=1",
                                                 "model.heads=4", "model.inner=384", "model.dropout=0.1"]),
}  # fmt: skip
PROMPT_LETTERS = 60


def make(name: str, out: Path, device: str, scale: float, settings: list[str]) -> None:
    recipe, steps, own = MADE[name]
    own = [*own, f"train.device={device}", f"train.steps={max(2, int(steps * scale))}", "train.save_every=100000"]
    if recipe == "tatoeba-en-de":
        own.append(f"tokenizer.folder={bundled_model()}")
    regard.train(recipe, out=out / name, settings=[*own, *settings], report=Reporter(quiet=True))


def make_all(asked: argparse.Namespace, settings: list[str]) -> None:
    context = multiprocessing.get_context("spawn")
    began = time.perf_counter()
    names = [name for name in MADE if name.startswith(asked.only)]
    running = [
        context.Process(target=make, args=(name, asked.make, asked.device, asked.scale, settings)) for name in names
    ]
    for one in running:
        one.start()
    for one in running:
        one.join()
    if any(one.exitcode for one in running):
        raise SystemExit("a model was not trained: see above")
    print(json.dumps({"made": names, "seconds": round(time.perf_counter() - began, 1)}), flush=True)


def folder_of(name: str) -> Path:
    return bundled_model() if name == "bundled" else Path(name)


def clock(work: Callable[[], Any], device: str) -> tuple[Any, float, float]:
    """What work gives, its seconds, and those of the processor."""
    if device == "cuda":
        torch.cuda.synchronize()
    began, busy = time.perf_counter(), time.process_time()
    found = work()
    if device == "cuda":
        torch.cuda.synchronize()
    return found, time.perf_counter() - began, time.process_time() - busy


def compare(
    texts: list[str], plain: Callable[[str], Any], drafted: Callable[[str], Any], device: str, warm: int
) -> dict[str, Any]:
    """Both on each text in turns; each gives an object with a text and the log-probabilities of its tokens."""
    for text in texts[:warm]:
        plain(text)
        drafted(text)
    times: tuple[list[float], list[float]] = ([], [])
    sizes, same = [], 0
    processor = [0.0, 0.0]
    for number, text in enumerate(texts):
        found: list[Any] = [None, None]
        for which in (0, 1) if number % 2 else (1, 0):
            found[which], seconds, busy = clock(lambda w=which, t=text: (plain, drafted)[w](t), device)
            times[which].append(seconds)
            processor[which] += busy
        sizes.append(len(found[0].token_log_probs))
        same += found[0].text == found[1].text
    means = [1000 * statistics.median(t / n for t, n in zip(some, sizes, strict=True)) for some in times]
    return {
        "texts": len(texts),
        "same": same,
        "tokens": sum(sizes),
        "ms": round(means[0], 2),
        "ms_drafted": round(means[1], 2),
        "gain": round(sum(times[0]) / sum(times[1]), 2),
        "cpu_gain": round(processor[0] / max(1e-9, processor[1]), 2),
    }


def told(model: Any) -> dict[str, Any]:
    tally = model.tally
    return {
        "taken": round(tally.right / max(1, tally.guessed), 3),
        "per_step": round((tally.right + tally.steps) / max(1, tally.steps), 2),
    }


def measure_gpt(asked: argparse.Namespace) -> None:
    model, draft = (TextModel.load(folder_of(name), asked.device) for name in asked.gpt)
    text = lzma.decompress(bundled_path("tinyshakespeare").read_bytes()).decode()
    passages = [text[at : at + PROMPT_LETTERS] for at in range(len(text) - 90_000, len(text), 90_000 // asked.texts)]
    for method in ("greedy", "sample"):
        settings = model.settings(method=method, max_tokens=asked.tokens)
        for ahead in asked.ahead:
            with_draft = model.drafted(draft, ahead)
            row = compare(
                passages[: asked.texts],
                lambda prompt, how=settings: model.generations(prompt, search=how)[0],
                lambda prompt, how=settings, who=with_draft: who.generations(prompt, search=how)[0],
                asked.device,
                asked.warm,
            )
            print(json.dumps({"case": f"gpt {method}", "ahead": ahead, **row, **told(with_draft)}), flush=True)


def measure_translator(asked: argparse.Namespace) -> None:
    model, draft = (Translator.load(folder_of(name), asked.device) for name in asked.translator)
    data = read_json(bundled_model() / "config.json")["data"]
    test = load_corpus(configuration.build(DataConfig, data, "data")).test.sources
    sources = sorted(test, key=len)[-8 * asked.texts :: 8]  # of the longer ones
    settings = dataclasses.replace(model.search, beam=1, nbest=1)
    for ahead in asked.ahead:
        with_draft = model.drafted(draft, ahead)
        row = compare(
            sources,
            lambda source: model.hypotheses([source], search=settings)[0][0],
            lambda source, who=with_draft: who.hypotheses([source], search=settings)[0][0],
            asked.device,
            asked.warm,
        )
        print(json.dumps({"case": "translator greedy", "ahead": ahead, **row, **told(with_draft)}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--make", type=Path)
    parser.add_argument("--only", default="", help="with --make: names that begin so")
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--gpt", nargs=2, metavar=("LARGE", "SMALL"))
    parser.add_argument("--translator", nargs=2, metavar=("LARGE", "SMALL"))
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--ahead", type=lambda text: [int(n) for n in text.split(",")], default=[2, 4, 8])
    parser.add_argument("--texts", type=int, default=20)
    parser.add_argument("--tokens", type=int, default=150, help="written by the GPT")
    parser.add_argument("--warm", type=int, default=2)
    parser.add_argument("--threads", type=int, default=0)
    asked, settings = parser.parse_known_args()
    if wrong := [one for one in settings if one.startswith("-") or "=" not in one]:
        parser.error(f"not known: {' '.join(wrong)}")
    if asked.threads:
        torch.set_num_threads(asked.threads)
    about = {"torch": torch.__version__, "python": platform.python_version(), "device": asked.device}
    print(json.dumps({**about, "threads": torch.get_num_threads()}), flush=True)
    if asked.make:
        make_all(asked, settings)
    if asked.gpt:
        measure_gpt(asked)
    if asked.translator:
        measure_translator(asked)


if __name__ == "__main__":
    main()
