"""A run on labelled text, from the text to the scored classifier."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from regard.core import config as configuration
from regard.core.device import choose_device
from regard.core.errors import ConfigError
from regard.core.files import (
    MANIFEST,
    check_manifest,
    load_tensors,
    save_tensors,
    write_folder,
    write_json,
    write_manifest,
)
from regard.data.augment import AugmentConfig
from regard.data.labelled import LabelledCorpus, load_labelled
from regard.data.tokenizers import TokenizerPair
from regard.evaluation.classification import LabelReport
from regard.evaluation.metrics import Score
from regard.models.base import Writer, build_model
from regard.models.classifier import Classifier
from regard.tasks.classification import TextClassifier
from regard.tasks.folder import (
    CHECKPOINTS,
    CONFIG,
    DATA,
    FORMAT,
    WEIGHTS,
    labels_of,
    put_weights,
    read_config,
    tokenizer_names,
    weights_folder,
    weights_of,
)
from regard.training.checkpoint import Checkpoints
from regard.training.config import RunConfig, build_run_config
from regard.training.labelled_sizes import choose_labelled_sizes
from regard.training.labelled_text import LabelledStore, LabelledText
from regard.training.loop import Trainer
from regard.training.progress import Reporter
from regard.training.run_parts import (
    INITIAL,
    RunResult,
    go_through,
    kept_tokenizers,
    resolved,
    same_text,
    sections,
    set_threads,
    write_scores,
)


def run_classification(folder: Path, request: dict[str, Any], saved: dict[str, Any], report: Reporter) -> RunResult:
    """Goes on with a run from wherever it is. `saved` is its configuration so far."""
    start_from = request.get("start_from")
    corpus = load_labelled(build_run_config(sections(saved)).data, report.say)
    fine_tuning = start_from is not None
    config = resolved(saved, request, lambda values: _sizes(corpus, values, fine_tuning=fine_tuning), report)
    check_labelled_settings(config, len(corpus.valid))
    set_threads(folder, config)
    _record(folder, corpus)
    tokenizers = kept_tokenizers(folder, lambda: _tokenizers(config, corpus, start_from, report))
    model = _first_model(folder, config, tokenizers, corpus, start_from)
    most = min([config.train.max_tokens, *(n for n in (model.limits.source,) if n is not None)])
    stores = {
        name: LabelledStore.of(part, corpus.labels, tokenizers.source, most, f"{name} text")
        for name, part in (("training", corpus.train), ("validation", corpus.valid), ("test", corpus.test))
        if len(part)
    }
    for name, store in stores.items():
        if store.cut:
            why = "train.max_tokens" if most == config.train.max_tokens else "the model's limit"
            report.say(f"{store.cut:,} {name} texts are cut: they are longer than {most} tokens ({why}).")
    if not (folder / MANIFEST).exists():
        size = tokenizers.source.size
        plain = {
            "format": FORMAT,
            "resolved": True,
            **configuration.to_plain(config),
            "vocabulary": {"source": size, "target": size, "shared": True},
            "labels": list(corpus.labels),
            "two_texts": corpus.two_texts,
        }
        write_json(folder / CONFIG, plain)
        write_manifest(folder, [CONFIG, DATA, *tokenizer_names(folder)])  # from now on, these are checked
    device = choose_device(config.train.device)
    report.say(
        f"{len(corpus.train):,} training texts, {len(corpus.valid):,} for validation, {len(corpus.test):,} for testing; "
        f"{config.model.name} with {model.parameters_count():,} parameters on {device}"
    )
    classifier = TextClassifier(
        model, tokenizers, corpus.labels, two_texts=corpus.two_texts, most=config.train.max_tokens, device=device
    )
    trainer = Trainer(
        cast(Writer, model),  # all that is asked of it here, it has
        LabelledText(stores["training"], most),
        LabelledValidation(stores["validation"], classifier) if "validation" in stores else None,
        config.train,
        folder,
        device,
        report,
    )
    counts = {"texts": len(corpus.train), "labels": len(corpus.labels)}
    return go_through(folder, request, trainer, lambda: _test(folder, stores, classifier, report), counts)


def check_labelled_settings(config: RunConfig, valid: int) -> None:
    """Refuses settings that mean nothing for labelled text."""
    train = config.train
    if train.best_by == "bleu" or train.valid_sentences:
        raise ConfigError("setting train.best_by", "a classifier has no BLEU", "Use train.best_by=accuracy or loss")
    if train.window:
        raise ConfigError("setting train.window", "it is about language models", "Use train.max_tokens")
    if config.augment != AugmentConfig():
        raise ConfigError("section augment", "it changes sentence pairs, and the text is labelled", "Leave it out")
    if train.patience and not valid:
        raise ConfigError("setting train.patience", "early stopping needs validation text", "Set data.valid_labelled")
    if train.best_by == "accuracy" and not valid:
        raise ConfigError("setting train.best_by", "it needs validation text", "Set data.valid_labelled")


def _sizes(corpus: LabelledCorpus, values: dict[str, Any], fine_tuning: bool) -> dict[str, Any]:
    given = build_run_config(values)
    cpu = choose_device(given.train.device).type != "cuda"
    steps = given.train.steps if "steps" in values.get("train", {}) else None
    characters = sum(map(len, (*corpus.train.texts, *corpus.train.seconds)))
    return choose_labelled_sizes(len(corpus.train), characters, given.model, cpu, fine_tuning=fine_tuning, steps=steps)


def _record(folder: Path, corpus: LabelledCorpus) -> None:
    """Records the text's fingerprint, or on resume refuses text that is not what the run began with."""
    if same_text(folder, corpus.fingerprint):
        return
    sizes = {
        "train": len(corpus.train),
        "valid": len(corpus.valid),
        "test": len(corpus.test),
        "dropped": corpus.dropped,
        "set_apart": corpus.set_apart,
        "repeated": corpus.repeated,
    }
    write_json(folder / DATA, {"fingerprint": corpus.fingerprint, "texts": sizes, "files": corpus.files})


def _tokenizers(config: RunConfig, corpus: LabelledCorpus, start_from: str | None, report: Reporter) -> TokenizerPair:
    if start_from is not None:
        one = TokenizerPair.load(Path(start_from)).source
        return TokenizerPair(one, one, joint=True)
    report.say("Training the tokenizer...")
    return TokenizerPair.train_on_text([*corpus.train.texts, *corpus.train.seconds], config.tokenizer)


def _first_model(
    folder: Path, config: RunConfig, tokenizers: TokenizerPair, corpus: LabelledCorpus, start_from: str | None
) -> Classifier:
    """A new model; of a run that starts from another, with the other's weights: all, or those of its body."""
    torch.manual_seed(config.train.seed)
    sizes = {"source_vocabulary": tokenizers.source.size, "target_vocabulary": len(corpus.labels) + 1, "shared": False}
    model = cast(Classifier, build_model(config.model.name, config.model, **sizes))
    if start_from is None or Checkpoints(folder / CHECKPOINTS).steps():
        return model
    initial = folder / INITIAL
    if not initial.exists():  # our own copy: the other run may go away
        other = Path(start_from)
        theirs = _classified_by(read_config(other), other, corpus)
        place = weights_folder(other)
        check_manifest(place, [WEIGHTS])
        put_weights(model if theirs else model.body, load_tensors(place / WEIGHTS), place)
        write_folder(initial, lambda place: save_tensors(place / WEIGHTS, weights_of(model)))
    check_manifest(initial, [WEIGHTS])
    put_weights(model, load_tensors(initial / WEIGHTS), initial)
    return model


def _classified_by(theirs: Mapping[str, Any], other: Path, corpus: LabelledCorpus) -> bool:
    """Whether the other run is one on labelled text, too: then of the same labels."""
    if "labels" not in theirs:
        return False
    if tuple(labels_of(dict(theirs), other)) != corpus.labels or (theirs.get("two_texts") is True) != corpus.two_texts:
        what = f"its labels ({', '.join(theirs['labels'][:10])}) or the number of texts of a line are not those of this text"
        todo = "Start from the language model that it began with, or give text like its own"
        raise ConfigError(f"--from {other}", what, todo)
    return True


class LabelledValidation:
    """Negative log-likelihood of the labels of held-out texts, and how many of 100 get theirs."""

    def __init__(self, store: LabelledStore, classifier: TextClassifier):
        self.store, self.classifier = store, classifier

    def measure(self, model: Writer, device: torch.device) -> dict[str, float]:
        log_probs, labels = _log_probs(self.store, self.classifier)
        return {
            "valid_nll": -float(log_probs[np.arange(len(labels)), labels].mean()),
            "valid_accuracy": 100 * float((log_probs.argmax(1) == labels).mean()),
        }


def _log_probs(store: LabelledStore, classifier: TextClassifier) -> tuple[np.ndarray, np.ndarray]:
    """Log-probabilities of all labels for every text, and which label is right."""
    rows = [store.source[i] for i in range(len(store))]
    return classifier.log_probs(rows), store.target.flat.astype(np.int64) - 1


def _test(
    folder: Path, stores: Mapping[str, LabelledStore], classifier: TextClassifier, report: Reporter
) -> dict[str, Score]:
    name = next((name for name in ("test", "validation") if name in stores), None)
    if name is None:
        return {}
    began = time.monotonic()
    log_probs, right = _log_probs(stores[name], classifier)
    gold, given = ([classifier.labels[i] for i in places] for places in (right, log_probs.argmax(1)))
    scores = LabelReport.of(gold, given, classifier.labels).scores()
    write_scores(folder, name, {"texts": len(stores[name])}, began, scores)
    report.say(f"On the {name} text: " + ", ".join(str(score) for score in scores.values()))
    return scores
