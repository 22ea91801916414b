"""A run of a masked model on plain text, from the text to the scored model."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, cast

import torch

from regard.core import config as configuration
from regard.core.device import choose_device
from regard.core.errors import ConfigError, TokenizerError
from regard.core.files import MANIFEST, write_json, write_manifest
from regard.data.documents import TextCorpus, load_text
from regard.data.masking import Masking, stream_for_rows
from regard.data.sentence_stream import SentenceStream, documents_are_lines
from regard.data.sharded_text import refuse_shards
from regard.data.tokenizers import TokenizerPair
from regard.data.wordpiece import MASK
from regard.evaluation.masked import MaskedScore, learns_next_sentence, score_masked
from regard.evaluation.metrics import Score
from regard.models.base import Writer
from regard.models.reader import MaskedModel
from regard.tasks.folder import CONFIG, DATA, FORMAT, tokenizer_names
from regard.training.config import RunConfig, build_run_config
from regard.training.distributed.spreading import summed
from regard.training.distributed.team import current_team
from regard.training.language_run import record_documents
from regard.training.loop import Trainer
from regard.training.masked_sizes import choose_masked_sizes
from regard.training.masked_text import MaskedTrainingText, masked_window
from regard.training.progress import Reporter
from regard.training.run_parts import (
    RunResult,
    first_model,
    go_through,
    kept_tokenizers,
    resolved,
    sections,
    set_threads,
    write_scores,
)


def run_masked(folder: Path, request: dict[str, Any], saved: dict[str, Any], report: Reporter) -> RunResult:
    """Goes on with a run from wherever it is. `saved` is its configuration so far."""
    start_from = request.get("start_from")
    corpus = load_text(build_run_config(sections(saved)).data, report.say)
    refuse_shards(corpus, "masked models")
    config = resolved(saved, request, lambda values: _sizes(corpus, values, start_from is not None), report)
    check_masked_settings(config, len(corpus.valid))
    set_threads(folder, config)
    record_documents(folder, corpus, report)
    tokenizers = kept_tokenizers(folder, lambda: _tokenizers(config, corpus, start_from, report))
    model = cast(MaskedModel, cast(object, first_model(folder, config, tokenizers, start_from, report)))
    window = masked_window(config.train, model)
    lines = documents_are_lines(config.data)
    streams = {
        name: stream_for_rows(part, tokenizers.target, window, lines=lines)
        for name, part in (("training", corpus.train), ("validation", corpus.valid), ("test", corpus.test))
        if len(part)
    }
    masking = Masking.of(tokenizers.target, window)
    pairs = learns_next_sentence(config.model)
    text = MaskedTrainingText(streams["training"], masking, window, config.train, pairs=pairs)
    if not (folder / MANIFEST).exists():
        size = tokenizers.target.size
        vocabulary = {"source": size, "target": size, "shared": True}
        plain = configuration.to_plain(config)
        write_json(folder / CONFIG, {"format": FORMAT, "resolved": True, **plain, "vocabulary": vocabulary})
        write_manifest(folder, [CONFIG, DATA, *tokenizer_names(folder)])  # from now on, these are checked
    device = choose_device(config.train.device)
    documents = len(streams["training"].documents) - 1
    report.say(
        f"{len(streams['training']):,} training tokens of {streams['training'].sentences:,} sentences in {documents:,} "
        f"documents; {config.model.name} with {model.parameters_count():,} parameters on {device}"
    )
    trainer = Trainer(
        cast(Writer, model),  # all that is asked of it here, it has
        text,
        MaskedValidation(streams["validation"], masking, window, pairs) if "validation" in streams else None,
        config.train,
        folder,
        device,
        report,
    )
    counts = {"documents": documents, "training_tokens": len(streams["training"])}

    def test() -> dict[str, Score]:
        name = next((name for name in ("test", "validation") if name in streams), None)
        if name is None:
            return {}
        began = time.monotonic()
        found = _score(model, streams[name], masking, window, device, pairs).scores()
        write_scores(folder, name, {"tokens": len(streams[name])}, began, found)
        report.say(f"On the {name} text: " + ", ".join(str(score) for score in found.values()))
        return found

    return go_through(folder, request, trainer, test, counts)


def check_masked_settings(config: RunConfig, valid: int) -> None:
    """Refuses settings that mean nothing for masked words."""
    train = config.train
    if train.best_by != "loss":
        raise ConfigError("setting train.best_by", "a masked model is chosen by its loss", "Use train.best_by=loss")
    if train.patience and not valid:
        raise ConfigError("setting train.patience", "early stopping needs validation text", "Set data.valid_text")
    if getattr(config.model, "head", True) is False:
        what = "without it, the model fills in no words, and there is nothing to learn"
        raise ConfigError("setting model.head", what, "Use model.head=true, or start from a model that has one")


def _sizes(corpus: TextCorpus, values: dict[str, Any], fine_tuning: bool) -> dict[str, Any]:
    given = build_run_config(values)
    cpu = choose_device(given.train.device).type != "cuda"
    steps = given.train.steps if "steps" in values.get("train", {}) else None
    kind = given.tokenizer.kind if "kind" in values.get("tokenizer", {}) else ""
    return choose_masked_sizes(corpus.characters, type(given.model), cpu, fine_tuning, steps, kind)


def _tokenizers(config: RunConfig, corpus: TextCorpus, start_from: str | None, report: Reporter) -> TokenizerPair:
    if start_from is None:
        report.say("Training the tokenizer...")
        return TokenizerPair.train_on_text(corpus.train, config.tokenizer, (MASK,))
    pair = TokenizerPair.load(Path(start_from))
    if MASK not in pair.target.tags:
        what = f"its tokenizer has no {MASK}, which stands for a hidden word"
        raise TokenizerError(start_from, what, "Start from a masked model")
    return pair


def _score(
    model: Any, stream: SentenceStream, masking: Masking, window: int, device: torch.device, pairs: bool
) -> MaskedScore:
    """Of the whole text, of which each worker reads a part."""
    own = score_masked(model, stream, masking, window, device, pairs=pairs, part=current_team().part)
    nll, *counts = summed(own.nll, own.right, own.words, own.next_right, own.pairs)
    return MaskedScore(nll, *map(int, counts))


class MaskedValidation:
    """Negative log-likelihood of hidden words of held-out text, how many of 100 are found, and likewise of next sentences."""

    def __init__(self, stream: SentenceStream, masking: Masking, window: int, pairs: bool):
        self.stream, self.masking, self.window, self.pairs = stream, masking, window, pairs

    def measure(self, model: Writer, device: torch.device) -> dict[str, float]:
        found = _score(model, self.stream, self.masking, self.window, device, self.pairs)
        values = {"valid_nll": found.nll / found.words, "valid_accuracy": found.accuracy}
        if found.next_accuracy is not None:
            values["valid_next_sentence"] = found.next_accuracy
        return values
