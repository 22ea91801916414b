"""A run on plain text, from the text to the measured language model."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from regard.core import config as configuration
from regard.core.device import choose_device
from regard.core.errors import ConfigError
from regard.core.files import MANIFEST, write_json, write_manifest
from regard.core.types import UNK
from regard.data.documents import TextCorpus, load_text
from regard.data.token_stream import TokenStream
from regard.data.tokenizers import Tokenizer, TokenizerPair
from regard.evaluation.metrics import Score
from regard.models.base import LanguageModel, Writer
from regard.search.text_scores import mean_score
from regard.tasks.folder import CONFIG, DATA, FORMAT, read_config, tokenizer_names
from regard.tasks.language_model import TextModel
from regard.tasks.text_score import TextScore
from regard.training.config import RunConfig, build_run_config
from regard.training.distributed.spreading import summed
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
from regard.training.sharded_text import ShardedText
from regard.training.text_sizes import choose_text_sizes
from regard.training.texts import LanguageText, TrainingText
from regard.training.validation import Measure


def run_language(folder: Path, request: dict[str, Any], saved: dict[str, Any], report: Reporter) -> RunResult:
    """Goes on with a run from wherever it is. `saved` is its configuration so far."""
    corpus = load_text(build_run_config(sections(saved)).data, report.say)
    fine_tuning = request.get("start_from") is not None
    config = resolved(saved, request, lambda values: _sizes(corpus, values, fine_tuning=fine_tuning), report)
    set_threads(folder, config)
    record_documents(folder, corpus, report)
    tokenizers = kept_tokenizers(folder, lambda: _tokenizers(config, corpus, request.get("start_from"), report))
    model = cast(LanguageModel, first_model(folder, config, tokenizers, request.get("start_from"), report))
    stream = TokenStream.from_documents(corpus.train, tokenizers.target)
    if corpus.shards:
        text: TrainingText = ShardedText(corpus.shards, tokenizers.target, model, config.train)
    else:
        text = LanguageText(stream, model, config.train)
    if not (folder / MANIFEST).exists():
        size = tokenizers.target.size
        vocabulary = {"source": size, "target": size, "shared": True}
        plain = configuration.to_plain(config)
        facts: dict[str, Any] = {"vocabulary": vocabulary}
        if not corpus.shards:
            facts |= _unseen(stream, size, request.get("start_from"))
        write_json(folder / CONFIG, {"format": FORMAT, "resolved": True, **plain, **facts})
        write_manifest(folder, [CONFIG, DATA, *tokenizer_names(folder)])  # from now on, these are checked
    device = choose_device(config.train.device)
    whole = f"{len(corpus.shards):,} shards, of which a sample has " if corpus.shards else ""
    report.say(
        f"{whole}{len(stream):,} training tokens of {len(corpus.train):,} documents, {len(corpus.valid):,} for validation, "
        f"{len(corpus.test):,} for testing; {config.model.name} with {model.parameters_count():,} parameters on {device}"
    )
    text_model = TextModel(model, tokenizers, config.search, device=device, config=configuration.to_plain(config))
    trainer = Trainer(
        model,
        text,
        _validation(config, corpus, tokenizers.target, text_model),
        config.train,
        folder,
        device,
        report,
    )
    counts = {"documents": len(corpus.train), "training_tokens": len(stream)}
    if corpus.shards:
        counts = {"shards": len(corpus.shards)}
    return go_through(folder, request, trainer, lambda: _test(folder, corpus, text_model, report), counts)


def _unseen(stream: TokenStream, vocabulary: int, start_from: str | None) -> dict[str, list[int]]:
    """Tokens that were never trained on, by which a prompt in letters never seen is known."""
    unseen = set(np.flatnonzero(np.bincount(stream.tokens, minlength=vocabulary) == 0).tolist()) - set(range(UNK + 1))
    if start_from is not None:
        before = read_config(Path(start_from)).get("unseen_tokens")
        if before is None:  # what the other model has seen is not known
            return {}
        unseen &= set(before)
    return {"unseen_tokens": sorted(unseen)}


def _sizes(corpus: TextCorpus, values: dict[str, Any], fine_tuning: bool) -> dict[str, Any]:
    given = build_run_config(values)
    cpu = choose_device(given.train.device).type != "cuda"
    steps = given.train.steps if "steps" in values.get("train", {}) else None
    kind = given.tokenizer.kind if "kind" in values.get("tokenizer", {}) else ""
    return choose_text_sizes(corpus.characters, type(given.model), cpu, fine_tuning, steps, kind)


def record_documents(folder: Path, corpus: TextCorpus, report: Reporter) -> None:
    """Records the text's fingerprint, or on resume refuses text that is not what the run began with."""
    if same_text(folder, corpus.fingerprint):
        return
    if corpus.dropped:
        report.say(f"{corpus.dropped:,} empty documents are left out.")
    sizes = {
        "train": len(corpus.train),
        "valid": len(corpus.valid),
        "test": len(corpus.test),
        "dropped": corpus.dropped,
    }
    files = {name: str(path) for name, path in corpus.files.items()}
    write_json(folder / DATA, {"fingerprint": corpus.fingerprint, "documents": sizes, "files": files})


def _tokenizers(config: RunConfig, corpus: TextCorpus, start_from: str | None, report: Reporter) -> TokenizerPair:
    if start_from is not None:
        return TokenizerPair.load(Path(start_from))
    report.say("Training the tokenizer...")
    return TokenizerPair.train_on_text(corpus.train, config.tokenizer)


class _Validation:
    """Negative log-likelihood per token of the held-out documents."""

    def __init__(self, stream: TokenStream, context: int):
        self.stream, self.context = stream, context

    def measure(self, model: Writer, device: torch.device) -> dict[str, float]:
        part = current_team().part
        own = mean_score(cast(LanguageModel, model), self.stream.tokens, device, context=self.context, part=part)
        return {"valid_nll": -summed(own)[0]}


def _validation(config: RunConfig, corpus: TextCorpus, tokenizer: Tokenizer, text_model: TextModel) -> Measure | None:
    if len(corpus.valid):
        return _Validation(TokenStream.from_documents(corpus.valid, tokenizer), text_model.context)
    if config.train.patience:
        raise ConfigError("setting train.patience", "early stopping needs validation text", "Set data.valid_text")
    return None


def _test(folder: Path, corpus: TextCorpus, text_model: TextModel, report: Reporter) -> dict[str, Score]:
    part, name = (corpus.test, "test") if len(corpus.test) else (corpus.valid, "validation")
    if not len(part) or not current_team().leads:  # it reads from end to end
        return {}
    began = time.monotonic()
    found = text_model.perplexity(part)
    scores = _as_scores(found)
    write_scores(folder, name, {"documents": len(part)}, began, scores)
    report.say(f"On the {name} text: " + ", ".join(str(score) for score in scores.values()))
    if found.unknown:
        many = f"{found.unknown:,} of {found.tokens:,} tokens"
        report.say(f"{many} there stand for words that the vocabulary lacks: compare only with the same vocabulary.")
    return scores


def _as_scores(found: TextScore) -> dict[str, Score]:
    details = {name: getattr(found, name) for name in ("nll", "tokens", "words", "bytes", "documents", "unknown")}
    return {
        "perplexity": Score("perplexity per token", found.perplexity, details=details),
        "word_perplexity": Score(
            "perplexity per word", found.word_perplexity, signature="words:white space, and each document's end"
        ),
        "bits_per_byte": Score(
            "bits per byte", found.bits_per_byte, signature="bytes:UTF-8, and one for each document's end"
        ),
    }
