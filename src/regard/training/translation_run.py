"""A run on sentence pairs, from the text to the scored translator."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

from regard.core import config as configuration
from regard.core.device import choose_device
from regard.core.errors import ConfigError
from regard.core.files import MANIFEST, write_json, write_manifest
from regard.data.changes import augmentation
from regard.data.corpus import Corpus, load_corpus
from regard.data.tokenizers import TokenizerPair
from regard.evaluation.metrics import Score
from regard.tasks.folder import CONFIG, DATA, FORMAT, tokenizer_names
from regard.tasks.lines import Habits
from regard.tasks.translation import Translator
from regard.training.checking import check_before_training
from regard.training.config import RunConfig, build_run_config
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
from regard.training.text import longest, sizes_for, token_store, train_tokenizers
from regard.training.texts import PairText
from regard.training.validation import Validation, score_text

DEFAULT_DECODED = 500


def run_translation(folder: Path, request: dict[str, Any], saved: dict[str, Any], report: Reporter) -> RunResult:
    """Goes on with a run from wherever it is. `saved` is its configuration so far."""
    data = build_run_config(sections(saved)).data
    if not (folder / DATA).exists():  # a run that goes on has been checked when it began
        check_before_training(data, report)
    corpus = load_corpus(data, report.say)
    begins = {"fine_tuning": request.get("start_from") is not None, "student": request.get("student", False)}
    config = resolved(saved, request, lambda values: sizes_for(corpus, values, **begins), report)
    set_threads(folder, config)
    _check_data(folder, corpus, report)
    tokenizers = _tokenizers(folder, config, corpus, request.get("start_from"), report)
    model = first_model(folder, config, tokenizers, request.get("start_from"), report)
    most = longest(config, model)
    train_store = token_store(corpus, tokenizers, most, report)
    if train_store.dropped:
        why = "train.max_tokens" if most == config.train.max_tokens else "the model's limit"
        report.say(f"{train_store.dropped:,} pairs are longer than {most} tokens ({why}) and are left out.")
    vocabulary = {"source": tokenizers.source.size, "target": tokenizers.target.size, "shared": tokenizers.joint}
    habits = Habits.of(corpus.train, int(np.percentile(train_store.source.lengths, 99.5)) + 1)
    if not (folder / MANIFEST).exists():
        write_json(
            folder / CONFIG,
            {
                "format": FORMAT,
                "resolved": True,
                **configuration.to_plain(config),
                "vocabulary": vocabulary,
                "usual_source_length": habits.usual_length,
                "one_sentence_lines": habits.one_sentence,
            },
        )
        write_manifest(folder, [CONFIG, DATA, *tokenizer_names(folder)])  # from now on, these are checked
    device = choose_device(config.train.device)
    report.say(
        f"{len(train_store):,} training pairs, {len(corpus.valid):,} for validation, {len(corpus.test):,} for testing; "
        f"{config.model.name} with {model.parameters_count():,} parameters on {device}"
    )
    translator = Translator(model, tokenizers, config.search, device=device, habits=habits)
    validation = _validation(config, corpus, translator, most)
    change, growth = augmentation(config.augment, train_store, tokenizers, config.train.seed, most)
    text = PairText(train_store, change, growth)
    trainer = Trainer(model, text, validation, config.train, folder, device, report)
    counts = {"pairs": len(train_store), "left_out": train_store.dropped}
    return go_through(folder, request, trainer, lambda: _test(folder, config, corpus, translator, report), counts)


def _check_data(folder: Path, corpus: Corpus, report: Reporter) -> None:
    """Records the data's fingerprint, or on resume refuses data that is not what the run began with."""
    if same_text(folder, corpus.fingerprint):
        return
    if corpus.dropped:
        report.say(f"{corpus.dropped:,} pairs with an empty side are left out.")
    for name, count in corpus.filtered.items():
        report.say(f"{count:,} pairs are left out by the filter {name}.")
    if corpus.set_apart:
        report.say(f"{corpus.set_apart:,} more pairs are left out, since their sentences are held out.")
    sizes = {
        "train": len(corpus.train),
        "valid": len(corpus.valid),
        "test": len(corpus.test),
        "dropped": corpus.dropped,
        "filtered": corpus.filtered,
        "set_apart": corpus.set_apart,
    }
    write_json(
        folder / DATA,
        {"fingerprint": corpus.fingerprint, "pairs": sizes, "files": {k: str(v) for k, v in corpus.files.items()}},
    )


def _tokenizers(
    folder: Path, config: RunConfig, corpus: Corpus, start_from: str | None, report: Reporter
) -> TokenizerPair:
    def make() -> TokenizerPair:
        if start_from is None:
            return train_tokenizers(corpus, config.tokenizer, report)
        tokenizers = TokenizerPair.load(Path(start_from))
        for tag in corpus.tags:
            tokenizers.source.tag(tag)  # says so where the other run does not know it
        return tokenizers

    return kept_tokenizers(folder, make)


def _validation(config: RunConfig, corpus: Corpus, translator: Translator, most: int) -> Validation | None:
    if not len(corpus.valid):
        if config.train.best_by != "loss" or config.train.patience:
            raise ConfigError(
                "setting train.patience",
                "early stopping needs validation text",
                "Set data.valid_src and data.valid_tgt",
            )
        return None
    decoded = config.train.valid_sentences or (DEFAULT_DECODED if config.train.best_by != "loss" else 0)
    return Validation(
        corpus.valid,
        translator,
        batch_tokens=config.train.batch_tokens,
        max_tokens=most,
        decoded=decoded,
        metrics=config.train.all_metrics,
        language=config.data.target_language,
    )


def _test(
    folder: Path, config: RunConfig, corpus: Corpus, translator: Translator, report: Reporter
) -> dict[str, Score]:
    """Scores the final model on the held-out text, by the same path as validation."""
    part, name = (corpus.test, "test") if len(corpus.test) else (corpus.valid, "validation")
    if not len(part):
        return {}
    report.say(f"Translating {len(part):,} {name} sentences...")
    began = time.monotonic()
    scores = score_text(translator, part, config.train.all_metrics, config.data.target_language, confidence=True)
    write_scores(folder, name, {"sentences": len(part)}, began, scores)
    for score in scores.values():
        report.say(f"{score}  ({score.signature})")
    return scores
