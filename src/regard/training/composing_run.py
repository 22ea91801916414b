"""A run on labelled text that learns to write the texts from their labels."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

import torch

from regard.core import config as configuration
from regard.core.device import choose_device
from regard.core.errors import ConfigError
from regard.core.files import MANIFEST, write_json, write_manifest
from regard.data.augment import AugmentConfig
from regard.data.batching import BatchPlan
from regard.data.labelled import Labelled, LabelledCorpus, load_labelled
from regard.data.split import Pairs
from regard.data.store import TokenStore
from regard.data.tokenizers import Tokenizer, TokenizerConfig, TokenizerPair
from regard.evaluation.metrics import Score
from regard.models.base import Writer
from regard.tasks.composing import TextComposer
from regard.tasks.folder import CONFIG, DATA, FORMAT, tokenizer_names
from regard.training.config import RunConfig, build_run_config
from regard.training.labelled_sizes import choose_labelled_sizes
from regard.training.loop import Trainer
from regard.training.progress import Reporter
from regard.training.run_parts import (
    RunResult,
    first_model,
    go_through,
    kept_tokenizers,
    resolved,
    same_text,
    sections,
    set_threads,
    write_scores,
)
from regard.training.text import longest
from regard.training.texts import PairText
from regard.training.validation import nll_per_token


def run_composing(folder: Path, request: dict[str, Any], saved: dict[str, Any], report: Reporter) -> RunResult:
    """Goes on with a run from wherever it is. `saved` is its configuration so far."""
    start_from = request.get("start_from")
    corpus = load_labelled(build_run_config(sections(saved)).data, report.say)
    fine_tuning = start_from is not None
    config = resolved(saved, request, lambda values: _sizes(corpus, values, fine_tuning=fine_tuning), report)
    _check(config, corpus)
    set_threads(folder, config)
    _record(folder, corpus)
    tokenizers = kept_tokenizers(folder, lambda: _tokenizers(config, corpus, start_from, report))
    model = first_model(folder, config, tokenizers, start_from, report)
    most = longest(config, model)
    stores = {
        name: TokenStore.from_pairs(_pairs(part), tokenizers, most, f"the {name} text")
        for name, part in (("training", corpus.train), ("validation", corpus.valid), ("test", corpus.test))
        if len(part)
    }
    for name, store in stores.items():
        if store.dropped:
            report.say(f"{store.dropped:,} {name} texts are longer than {most} tokens (train.max_tokens): left out.")
    if not (folder / MANIFEST).exists():
        sizes = {"source": tokenizers.source.size, "target": tokenizers.target.size, "shared": False}
        plain = {"format": FORMAT, "resolved": True, **configuration.to_plain(config), "vocabulary": sizes}
        write_json(folder / CONFIG, {**plain, "labels": list(corpus.labels)})
        write_manifest(folder, [CONFIG, DATA, *tokenizer_names(folder)])  # from now on, these are checked
    device = choose_device(config.train.device)
    report.say(
        f"{len(stores['training']):,} training texts, {len(corpus.valid):,} for validation, {len(corpus.test):,} for "
        f"testing; {config.model.name} with {model.parameters_count():,} parameters on {device}"
    )
    validation = _Validation(stores["validation"], config.train.batch_tokens) if "validation" in stores else None
    trainer = Trainer(model, PairText(stores["training"]), validation, config.train, folder, device, report)
    counts = {"texts": len(stores["training"]), "labels": len(corpus.labels)}

    def test() -> dict[str, Score]:
        return _test(folder, stores, TextComposer(model, tokenizers, corpus.labels, device=device), config, report)

    return go_through(folder, request, trainer, test, counts)


def _pairs(part: Labelled) -> Pairs:
    return Pairs(list(part.labels), list(part.texts))


def _check(config: RunConfig, corpus: LabelledCorpus) -> None:
    """Refuses text and settings that mean nothing for a model that writes from labels."""
    train = config.train
    if corpus.two_texts:
        what = "its lines have two texts, and a label-writer writes one"
        raise ConfigError("setting data.labelled", what, "Give lines of a label and one text")
    if train.best_by != "loss" or train.valid_sentences:
        raise ConfigError("setting train.best_by", "texts from labels have no right answer", "Use train.best_by=loss")
    if train.window:
        raise ConfigError("setting train.window", "it is about language models", "Use train.max_tokens")
    if config.augment != AugmentConfig():
        raise ConfigError("section augment", "it changes sentence pairs, and the text is labelled", "Leave it out")
    if train.vectors:
        raise ConfigError("setting train.vectors", "it is about models that read, and this one writes", "Leave it out")
    if train.patience and not len(corpus.valid):
        raise ConfigError("setting train.patience", "early stopping needs validation text", "Set data.valid_labelled")


def _sizes(corpus: LabelledCorpus, values: dict[str, Any], fine_tuning: bool) -> dict[str, Any]:
    given = build_run_config(values)
    cpu = choose_device(given.train.device).type != "cuda"
    steps = given.train.steps if "steps" in values.get("train", {}) else None
    characters = sum(map(len, corpus.train.texts))
    chosen = choose_labelled_sizes(
        len(corpus.train), characters, given.model, cpu, fine_tuning=fine_tuning, steps=steps
    )
    if not fine_tuning:
        chosen["train"]["lr"] *= 4  # that of language models: what is learnt is the text, not a label
    return chosen


def _record(folder: Path, corpus: LabelledCorpus) -> None:
    """Records the text's fingerprint, or on resume refuses text that is not what the run began with."""
    if not same_text(folder, corpus.fingerprint):
        sizes = {"train": len(corpus.train), "valid": len(corpus.valid), "test": len(corpus.test)}
        write_json(folder / DATA, {"fingerprint": corpus.fingerprint, "texts": sizes, "files": corpus.files})


def _tokenizers(config: RunConfig, corpus: LabelledCorpus, start_from: str | None, report: Reporter) -> TokenizerPair:
    """Words of labels are tokens as they stand; texts are cut as the settings say."""
    if start_from is not None:
        tokenizers = TokenizerPair.load(Path(start_from))
        for label, ids in zip(corpus.labels, tokenizers.source.encode(list(corpus.labels)), strict=True):
            if tokenizers.source.decode([ids])[0] != " ".join(label.split()):
                what = f"the model that this run starts from does not know the label {label!r}"
                raise ConfigError("setting data.labelled", what, "Leave --from out, or give texts with its labels")
        return tokenizers
    report.say("Training the tokenizer...")
    words = {word for label in corpus.labels for word in label.split()}
    of_labels = TokenizerConfig(kind="space", size=2 * len(words) + 100, min_count=1)
    source = Tokenizer.train(list(corpus.labels), of_labels)
    return TokenizerPair(source, TokenizerPair.train_on_text(corpus.train.texts, config.tokenizer).target, joint=False)


class _Validation:
    """Negative log-likelihood per token of held-out texts, given their labels."""

    def __init__(self, store: TokenStore, batch_tokens: int):
        self.store, self.plan = store, BatchPlan.of(store, batch_tokens, seed=0)

    def measure(self, model: Writer, device: torch.device) -> dict[str, float]:
        return {"valid_nll": nll_per_token(model, self.store, self.plan, device)}


def _test(
    folder: Path, stores: dict[str, TokenStore], composer: TextComposer, config: RunConfig, report: Reporter
) -> dict[str, Score]:
    name = next((name for name in ("test", "validation") if name in stores), None)
    if name is None:
        return {}
    began = time.monotonic()
    measured = _Validation(stores[name], config.train.batch_tokens).measure(composer.model.eval(), composer.device)
    scores = {"perplexity": Score("perplexity per token", math.exp(min(measured["valid_nll"], 700.0)))}
    write_scores(folder, name, {"texts": len(stores[name])}, began, scores)
    report.say(f"On the {name} text: {scores['perplexity']}")
    for label in composer.labels[:5]:
        report.say(f"{label}: {composer.write(label)[0].text}")
    return scores
