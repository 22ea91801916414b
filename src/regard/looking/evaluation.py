"""How good a run is on its own test text: BLEU by length, and sentence by sentence."""

from __future__ import annotations

from typing import Any

from regard.core import config as configuration
from regard.core.errors import DataError, ModelError
from regard.data.corpus import load_corpus
from regard.data.corpus_config import DataConfig
from regard.evaluation.lengths import by_source_length
from regard.evaluation.metrics import Flavour, corpus_scores
from regard.tasks.translation import Translator

MOST_SENTENCES = 300  # translated while somebody waits


def evaluation_of(task: Any) -> dict[str, Any]:
    """Scores of sentences from all over the run's test text (or else its validation text), the worst sentences first."""
    if not isinstance(task, Translator):
        raise ModelError("the model", "it does not translate", "Choose a translator")
    data = task.config.get("data")
    if not isinstance(data, dict):
        raise DataError("the run", "it does not say what text it was trained on", "Use `regard evaluate`")
    corpus = load_corpus(configuration.build(DataConfig, data, "data"))
    whole = corpus.test if len(corpus.test) else corpus.valid
    pairs = whole.spaced(MOST_SENTENCES)  # the first ones may all be short: texts are often sorted
    if not len(pairs):
        raise DataError("the run", "it held out no text", "Use `regard evaluate` with a text of your own")
    written = task.translate(pairs.sources, tags=pairs.tags or None)
    flavour = Flavour(language=str(data.get("target_language", "")))
    bins = by_source_length(pairs.sources, written, pairs.targets, flavour)
    sentences = [
        {"source": source, "reference": reference, "written": text, "chrf": _chrf(text, reference, flavour)}
        for source, reference, text in zip(pairs.sources, pairs.targets, written, strict=True)
    ]
    lengths = [
        {"label": b.label, "bleu": b.bleu.value, "low": b.bleu.low, "high": b.bleu.high, "sentences": b.sentences}
        for b in bins
    ]
    return {"of": len(whole), "lengths": lengths, "sentences": sorted(sentences, key=lambda one: one["chrf"])}


def _chrf(text: str, reference: str, flavour: Flavour) -> float:
    return corpus_scores([text], [reference], flavour, metrics=("chrf",), confidence=False)["chrf"].value
