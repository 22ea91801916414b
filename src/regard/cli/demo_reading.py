"""The verbs `demo --task tag` and `demo --task classify`: models that read, trained from the package alone in a minute or two."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from rich.text import Text

from regard.cli.demo import free_folder
from regard.core.device import choose_device
from regard.core.files import quoted
from regard.data.batching import Place
from regard.data.labelled import load_labelled
from regard.data.tagged import load_tagged
from regard.data.tokenizers import TokenizerPair
from regard.models.base import build_model
from regard.tasks.classification import TextClassifier
from regard.tasks.tagging import TextTagger
from regard.training.config import RunConfig, build_run_config, read_recipe
from regard.training.gradient import Gradients
from regard.training.labelled_text import LabelledStore, LabelledText
from regard.training.optim import Optimizer
from regard.training.progress import Reporter
from regard.training.run import train
from regard.training.run_parts import RunResult
from regard.training.tagged_text import TaggedStore, TaggedText

TAG, CLASSIFY = "demo-tag", "demo-classify"
TAGGED = (
    "The old man the boats.",
    "Please book the book that she didn't read yet!",
    "Time flies like an arrow, but fruit flies like a banana.",
    "My new phone wasn't cheap: I paid $300 for it.",
)
CLASSIFIED = (
    "Great food and very friendly staff, I will definitely go back!",
    "Please find attached the draft of the agreement, and call me with any questions.",
    "How do I get my cat to stop scratching the sofa?",
    "The government said on Tuesday that its troops would leave the region.",
)
PROBE_STEPS = 12


def run_tag_demo(out: Path, seconds: int) -> None:
    console = Console(highlight=False, soft_wrap=True)
    began = time.monotonic()
    console.rule("1. A bidirectional LSTM, trained here from nothing to name parts of speech", align="left")
    config = build_run_config(read_recipe(TAG))
    corpus = load_tagged(config.data)
    texts = [" ".join(words) for words in corpus.train.words]
    tokenizers = TokenizerPair.train_on_text(texts, config.tokenizer)
    most = config.train.max_tokens
    store = TaggedStore.of(corpus.train, corpus.labels, tokenizers.source, most)
    steps = _affordable_steps(config, tokenizers, len(corpus.labels), TaggedText(store, most), seconds)
    folder, result = _train(TAG, "tag", free_folder(out), steps, seconds, console)

    console.rule("2. How good it is on sentences that it has not seen", align="left")
    table = Table("", "the model", "each word's most frequent tag")
    for name, shown in (("accuracy", "all words"), ("unknown_accuracy", "words that training did not have")):
        if name in result.scores:
            table.add_row(shown, *(f"{result.scores[key].value:.1f} %" for key in (name, f"baseline_{name}")))
    console.print(table)

    console.rule("3. Sentences with their parts of speech", align="left")
    tagger = TextTagger.load(folder)
    for words in tagger.tag(list(TAGGED)):
        console.print(" ".join(f"{one.word}/{one.tag}" for one in words), markup=False)
    console.rule("4. Next", align="left")
    console.print(
        f'regard tag --model {quoted(folder)} "She saw her duck."\n'
        f"regard evaluate --tagged bundled:ud-ewt-test --model {quoted(folder)}\n"
        "regard train --tagged YOUR.conllu --out run",
        markup=False,
    )
    console.print(f"({time.monotonic() - began:.0f} s in all)", markup=False)


def run_classify_demo(out: Path, seconds: int) -> None:
    console = Console(highlight=False, soft_wrap=True)
    began = time.monotonic()
    title = "1. A convolutional network, trained here from nothing to name where a sentence is from"
    console.rule(title, align="left")
    config = build_run_config(read_recipe(CLASSIFY))
    corpus = load_labelled(config.data)
    tokenizers = TokenizerPair.train_on_text(corpus.train.texts, config.tokenizer)
    most = config.train.max_tokens
    store = LabelledStore.of(corpus.train, corpus.labels, tokenizers.source, most, "training text")
    steps = _affordable_steps(config, tokenizers, len(corpus.labels), LabelledText(store, most), seconds)
    folder, result = _train(CLASSIFY, "classify", free_folder(out), steps, seconds, console)

    console.rule("2. How good it is on sentences that it has not seen", align="left")
    commonest = max(set(corpus.train.labels), key=corpus.train.labels.count)
    always = 100 * corpus.test.labels.count(commonest) / len(corpus.test)
    for score in result.scores.values():
        console.print(str(score), markup=False)
    console.print(f"(always {commonest}: accuracy {always:.1f})", markup=False)

    console.rule("3. Sentences with their likeliest genre", align="left")
    classifier = TextClassifier.load(folder)
    table = Table("genre", "probability", "sentence")
    for text, guess in zip(CLASSIFIED, classifier.classify(list(CLASSIFIED)), strict=True):
        table.add_row(Text(guess.label), f"{guess.probability:.2f}", Text(text))
    console.print(table)
    console.rule("4. Next", align="left")
    console.print(
        f'regard classify --model {quoted(folder)} --top 3 "Does anyone know a good dentist?"\n'
        f"regard evaluate --labelled bundled:ud-ewt-genres-test --model {quoted(folder)}\n"
        "regard train --labelled YOUR.tsv --out run",
        markup=False,
    )
    console.print(f"({time.monotonic() - began:.0f} s in all)", markup=False)


def _train(recipe: str, task: str, folder: Path, steps: int, seconds: int, console: Console) -> tuple[Path, RunResult]:
    console.print(f"{steps:,} steps, for about {seconds} seconds at most on this machine.", markup=False)
    settings = [f"train.steps={steps}", f"train.save_every={-(-steps // 4)}", "train.log_every=50"]
    command = f"regard demo --task {task} --out {folder}"
    result = train(recipe, out=folder, settings=settings, report=Reporter(), command=command)
    if result.interrupted is not None:
        console.print(f"Stopped and saved. Go on with: regard train --resume {quoted(folder)}", markup=False)
        raise SystemExit(128 + result.interrupted)
    return folder, result


def _affordable_steps(
    config: RunConfig, tokenizers: TokenizerPair, labels: int, text: LabelledText, seconds: int
) -> int:
    """How many steps fit into the time, by a trial on a throw-away model; at most the recipe's, which are enough."""
    sizes = {"source_vocabulary": tokenizers.source.size, "target_vocabulary": labels + 1, "shared": False}
    device = choose_device(config.train.device)
    model = build_model(config.model.name, config.model, **sizes).to(device).train()
    optimizer = Optimizer(model, config.train, device)
    gradients = Gradients(model, contextlib.nullcontext)
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
    return max(20, min(config.train.steps, int(0.85 * seconds / step)))
