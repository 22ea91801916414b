"""A run of word2vec, from the text to the vectors."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any, cast

import torch

from regard.core import config as configuration
from regard.core.device import choose_device
from regard.core.errors import ConfigError, DataError
from regard.core.files import MANIFEST, write_json, write_manifest
from regard.data.augment import AugmentConfig
from regard.data.documents import TextCorpus, load_text
from regard.data.sharded_text import refuse_shards
from regard.data.tokenizers import TokenizerPair
from regard.evaluation.metrics import Score
from regard.models.base import Writer
from regard.models.word2vec import Word2Vec
from regard.tasks.folder import CONFIG, DATA, FORMAT, tokenizer_names
from regard.training.config import RunConfig, build_run_config
from regard.training.distributed.team import current_team
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
from regard.training.word2vec_sizes import choose_word2vec_sizes, count_words
from regard.training.word2vec_steps import WordSteps, WordValidation
from regard.training.word2vec_text import WordText

# settings of the trainer that would do nothing here, and what they have to be
IDLE = {
    "optimizer": "sgd",
    "clip": 0.0,
    "weight_decay": 0.0,
    "label_smoothing": 0.0,
    "consistency": 0.0,
    "window": 0,
    "best_by": "loss",
    "valid_sentences": 0,
    "freeze_vectors": False,
    "mixed_lengths": False,
    "weights": "float32",
}
LEAST_WORDS = 64  # of a step


def run_word2vec(folder: Path, request: dict[str, Any], saved: dict[str, Any], report: Reporter) -> RunResult:
    """Goes on with a run from wherever it is. `saved` is its configuration so far."""
    start_from = request.get("start_from")
    corpus = load_text(build_run_config(sections(saved)).data, report.say)
    refuse_shards(corpus, "word vectors")
    config = resolved(saved, request, lambda values: _sizes(corpus, values, fine_tuning=start_from is not None), report)
    check_word2vec_settings(config, bool(corpus.valid))
    set_threads(folder, config)
    _record(folder, corpus, report)
    tokenizers = kept_tokenizers(folder, lambda: _tokenizers(config, corpus, start_from, report))
    model = cast(Word2Vec, first_model(folder, config, tokenizers, start_from, report))
    text = WordText.from_documents(corpus.train, tokenizers.target)
    counts = torch.from_numpy(text.counts(tokenizers.target.size))
    if int((counts > 0).sum()) < 2:
        what = f"it has {int((counts > 0).sum())} different words that the vocabulary knows"
        raise DataError("the training text", what, "Give more text, or lower tokenizer.min_count")
    if not bool(model.counts.any()):  # a run from another keeps the other's: its tree was made of them
        model.counts.copy_(counts)
    if not (folder / MANIFEST).exists():
        size = tokenizers.target.size
        vocabulary = {"source": size, "target": size, "shared": True}
        plain = configuration.to_plain(config)
        write_json(folder / CONFIG, {"format": FORMAT, "resolved": True, **plain, "vocabulary": vocabulary})
        write_manifest(folder, [CONFIG, DATA, *tokenizer_names(folder)])  # from now on, these are checked
    device = choose_device(config.train.device)
    words, pieces = len(text), -(-len(text.words) // config.train.batch_tokens)
    report.say(
        f"{words:,} words of {len(corpus.train):,} documents, {int((counts > 0).sum()):,} different ones; "
        f"{config.train.steps / pieces:.1f} epochs; {config.model.name} with {model.parameters_count():,} parameters on {device}"
    )
    with WordSteps(model, counts, config.train, device, torch.get_num_threads()) as steps:
        if steps.threads > 1 or device.type != "cpu":
            who = f"{steps.threads} threads change" if steps.threads > 1 else "A GPU changes"
            report.say(
                f"{who} the vectors at the same time: no two such runs end in the same bits, nor does one that is resumed. "
                "train.device=cpu train.threads=1 does."
            )
        held = _held_out(corpus, tokenizers, report)
        check_word2vec_settings(config, "validation" in held)
        validation = WordValidation(held["validation"], steps) if "validation" in held else None
        trainer = Trainer(
            cast(Writer, model),  # all that is asked of it here, it has
            text,
            validation,
            config.train,
            folder,
            device,
            report,
            optimizer=steps,
            gradients=steps,
        )
        counted = {"documents": len(corpus.train), "training_words": words}
        return go_through(folder, request, trainer, lambda: _test(folder, held, steps, report), counted)


def check_word2vec_settings(config: RunConfig, validated: bool) -> None:
    """Refuses settings that mean nothing for word vectors."""
    train = config.train
    for name, needed in IDLE.items():
        if getattr(train, name) != needed:
            what = "word2vec is trained by plain gradient descent, one word after the other"
            shown = str(needed).lower() if isinstance(needed, bool) else needed
            raise ConfigError(f"setting train.{name}", what, f"Set train.{name}={shown}")
    if train.compile is True:
        raise ConfigError("setting train.compile", "word2vec has nothing to compile", "Leave it out")
    if train.vectors:
        what = "word2vec makes vectors, and begins with none"
        raise ConfigError("setting train.vectors", what, "Leave it out, or go on with a run of its own: --from RUN")
    if train.precision == "bfloat16":
        raise ConfigError("setting train.precision", "word2vec is trained in float32", "Leave it out")
    if train.batch_tokens < LEAST_WORDS:
        what = f"{train.batch_tokens} words are too few for a step"
        raise ConfigError("setting train.batch_tokens", what, f"Give {LEAST_WORDS} or more")
    if config.augment != AugmentConfig():
        raise ConfigError("section augment", "it changes sentence pairs, and this is plain text", "Leave it out")
    if train.ema and current_team().several:
        what = "workers have only some columns of the tables between two checkpoints"
        raise ConfigError("setting train.ema", what, "Leave it out, or train in one process")
    if train.patience and not validated:
        raise ConfigError("setting train.patience", "early stopping needs validation text", "Set data.valid_text")


def _sizes(corpus: TextCorpus, values: dict[str, Any], fine_tuning: bool) -> dict[str, Any]:
    given, train = build_run_config(values), values.get("train", {})
    kind = given.tokenizer.kind if fine_tuning or "kind" in values.get("tokenizer", {}) else "word"
    return choose_word2vec_sizes(
        count_words(corpus.train, kind) + len(corpus.train),  # the end of a document is a place, too
        given.model.architecture,
        kind,
        fine_tuning,
        given.train.steps if "steps" in train else None,
        given.train.batch_tokens if "batch_tokens" in train else None,
    )


def _record(folder: Path, corpus: TextCorpus, report: Reporter) -> None:
    """Records the text's fingerprint, or on resume refuses text that is not what the run began with."""
    if same_text(folder, corpus.fingerprint):
        return
    if corpus.dropped:
        report.say(f"{corpus.dropped:,} empty documents are left out.")
    parts = (("train", corpus.train), ("valid", corpus.valid), ("test", corpus.test))
    sizes = {**{name: len(part) for name, part in parts}, "dropped": corpus.dropped}
    files = {name: str(path) for name, path in corpus.files.items()}
    write_json(folder / DATA, {"fingerprint": corpus.fingerprint, "documents": sizes, "files": files})


def _tokenizers(config: RunConfig, corpus: TextCorpus, start_from: str | None, report: Reporter) -> TokenizerPair:
    if start_from is not None:
        return TokenizerPair.load(Path(start_from))
    report.say("Counting words..." if config.tokenizer.kind in ("word", "space") else "Training the tokenizer...")
    return TokenizerPair.train_on_text(corpus.train, config.tokenizer)


def _held_out(corpus: TextCorpus, tokenizers: TokenizerPair, report: Reporter) -> dict[str, WordText]:
    """The texts that the loss is measured on. One in which no known words meet has no loss, and is left out."""
    parts = (("validation", corpus.valid), ("test", corpus.test))
    held = {name: WordText.from_documents(part, tokenizers.target) for name, part in parts if len(part)}
    for name in [name for name, text in held.items() if not text.has_pairs()]:
        report.warn(f"no two words that the vocabulary knows meet in the {name} text: it is not measured")
        del held[name]
    return held


def _test(folder: Path, held: dict[str, WordText], steps: WordSteps, report: Reporter) -> dict[str, Score]:
    name = next((name for name in ("test", "validation") if name in held), None)
    if name is None:
        return {}
    began = time.monotonic()
    loss = WordValidation(held[name], steps).measure(steps.model, steps.device)["valid_nll"]
    if not math.isfinite(loss):  # every word was left out
        return {}
    config = steps.model.config
    signature = f"{config.architecture}|{config.objective}" + (
        "" if steps.draws.tree else f"|negatives:{config.negatives}"
    )
    scores = {"loss": Score("loss per pair", loss, signature=signature)}
    write_scores(folder, name, {"words": len(held[name])}, began, scores)
    report.say(f"On the {name} text: " + ", ".join(str(score) for score in scores.values()))
    return scores
