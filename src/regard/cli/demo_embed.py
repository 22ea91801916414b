"""The verb `demo --task embed`: word vectors from the package's own sentences, and what is near to what, in a minute or two."""

from __future__ import annotations

import time
from pathlib import Path
from typing import cast

import torch
from rich.console import Console
from rich.table import Table
from rich.text import Text

from regard.cli.demo import free_folder
from regard.core.device import choose_device
from regard.core.files import quoted
from regard.data.batching import Batch, Place
from regard.data.documents import load_text
from regard.data.tokenizers import Tokenizer
from regard.models.base import build_model
from regard.models.word2vec import Word2Vec
from regard.tasks.word_vectors import WordVectors
from regard.training.config import RunConfig, build_run_config, read_recipe
from regard.training.progress import Reporter
from regard.training.run import train
from regard.training.word2vec_steps import WordSteps
from regard.training.word2vec_text import WordText

RECIPE = "demo-embed"
WORDS = ("monday", "mother", "red", "dog", "coffee", "happy", "germany")
ANALOGIES = (("man", "woman", "father"), ("is", "was", "are"), ("go", "went", "come"))
SHOWN = 5
PROBE_STEPS, PROBED = 24, 8  # steps of a trial, on every so-manieth sentence


def run_embed_demo(out: Path, seconds: int) -> None:
    console = Console(highlight=False, soft_wrap=True)
    began = time.monotonic()
    console.rule("1. Word vectors (word2vec), trained here from nothing on 135,000 English sentences", align="left")
    folder = free_folder(out)
    steps = _affordable_steps(build_run_config(read_recipe(RECIPE)), seconds)
    console.print(f"{steps:,} steps, for about {seconds} seconds at most on this machine.", markup=False)
    settings = [f"train.steps={steps}", f"train.save_every={-(-steps // 2)}"]
    command = f"regard demo --task embed --out {folder}"
    result = train(RECIPE, out=folder, settings=settings, report=Reporter(), command=command)
    if result.interrupted is not None:
        console.print(f"Stopped and saved. Go on with: regard train --resume {quoted(folder)}", markup=False)
        raise SystemExit(128 + result.interrupted)

    vectors = WordVectors.load(folder)
    console.rule("2. What is near", align="left")
    table = Table("word", "its nearest words, by the cosine of their vectors")
    for word in WORDS:
        if word in vectors:
            near = (f"{one.word} {one.similarity:.2f}" for one in vectors.nearest(word, SHOWN))
            table.add_row(Text(word), Text(", ".join(near)))
    console.print(table)

    console.rule("3. What is to one word as two others are to each other", align="left")
    for a, b, c in ANALOGIES:
        if all(word in vectors for word in (a, b, c)):
            found = ", ".join(one.word for one in vectors.analogy(a, b, c, SHOWN))
            console.print(f"{a} is to {b} as {c} is to: {found}", markup=False)

    console.rule("4. Next", align="left")
    console.print(
        f"regard nearest tea --model {quoted(folder)}\n"
        f"regard analogy boy girl brother --model {quoted(folder)}\n"
        "regard train --text YOUR.txt --out run model.name=word2vec",
        markup=False,
    )
    console.print(f"({time.monotonic() - began:.0f} s in all)", markup=False)


def _affordable_steps(config: RunConfig, seconds: int) -> int:
    """How many steps fit into the time, by a trial on a throw-away model; at most the recipe's, which are enough."""
    sentences = load_text(config.data).train[::PROBED]
    tokenizer = Tokenizer.train(sentences, config.tokenizer)
    text = WordText.from_documents(sentences, tokenizer)
    sizes = {"source_vocabulary": tokenizer.size, "target_vocabulary": tokenizer.size, "shared": True}
    device = choose_device(config.train.device)
    model = cast(Word2Vec, build_model(config.model.name, config.model, **sizes).to(device))
    counts = torch.from_numpy(text.counts(tokenizer.size))
    model.counts.copy_(counts)
    times = []
    with (
        WordSteps(model, counts, config.train, device, torch.get_num_threads()) as steps,
        text.open(config.train, Place(), 1, device.type == "cuda") as batches,
    ):
        for number in range(1, PROBE_STEPS + 1):
            batch = cast(Batch, next(batches).batch)
            began = time.monotonic()
            steps.step(steps(batch, 1 / batch.target_out.numel()).loss, 1.0, number)
            if device.type == "cuda":
                torch.cuda.synchronize()
            times.append(time.monotonic() - began)
    step = sorted(times)[len(times) // 2]
    return max(20, min(config.train.steps, int(0.85 * seconds / step)))
