"""A run on labelled text, from the text to the scored classifier."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from regard.core.device import choose_device
from regard.core.files import write_json
from regard.data.labelled import LabelledCorpus, load_labelled
from regard.evaluation.classification import LabelReport
from regard.evaluation.metrics import Score
from regard.models.base import Writer
from regard.models.classifier import Classifier
from regard.tasks.classification import TextClassifier
from regard.tasks.folder import DATA
from regard.training.config import build_run_config
from regard.training.distributed.spreading import spread
from regard.training.first_vectors import sizes_for_vectors
from regard.training.labelled_sizes import choose_labelled_sizes
from regard.training.labelled_text import LabelledStore, LabelledText
from regard.training.labelling_parts import (
    check_labelling_settings,
    first_labelling_model,
    first_tokenizers,
    most_tokens,
    say_cut,
    write_labelling_config,
)
from regard.training.loop import Trainer
from regard.training.progress import Reporter
from regard.training.run_parts import (
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
    check_labelling_settings(config, len(corpus.valid), "valid_labelled", ("accuracy",))
    set_threads(folder, config)
    _record(folder, corpus)
    texts = [*corpus.train.texts, *corpus.train.seconds]
    tokenizers = kept_tokenizers(folder, lambda: first_tokenizers(config, texts, start_from, report))
    model: Classifier = first_labelling_model(
        folder,
        config,
        tokenizers,
        corpus.labels,
        start_from,
        report,
        lambda theirs: (theirs.get("two_texts") is True) == corpus.two_texts,
    )
    most = most_tokens(config, model)
    stores = {
        name: LabelledStore.of(part, corpus.labels, tokenizers.source, most, f"{name} text")
        for name, part in (("training", corpus.train), ("validation", corpus.valid), ("test", corpus.test))
        if len(part)
    }
    say_cut({name: store.cut for name, store in stores.items()}, most, config, "texts", report)
    write_labelling_config(folder, config, tokenizers, corpus.labels, two_texts=corpus.two_texts)
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


def _sizes(corpus: LabelledCorpus, values: dict[str, Any], fine_tuning: bool) -> dict[str, Any]:
    given = build_run_config(values)
    cpu = choose_device(given.train.device).type != "cuda"
    steps = given.train.steps if "steps" in values.get("train", {}) else None
    characters = sum(map(len, (*corpus.train.texts, *corpus.train.seconds)))
    chosen = choose_labelled_sizes(
        len(corpus.train), characters, given.model, cpu, fine_tuning=fine_tuning, steps=steps
    )
    return chosen if fine_tuning else sizes_for_vectors(chosen, given.train.vectors)


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
    found = spread(rows, lambda own: classifier.log_probs(own).tolist())
    return np.array(found).reshape(len(rows), -1), store.target.flat.astype(np.int64) - 1


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
