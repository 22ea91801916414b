"""The verb `demo`: what regard is, in a few minutes on a small machine, with nothing but the package itself."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from regard.core.device import choose_device
from regard.core.files import quoted
from regard.data.batching import BatchPlan, BatchStream
from regard.data.corpus import load_corpus
from regard.data.split import gathered
from regard.data.store import TokenStore
from regard.data.tokenizers import TokenizerPair
from regard.evaluation.plots import alignment_text, draw_alignment, merge_to_words, save_figure
from regard.models.base import build_model
from regard.tasks.lines import Translation
from regard.tasks.pretrained import load_translator
from regard.tasks.translation import Translator
from regard.training.config import RunConfig, build_run_config, read_recipe
from regard.training.optim import Optimizer
from regard.training.progress import Reporter
from regard.training.run import train

RECIPE = "demo-translate"
SENTENCES = (
    "Where is the nearest bank?",
    "I would like a cup of coffee.",
    "If I had more money, I would buy a new car.",
)
PROBE_STEPS = 24
SHOWN = 6


def run_demo(out: Path, seconds: int) -> None:
    console = Console(highlight=False, soft_wrap=True)
    began = time.monotonic()
    console.rule("1. The bundled English-German model", align="left")
    _show_bundled(console)
    console.print(f"({time.monotonic() - began:.1f} s)\n")

    console.rule("2. A small Transformer, trained here from nothing", align="left")
    folder = free_folder(out)
    config = build_run_config(read_recipe(RECIPE))
    steps = _affordable_steps(config, seconds)
    console.print(f"{steps:,} steps fit into about {seconds} seconds on this machine.", markup=False)
    settings = [f"train.steps={steps}", f"train.save_every={-(-steps // 4)}", "train.log_every=20"]
    result = train(RECIPE, out=folder, settings=settings, report=Reporter(), command=f"regard demo --out {folder}")
    if result.interrupted is not None:
        console.print(f"Stopped and saved. Go on with: regard train --resume {quoted(folder)}", markup=False)
        raise SystemExit(128 + result.interrupted)

    console.rule("3. What it learnt", align="left")
    for score in result.scores.values():
        console.print(f"{score}   {score.signature}", markup=False)
    held_out = load_corpus(config.data).test
    translator = Translator.load(folder)
    chosen = list(range(0, len(held_out), max(1, len(held_out) // SHOWN)))[:SHOWN]
    found = translator.hypotheses([held_out.sources[i] for i in chosen], attention=True)
    table = Table("source", "translation", "reference", title="Held-out sentences")
    for i, many in zip(chosen, found, strict=True):
        table.add_row(held_out.sources[i], many[0].text, held_out.targets[i])
    console.print(table)
    picture = folder / "alignment.png"
    longest = max((many[0] for many in found), key=lambda t: len(t.tokens))
    weights, source, target = _words(longest)
    save_figure(draw_alignment(weights, source, target, title=longest.text), picture)
    console.print(f"An alignment, as a picture: {picture}\n", markup=False)

    console.rule("4. Next", align="left")
    console.print(
        f'regard translate --model {quoted(folder)} "Where is the station?"\n'
        f"regard show {quoted(folder)}\n"
        f"regard train {RECIPE} --out longer train.steps={4 * steps}\n"
        "regard train --src YOUR.en --tgt YOUR.de --out run",
        markup=False,
    )
    console.print(f"({time.monotonic() - began:.0f} s in all)", markup=False)


def _show_bundled(console: Console) -> None:
    translator = load_translator()
    found = [many[0] for many in translator.hypotheses(SENTENCES, attention=True)]
    for source, translation in zip(SENTENCES, found, strict=True):
        console.print(f"  {source}\n    {translation.text}\n", markup=False)
    for translation in found:
        weights, source_words, target_words = _words(translation)
        console.print(alignment_text(weights, source_words, target_words, width=console.width), markup=False)
        console.print()


def _words(translation: Translation) -> tuple[np.ndarray, list[str], list[str]]:
    """The attention of a translation between whole words, its end marks included."""
    assert translation.attention is not None
    end = "</s>"
    weights = np.asarray(translation.attention, dtype=np.float64)
    return merge_to_words(weights, [*translation.source_tokens, end], [*translation.tokens, end][: len(weights)])


def free_folder(out: Path) -> Path:
    """The folder asked for, or the next free name beside it: a demo never touches an earlier one."""
    candidate, number = out, 2
    while candidate.exists() and (not candidate.is_dir() or any(candidate.iterdir())):
        candidate, number = out.with_name(f"{out.name}-{number}"), number + 1
    return candidate


def _affordable_steps(config: RunConfig, seconds: int) -> int:
    """How many steps fit into the time, by a trial on a throw-away model. The number is then fixed, so resuming is exact."""
    corpus = load_corpus(config.data)
    part = gathered(corpus.train.spaced(8000).chunks())
    tokenizers = TokenizerPair.train(part.sources, part.targets, config.tokenizer)
    store = TokenStore.from_pairs(part, tokenizers, config.train.max_tokens)
    size = config.tokenizer.size
    model = build_model(config.model.name, config.model, source_vocabulary=size, target_vocabulary=size, shared=True)
    device = choose_device(config.train.device)
    model.to(device).train()
    optimizer = Optimizer(model, config.train, device)

    times = []
    with BatchStream(store, BatchPlan.of(store, config.train.batch_tokens, config.train.seed)) as stream:
        for step in range(1, PROBE_STEPS + 1):
            began = time.monotonic()
            batch = next(stream).batch.to(device)
            sums = model.output.loss(model(batch.source, batch.target_in).hidden, batch.target_out)
            loss = sums.loss / sums.tokens
            loss.backward()
            optimizer.step(loss, 0.1, step)
            if device.type == "cuda":
                torch.cuda.synchronize()
            times.append(time.monotonic() - began)
    usual = float(np.mean(sorted(times)[: 3 * PROBE_STEPS // 4]))  # without the warm-up of the first steps
    return int(min(30_000, max(50, seconds / usual / 1.06)))
