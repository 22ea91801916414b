"""A run on tagged text, from the text to the scored tagger."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from regard.core.device import choose_device
from regard.core.files import write_json
from regard.data.chunks import are_chunk_tags
from regard.data.tagged import TaggedCorpus, TaggedSentences, load_tagged
from regard.data.tagged_tokens import Pieces
from regard.evaluation.metrics import Score
from regard.evaluation.tagging import MostFrequentTag, TagReport, chunk_f1, words_of
from regard.models.base import Writer
from regard.models.reader import Tagger
from regard.tasks.folder import DATA
from regard.tasks.tagging import Found, TextTagger
from regard.training.config import build_run_config
from regard.training.distributed.spreading import spread
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
from regard.training.tagged_sizes import choose_tagged_sizes
from regard.training.tagged_text import TaggedStore, TaggedText


def run_tagging(folder: Path, request: dict[str, Any], saved: dict[str, Any], report: Reporter) -> RunResult:
    """Goes on with a run from wherever it is. `saved` is its configuration so far."""
    start_from = request.get("start_from")
    corpus = load_tagged(build_run_config(sections(saved)).data, report.say)
    fine_tuning = start_from is not None
    config = resolved(saved, request, lambda values: _sizes(corpus, values, fine_tuning=fine_tuning), report)
    measures = ("accuracy", "f1") if are_chunk_tags(corpus.labels) else ("accuracy",)
    check_labelling_settings(config, len(corpus.valid), "valid_tagged", measures)
    set_threads(folder, config)
    _record(folder, corpus)
    texts = [" ".join(words) for words in corpus.train.words]
    tokenizers = kept_tokenizers(folder, lambda: first_tokenizers(config, texts, start_from, report))
    model: Tagger = first_labelling_model(folder, config, tokenizers, corpus.labels, start_from, report)
    most = most_tokens(config, model)
    store = TaggedStore.of(corpus.train, corpus.labels, tokenizers.source, most)
    say_cut({"training": store.cut}, most, config, "sentences", report)
    write_labelling_config(folder, config, tokenizers, corpus.labels)
    device = choose_device(config.train.device)
    report.say(
        f"{len(corpus.train):,} training sentences, {len(corpus.valid):,} for validation, {len(corpus.test):,} for testing; "
        f"{config.model.name} with {model.parameters_count():,} parameters on {device}"
    )
    tagger = TextTagger(model, tokenizers, corpus.labels, most=config.train.max_tokens, device=device)
    trainer = Trainer(
        cast(Writer, model),  # all that is asked of it here, it has
        TaggedText(store, most),
        TaggedValidation(corpus.valid, tagger) if len(corpus.valid) else None,
        config.train,
        folder,
        device,
        report,
    )
    counts = {"sentences": len(corpus.train), "words": corpus.train.size, "labels": len(corpus.labels)}
    return go_through(folder, request, trainer, lambda: _test(folder, corpus, tagger, report), counts)


def _sizes(corpus: TaggedCorpus, values: dict[str, Any], fine_tuning: bool) -> dict[str, Any]:
    given = build_run_config(values)
    cpu = choose_device(given.train.device).type != "cuda"
    steps = given.train.steps if "steps" in values.get("train", {}) else None
    return choose_tagged_sizes(len(corpus.train), corpus.train.size, given.model, cpu, fine_tuning, steps)


def _record(folder: Path, corpus: TaggedCorpus) -> None:
    """Records the text's fingerprint, or on resume refuses text that is not what the run began with."""
    if same_text(folder, corpus.fingerprint):
        return
    sizes: dict[str, Any] = {"train": len(corpus.train), "valid": len(corpus.valid), "test": len(corpus.test)}
    sizes |= {"set_apart": corpus.set_apart, "repeated": corpus.repeated}
    write_json(folder / DATA, {"fingerprint": corpus.fingerprint, "sentences": sizes, "files": corpus.files})


class TaggedValidation:
    """Of held-out sentences: negative log-likelihood of a word's label, how many of 100 words get theirs, and F1 of chunks.

    All words count: sentences that are too long to be read at once are read in windows.
    """

    def __init__(self, part: TaggedSentences, tagger: TextTagger):
        self.part, self.tagger = part, tagger
        numbers = {label: i for i, label in enumerate(tagger.labels)}
        self.right = [[numbers[tag] for tag in tags] for tags in part.tags]
        self.pieces = tagger.pieces(part.words)

    def measure(self, model: Writer, device: torch.device) -> dict[str, float]:
        found = _find(self.tagger, self.pieces, self.right)
        best, right = np.concatenate([one.best for one in found]), np.concatenate([np.array(row) for row in self.right])
        values = {
            "valid_nll": -float(np.concatenate([one.right for one in found]).mean()),
            "valid_accuracy": 100 * float((best == right).mean()),
        }
        if are_chunk_tags(self.tagger.labels):
            values["valid_f1"] = chunk_f1(self.part.tags, [_names(self.tagger, one.best) for one in found])
        return values


def _find(tagger: TextTagger, pieces: Sequence[Pieces], right: Sequence[Sequence[int]] | None = None) -> list[Found]:
    """What the tagger finds, each worker in a part of the sentences."""

    def find(rows: list[int]) -> list[list[list[float]]]:
        gold = [right[row] for row in rows] if right is not None else None
        return [[part.tolist() for part in one] for one in tagger.find([pieces[row] for row in rows], gold)]

    found = spread(range(len(pieces)), find)
    return [Found(np.array(best, int), np.array(log_probs), np.array(own)) for best, log_probs, own in found]


def _names(tagger: TextTagger, places: Sequence[int] | np.ndarray) -> list[str]:
    return [tagger.labels[place] for place in places]


def _test(folder: Path, corpus: TaggedCorpus, tagger: TextTagger, report: Reporter) -> dict[str, Score]:
    """Scores the tagger, and the tag that each word has most often beside it."""
    name = "test" if len(corpus.test) else "validation"
    part = corpus.test if len(corpus.test) else corpus.valid
    if not len(part):
        return {}
    began = time.monotonic()
    known = words_of(corpus.train)
    given = [_names(tagger, one.best) for one in _find(tagger, tagger.pieces(part.words))]
    scores = TagReport.of(part, given, corpus.labels, known).scores()
    simple = MostFrequentTag(corpus.train)
    beside = TagReport.of(part, [simple.tag(words) for words in part.words], corpus.labels, known)
    scores |= beside.scores(prefix="baseline_", title="most frequent tag: ")
    write_scores(folder, name, {"sentences": len(part), "words": part.size}, began, scores)
    report.say(f"On the {name} text: " + ", ".join(str(score) for score in scores.values()))
    return scores
