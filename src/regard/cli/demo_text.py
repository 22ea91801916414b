"""The verb `demo --task lm`: a small GPT learns to write like Shakespeare from the package alone, in a few minutes."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import cast

import torch
from rich.console import Console

from regard.cli.demo import free_folder
from regard.core.device import choose_device
from regard.core.files import quoted
from regard.data.batching import Place
from regard.data.documents import load_text
from regard.data.token_stream import TokenStream
from regard.data.tokenizers import Tokenizer
from regard.models.base import LanguageModel, build_model
from regard.tasks.language_model import TextModel
from regard.training.config import RunConfig, build_run_config, read_recipe
from regard.training.gradient import Gradients
from regard.training.optim import Optimizer
from regard.training.progress import Reporter
from regard.training.run import train
from regard.training.texts import LanguageText

RECIPE = "demo-lm"
PROMPTS = ("ROMEO:", "First Citizen:", "KING RICHARD")
PROBE_STEPS = 12


def run_text_demo(out: Path, seconds: int) -> None:
    console = Console(highlight=False, soft_wrap=True)
    began = time.monotonic()
    console.rule("1. A small GPT, trained here from nothing on Shakespeare, letter by letter", align="left")
    folder = free_folder(out)
    config = build_run_config(read_recipe(RECIPE))
    steps = _affordable_steps(config, seconds)
    console.print(f"{steps:,} steps fit into about {seconds} seconds on this machine.", markup=False)
    settings = [f"train.steps={steps}", f"train.save_every={-(-steps // 4)}", "train.log_every=20"]
    result = train(
        RECIPE, out=folder, settings=settings, report=Reporter(), command=f"regard demo --task lm --out {folder}"
    )
    if result.interrupted is not None:
        console.print(f"Stopped and saved. Go on with: regard train --resume {quoted(folder)}", markup=False)
        raise SystemExit(128 + result.interrupted)

    console.rule("2. What it writes", align="left")
    model = TextModel.load(folder)
    for prompt in PROMPTS:
        console.print(prompt, end="", markup=False)
        for piece in model.stream(prompt):
            console.print(piece, end="", markup=False)
        console.print("\n")

    console.rule("3. Next", align="left")
    console.print(
        f'regard generate --model {quoted(folder)} --prompt "JULIET:" --temperature 0.9\n'
        f'regard next --model {quoted(folder)} "To be, or not to b"\n'
        f"regard train {RECIPE} --out longer train.steps={4 * steps}\n"
        "regard train --text YOUR.txt --out run",
        markup=False,
    )
    console.print(f"({time.monotonic() - began:.0f} s in all)", markup=False)


def _affordable_steps(config: RunConfig, seconds: int) -> int:
    """How many steps fit into the time, by a trial on a throw-away model. The number is then fixed, so resuming is exact."""
    corpus = load_text(config.data)
    tokenizer = Tokenizer.train(corpus.train, config.tokenizer)
    stream = TokenStream.from_documents(corpus.train[:2000], tokenizer)
    sizes = {"source_vocabulary": tokenizer.size, "target_vocabulary": tokenizer.size, "shared": True}
    device = choose_device(config.train.device)
    model = build_model(config.model.name, config.model, **sizes).to(device).train()
    optimizer = Optimizer(model, config.train, device)
    gradients = Gradients(model, contextlib.nullcontext)
    text = LanguageText(stream, cast(LanguageModel, model), config.train)
    times = []
    with text.open(config.train, Place(), 1, device.type == "cuda") as batches:
        for number in range(1, PROBE_STEPS + 1):
            batch = next(batches).batch
            began = time.monotonic()
            computed = gradients(batch, 1 / batch.target_out.numel())
            optimizer.step(computed.loss, 1e-3, number)
            if device.type == "cuda":
                torch.cuda.synchronize()
            times.append(time.monotonic() - began)
    step = sorted(times)[len(times) // 2]
    return max(20, int(0.85 * seconds / step))
